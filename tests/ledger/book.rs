//! The ledger: what the workers believed and when, and which ends of holds the servers reported.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A moment, as the time since the start of the run.
pub type At = Duration;

/// What a worker was told about the end of its hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The release, or `with`, reported success.
    Success,
    /// It reported the loss of the hold.
    Lost {
        /// `with` reported it by the client's own clock, before it released the hold.
        by_clock: bool,
    },
    /// It reported another error: what the server did is unknown.
    #[default]
    Unknown,
    /// The worker learned of the loss before its work ended, or dropped its guard, and claims nothing.
    CutShort,
}

/// One hold of one guard, from the request to the release. A re-entry is a turn of its own, with the same token.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// The number of the worker, for reports.
    #[allow(dead_code, reason = "only Debug reads it")]
    pub worker: usize,
    /// The locks, with the fencing tokens of the grant.
    pub holds: Vec<(String, u64)>,
    /// Before the request was sent.
    pub asked: At,
    /// After the first `check()` that said yes.
    pub entered: At,
    /// Before the last `check()` that said yes. Finished work ends with a yes.
    pub yes: At,
    /// How long the hold was still valid at that moment, as the client said.
    pub valid: Duration,
    /// The work ran to its end.
    pub is_finished: bool,
    /// What the release reported.
    pub outcome: Outcome,
    /// After it reported that.
    pub settled: At,
}

/// The end of a hold other than by its release.
#[derive(Clone, Debug)]
pub struct End {
    /// The lock.
    pub key: String,
    /// The token of the hold.
    pub token: u64,
    /// Not before this moment.
    pub after: At,
    /// Not after this moment.
    pub before: At,
    /// By an operator: BREAK, DEL, FLUSHALL. A holder learns of such an end late. It learns of all others in advance.
    pub is_forced: bool,
    /// The server's word for it, for reports.
    #[allow(dead_code, reason = "only Debug reads it")]
    pub how: String,
}

/// The ledger, shared by all workers and witnesses of a run.
#[derive(Debug)]
pub struct Ledger {
    start: Instant,
    turns: Mutex<Vec<Turn>>,
    ends: Mutex<Vec<End>>,
}

impl Ledger {
    pub fn new() -> Ledger {
        Ledger { start: Instant::now(), turns: Mutex::default(), ends: Mutex::default() }
    }

    /// This moment.
    pub fn now(&self) -> At {
        self.start.elapsed()
    }

    pub fn write(&self, turn: Turn) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
    }

    pub fn write_end(&self, end: End) {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).push(end);
    }

    /// A copy of all entries.
    pub fn entries(&self) -> (Vec<Turn>, Vec<End>) {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (turns, self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
