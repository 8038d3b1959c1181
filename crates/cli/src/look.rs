//! Inspects many keys at once.

use std::sync::Arc;

use dlock_admin::{Admin, Entry, Info};
use dlock_client::{Error, ErrorKind};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::text;

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

/// The INFO of each entry, in the same order, without the keys that no longer exist; and the number of keys that the
/// user may not read.
pub async fn infos(admin: &Admin, entries: Vec<Entry>) -> Result<(Vec<Seen>, u64), Error> {
    let ask = |entry: Entry| {
        let admin = admin.clone();
        async move {
            let info = readable(admin.info_of(&entry).await)?;
            Ok(info.map(|info| info.map(|info| Seen { entry, info })))
        }
    };
    let (readable, hidden) = split(each(entries, ask).await?);
    Ok((readable.into_iter().flatten().collect(), hidden))
}

/// None: the user may not read the key, or may not ask about its family.
pub fn readable<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Refused => Ok(None),
        answer => answer.map(Some),
    }
}

/// The results of [`readable`] that are some, and the number of the others.
pub fn split<T>(answers: Vec<Option<T>>) -> (Vec<T>, u64) {
    let all = answers.len();
    let readable: Vec<T> = answers.into_iter().flatten().collect();
    let hidden = all - readable.len();
    (readable, hidden as u64)
}

/// The line about keys that the user may not read; None if there are none.
pub fn left_out(hidden: u64) -> Option<String> {
    let keys = text::plural(hidden, "key");
    (hidden > 0).then(|| format!("{keys} left out, which the user may not read"))
}

/// Asks about each item, many at a time. The results are in the order of the items.
pub async fn each<T, R, F>(items: Vec<T>, ask: impl Fn(T) -> F) -> Result<Vec<R>, Error>
where
    F: Future<Output = Result<R, Error>> + Send + 'static,
    R: Send + 'static,
{
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (at, item) in items.into_iter().enumerate() {
        let (places, answer) = (places.clone(), ask(item));
        tasks.spawn(async move {
            // It is never closed.
            let _place = places.acquire().await;
            (at, answer.await)
        });
    }
    let mut all = Vec::with_capacity(tasks.len());
    while let Some(done) = tasks.join_next().await {
        // The panic of a task was already reported.
        let Ok((at, answer)) = done else { continue };
        all.push((at, answer?));
    }
    all.sort_unstable_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, answer)| answer).collect())
}
