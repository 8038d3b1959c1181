//! The calls of a client: what each sends, and what its replies mean.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::acquire::{Acquire, Answer, Copy, End, Heard, POLL, Step};
use super::hold_state::{Asked, LeaseTerms};
use super::patience::{LAST, Patience, Seen};
use super::request::{Request, is_grant};
use super::slot::Slot;
use super::tracked::TrackedHold;
use crate::base::clock::{Moment, millis};
use crate::base::error::{Error, ErrorKind};
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::base::random::{Name, fraction};
use crate::base::replicas::{Acknowledged, Replicas};

/// Where a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// To the server that has the slot.
    Slot(Slot),
    /// To that one, by its number.
    Server(usize),
}

/// What a call sends, all of it to one server and in this order.
pub(crate) struct Sending {
    pub(crate) commands: Vec<Cmd>,
    /// These replicas are to have it.
    pub(crate) confirm: Option<Replicas>,
    /// How long it may block a connection of its own. None: it shares one.
    pub(crate) block: Option<Duration>,
}

/// What came for what was sent last.
pub(crate) struct Replies {
    /// One for each command.
    pub(crate) values: Vec<Result<Value, Error>>,
    /// What the server said of its replicas, if that was asked.
    pub(crate) confirmed: Option<Result<Acknowledged, Error>>,
    /// When it was written.
    pub(crate) sent: Moment,
}

/// What a call does next.
#[must_use]
pub(crate) enum Next {
    /// Nothing until [`Call::wake_at`].
    Rest,
    Send(Sending),
    Done(Outcome),
}

/// How a call has ended.
pub(crate) enum Outcome {
    /// Of an acquire, for the machine.
    Granted(Box<Grant>),
    Held(Arc<TrackedHold>),
    /// An acquire got nothing; perhaps for this reason. One that passes: the time was over before it had passed.
    NotHeld(Option<Error>),
    /// To the commands of an [`AskCall`], or the one of a [`WaitCall`].
    Answered(Replies),
}

/// A grant that counts.
pub(crate) struct Grant {
    pub(crate) hold: HoldRef,
    pub(crate) reqid: Name,
    pub(crate) terms: LeaseTerms,
    pub(crate) granted: Asked,
    /// A message came that its hold may have ended so.
    pub(crate) hint: Option<Lost>,
}

/// A call under way.
pub(crate) trait Call: Send {
    fn place(&self) -> Place;

    fn start(&mut self, now: Moment) -> Next;

    /// What it sent leaves this client now.
    fn written(&mut self, now: Moment);

    /// Whether these can be the replies, and are not those to other requests.
    fn fits(&self, values: &[Value]) -> bool;

    fn replied(&mut self, now: Moment, replies: Replies) -> Next;

    /// No connection of its own is left for it.
    fn may_not_block(&mut self, now: Moment) -> Next;

    /// A message about its request.
    fn heard(&mut self, _now: Moment, _heard: Heard, _id: &[u8]) -> Next {
        Next::Rest
    }

    fn wake_at(&self) -> Moment;

    /// The time has come. `failure`: why there is no connection; None: there is one.
    fn tick(&mut self, now: Moment, failure: Option<&Error>) -> Next;

    /// The id of its request, if messages tell of that.
    fn reqid(&self) -> Option<Name> {
        None
    }

    /// It waits: a connection that dies silently must be noticed.
    fn waits(&self) -> bool {
        false
    }

    /// It releases something: it goes on when nobody waits for it any more.
    fn releases(&self) -> bool {
        false
    }

    /// Nobody waits for it any more, or the client closes.
    fn leave(&mut self, _now: Moment) {}

    /// A request that is to be given up in the background.
    fn given_up(&mut self) -> Option<Box<AskCall>> {
        None
    }
}

/// What an error says of the server.
fn seen(error: &Error) -> Seen {
    if !error.is_reply() {
        Seen::Lost
    } else if error.passes() {
        Seen::Passing
    } else {
        Seen::Answer
    }
}

