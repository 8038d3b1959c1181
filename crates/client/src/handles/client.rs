//! The client itself: connects, and makes handles.

use std::sync::Arc;

use dlock_wire::names::KEYS_MAX;

use crate::base::target::{Family, Keys, Target};
use crate::handles::election::Election;
use crate::handles::latch::Latch;
use crate::handles::lock::{Lock, RwLock};
use crate::handles::multi::{AnyLock, MultiLock};
use crate::handles::semaphore::Semaphore;
use crate::shell::Core;

/// A client of one server, of the primary that Sentinels name, or of a cluster. Cheap to clone; all clones and
/// handles share one connection to each server, plus dedicated ones for calls that block.
///
/// Holds stay alive while their guards live, even if the client is dropped.
///
/// ```
#[doc = example!()]
/// let client = dlock_client::Client::connect(&url).await?;
/// let guard = client.lock("invoice:42").acquire().await?;
/// // Work that no other client does meanwhile.
/// guard.release().await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    pub(crate) fn from_core(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// What its handles share.
    #[doc(hidden)]
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The lock of key `key`: one holder, re-entrant for a named [`owner`](Lock::owner).
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.core, Target::Lock(Family::Lock), Keys::of([key]))
    }

    /// A lock whose queue is part of the key: places in the queue outlive restarts and failovers of the server, and
    /// lost connections.
    ///
    /// ```
    #[doc = example!()]
    /// let guard = client.fair_lock("tickets").acquire().await?;
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub fn fair_lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.core, Target::Lock(Family::Fair), Keys::of([key]))
    }

    /// The read-write lock of that name.
    pub fn rw_lock(&self, key: impl AsRef<[u8]>) -> RwLock {
        RwLock::new(&self.core, key.as_ref())
    }

    /// The election of that name: its candidates lead one at a time.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(&self.core, name.as_ref())
    }

    /// The semaphore of that name.
    pub fn semaphore(&self, key: impl AsRef<[u8]>) -> Semaphore {
        Semaphore::new(&self.core, Target::Permit { count: 1, limit: None }, Keys::of([key]))
    }

    /// The count-down latch of that name.
    pub fn latch(&self, key: impl AsRef<[u8]>) -> Latch {
        Latch::new(&self.core, key.as_ref())
    }

    /// Several locks, acquired together: 1 to 262,144 different keys.
    pub fn multi_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock {
        MultiLock::new(&self.core, Target::All, Keys::of(keys))
    }

    /// Several locks, any one of which will do: 1 to 262,144 different keys.
    pub fn any_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> AnyLock {
        AnyLock::new(&self.core, Target::Any, Keys::of(keys))
    }

    /// A lock in `stripes` parts, each with its own holder: the keys are `{key}:0`, `{key}:1`, … with
    /// the braces, so that they share a slot of a cluster.
    pub fn striped_lock(&self, key: impl AsRef<[u8]>, stripes: u32) -> AnyLock {
        let key = key.as_ref();
        let stripe = |n: u32| [b"{", key, b"}:", n.to_string().as_bytes()].concat();
        let stripes = (0..stripes.min(KEYS_MAX + 1)).map(stripe);
        AnyLock::new(&self.core, Target::Any, Keys::of(stripes))
    }
}
