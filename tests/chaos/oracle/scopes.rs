//! Calls in progress, or recently, that may end holds.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use super::{ConnId, Times};
use crate::call::Scope;

/// Calls that may end holds of one scope.
#[derive(Debug, Default)]
struct Activity {
    in_flight: u32,
    /// The last answered one, and its connection.
    last: Option<(ConnId, Instant)>,
    /// The last one over any other connection than that.
    last_elsewhere: Option<Instant>,
}

impl Activity {
    fn answered(&mut self, times: Times) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some((conn, at)) = self.last
            && conn != times.conn
        {
            self.last_elsewhere = Some(at);
        }
        self.last = Some((times.conn, times.now));
    }

    /// Whether one of them may have been executed after a call that has just been answered. Earlier answered calls of
    /// the same connection were executed before it.
    fn may_follow(&self, times: Times) -> bool {
        let elsewhere = match self.last {
            Some((conn, at)) if conn != times.conn => Some(at),
            _ => self.last_elsewhere,
        };
        self.in_flight > 0 || elsewhere.is_some_and(|at| at >= times.sent)
    }
}

/// The scopes in which something has been going on.
#[derive(Debug, Default)]
pub struct Scopes {
    active: HashMap<Scope, Activity>,
    doomed: HashSet<ConnId>,
    disturbed: Option<Instant>,
}

impl Scopes {
    /// Records that a call for the scope was sent.
    pub fn begin(&mut self, scope: &Scope) {
        self.active.entry(scope.clone()).or_default().in_flight += 1;
    }

    /// Records its reply.
    pub fn end(&mut self, scope: &Scope, times: Times) {
        self.active.entry(scope.clone()).or_default().answered(times);
    }

    /// Whether the hold in a reply may have ended by now, through this scope or through an external event.
    pub fn may_have_ended(&self, scope: &Scope, times: Times) -> bool {
        self.world(times)
            || self.active.get(scope).is_some_and(|activity| activity.may_follow(times))
    }

    fn world(&self, times: Times) -> bool {
        self.disturbed.is_some_and(|at| at >= times.sent)
            || self.active.get(&Scope::World).is_some_and(|activity| activity.may_follow(times))
    }

    /// Replies to calls that were sent before now prove nothing.
    pub fn world_disturbed(&mut self) {
        self.disturbed = Some(Instant::now());
    }

    /// This connection may close from now on.
    pub fn doom(&mut self, conn: ConnId) {
        self.doomed.insert(conn);
    }

    /// Whether it may have closed.
    pub fn is_doomed(&self, conn: ConnId) -> bool {
        self.doomed.contains(&conn)
    }

    /// No calls are in progress.
    pub fn settled(&mut self, now: Instant) {
        self.active.clear();
        self.disturbed = Some(now);
    }
}
