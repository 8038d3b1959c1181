//! The crate `rslock`: SET NX, and a retry after a random pause of up to 200 ms, its default.

use std::time::Duration;

use rslock::{LockGuard, LockManager};

use crate::strategy::{LEASE_MS, LOCK, Strategy};

/// A clone of the manager that all tasks share, as its documentation recommends.
pub struct Retry(LockManager);

impl Retry {
    pub fn new(manager: &LockManager) -> Retry {
        Retry(manager.clone())
    }

    pub fn manager(url: &str) -> LockManager {
        LockManager::new(vec![url])
    }
}

impl Strategy for Retry {
    type Held = LockGuard;

    async fn acquire(&mut self) -> LockGuard {
        self.0.acquire(LOCK, Duration::from_millis(LEASE_MS)).await.expect("the lock")
    }

    async fn release(&mut self, held: LockGuard) {
        held.release().await;
    }
}
