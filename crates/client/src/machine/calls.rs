//! The calls of a client: what each sends, and what its replies mean.

mod acquiring;
mod asking;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

pub(crate) use self::acquiring::AcquireCall;
pub(crate) use self::asking::AskCall;
pub(crate) use self::waiting::{LONG_BLOCK, WaitCall, Waiting};
use super::acquire::Heard;
use super::hold_state::{Asked, LeaseTerms};
use super::patience::Seen;
use super::slot::Place;
use super::tracked::TrackedHold;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::base::random::Name;
use crate::base::replicas::{Quarantine, Replicas};

/// What a call sends, all of it to one server and in this order.
pub(crate) struct Sending {
    pub(crate) commands: Arc<[Cmd]>,
    /// These replicas are to have it.
    pub(crate) confirm: Option<Replicas>,
    /// How long it may block a connection of its own. None: it shares one.
    pub(crate) block: Option<Duration>,
}

/// What came for what was sent last.
pub(crate) struct Replies {
    /// One for each command.
    pub(crate) values: Vec<Result<Value, Error>>,
    /// Whether enough replicas have it, if that was asked.
    pub(crate) confirmed: Option<Result<Quarantine, Error>>,
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
    pub(crate) place: Place,
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
    fn fits(&self, _values: &[Value]) -> bool {
        true
    }

    fn replied(&mut self, now: Moment, replies: Replies) -> Next;

    /// No connection of its own is left for it.
    fn may_not_block(&mut self, _now: Moment) -> Next {
        Next::Rest
    }

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

/// What it means that no reply came in time.
fn late(failure: Option<&Error>) -> (Seen, Error) {
    (if failure.is_none() { Seen::Late } else { Seen::Lost }, no_answer(failure))
}

fn are_missing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Replicas { .. })
}

fn no_answer(failure: Option<&Error>) -> Error {
    failure.cloned().unwrap_or_else(|| Error::unavailable("no answer in time"))
}
