//! One owner for the locks of a task.

use std::fmt;
use std::sync::Arc;

use dlock_wire::reply::quote;

use crate::handles::client::Client;
use crate::handles::lock::{Lock, RwLock};
use crate::handles::multi::{AnyLock, MultiLock};
use crate::handles::semaphore::Semaphore;

/// A view of a [`Client`] whose handles share one owner, for the locks of one task. Made by [`Client::owner`] and
/// [`Client::new_owner`]. Cheap to clone.
///
/// - Re-entry: the owner can acquire a lock that it holds already; each guard releases one hold.
/// - Deadlocks: an acquire that would wait for a lock whose holder waits, directly or through others, for this owner
///   fails with [`Deadlock`](crate::ErrorKind::Deadlock). The server sees such a cycle only if a task uses one owner
///   for all of its locks. Waits of [`AnyLock`] and [`Semaphore`] are no part of the search.
///
/// Use one owner per task. Of two calls that wait for the same key under one owner, the later replaces the earlier
/// ([`Replaced`](crate::ErrorKind::Replaced)).
///
/// ```
#[doc = example!()]
/// let task = client.new_owner();
/// let outer = task.lock("d:1").acquire().await?;
/// let inner = task.lock("d:1").try_acquire().await?.expect("re-entry");
/// assert_eq!(outer.token(), inner.token());
/// assert!(client.new_owner().lock("d:1").try_acquire().await?.is_none());
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Owner {
    client: Client,
    name: Arc<[u8]>,
}

impl Client {
    /// A view of this client whose handles all act for this owner, 1 to 256 bytes: re-entry and deadlock detection work
    /// across its locks. No two tasks may use one name at the same time, in any process; [`new_owner`](Self::new_owner)
    /// ensures that.
    pub fn owner(&self, name: impl AsRef<[u8]>) -> Owner {
        Owner { client: self.clone(), name: name.as_ref().into() }
    }

    /// As [`owner`](Self::owner), with a new name that no other task has: one for each task.
    ///
    /// ```
    #[doc = example!()]
    /// use dlock_client::ErrorKind;
    ///
    /// let (one, two) = (client.new_owner(), client.new_owner());
    /// let first = one.lock("d:1").acquire().await?;
    /// let second = two.lock("d:2").acquire().await?;
    /// let closes = async {
    ///     // Waits for the task that waits for it: that task is told, or this one.
    ///     let outcomes = (one.lock("d:2"), two.lock("d:1"));
    ///     tokio::select! {
    ///         refused = outcomes.0.acquire() => refused,
    ///         refused = outcomes.1.acquire() => refused,
    ///     }
    /// };
    /// assert_eq!(closes.await.unwrap_err().kind(), ErrorKind::Deadlock);
    /// # drop((first, second));
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub fn new_owner(&self) -> Owner {
        self.owner(crate::base::random::name())
    }
}

impl Owner {
    /// The name of the owner, as INFO shows it.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The client, whose handles have a new owner for each acquire.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// As [`Client::lock`], for this owner.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.client.lock(key).owner(&self.name)
    }

    /// As [`Client::fair_lock`], for this owner.
    pub fn fair_lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.client.fair_lock(key).owner(&self.name)
    }

    /// As [`Client::rw_lock`], for this owner: a reader that acquires [`write`](RwLock::write) is upgraded.
    pub fn rw_lock(&self, key: impl AsRef<[u8]>) -> RwLock {
        self.client.rw_lock(key).owned_by(&self.name)
    }

    /// As [`Client::semaphore`], for this owner.
    pub fn semaphore(&self, key: impl AsRef<[u8]>) -> Semaphore {
        self.client.semaphore(key).owner(&self.name)
    }

    /// As [`Client::multi_lock`], for this owner.
    pub fn multi_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock {
        self.client.multi_lock(keys).owner(&self.name)
    }

    /// As [`Client::any_lock`], for this owner.
    pub fn any_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> AnyLock {
        self.client.any_lock(keys).owner(&self.name)
    }

    /// As [`Client::striped_lock`], for this owner.
    pub fn striped_lock(&self, key: impl AsRef<[u8]>, stripes: u32) -> AnyLock {
        self.client.striped_lock(key, stripes).owner(&self.name)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("name", &quote(&self.name))
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
