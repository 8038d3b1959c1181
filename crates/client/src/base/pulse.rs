//! Until when a connection was alive, and why it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::clock::Moment;

/// The life of one shared connection.
#[derive(Debug)]
pub(crate) struct Pulse(AtomicU64);

impl Pulse {
    /// Of a connection that answered a request that was sent at `sent`.
    pub(crate) fn new(sent: Moment) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(sent.nanos())))
    }

    /// Send time of the most recently answered request.
    pub(crate) fn alive(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Notes that a request over this connection was answered that was sent then.
    pub(crate) fn answered(&self, sent: Moment) {
        self.0.fetch_max(sent.nanos(), Ordering::AcqRel);
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// A request over it failed, or the other end closed it.
    Broken,
    /// The server did not answer a PING.
    Silent,
    /// The Sentinels name another primary.
    Replaced,
}
