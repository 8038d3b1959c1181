//! A hold, and what was promised of it.

use super::At;
use dlock_core::base::kind::Kind;
use dlock_wire::request::Mode;

/// A hold, and until when it was promised.
#[derive(Debug)]
pub struct Promised {
    pub at: At,
    pub kind: Kind,
    pub mode: Option<Mode>,
    pub owner: Vec<u8>,
    pub until: u64,
    /// The answered requests that are not released.
    pub open: Vec<Open>,
    /// It is bound: the time, and the connection (0: closed).
    pub bind: Option<(u64, u64)>,
    /// Only a message said that it was granted.
    pub is_untouched: bool,
    /// Another call than the one that it was granted to has been answered with it.
    pub is_known: bool,
}

#[derive(Debug)]
pub struct Open {
    pub number: u64,
    pub id: Option<Vec<u8>>,
    /// The connection to which the only answer so far is on its way.
    pub in_flight: Option<u64>,
    /// The hold began with it.
    pub is_first: bool,
}

impl Promised {
    /// A renewal is answered.
    pub fn answer(&mut self, until: Option<u64>, bind: Option<(u64, u64)>) {
        self.until = self.until.max(until.unwrap_or(0));
        (self.is_untouched, self.is_known) = (false, true);
        self.bind_again(bind);
    }

    pub fn bind_again(&mut self, bind: Option<(u64, u64)>) {
        let larger = |((old, _), (ms, client)): ((u64, u64), (u64, u64))| (old.max(ms), client);
        self.bind = self.bind.zip(bind).map(larger);
    }

    /// One count less: one without an id, else the youngest. Counts without an id are alike, so one whose answer is on
    /// its way goes last: what does not arrive is taken back if there is still one.
    pub fn take_one(&mut self) {
        self.is_known = true;
        let unnamed = |on_its_way: bool| {
            let is_it = |open: &Open| open.id.is_none() && open.in_flight.is_some() == on_its_way;
            self.open.iter().position(is_it)
        };
        let unnamed = unnamed(false).or_else(|| unnamed(true));
        let youngest = self.open.iter().enumerate().max_by_key(|(_, open)| open.number);
        if let Some(at) = unnamed.or(youngest.map(|(at, _)| at)) {
            self.open.remove(at);
        }
    }

    /// BREAK was called when `before` was the last number: whether the hold may be there. It may if it began in that
    /// call: behind the broken one it stays, behind a lease that was over it was broken, too. So nothing is promised.
    pub fn may_outlast_break(&mut self, before: u64) -> bool {
        let is_new = self.open[0].number > before;
        if is_new {
            self.until = 0;
        }
        is_new
    }
}