fn are_missing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Replicas { .. })
}

fn no_answer(failure: Option<&Error>) -> Error {
    failure.cloned().unwrap_or_else(|| Error::unavailable("no answer in time"))
}

/// An acquire.
pub(crate) struct AcquireCall {
    request: Request,
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
        Self { request, state, replicas, max_hold, grant, announced, error, given_up }
    }

    fn give_up(&mut self, now: Moment) {
        let lasts = Duration::from_millis(self.request.queue_ms) + self.request.lease;
        let release = vec![self.request.release()];
        let ask = AskCall::new(self.place(), release, lasts.max(LAST), lasts, now);
        self.given_up = Some(Box::new(ask.releasing(self.request.key())));
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
                let commands = vec![self.request.copy(copy)];
                Next::Send(Sending { commands, confirm: None, block })
            }
            Step::Renew => {
                let Some((hold, _)) = &self.grant else { return Next::Rest };
                let commands = hold.renewals(self.request.terms.lease, self.request.terms.bind);
                // It may take long: others do not wait for that.
                let block = self.replicas.map(|replicas| replicas.timeout);
                Next::Send(Sending { commands, confirm: self.replicas, block })
            }
            Step::Held(granted) => {
                let Some((hold, begun)) = self.grant.take() else { return Next::Rest };
                let ends_by = self.max_hold.map(|max_hold| begun.after(max_hold));
                let terms = LeaseTerms { ends_by, ..self.request.terms };
                let (reqid, hint) = (self.request.reqid, self.state.heard_end());
                let grant = Grant { hold, reqid, terms, granted, hint };
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
        confirmed: Option<Result<Acknowledged, Error>>,
        sent: Moment,
    ) -> Option<Error> {
        let replicas = self.replicas?;
        let found = confirmed.unwrap_or_else(|| Err(no_answer(None)));
        match found.and_then(|found| replicas.enough(found)) {
            Ok(found) if found.grants(sent) => None,
            Ok(_) => Some(Error::in_quarantine()),
            Err(error) => Some(error),
        }
    }
}

