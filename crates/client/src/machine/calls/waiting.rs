//! Requests that wait with BLOCK.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::super::acquire::POLL;
use super::super::patience::{LAST, Patience, Seen};
use super::super::slot::Place;
use super::{Call, Next, Outcome, Replies, Sending, late, seen};
use crate::base::clock::{Moment, millis};
use crate::base::error::Error;
use crate::base::random::fraction;

/// How long one call blocks for several locks, or for what has no queue.
pub(crate) const LONG_BLOCK: Duration = Duration::from_secs(60);

/// Makes a command that waits for this number of milliseconds; None: not at all.
pub(crate) type Waiting = Box<dyn Fn(Option<u64>) -> Cmd + Send>;

/// A command that waits with BLOCK, repeated until it replies something. At first it is asked whether it has to wait.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
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
        Next::Send(Sending {
            commands: Arc::from([(self.command)(ms)]),
            confirm: None,
            block: self.block,
        })
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
            let (seen, error) = late(failure);
            return self.failed(now, seen, error);
        }
        self.send(now)
    }

    fn waits(&self) -> bool {
        self.block.is_some()
    }
}
