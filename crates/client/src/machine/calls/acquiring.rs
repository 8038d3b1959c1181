//! The call of an acquire.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::super::acquire::{Acquire, Answer, Copy, End, Heard, Step};
use super::super::hold_state::{Asked, LeaseTerms};
use super::super::patience::{LAST, Seen};
use super::super::request::{Request, is_grant};
use super::super::slot::Place;
use super::{AskCall, Call, Grant, Next, Outcome, Replies, Sending, are_missing, no_answer, seen};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::hold_ref::HoldRef;
use crate::base::random::{Name, fraction};
use crate::base::replicas::{Quarantine, Replicas};

/// An acquire.
pub(crate) struct AcquireCall {
    request: Request,
    place: Place,
    state: Acquire,
    replicas: Option<Replicas>,
    max_hold: Option<Duration>,
    /// The grant at hand, and when it began at the earliest.
    grant: Option<(HoldRef, Moment)>,
    /// What a message said was granted.
    announced: Option<HoldRef>,
    /// Why the last attempt failed.
    error: Option<Error>,
    given_up: Option<Box<AskCall>>,
}

impl AcquireCall {
    pub(crate) fn new(
        request: Request,
        state: Acquire,
        replicas: Option<Replicas>,
        max_hold: Option<Duration>,
    ) -> Self {
        let (grant, announced, error, given_up) = (None, None, None, None);
        let place = Place::of(request.key());
        Self { request, place, state, replicas, max_hold, grant, announced, error, given_up }
    }

    fn give_up(&mut self, now: Moment) {
        let lasts = Duration::from_millis(self.request.queue_ms) + self.request.lease;
        let release = [self.request.release()];
        let ask = AskCall::new(self.place, release, lasts.max(LAST), lasts, now);
        self.given_up = Some(Box::new(ask.releasing(self.request.keys.clone())));
    }

    fn next(&mut self, now: Moment, step: Step) -> Next {
        if std::mem::take(&mut self.state.begins_anew) {
            self.give_up(now);
            self.request.reqid = Name::new();
        }
        if matches!(step, Step::Held(_) | Step::Renew) && self.grant.is_none() {
            self.grant = self.announced.take().map(|hold| (hold, now));
        }
        match step {
            Step::Rest => Next::Rest,
            Step::Send(copy) => {
                let block = if let Copy::Block(time) = copy { Some(time) } else { None };
                let commands = Arc::from([self.request.copy(copy)]);
                Next::Send(Sending { commands, confirm: None, block })
            }
            Step::Renew => {
                let Some((hold, _)) = &self.grant else { return Next::Rest };
                let commands =
                    hold.renewals(self.request.terms.lease, self.request.terms.bind).into();
                // It may take long: others do not wait for that.
                let block = self.replicas.map(|replicas| replicas.timeout);
                Next::Send(Sending { commands, confirm: self.replicas, block })
            }
            Step::Held(granted) => {
                let Some((hold, begun)) = self.grant.take() else { return Next::Rest };
                let ends_by = self.max_hold.map(|max_hold| begun.after(max_hold));
                let terms = LeaseTerms { ends_by, ..self.request.terms };
                let (reqid, hint) = (self.request.reqid, self.state.heard_end());
                let grant = Grant { hold, reqid, place: self.place, terms, granted, hint };
                Next::Done(Outcome::Granted(Box::new(grant)))
            }
            Step::Over(end) => {
                if self.state.is_pending {
                    self.give_up(now);
                }
                let key = self.request.key();
                let error = self.error.take();
                let error = match end {
                    End::Replaced => Some(Error::replaced(key, &self.request.owner)),
                    End::Refused | End::Unavailable => error.or_else(|| Some(no_answer(None))),
                    // What a grant that came too late was refused is no reason.
                    End::NotGranted => error.filter(|error| {
                        let is_late = error.is_gone() || error.kind() == ErrorKind::Spent;
                        (error.is_reply() && !is_late) || are_missing(error)
                    }),
                };
                Next::Done(Outcome::NotHeld(error.map(|error| error.of_key(key))))
            }
        }
    }

