//! Several locks at once: all of them, or any one.

use std::fmt;
use std::sync::Arc;

use dlock_wire::reply::quote;

use crate::acquire::{Keys, Target, acquire, ways_to_acquire};
use crate::core::Core;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::guard::{Guard, MultiGuard};
use crate::hold::Hold;
use crate::options::{Options, shared_options};
use crate::with::under;

/// All of several locks, or none of them. Neither deadlock nor starvation between such calls, whatever the order of
/// their keys; while one waits for a busy key, it keeps the free ones closed.
///
/// In a cluster the keys have to share a slot (`{…}` in their names). Waiting takes a private connection.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let server = dlock_testing::Server::start();
/// # let client = dlock_client::Client::connect(&server.url()).await?;
/// let transfer = client.multi_lock(["account:1", "account:2"]);
/// let guard = transfer.acquire().await?;
/// assert_eq!(guard.tokens().len(), 2);
/// assert!(client.lock("account:2").try_acquire().await?.is_none());
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct MultiLock {
    core: Arc<Core>,
    keys: Keys,
    options: Options,
}

/// Any one of several locks: the first that is free. For stripes, so that many can work side by side.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let server = dlock_testing::Server::start();
/// # let client = dlock_client::Client::connect(&server.url()).await?;
/// let stripes = client.striped_lock("stock", 2);
/// let one = stripes.acquire().await?;
/// let two = stripes.acquire().await?;
/// assert_ne!(one.key(), two.key());
/// assert!(stripes.try_acquire().await?.is_none());
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct AnyLock {
    core: Arc<Core>,
    keys: Keys,
    options: Options,
}

impl MultiLock {
    pub(crate) fn new(core: &Arc<Core>, keys: Vec<Vec<u8>>) -> Self {
        let keys = Keys::Several(keys.into());
        Self { core: core.clone(), keys, options: Options::default() }
    }

    shared_options!();

    ways_to_acquire!(
        MultiGuard,
        "Takes all of them if all are free. None: one is not.",
        "Takes all of them, as soon as it is one's turn at each."
    );

    /// Waits for all locks, works under them with their fencing tokens (in the order of the keys), gives them back; as
    /// [`Lock::with`](crate::Lock::with).
    ///
    /// # Errors
    ///
    /// As [`Lock::with`](crate::Lock::with). It is [`Lost`](crate::ErrorKind::Lost) as soon as one of the locks is.
    pub async fn with<T, F>(&self, work: impl FnOnce(Vec<u64>) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        under(&guard, || work(guard.tokens().to_vec())).await
    }

    async fn acquire_with(&self, deadline: Deadline) -> Result<Option<MultiGuard>, Error> {
        let held = acquire(&self.core, Target::All, &self.keys, &self.options, deadline).await?;
        Ok(held.map(MultiGuard::new))
    }
}

impl AnyLock {
    pub(crate) fn new(core: &Arc<Core>, keys: Vec<Vec<u8>>) -> Self {
        let keys = Keys::Several(keys.into());
        Self { core: core.clone(), keys, options: Options::default() }
    }

    shared_options!();

    ways_to_acquire!(
        Guard,
        "Takes one that is free; [`Hold::key`](crate::Hold::key) tells which. None: none is.",
        "Takes the first that becomes free."
    );

    /// As [`Lock::with`](crate::Lock::with).
    pub async fn with<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        under(&guard, || work(guard.hold())).await
    }

    async fn acquire_with(&self, deadline: Deadline) -> Result<Option<Guard>, Error> {
        let held = acquire(&self.core, Target::Any, &self.keys, &self.options, deadline).await?;
        Ok(held.map(Guard::new))
    }
}

fn debug_keys(name: &str, keys: &Keys, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let keys = keys.all();
    let shown: Vec<_> = keys.iter().take(8).map(|key| quote(key)).collect();
    f.debug_struct(name).field("keys", &shown).field("of", &keys.len()).finish_non_exhaustive()
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_keys("MultiLock", &self.keys, f)
    }
}

impl fmt::Debug for AnyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_keys("AnyLock", &self.keys, f)
    }
}
