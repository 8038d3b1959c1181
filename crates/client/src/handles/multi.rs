//! Several locks at once: all of them, or any one.

use crate::acquire::Handle;
use crate::handles::guard::{Guard, MultiGuard, MultiHold};
use crate::handles::handle::handle;
use crate::hold::Hold;

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
#[derive(Debug, Clone)]
pub struct MultiLock {
    handle: Handle,
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
#[derive(Debug, Clone)]
pub struct AnyLock {
    handle: Handle,
}

handle!(
    MultiLock,
    MultiGuard of MultiHold,
    "Acquires all locks if all are free. None: one is not.",
    "Waits in all queues, and acquires all locks at once."
);

handle!(
    AnyLock,
    Guard of Hold,
    "Acquires one that is free; [`Hold::key`](crate::Hold::key) tells which. None: none is.",
    "Waits in all queues, and acquires the first lock that becomes free."
);
