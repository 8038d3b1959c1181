//! Until when a connection was alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Moment;

/// The life of one shared connection, for all holds that are bound to it.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// No other shared connection of this process has this number; 0: there was no connection.
    pub(crate) generation: u64,
    alive: AtomicU64,
}

impl Pulse {
    /// Of a connection that answered a request that was sent at `sent`.
    pub(crate) fn new(generation: u64, sent: Moment) -> Arc<Self> {
        Arc::new(Self { generation, alive: AtomicU64::new(sent.nanos()) })
    }

    /// Send time of the most recently answered request: the connection was alive at the server's end at least until
    /// then.
    pub(crate) fn alive(&self) -> Moment {
        Moment::from_nanos(self.alive.load(Ordering::Acquire))
    }

    /// Notes that a request over this connection was answered that was sent then.
    pub(crate) fn answered(&self, sent: Moment) {
        self.alive.fetch_max(sent.nanos(), Ordering::AcqRel);
    }
}
