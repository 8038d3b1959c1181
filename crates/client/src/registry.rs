//! The waiters and holds of one client, so that messages and lost connections reach the right task.

mod holds;
mod waiters;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use dlock_wire::message::{Event, Message};
use tokio::sync::{Notify, watch};

use self::holds::HoldTable;
use self::waiters::Waiters;
pub(crate) use self::waiters::{Announcement, PendingRequest, Registered};
use crate::base::clock::Moment;
use crate::base::context::Context;
use crate::base::flight::Flights;
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::base::pulse::Pulse;
use crate::connection::link::events::Events;
use crate::connection::route::Routes;
use crate::state::hold_state::{Change, LeaseTerms, RenewAt};
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
    /// Set as soon as the client is connected.
    routes: OnceLock<Weak<Routes>>,
    /// The watchdog renews all holds now.
    pub(crate) renew: Notify,
    /// A hold is to be renewed before the watchdog renews all: in nanoseconds of the clock.
    renew_by: AtomicU64,
    /// That moment is earlier than the watchdog knows.
    pub(crate) renew_soon: Notify,
    /// A message announced a hold: the watchdog claims it soon.
    pub(crate) claim_soon: Notify,
    /// The watchdog knows.
    is_claiming: AtomicBool,
    /// How many flushes of the database messages reported.
    flushes: AtomicU64,
    doubts: Mutex<Vec<Doubt>>,
    /// The watchdog verifies the doubtful holds now.
    pub(crate) doubted: Notify,
}

/// A hold that may be gone: at its node, from which it may have moved to another one, or by a flush.
pub(crate) struct Doubt {
    pub(crate) hold: Arc<TrackedHold>,
    /// How it was lost if it has not moved.
    pub(crate) how: Lost,
}

impl Registry {
    pub(crate) fn new(ctx: Arc<Context>, db: u32) -> Self {
        Self {
            waiters: Arc::default(),
            holds: HoldTable::default(),
            ctx,
            db,
            routes: OnceLock::new(),
            renew: Notify::new(),
            renew_by: AtomicU64::new(u64::MAX),
            renew_soon: Notify::new(),
            claim_soon: Notify::new(),
            is_claiming: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            doubts: Mutex::default(),
            doubted: Notify::new(),
        }
    }

    /// The client is connected, by these routes.
    pub(crate) fn set_routes(&self, routes: &Arc<Routes>) {
        // An error: they are set already.
        let _ = self.routes.set(Arc::downgrade(routes));
    }

    fn routes(&self) -> Option<Arc<Routes>> {
        self.routes.get()?.upgrade()
    }

    /// Tracks a hold that is certain until `deadline`: its messages, its end, and its renewals.
    pub(crate) fn track(
        &self,
        hold_ref: HoldRef,
        terms: LeaseTerms,
        deadline: Moment,
        pulse: &Arc<Pulse>,
        release_id: String,
    ) -> Arc<TrackedHold> {
        let hold = TrackedHold::new(hold_ref, terms, deadline, pulse.clone(), release_id);
        self.holds.add(&hold);
        if !terms.own_name {
            self.share_binding(&hold, pulse);
        }
        self.renew_by(hold.state().renew_at(self.ctx.settings.lease));
        if terms.unclaimed && !self.is_claiming.swap(true, Ordering::AcqRel) {
            self.claim_soon.notify_one();
        }
        hold
    }

    /// The server binds a hold, not its guards: all that share it are bound where one of them is.
    fn share_binding(&self, hold: &TrackedHold, pulse: &Arc<Pulse>) {
        let sharing = self.holds.sharing(&hold.hold_ref);
        let Some(bind) = sharing.iter().filter_map(|guard| guard.bind()).min() else { return };
        for guard in sharing {
            let change = self.holds.rebind(&guard, |state| state.bind_to(pulse.clone(), bind));
            self.apply(&guard, change);
        }
    }

    /// The watchdog renews a hold by then: earlier than its next round for all.
    pub(crate) fn renew_by(&self, renew_at: Option<RenewAt>) {
        let Some(by) = renew_at.map(|renew_at| renew_at.by.nanos()) else { return };
        if by < self.renew_by.fetch_min(by, Ordering::AcqRel) {
            self.renew_soon.notify_one();
        }
    }

    /// When the watchdog has to renew a hold, as far as was said since the last call; NEVER: not before its next round.
    pub(crate) fn take_renew_by(&self) -> Moment {
        Moment::from_nanos(self.renew_by.swap(u64::MAX, Ordering::AcqRel))
    }

