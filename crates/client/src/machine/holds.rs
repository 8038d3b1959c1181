//! The holds of one client, and when they are to be renewed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dlock_wire::permit::{self, PermitId};

use super::hold_state::HoldState;
use super::tracked::TrackedHold;
use crate::base::clock::Moment;
use crate::base::hash::Map;
use crate::base::hold_ref::Held;
use crate::base::lost::Lost;
use crate::base::random::Name;

/// Messages have holds looked at that often at most.
const HINTS: Duration = Duration::from_millis(100);

/// Every hold whose release has not begun, also those that are lost.
pub(crate) struct Holds {
    by_request: Map<Name, Arc<TrackedHold>>,
    /// Losses of which messages tell. Anybody can forge these: the server is asked.
    hints: HashMap<Id, Lost>,
    hinted_at: Moment,
    /// When to look at them: the first of their renewals and deadlines, or earlier.
    pub(crate) look_at: Moment,
    /// The shortest time in which one is renewed, or a shorter one of one that was released since.
    shortest: Duration,
}

/// What messages call a hold.
#[derive(PartialEq, Eq, Hash)]
enum Id {
    Token(u64),
    Permit(PermitId),
}

impl Id {
    fn parse(id: &[u8]) -> Option<Self> {
        let token = std::str::from_utf8(id).ok().and_then(|text| text.parse().ok());
        token.map(Self::Token).or_else(|| permit::parse(id).map(Self::Permit))
    }
}

impl Default for Holds {
    fn default() -> Self {
        Self {
            by_request: Map::default(),
            hints: HashMap::new(),
            hinted_at: Moment::from_nanos(0),
            look_at: Moment::NEVER,
            shortest: Duration::MAX,
        }
    }
}

impl Holds {
    pub(crate) fn add(&mut self, hold: Arc<TrackedHold>) {
        let (due, lease) = hold.look(|state| (due_at(state), state.renewed_within()));
        self.look_at = self.look_at.min(due);
        self.shortest = self.shortest().min(lease);
        self.by_request.insert(hold.reqid, hold);
    }

    pub(crate) fn remove(&mut self, hold: &TrackedHold) {
        self.by_request.remove(&hold.reqid);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<TrackedHold>> {
        self.by_request.values()
    }

    /// The shortest time in which a hold is renewed.
    pub(crate) fn shortest(&self) -> Duration {
        if self.by_request.is_empty() { Duration::MAX } else { self.shortest }
    }

    /// A message tells how a hold may have ended.
    pub(crate) fn hint(&mut self, now: Moment, id: &[u8], how: Lost) {
        if self.by_request.is_empty() {
            return;
        }
        if let Some(id) = Id::parse(id) {
            self.hints.insert(id, how);
            self.look_at = self.look_at.min(self.hinted_at.after(HINTS).max(now));
        }
    }

    /// Every hold may have ended so.
    pub(crate) fn hint_all(&mut self, now: Moment, how: Option<Lost>) {
        for hold in self.by_request.values() {
            hold.change(|state| state.ask(now, how));
        }
        self.look_at = now;
    }

    /// Ends those whose time is over, and returns those that are to be renewed now.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<Arc<TrackedHold>> {
        if now < self.look_at {
            return Vec::new();
        }
        let hints = std::mem::take(&mut self.hints);
        if !hints.is_empty() {
            self.hinted_at = now;
        }
        let mut due = Vec::new();
        (self.look_at, self.shortest) = (Moment::NEVER, Duration::MAX);
        for hold in self.by_request.values() {
            hold.change(|state| {
                if let Some(how) = hint_for(hold, &hints) {
                    state.hint(now, how);
                }
                state.expire(now)
            });
            let (is_due, at, lease) =
                hold.look(|state| (state.is_due(now), due_at(state), state.renewed_within()));
            if hold.look(HoldState::has_ended) {
                continue;
            }
            self.shortest = self.shortest.min(lease);
            if is_due {
                hold.change(|state| state.begin_renewal(now));
                due.push(hold.clone());
            }
            self.look_at = self.look_at.min(if is_due { hold.look(due_at) } else { at });
        }
        due
    }
}

fn hint_for(hold: &TrackedHold, hints: &HashMap<Id, Lost>) -> Option<Lost> {
    if hints.is_empty() {
        return None;
    }
    let of = |id| hints.get(&id).copied();
    match hold.hold_ref.held {
        Held::Permit(permit) => of(Id::Permit(permit)),
        _ => hold.hold_ref.tokens().iter().find_map(|token| of(Id::Token(*token))),
    }
}

fn due_at(state: &HoldState) -> Moment {
    state.renew_by().unwrap_or(Moment::NEVER).min(state.deadline())
}
