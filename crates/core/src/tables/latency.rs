//! How long waits and holds last, for operators.

use crate::base::kind::Kind;
use crate::base::time::{Instant, Now};
use crate::tables::histogram::Histogram;
use crate::tables::queues::waiter::Waiter;
use crate::value::hold::Hold;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// How long waits and holds of each family last.
#[derive(Debug, Default)]
pub struct Latency {
    pub(crate) waited: [Histogram; 5],
    held: [Histogram; 4],
}

impl Latency {
    /// Time from the start of a wait to its grant, of grants after waiting.
    pub fn waited(&self) -> impl Iterator<Item = (Kind, &Histogram)> {
        Kind::ALL.into_iter().zip(&self.waited)
    }

    /// Time from the grant of a hold to its end. Latches have no holds.
    pub fn held(&self) -> impl Iterator<Item = (Kind, &Histogram)> {
        Kind::ALL.into_iter().zip(&self.held)
    }

    /// What INFO shows: for each family a line of figures, and one of cumulative buckets, each with its name.
    pub fn lines(&self) -> impl Iterator<Item = (String, Vec<(String, u64)>)> {
        let waited = self.waited().map(|(kind, times)| (kind, "waited", times));
        let held = self.held().map(|(kind, times)| (kind, "held", times));
        waited.chain(held).flat_map(|(kind, what, times)| {
            let name = format!("{}_{what}", family(kind));
            let buckets = format!("{name}_buckets");
            [(name, times.figures()), (buckets, times.buckets())]
        })
    }

    /// A waiter of a latch that opened at this time is answered.
    pub(crate) fn opened(&mut self, opened: Instant, waiter: &Waiter) {
        if let Some(waited) = self.waited.get_mut(Kind::Latch as usize) {
            waited.record(elapsed(opened, waiter.since));
        }
    }

    /// What does not hold, for the invariants of the machine.
    pub(crate) fn broken_invariant(&self) -> Option<&'static str> {
        let mut all = self.waited.iter().chain(&self.held);
        let is_whole = |one: &Histogram| one.cumulative().last() == Some(one.count());
        (!all.all(is_whole)).then_some("every time is in one bucket")
    }

    /// Counts how long a hold lasted. Returns that in microseconds.
    pub(crate) fn count_held(&mut self, now: Now, kind: Kind, hold: &Hold) -> u64 {
        let held_us = elapsed(now.mono, hold.since);
        if let Some(held) = self.held.get_mut(kind as usize) {
            held.record(held_us);
        }
        held_us
    }
}

/// The name of a family in INFO.
fn family(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "lock",
        Kind::Fair => "fair",
        Kind::Rw => "rw",
        Kind::Semaphore => "sem",
        Kind::Latch => "latch",
    }
}

/// Time from `since` to `now`, in microseconds.
pub(crate) fn elapsed(now: Instant, since: Instant) -> u64 {
    now.0.saturating_sub(since.0)
}