    fn renewed(&mut self, replies: Replies) -> Result<Asked, Seen> {
        let (sent, lease) = (replies.sent, self.request.terms.lease);
        let failed = replies.values.into_iter().find_map(Result::err);
        let failed = failed.or_else(|| self.not_confirmed(replies.confirmed, sent));
        match failed {
            None => Ok(Asked { sent, lease }),
            Some(error) => {
                let seen = seen(&error);
                self.error = Some(error);
                Err(if seen == Seen::Answer { Seen::Passing } else { seen })
            }
        }
    }

    /// Why replicas do not confirm a grant that was asked for then.
    fn not_confirmed(
        &self,
        confirmed: Option<Result<Quarantine, Error>>,
        sent: Moment,
    ) -> Option<Error> {
        self.replicas?;
        match confirmed.unwrap_or_else(|| Err(no_answer(None))) {
            Ok(found) if found.grants(sent) => None,
            Ok(_) => Some(Error::in_quarantine()),
            Err(error) => Some(error),
        }
    }
}

impl Call for AcquireCall {
    fn place(&self) -> Place {
        self.place
    }

    fn start(&mut self, now: Moment) -> Next {
        let step = self.state.send(now);
        self.next(now, step)
    }

    fn written(&mut self, now: Moment) {
        self.state.written(now);
    }

    fn fits(&self, values: &[Value]) -> bool {
        match &self.grant {
            Some((hold, _)) => hold.are_renewed(values),
            None => {
                values.iter().all(|value| matches!(value, Value::ServerError(_)) || is_grant(value))
            }
        }
    }

    fn replied(&mut self, now: Moment, mut replies: Replies) -> Next {
        if self.grant.is_some() {
            let renewed = self.renewed(replies);
            let failed = renewed.is_err();
            let step = self.state.renewed(now, renewed, fraction());
            if failed {
                self.grant = None;
            }
            return self.next(now, step);
        }
        let reply = replies.values.pop().unwrap_or_else(|| Err(no_answer(None)));
        let answer = match reply.and_then(|value| self.request.granted(value)) {
            Ok(None) => {
                self.error = None;
                Answer::Null
            }
            Ok(Some(hold)) => {
                self.grant = Some((hold, replies.sent));
                Answer::Granted
            }
            Err(error) => {
                let answer = match seen(&error) {
                    Seen::Answer if error.kind() == ErrorKind::Spent => Answer::Spent,
                    Seen::Answer => Answer::Final,
                    Seen::Passing => Answer::Passing,
                    Seen::Late | Seen::Lost if error.ends_opening() => Answer::Final,
                    Seen::Late | Seen::Lost => Answer::None { is_late: false },
                };
                self.error = Some(error);
                answer
            }
        };
        let step = self.state.replied(now, answer, fraction());
        self.next(now, step)
    }

    fn may_not_block(&mut self, now: Moment) -> Next {
        let step = self.state.may_not_block(now);
        self.next(now, step)
    }

    fn heard(&mut self, now: Moment, heard: Heard, id: &[u8]) -> Next {
        if heard == Heard::Granted {
            self.announced = self.request.announced(id);
            if self.announced.is_none() {
                return Next::Rest;
            }
        }
        let step = self.state.heard(now, heard);
        self.next(now, step)
    }

    fn wake_at(&self) -> Moment {
        self.state.wake_at()
    }

    fn tick(&mut self, now: Moment, failure: Option<&Error>) -> Next {
        if now >= self.state.wake_at() && !self.state.rests() {
            // That replicas were missing tells more.
            if !self.error.as_ref().is_some_and(are_missing) {
                self.error = Some(no_answer(failure));
            }
            self.grant = None;
        }
        let step = self.state.tick(now, failure.is_none(), fraction());
        self.next(now, step)
    }

    fn reqid(&self) -> Option<Name> {
        Some(self.request.reqid)
    }

    fn waits(&self) -> bool {
        self.state.waits()
    }

    fn leave(&mut self, now: Moment) {
        if self.state.is_pending {
            self.give_up(now);
        }
    }

    fn given_up(&mut self) -> Option<Box<AskCall>> {
        self.given_up.take()
    }
}
