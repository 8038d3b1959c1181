//! What the copies of one RELEASE are answered.
//!
//! The first copy that is carried out finds a hold or none. Each later copy gets the same number, or `SPENT` if there
//! was none. So a number and a `SPENT` contradict each other, in whatever order the copies were carried out, and only
//! one copy can get `NOTHELD`.

use std::{collections::HashMap, time::Instant};

use dlock_testing::{Reply as _, redis::Value};

use super::{ConnId, Oracle, Times, Violation};
use crate::{
    call::{Call, Scope},
    key::{Family, Key},
};

/// No connection: whatever was answered over any of them may have come in between.
const NOBODY: ConnId = 0;

/// What a copy was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// This is left; of a lock only 0, after which the server itself remembers the request.
    Left(i64),
    /// `NOTHELD`.
    NotHeld,
    /// `SPENT`.
    Spent,
}

/// A RELEASE with REQID.
#[derive(Debug)]
struct Request {
    first_sent: Instant,
    answer: Option<Answer>,
}

/// The requests since the last calm moment.
#[derive(Debug, Default)]
pub struct Releases {
    requests: HashMap<(Key, String), Request>,
    forgotten: Option<Instant>,
}

impl Releases {
    /// Records that a copy was sent.
    pub fn sent(&mut self, call: &Call, now: Instant) {
        if let Some(request) = &call.release {
            let new = || Request { first_sent: now, answer: None };
            self.requests.entry(request.clone()).or_insert_with(new);
        }
    }
}

impl Oracle {
    /// A server may have forgotten requests that were sent before this time.
    pub fn requests_forgotten(&mut self, until: Instant) {
        self.releases.forgotten = Some(until);
    }

    /// Records the reply to a RELEASE with REQID.
    pub fn released(&mut self, call: &Call, times: Times, reply: &Value) -> Result<(), Violation> {
        let Some(name) = &call.release else { return Ok(()) };
        let Some(known) = self.releases.requests.get_mut(name) else { return Ok(()) };
        let (key, id) = name;
        let since = Times { conn: NOBODY, sent: known.first_sent, now: times.now };
        if self.releases.forgotten.is_some_and(|until| until >= since.sent)
            || self.scopes.may_have_ended(&Scope::Key(*key), since)
        {
            return Ok(());
        }
        let wrong = |text: String| Err(Violation::of(*key, text));
        if is_error(reply, "ERR request") {
            return wrong(format!("RELEASE {id} is taken for another request: {}", reply.show()));
        }
        let Some(answer) = answer_of(key.family, reply) else { return Ok(()) };
        let fits = match (known.answer, answer) {
            (Some(Answer::Left(one)), Answer::Left(other)) => one == other,
            (Some(Answer::Left(_)), _) | (Some(_), Answer::Left(_)) => false,
            // Only one may get NOTHELD.
            (known, answer) => known != Some(Answer::NotHeld) || answer != Answer::NotHeld,
        };
        if !fits {
            let text = format!("copies of RELEASE {id} got {:?} and {answer:?}", known.answer);
            return wrong(text);
        }
        if known.answer != Some(Answer::NotHeld) {
            known.answer = Some(answer);
        }
        self.judged += 1;
        Ok(())
    }
}

fn is_error(reply: &Value, start: &str) -> bool {
    matches!(reply, Value::ServerError(_)) && reply.error().starts_with(start)
}

/// What the memory of the server vouches for. A hold remembers only its last requests.
fn answer_of(family: Family, reply: &Value) -> Option<Answer> {
    match reply {
        Value::Int(left) if family == Family::Sem => Some(Answer::Left((*left).max(0))),
        Value::Int(0) => Some(Answer::Left(0)),
        _ if is_error(reply, "NOTHELD") => Some(Answer::NotHeld),
        _ if is_error(reply, "SPENT") => Some(Answer::Spent),
        _ => None,
    }
}