    /// The watchdog claims every announced hold now.
    pub(crate) fn begin_claims(&self) {
        self.is_claiming.store(false, Ordering::Release);
    }

    /// How many flushes of the database messages reported.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Holds that the watchdog has to verify.
    pub(crate) fn take_doubts(&self) -> Vec<Doubt> {
        std::mem::take(&mut *self.doubts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Carries out what a transition changed. The state of the hold must not be locked.
    pub(crate) fn apply(&self, hold: &TrackedHold, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Earlier => self.holds.reset_timer(hold),
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

    /// A renewal that was sent sets the end for all guards that share the hold.
    pub(crate) fn not_after(&self, guards: &[Arc<TrackedHold>], moment: Moment) {
        for guard in guards {
            let change = guard.state().not_after(moment);
            self.apply(guard, change);
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

    /// A message says that the hold is lost, at this key.
    pub(crate) fn report_lost(&self, hold: &Arc<TrackedHold>, how: Lost, key: &[u8]) {
        if how == Lost::Deleted && self.routes().is_some_and(|routes| routes.is_cluster()) {
            // A key that moves to another node is deleted at this one.
            self.doubt(hold, how);
        } else {
            if how == Lost::Expired {
                // The state knows whether that is `max_hold`, although the message came before the timer.
                self.lost_now(hold);
            }
            self.lose_keys(hold, how, vec![key.to_vec()]);
        }
    }

    /// The watchdog asks the server whether it has the hold.
    pub(crate) fn doubt(&self, hold: &Arc<TrackedHold>, how: Lost) {
        let doubt = Doubt { hold: hold.clone(), how };
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner).push(doubt);
        self.doubted.notify_one();
    }
}

impl Events for Registry {
    fn renew_now(&self) {
        self.renew.notify_one();
    }

    fn disconnected(&self, server: &str, lost: &Pulse) {
        let routes = self.routes();
        let server_of = |key: &[u8]| routes.as_ref().and_then(|routes| routes.server_of(key));
        for hold in self.bound() {
            let is_over = hold.state().is_over(lost.generation);
            if is_over || server_of(hold.key()).is_none_or(|now| now.name == server) {
                self.unbind(&hold, lost.alive());
            }
        }
    }

    fn message(&self, text: &[u8]) {
        match Message::parse(text) {
            Some(Message::Hold { event, db, id, owner, reqid, key }) if db == self.db => {
                let acquires = self.waiters.find(key, owner, reqid);
                let how = match event {
                    Event::Granted => {
                        for acquire in acquires {
                            acquire.announce(id, reqid);
                        }
                        return;
                    }
                    Event::Replaced => {
                        for acquire in acquires {
                            acquire.report_replaced(reqid);
                        }
                        return;
                    }
                    Event::Deadlock => {
                        // The answer to a copy of the request is the proof.
                        for acquire in acquires {
                            acquire.ask_again(reqid);
                        }
                        return;
                    }
                    Event::Broken => Lost::Broken,
                    Event::Deleted => Lost::Deleted,
                    Event::Disconnected => Lost::Disconnected,
                    Event::Expired => Lost::Expired,
                };
                // First the acquire, then the holds: an acquire looks for such messages after its hold is tracked.
                for acquire in acquires {
                    acquire.report_ended(id, key, how);
                }
                for hold in self.holds.named(id, key) {
                    self.report_lost(&hold, how, key);
                }
            }
            Some(Message::Flushed { db }) if db == self.db => {
                // In a cluster it may have been another node: the watchdog checks each hold.
                self.flushes.fetch_add(1, Ordering::AcqRel);
                self.renew_now();
            }
            // Of another database, or of a later version of the server.
            _ => {}
        }
    }

    /// An acquire waits for a message, a hold is bound, or a call blocks a dedicated connection: that one may be dead
    /// if the shared one is.
    fn needs_heartbeat(&self) -> bool {
        self.ctx.has_blocked() || !self.waiters.is_empty() || self.holds.has_bound()
    }

    fn probe_every(&self) -> watch::Receiver<Option<Duration>> {
        self.holds.probe_every.subscribe()
    }

    fn bound(&self) -> Vec<Arc<TrackedHold>> {
        self.holds.bound()
    }

    fn unbind(&self, hold: &TrackedHold, alive: Moment) {
        let change = hold.state().disconnected(alive);
        self.apply(hold, change);
    }
}
