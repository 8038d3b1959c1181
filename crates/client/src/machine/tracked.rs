//! A hold, as the machine and its guard know it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;

use super::hold_state::{Asked, Change, HoldState, LeaseTerms, RenewalReply};
use super::slot::Place;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::base::random::Name;
use crate::telemetry::{self, HoldReport};

pub(crate) struct TrackedHold {
    pub(crate) hold_ref: HoldRef,
    /// The id of the acquire that it was granted to.
    pub(crate) reqid: Name,
    pub(crate) place: Place,
    pub(crate) report: HoldReport,
    /// The hold is lost.
    pub(crate) told: Notify,
    watched: Mutex<Watched>,
}

struct Watched {
    state: HoldState,
    /// The work under it is done: its release says so.
    is_done: bool,
    /// The keys of the parts that were lost, if the server named them.
    lost_keys: Option<Vec<Vec<u8>>>,
}

impl TrackedHold {
    pub(crate) fn new(
        hold_ref: HoldRef,
        terms: LeaseTerms,
        granted: Asked,
        reqid: Name,
        place: Place,
    ) -> Arc<Self> {
        let state = HoldState::new(terms, granted);
        let watched = Mutex::new(Watched { state, is_done: false, lost_keys: None });
        let (report, told) = (HoldReport::default(), Notify::new());
        Arc::new(Self { hold_ref, reqid, place, report, told, watched })
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at its state.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&HoldState) -> T) -> T {
        look(&self.watched().state)
    }

    /// A transition of its state.
    pub(crate) fn change(&self, transition: impl FnOnce(&mut HoldState) -> Change) {
        self.change_keys(transition, None);
    }

    fn change_keys(
        &self,
        transition: impl FnOnce(&mut HoldState) -> Change,
        keys: Option<Vec<Vec<u8>>>,
    ) {
        let change = {
            let mut watched = self.watched();
            let change = transition(&mut watched.state);
            if matches!(change, Change::Lost(_)) {
                watched.lost_keys = keys;
            }
            change
        };
        match change {
            Change::Nothing => {}
            Change::Ended => self.report.end(&self.hold_ref, None),
            Change::Lost(how) => {
                self.report.end(&self.hold_ref, Some(how));
                self.told.notify_waiters();
            }
        }
    }

    /// How it was lost, if it was. An expired hold is lost, whether or not a timer has noticed.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        self.change(|state| state.expire(Moment::now()));
        self.look(HoldState::lost)
    }

    /// It is lost. The first reason stays.
    pub(crate) fn lose(&self, how: Lost) {
        self.change(|state| state.lose(how));
    }

    /// The server said that it does not have these of its keys; `how`: what follows unless a message said more.
    pub(crate) fn lose_keys(&self, how: Lost, keys: Vec<Vec<u8>>) {
        self.change_keys(|state| state.lose(state.hinted().unwrap_or(how)), Some(keys));
    }

    /// Notes what became of a renewal.
    pub(crate) fn renewed(&self, asked: Asked, reply: RenewalReply) {
        telemetry::renewed(reply.name());
        self.change(|state| state.end_renewal(Moment::now(), asked, reply));
    }

    /// Notes the replies to a renewal; `confirmed`: why replicas do not have it. An error that a part is gone comes
    /// before others, and names the keys of all such parts.
    pub(crate) fn settle(
        &self,
        asked: Asked,
        replies: Vec<Result<Value, Error>>,
        confirmed: Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut gone, mut failed) = (Vec::new(), None);
        for (reply, key) in replies.into_iter().zip(self.hold_ref.keys.iter()) {
            match reply {
                Err(error) if error.is_gone() => {
                    gone.push(key.to_vec());
                    failed = Some(error);
                }
                Err(error) if gone.is_empty() && (failed.is_none() || error.passes()) => {
                    failed = Some(error);
                }
                _ => {}
            }
        }
        let (reply, settled) = match (failed, confirmed) {
            (Some(error), _) if error.is_gone() => {
                self.lose_keys(error.gone(), gone.clone());
                return Err(error.of_just(gone));
            }
            (Some(error), _) if error.is_unanswered() => (RenewalReply::Unknown, Err(error)),
            (Some(error), _) if error.passes() => (RenewalReply::Passing, Err(error)),
            (Some(error), _) => (RenewalReply::Refused, Err(error)),
            (None, Err(error)) => (RenewalReply::Unconfirmed, Err(error)),
            (None, Ok(())) => (RenewalReply::Accepted, Ok(())),
        };
        self.renewed(asked, reply);
        settled.map_err(|error| error.of_key(self.hold_ref.key()))
    }

    /// Ends it for its release, once: true for the first call.
    pub(crate) fn begin_release(&self) -> bool {
        self.change(HoldState::end);
        self.watched().state.begin_release()
    }

    pub(crate) fn terms(&self) -> LeaseTerms {
        self.look(HoldState::terms)
    }

    /// The work under it is done.
    pub(crate) fn set_done(&self) {
        self.watched().is_done = true;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.watched().is_done
    }

    /// What is left of its lease, and the lease, if a renewal of this moment is late: on time, at least two thirds are
    /// left.
    pub(crate) fn late_renewal(&self) -> Option<(Duration, Duration)> {
        self.look(|state| {
            let (left, span) = (state.valid_for(Moment::now()), state.span());
            // Others are renewed for another reason, or for less than their lease.
            let is_regular = state.terms().watched && state.terms().ends_by.is_none();
            (left < span / 2 && is_regular && !state.has_ended()).then_some((left, span))
        })
    }

    /// The keys that were lost: all of them, unless the server named some.
    pub(crate) fn lost_keys(&self) -> Vec<Vec<u8>> {
        self.watched().lost_keys.clone().unwrap_or_else(|| self.hold_ref.keys())
    }
}
