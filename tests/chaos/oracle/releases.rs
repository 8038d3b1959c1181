//! What the copies of one RELEASE are answered: all of them the same.

use std::{collections::HashMap, time::Instant};

use dlock_testing::{Reply as _, redis::Value};

use super::{ConnId, Oracle, Times, Violation};
use crate::{
    call::{Call, Scope},
    key::{Family, Key},
};

/// No connection: whatever was answered over any of them may have come in between.
const NOBODY: ConnId = 0;

/// A RELEASE with REQID.
#[derive(Debug)]
struct Request {
    first_sent: Instant,
    answer: Option<String>,
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
        let Some(answer) = answer_of(key.family, reply) else { return Ok(()) };
        if let Some(known) = known.answer.replace(answer.clone())
            && known != answer
        {
            return Err(Violation::of(
                *key,
                format!("copies of RELEASE {id} got {known} and {answer}"),
            ));
        }
        self.judged += 1;
        Ok(())
    }
}

/// What it says about the request: a number, Null, `LOST` with its reason, or `UNKNOWN`.
fn answer_of(family: Family, reply: &Value) -> Option<String> {
    match reply {
        Value::Int(left) if family == Family::Sem => Some((*left).max(0).to_string()),
        Value::Int(left) => Some(left.to_string()),
        Value::Nil => Some("Null".to_owned()),
        Value::ServerError(_) => {
            let text = reply.error();
            let words = text.split(' ').take(if text.starts_with("LOST ") { 2 } else { 1 });
            let known = text.starts_with("LOST ") || text.starts_with("UNKNOWN ");
            known.then(|| words.collect::<Vec<_>>().join(" "))
        }
        _ => None,
    }
}
