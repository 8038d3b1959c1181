//! Requests that may be repeated.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::super::patience::{LAST, Patience, Seen};
use super::super::slot::Place;
use super::{Call, Next, Outcome, Replies, Sending, late, seen};
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::random::fraction;
use crate::base::replicas::{Quarantine, Replicas};
use crate::base::target::Keys;

/// Commands that may be repeated, each until it is answered.
pub(crate) struct AskCall {
    place: Place,
    commands: Arc<[Cmd]>,
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
    /// What the server said last, of what passes.
    answer: Option<Error>,
    /// The keys of what it releases, if it goes on when nobody waits for it any more.
    releases: Option<Keys>,
}

impl AskCall {
    /// Until no server has answered for `limit`, and at most `within`. A `limit` of zero: it is sent once.
    pub(crate) fn new(
        place: Place,
        commands: impl Into<Arc<[Cmd]>>,
        limit: Duration,
        within: Duration,
        now: Moment,
    ) -> Self {
        let commands = commands.into();
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
            answer: None,
            releases: None,
        }
    }

    /// It releases what has these keys, and goes on when nobody waits for it any more.
    pub(crate) fn releasing(self, keys: Keys) -> Self {
        Self { releases: Some(keys), ..self }
    }

    pub(crate) fn confirmed_by(self, confirm: Option<Replicas>) -> Self {
        Self { confirm, ..self }
    }

    fn send(&mut self, now: Moment) -> Next {
        self.wake_at = self.end.max(now.after(LAST));
        self.is_asking = true;
        let mut commands = self.commands.clone();
        if self.replies.iter().any(Option::is_some) {
            let open = commands.iter().zip(&self.replies).filter(|(_, reply)| reply.is_none());
            commands = open.map(|(command, _)| command.clone()).collect();
        }
        Next::Send(Sending { commands, confirm: self.confirm, block: None })
    }

    fn failed(&mut self, now: Moment, seen: Seen, error: Error) -> Next {
        self.is_asking = false;
        self.patience.saw(seen);
        let is_final = error.ends_opening();
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

    fn done(&mut self, confirmed: Option<Result<Quarantine, Error>>) -> Next {
        let of_key = |error: Error| match &self.releases {
            Some(keys) => error.of_key(keys.first()),
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

    fn releases(&self) -> bool {
        self.releases.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A renewal of several locks of which the first copy renewed one: the belief in that counts from then.
    #[test]
    fn replies_of_several_copies_count_from_the_first() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let passing = Error::in_quarantine();
        let (place, within) = (Place::of(b"k"), Duration::from_secs(10));
        let requests = [redis::cmd("PING"), redis::cmd("PING")];
        let mut call = AskCall::new(place, requests, within, within, at(0));
        let replies = |values, sent| Replies { values, confirmed: None, sent };
        assert!(matches!(call.start(at(0)), Next::Send(sending) if sending.commands.len() == 2));
        call.written(at(1));
        let next = call.replied(at(2), replies(vec![Ok(Value::Int(7)), Err(passing)], at(1)));
        assert!(matches!(next, Next::Rest));
        let again = call.wake_at();
        assert!(
            matches!(call.tick(again, None), Next::Send(sending) if sending.commands.len() == 1)
        );
        call.written(again);
        let next = call.replied(again, replies(vec![Ok(Value::Int(8))], again));
        let Next::Done(Outcome::Answered(replies)) = next else { panic!("it is answered") };
        let values: Vec<_> = replies.values.into_iter().map(Result::ok).collect();
        assert_eq!(values, [Some(Value::Int(7)), Some(Value::Int(8))]);
        assert_eq!(replies.sent, at(1));
    }
}
