//! How the last holds of locks ended, for an AWAIT that names the token of a hold and comes too late to observe it.
//!
//! A client learns of a hold by a reply and sends AWAIT in the next request. So the list only has to bridge a round
//! trip. It is volatile: after a restart or a failover the answer is `unknown`.

use alloc::collections::VecDeque;
use dlock_wire::reply::HoldEnd;

/// Number of ends that are remembered.
const REMEMBERED: usize = 1_024;

/// The ends of the last holds of DLOCK and DFAIR keys, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentEnds {
    ends: VecDeque<(u64, HoldEnd)>,
}

impl RecentEnds {
    /// The hold with this token has ended.
    pub fn note(&mut self, token: u64, how: HoldEnd) {
        if self.ends.len() >= REMEMBERED {
            self.ends.pop_front();
        }
        self.ends.push_back((token, how));
    }

    /// How the hold with this token ended, if that is remembered. O(1,024).
    pub fn of(&self, token: u64) -> Option<HoldEnd> {
        self.ends.iter().rev().find(|(known, _)| *known == token).map(|(_, how)| *how)
    }
}
