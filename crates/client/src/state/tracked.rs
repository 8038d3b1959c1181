//! A hold, as the registry and the routes know it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::base::clock::Moment;
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::state::hold_state::{Asked, Change, HoldState, LeaseTerms};
use crate::telemetry::HoldReport;

/// The registry alone applies what a transition of the state changes.
pub(crate) struct TrackedHold {
    pub(crate) hold_ref: HoldRef,
    /// Never locked while the registry is called, which locks it.
    state: Mutex<HoldState>,
    /// The id of the acquire that it was granted to.
    reqid: String,
    /// The work under it is done: its release says so.
    is_done: AtomicBool,
    lost: watch::Sender<Option<Lost>>,
    /// The keys of the parts that were lost, if the server named them.
    lost_keys: OnceLock<Vec<Vec<u8>>>,
    pub(crate) report: HoldReport,
    /// Key in the registry's map of deadlines. Only the registry reads and writes it, under its lock.
    timer: Mutex<Option<TimerKey>>,
}

/// Orders holds by deadline; the number tells holds with the same deadline apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    pub(crate) deadline: Moment,
    pub(crate) number: u64,
}

impl TrackedHold {
    /// A hold that this request was granted, and the id of the acquire.
    pub(crate) fn new(
        hold_ref: HoldRef,
        terms: LeaseTerms,
        granted: Asked,
        reqid: String,
    ) -> Arc<Self> {
        Arc::new(Self {
            hold_ref,
            state: Mutex::new(HoldState::new(terms, granted)),
            reqid,
            is_done: AtomicBool::new(false),
            lost: watch::Sender::new(None),
            lost_keys: OnceLock::new(),
            report: HoldReport::default(),
            timer: Mutex::default(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HoldState> {
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

    /// What is left of its lease, and the lease, if a renewal of this moment is late: on time, at least two thirds are
    /// left.
    pub(crate) fn late_renewal(&self) -> Option<(Duration, Duration)> {
        let state = self.state();
        let (left, span) = (state.valid_for(Moment::now()), state.span());
        // Others are renewed for another reason, or for less than their lease.
        let is_regular = state.terms().watched && state.terms().ends_by.is_none();
        (left < span / 2 && is_regular && !state.has_ended()).then_some((left, span))
    }

    /// A key that tells the server.
    pub(crate) fn key(&self) -> &[u8] {
        self.hold_ref.key()
    }

    /// The id of the acquire that it was granted to.
    pub(crate) fn reqid(&self) -> &[u8] {
        self.reqid.as_bytes()
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
