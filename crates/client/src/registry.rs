//! The waiters and holds of one client, so that messages and lost connections reach the right task.

mod holds;
mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dlock_wire::message::Message;
use tokio::sync::Notify;

use self::holds::HoldTable;
pub(crate) use self::waiters::{Announcement, PendingRequest, Registered};
use self::waiters::{Waiters, ended};
use crate::base::clock::Moment;
use crate::base::context::Context;
use crate::base::flight::Flights;
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::connection::link::events::Events;
use crate::connection::route::Routes;
use crate::state::hold_state::{Asked, Change, LeaseTerms};
use crate::state::tracked::TrackedHold;

/// What all handles of a client share.
pub(crate) struct Core {
    pub(crate) ctx: Arc<Context>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) flights: Flights,
}

/// One per client.
pub(crate) struct Registry {
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) holds: HoldTable,
    ctx: Arc<Context>,
    db: u32,
    /// The watchdog renews all holds now.
    pub(crate) renew: Notify,
    /// When the watchdog has to renew a hold: in nanoseconds of the clock.
    renew_by: AtomicU64,
    /// That moment is earlier than the watchdog knows.
    pub(crate) renew_soon: Notify,
    /// How many flushes of the database messages reported.
    flushes: AtomicU64,
}

impl Registry {
    pub(crate) fn new(ctx: Arc<Context>, db: u32) -> Self {
        Self {
            waiters: Arc::default(),
            holds: HoldTable::default(),
            ctx,
            db,
            renew: Notify::new(),
            renew_by: AtomicU64::new(u64::MAX),
            renew_soon: Notify::new(),
            flushes: AtomicU64::new(0),
        }
    }

    /// Tracks a hold that this request was granted: its messages, its end, and its renewals.
    pub(crate) fn track(
        &self,
        hold_ref: HoldRef,
        terms: LeaseTerms,
        granted: Asked,
        reqid: String,
    ) -> Arc<TrackedHold> {
        let hold = TrackedHold::new(hold_ref, terms, granted, reqid);
        self.holds.add(&hold);
        let renew_by = hold.state().renew_by();
        self.renew_by(renew_by);
        hold
    }

    /// The watchdog renews a hold by then.
    pub(crate) fn renew_by(&self, by: Option<Moment>) {
        if let Some(by) = by.map(Moment::nanos)
            && by < self.renew_by.fetch_min(by, Ordering::AcqRel)
        {
            self.renew_soon.notify_one();
        }
    }

    /// When the watchdog has to renew a hold.
    pub(crate) fn next_renewal(&self) -> Moment {
        Moment::from_nanos(self.renew_by.load(Ordering::Acquire))
    }

    /// The watchdog looks at every hold now. What was said until then, it need not know.
    pub(crate) fn begin_round(&self) {
        self.renew_by.store(u64::MAX, Ordering::Release);
    }

    /// How many flushes of the database messages reported.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// The database was flushed, at this server or another one: every wait and hold asks.
    pub(crate) fn follow_flush(&self) {
        self.waiters.ask_all();
        for hold in self.holds.all() {
            self.hint(&hold, Lost::Flushed);
        }
    }

    /// The hold may have ended so: the watchdog asks the server.
    pub(crate) fn hint(&self, hold: &TrackedHold, how: Lost) {
        let by = {
            let mut state = hold.state();
            state.hint(Moment::now(), how);
            state.renew_by()
        };
        self.renew_by(by);
    }

    /// Carries out what a transition changed. The state of the hold must not be locked.
    pub(crate) fn apply(&self, hold: &TrackedHold, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Ended => {
                self.holds.remove(hold);
                hold.report.end(&hold.hold_ref, None);
            }
            Change::Lost(how) => {
                self.holds.remove(hold);
                hold.report_lost(how);
                hold.report.end(&hold.hold_ref, Some(how));
            }
        }
    }

    /// The hold is over. Tasks that wait for its loss are woken once.
    pub(crate) fn lose(&self, hold: &TrackedHold, how: Lost) {
        self.lose_keys(hold, how, hold.hold_ref.keys());
    }

    /// As [`Registry::lose`], because these of its keys are lost.
    pub(crate) fn lose_keys(&self, hold: &TrackedHold, how: Lost, keys: Vec<Vec<u8>>) {
        let change = hold.lose(how, keys);
        self.apply(hold, change);
    }

    /// How the hold was lost, if it was. An expired hold is lost, whether or not a timer has noticed.
    pub(crate) fn lost_now(&self, hold: &TrackedHold) -> Option<Lost> {
        let (change, lost) = {
            let mut state = hold.state();
            (state.expire(Moment::now()), state.lost())
        };
        self.apply(hold, change);
        lost
    }

    /// True for the first call, which sends the release. No more renewals are sent.
    pub(crate) fn begin_release(&self, hold: &TrackedHold) -> bool {
        let (change, is_first) = {
            let mut state = hold.state();
            (state.end(), state.begin_release())
        };
        self.apply(hold, change);
        if is_first {
            self.holds.begin_release(hold);
        }
        is_first
    }
}

impl Events for Registry {
    fn renew_now(&self) {
        self.renew.notify_one();
    }

    fn message(&self, text: &[u8]) {
        match Message::parse(text) {
            Some(Message::Hold { event, db, id, reqid, key, .. }) if db == self.db => {
                // First the wait, then the holds: an acquire looks at such messages after its hold is tracked.
                self.waiters.hear(event, id, reqid);
                let Some(how) = ended(event) else { return };
                for hold in self.holds.named(id, key) {
                    self.hint(&hold, how);
                }
            }
            Some(Message::Flushed { db }) if db == self.db => {
                self.flushes.fetch_add(1, Ordering::AcqRel);
                self.renew_soon.notify_one();
            }
            // Of another database, or of a later version of the server.
            _ => {}
        }
    }

    /// An acquire waits for a message, or a call blocks a dedicated connection: that one may be dead if the shared one
    /// is.
    fn needs_heartbeat(&self) -> bool {
        self.ctx.has_blocked() || !self.waiters.is_empty()
    }
}
