//! Until when a connection was alive, to a server that writes, and why it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::clock::Moment;

/// The life of one shared connection, for all holds that are bound to it.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// No other shared connection of this process has this number; 0: there was no connection.
    pub(crate) generation: u64,
    alive: AtomicU64,
    /// When the client heard that the server refuses to write; 0: it has written since.
    refused: AtomicU64,
}

impl Pulse {
    /// Of a connection that answered a request that was sent at `sent`.
    pub(crate) fn new(generation: u64, sent: Moment) -> Arc<Self> {
        Arc::new(Self {
            generation,
            alive: AtomicU64::new(sent.nanos()),
            refused: AtomicU64::new(0),
        })
    }

    /// Send time of the most recently answered request: the connection was alive at the server's end at least until
    /// then.
    pub(crate) fn alive(&self) -> Moment {
        Moment::from_nanos(self.alive.load(Ordering::Acquire))
    }

    /// Notes that a request over this connection was answered that was sent then. From a server that refuses to write,
    /// answers prove nothing: another server may have the locks.
    pub(crate) fn answered(&self, sent: Moment) {
        if !self.is_refused() {
            self.alive.fetch_max(sent.nanos(), Ordering::AcqRel);
        }
    }

    /// Notes that the server refuses to write, which the client heard at `now`. True: it did not know that.
    pub(crate) fn refused(&self, now: Moment) -> bool {
        self.refused.swap(now.nanos(), Ordering::AcqRel) == 0
    }

    /// Notes that the server carried out a write that was sent then.
    pub(crate) fn wrote(&self, sent: Moment) {
        let refused = self.refused.load(Ordering::Acquire);
        if refused < sent.nanos() {
            // An error: it was refused again in the meantime.
            let _ = self.refused.compare_exchange(refused, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        self.answered(sent);
    }

    /// The server refused the last write that the client knows of.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire) != 0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_server_that_refuses_to_write_do_not_count() {
        let at = Moment::from_nanos;
        let pulse = Pulse::new(1, at(1));
        pulse.answered(at(2));
        assert!(pulse.refused(at(5)));
        assert!(!pulse.refused(at(6)));
        pulse.answered(at(7));
        // Sent before the refusal was heard: perhaps carried out before it.
        pulse.wrote(at(4));
        assert_eq!(pulse.alive(), at(2));
        pulse.wrote(at(8));
        assert_eq!(pulse.alive(), at(8));
        pulse.answered(at(9));
        assert_eq!(pulse.alive(), at(9));
    }
}
