//! A hold, as the registry and the routes know it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dlock_wire::names::LEASE_MAX_MS;
use tokio::sync::watch;

use crate::base::clock::{Moment, lease_for};
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::base::pulse::Pulse;
use crate::state::hold_state::{Change, HoldState, InflightRenewal, LeaseTerms, RenewalReply};
use crate::telemetry::HoldReport;

/// The longest lease there is.
const LEASE_MAX: Duration = Duration::from_millis(LEASE_MAX_MS);

/// The registry alone applies what a transition of the state changes.
pub(crate) struct TrackedHold {
    pub(crate) hold_ref: HoldRef,
    /// Never locked while the registry is called, which locks it.
    state: Mutex<State>,
    /// The request id of its release, however often that is sent.
    release_id: String,
    /// The work under it is done: its release says so.
    is_done: AtomicBool,
    lost: watch::Sender<Option<Lost>>,
    /// The keys of the parts that were lost, if the server named them.
    lost_keys: OnceLock<Vec<Vec<u8>>>,
    pub(crate) report: HoldReport,
    /// Key in the registry's map of deadlines. Only the registry reads and writes it, under its lock.
    timer: Mutex<Option<TimerKey>>,
}

/// The state of a hold, with the connection that it is bound to.
pub(crate) struct State {
    hold: HoldState,
    pulse: Arc<Pulse>,
}

impl Deref for State {
    type Target = HoldState;

    fn deref(&self) -> &HoldState {
        &self.hold
    }
}

impl DerefMut for State {
    fn deref_mut(&mut self) -> &mut HoldState {
        &mut self.hold
    }
}

impl State {
    /// The connection that it is bound to was alive then.
    pub(crate) fn alive(&self) -> Moment {
        self.pulse.alive()
    }

    /// It is bound to that connection.
    pub(crate) fn is_over(&self, generation: u64) -> bool {
        self.pulse.generation == generation
    }

    /// As [`HoldState::deadline`].
    pub(crate) fn deadline(&self) -> Moment {
        self.hold.deadline(self.alive())
    }

    /// As [`HoldState::valid_for`].
    pub(crate) fn valid_for(&self, now: Moment) -> Duration {
        self.hold.valid_for(now, self.alive())
    }

    /// As [`HoldState::expire`].
    pub(crate) fn expire(&mut self, now: Moment) -> Change {
        self.hold.expire(now, self.pulse.alive())
    }

    /// As [`HoldState::end_renewal`]; `up` is the shared connection that is up.
    pub(crate) fn end_renewal(
        &mut self,
        renewal: InflightRenewal,
        reply: RenewalReply,
        up: Option<Arc<Pulse>>,
    ) -> Change {
        let connection = up.as_ref().map_or(0, |up| up.generation);
        if let Some(up) = up.filter(|up| reply.is_accepted() && renewal.is_over(up.generation)) {
            self.pulse = up;
        }
        let alive = self.alive();
        self.hold.end_renewal(Moment::now(), renewal, reply, connection, alive)
    }

    /// The hold of the server is bound to that connection, by another guard that shares it.
    pub(crate) fn bind_to(&mut self, pulse: Arc<Pulse>, bind: Duration) -> Change {
        self.pulse = pulse;
        self.hold.bind_within(bind)
    }
}

/// Orders holds by deadline; the number tells holds with the same deadline apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    pub(crate) deadline: Moment,
    pub(crate) number: u64,
}

impl TrackedHold {
    /// A hold that is certain until `deadline`, while `pulse` shows that its connection lives if it is bound.
    pub(crate) fn new(
        hold_ref: HoldRef,
        terms: LeaseTerms,
        deadline: Moment,
        pulse: Arc<Pulse>,
        release_id: String,
    ) -> Arc<Self> {
        let hold = HoldState::new(terms, Moment::now(), deadline);
        Arc::new(Self {
            hold_ref,
            state: Mutex::new(State { hold, pulse }),
            release_id,
            is_done: AtomicBool::new(false),
            lost: watch::Sender::new(None),
            lost_keys: OnceLock::new(),
            report: HoldReport::default(),
            timer: Mutex::default(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn terms(&self) -> LeaseTerms {
        self.state().terms()
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.state().deadline()
    }

    /// The work under it is done.
    pub(crate) fn set_done(&self) {
        self.is_done.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// Lost, or being released.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().has_ended()
    }

    /// The watchdog renews it.
    pub(crate) fn is_watched(&self) -> bool {
        self.terms().watched && !self.has_ended()
    }

    /// What is left of its lease, and the lease, if a renewal of this moment is late: on time, at least two thirds are
    /// left.
    pub(crate) fn late_renewal(&self) -> Option<(Duration, Duration)> {
        let (terms, left) = {
            let state = self.state();
            (state.terms(), state.valid_for(Moment::now()))
        };
        let is_late = left < terms.lease / 2;
        // Others are renewed for another reason, or for less than their lease.
        let is_regular = terms.watched && !terms.unclaimed && terms.ends_by.is_none();
        (is_late && is_regular && !self.has_ended()).then_some((left, terms.lease))
    }

    /// The server shortens it to this time when its connection is lost.
    pub(crate) fn bind(&self) -> Option<Duration> {
        self.terms().bind
    }

    /// A key that tells the server.
    pub(crate) fn key(&self) -> &[u8] {
        self.hold_ref.key()
    }

    /// The request id of its release, however often that is sent.
    pub(crate) fn release_id(&self) -> &[u8] {
        self.release_id.as_bytes()
    }

    /// It is lost, because these of its keys are.
    pub(crate) fn lose(&self, how: Lost, keys: Vec<Vec<u8>>) -> Change {
        let mut state = self.state();
        let change = state.lose(how);
        if matches!(change, Change::Lost(_)) {
            // The first loss is the last.
            let _ = self.lost_keys.set(keys);
        }
        change
    }

    /// The keys that were lost: all of them, unless the server named some.
    pub(crate) fn lost_keys(&self) -> Vec<Vec<u8>> {
        self.lost_keys.get().cloned().unwrap_or_else(|| self.hold_ref.keys())
    }

    /// Wakes the tasks that wait for its loss.
    pub(crate) fn report_lost(&self, how: Lost) {
        self.lost.send_replace(Some(how));
    }

    /// How it was lost, as soon as it is.
    pub(crate) fn watch_loss(&self) -> watch::Receiver<Option<Lost>> {
        self.lost.subscribe()
    }

    pub(crate) fn set_timer(&self, key: TimerKey) {
        *self.timer.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }

    pub(crate) fn timer(&self) -> Option<TimerKey> {
        *self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lease of a renewal that is never less than one of these guards counts on: it sets the end for all of them.
pub(crate) fn shared_lease(lease: Duration, guards: &[Arc<TrackedHold>]) -> Duration {
    let now = Moment::now();
    // The rest has its margin taken off already: the server's is longer by 1 % and 2 ms.
    let rest = guards.iter().map(|guard| guard.state().wanted_for(now)).max();
    let rest = rest.map(|rest| lease_for(rest).min(LEASE_MAX));
    lease.max(rest.unwrap_or_default())
}
