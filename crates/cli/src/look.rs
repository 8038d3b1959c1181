//! Inspects many keys at once.

use std::sync::Arc;

use dlock_client::Error;
use dlock_client::admin::{Admin, Entry, Info};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Most keys inspected concurrently.
const AT_ONCE: usize = 128;

/// A key and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The key.
    pub entry: Entry,
    /// Its state.
    pub info: Info,
}

/// The INFO of each entry, in the same order, without the keys that no longer exist.
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
        // The panic of a task was already reported.
        let Ok((at, entry, info)) = done else { continue };
        if let Some(info) = info? {
            all.push((at, Seen { entry, info }));
        }
    }
    all.sort_unstable_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, seen)| seen).collect())
}