impl Call for AcquireCall {
    fn place(&self) -> Place {
        Place::Slot(Slot::for_key(self.request.key()))
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

/// Commands that may be repeated, each until it is answered.
pub(crate) struct AskCall {
    place: Place,
    commands: Vec<Cmd>,
    replies: Vec<Option<Result<Value, Error>>>,
    confirm: Option<Replicas>,
    end: Moment,
    patience: Patience,
    wake_at: Moment,
    /// When the last copy was sent, and whether its reply is awaited.
    sent: Moment,
    is_asking: bool,
    /// When the first of those was sent of which replies count.
    first: Option<Moment>,
    /// It was sent, and the reply did not come.
    is_doubtful: bool,
    /// What the server said last, of what passes.
    answer: Option<Error>,
    /// The key that it releases, if it goes on when nobody waits for it any more.
    releases: Option<Box<[u8]>>,
}

impl AskCall {
    /// Until no server has answered for `limit`, and at most `within`. A `limit` of zero: it is sent once.
    pub(crate) fn new(
        place: Place,
        commands: Vec<Cmd>,
        limit: Duration,
        within: Duration,
        now: Moment,
    ) -> Self {
        Self {
            place,
            replies: commands.iter().map(|_| None).collect(),
            commands,
            confirm: None,
            end: now.after(within),
            patience: Patience::new(limit, false, now),
            wake_at: now,
            sent: now,
            is_asking: false,
            first: None,
            is_doubtful: false,
            answer: None,
            releases: None,
        }
    }

    /// It releases that key, and goes on when nobody waits for it any more.
    pub(crate) fn releasing(self, key: &[u8]) -> Self {
        Self { releases: Some(key.into()), ..self }
    }

    pub(crate) fn confirmed_by(self, confirm: Option<Replicas>) -> Self {
        Self { confirm, ..self }
    }

    fn send(&mut self, now: Moment) -> Next {
        self.wake_at = self.end.max(now.after(LAST));
        self.is_asking = true;
        let open = self.commands.iter().zip(&self.replies).filter(|(_, reply)| reply.is_none());
        let commands = open.map(|(command, _)| command.clone()).collect();
        Next::Send(Sending { commands, confirm: self.confirm, block: None })
    }

    fn failed(&mut self, now: Moment, seen: Seen, error: Error) -> Next {
        self.is_asking = false;
        self.patience.saw(seen);
        let is_final = error.ends_opening();
        let error = error.repeated(self.is_doubtful);
        if error.is_reply() {
            self.answer = Some(error.clone());
        }
        let pause = self.patience.pause(now, seen, self.sent, fraction());
        match pause {
            Some(pause) if now < self.end && !is_final => {
                self.wake_at = now.after(pause.min(self.end.since(now)));
                Next::Rest
            }
            _ => {
                let error = self.answer.take().filter(|_| !is_final).unwrap_or(error);
                for reply in self.replies.iter_mut().filter(|reply| reply.is_none()) {
                    *reply = Some(Err(error.clone()));
                }
                self.done(None)
            }
        }
    }

    fn done(&mut self, confirmed: Option<Result<Acknowledged, Error>>) -> Next {
        let of_key = |error: Error| match &self.releases {
            Some(key) => error.of_key(key),
            None => error,
        };
        let replies = std::mem::take(&mut self.replies).into_iter().flatten();
        let values = replies.map(|reply| reply.map_err(of_key)).collect();
        let sent = self.first.unwrap_or(self.sent);
        Next::Done(Outcome::Answered(Replies { values, confirmed, sent }))
    }
}

impl Call for AskCall {
    fn place(&self) -> Place {
        self.place
    }

    fn start(&mut self, now: Moment) -> Next {
        self.send(now)
    }

    fn written(&mut self, now: Moment) {
        self.sent = now;
        self.is_doubtful = true;
    }

    fn fits(&self, _values: &[Value]) -> bool {
        true
    }

    fn replied(&mut self, now: Moment, replies: Replies) -> Next {
        let mut last = None;
        let open = self.replies.iter_mut().filter(|reply| reply.is_none());
        for (open, reply) in open.zip(replies.values) {
            match reply {
                Err(error) if error.passes() => last = Some(error),
                answered => {
                    *open = Some(answered);
                    self.first.get_or_insert(replies.sent);
                }
            }
        }
        match last {
            None => self.done(replies.confirmed),
            Some(error) => self.failed(now, seen(&error), error),
        }
    }

    fn may_not_block(&mut self, _now: Moment) -> Next {
        Next::Rest
    }

    fn wake_at(&self) -> Moment {
        self.wake_at
    }

    fn tick(&mut self, now: Moment, failure: Option<&Error>) -> Next {
        if now < self.wake_at {
            return Next::Rest;
        }
        if self.is_asking {
            let seen = if failure.is_none() { Seen::Late } else { Seen::Lost };
            return self.failed(now, seen, no_answer(failure));
        }
        self.send(now)
    }

    fn releases(&self) -> bool {
        self.releases.is_some()
    }
}

/// How long one call blocks for several locks, or for what has no queue.
pub(crate) const LONG_BLOCK: Duration = Duration::from_secs(60);

/// Makes a command that waits for so many milliseconds; None: not at all.
pub(crate) type Waiting = Box<dyn Fn(Option<u64>) -> Cmd + Send>;

/// A command that waits with BLOCK, repeated until it replies something. At first it is asked whether it has to wait.
pub(crate) struct WaitCall {
    place: Place,
    command: Waiting,
    /// It takes something, which nothing gives back.
    takes: bool,
    end: Moment,
    patience: Patience,
    wake_at: Moment,
    sent: Moment,
    is_asking: bool,
    block: Option<Duration>,
    is_last: bool,
    polls: bool,
}

impl WaitCall {
    /// At most until `end`, and until no server has answered for `limit`.
    pub(crate) fn new(
        place: Place,
        command: Waiting,
        takes: bool,
        end: Moment,
        limit: Duration,
        now: Moment,
    ) -> Self {
        Self {
            place,
            command,
            takes,
            end,
            patience: Patience::new(limit, true, now),
            wake_at: now,
            sent: now,
            is_asking: false,
            block: None,
            is_last: false,
            polls: false,
        }
    }

    fn send(&mut self, now: Moment) -> Next {
        let left = self.end.since(now);
        let is_polled = std::mem::take(&mut self.polls);
        let may_block = self.patience.is_answered && !is_polled && !left.is_zero();
        self.block = may_block.then(|| LONG_BLOCK.min(left));
        self.is_last = left.is_zero();
        let block = self.block.map_or(Duration::ZERO, |block| block + POLL);
        self.wake_at = now.after((block + self.patience.left(now)).min(left + LAST));
        self.is_asking = true;
        let ms = self.block.map(|block| millis(block).max(1));
        Next::Send(Sending { commands: vec![(self.command)(ms)], confirm: None, block: self.block })
    }

    fn done(&self, reply: Result<Value, Error>) -> Next {
        let values = vec![reply];
        Next::Done(Outcome::Answered(Replies { values, confirmed: None, sent: self.sent }))
    }

    fn failed(&mut self, now: Moment, seen: Seen, error: Error) -> Next {
        self.is_asking = false;
        self.patience.saw(seen);
        let is_lost = matches!(seen, Seen::Late | Seen::Lost);
        if error.ends_opening() {
            return self.done(Err(error));
        }
        let pause = self.patience.pause(now, seen, self.sent, fraction());
        match pause {
            // What the last copy did is not known if it had no reply.
            _ if now >= self.end && self.patience.is_answered && !(self.takes && is_lost) => {
                self.done(Ok(Value::Nil))
            }
            Some(pause) if now < self.end => {
                self.wake_at = now.after(pause.min(self.end.since(now)));
                Next::Rest
            }
            _ => self.done(Err(error)),
        }
    }
}

impl Call for WaitCall {
    fn place(&self) -> Place {
        self.place
    }

    fn start(&mut self, now: Moment) -> Next {
        self.send(now)
    }

    fn written(&mut self, now: Moment) {
        self.sent = now;
    }

    fn fits(&self, _values: &[Value]) -> bool {
        true
    }

    fn replied(&mut self, now: Moment, mut replies: Replies) -> Next {
        match replies.values.pop().unwrap_or(Ok(Value::Nil)) {
            // It did not wait.
            Ok(Value::Nil) if self.block.is_some_and(|block| now < self.sent.after(block / 2)) => {
                let error = Error::unavailable("the server does not wait: it is a replica");
                self.failed(now, Seen::Late, error)
            }
            Ok(Value::Nil) if !self.is_last => {
                self.patience.saw(Seen::Answer);
                self.send(now)
            }
            Ok(value) => self.done(Ok(value)),
            Err(error) if error.passes() => self.failed(now, seen(&error), error),
            Err(error) => self.done(Err(error)),
        }
    }

    fn may_not_block(&mut self, now: Moment) -> Next {
        self.polls = true;
        self.is_asking = false;
        self.wake_at = now.after(POLL).min(self.end);
        Next::Rest
    }

    fn wake_at(&self) -> Moment {
        self.wake_at
    }

    fn tick(&mut self, now: Moment, failure: Option<&Error>) -> Next {
        if now < self.wake_at {
            return Next::Rest;
        }
        if self.is_asking {
            let seen = if failure.is_none() { Seen::Late } else { Seen::Lost };
            return self.failed(now, seen, no_answer(failure));
        }
        self.send(now)
    }

    fn waits(&self) -> bool {
        self.block.is_some()
    }
}
