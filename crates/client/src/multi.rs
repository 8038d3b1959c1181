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

/// All of several locks, or none of them. Such calls neither deadlock nor starve each other, in any order of their
/// keys; while one waits for a busy key, the server grants the free ones to no other call.
///
/// In a cluster the keys have to share a slot (`{…}` in their names). Each waiting task uses a dedicated connection.
///
/// ```
#[doc = example!()]
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
#[doc = example!()]
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
        "Acquires all locks if all are free. None: one is not.",
        "Waits in all queues, and acquires all locks at once."
    );

    /// As [`Lock::with`](crate::Lock::with); the work gets the fencing tokens, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As [`Lock::with`](crate::Lock::with). [`Lost`](crate::ErrorKind::Lost) as soon as one of the locks is.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::with`](crate::Lock::with).
    #[doc = errors_as!("[`Lock::with`](crate::Lock::with)")]
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
        "Acquires one that is free; [`Hold::key`](crate::Hold::key) tells which. None: none is.",
        "Waits in all queues, and acquires the first lock that becomes free."
    );

    /// As [`Lock::with`](crate::Lock::with).
    #[doc = errors_as!("[`Lock::with`](crate::Lock::with)")]
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
