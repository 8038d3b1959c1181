//! Looking at many keys at once.

use std::sync::Arc;

use dlock_client::Error;
use dlock_client::admin::{Admin, Entry, Info};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many keys are asked about at a time.
const AT_ONCE: usize = 128;

/// A key, and what there was to see of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The key.
    pub entry: Entry,
    /// Its state.
    pub info: Info,
}

/// What INFO tells of each of them, in the same order; those that are gone by now are left out.
pub async fn infos(admin: &Admin, entries: Vec<Entry>) -> Result<Vec<Seen>, Error> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (at, entry) in entries.into_iter().enumerate() {
        let (admin, places) = (admin.clone(), places.clone());
        tasks.spawn(async move {
            // It is never closed.
            let _place = places.acquire().await;
            let info = admin.info_of(&entry).await;
            (at, entry, info)
        });
    }
    let mut all = Vec::with_capacity(tasks.len());
    while let Some(done) = tasks.join_next().await {
        // A task that panicked has said so.
        let Ok((at, entry, info)) = done else { continue };
        if let Some(info) = info? {
            all.push((at, Seen { entry, info }));
        }
    }
    all.sort_unstable_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, seen)| seen).collect())
}
