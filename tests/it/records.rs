//! Locks in the replication stream, the AOF, RDB files and DUMP, as text.

#![allow(clippy::panic, reason = "a test that cannot go on stops here and says why")]

use std::fmt::Write as _;

use dlock_core::{
    base::kind::Kind,
    base::time::{Instant, LeaseInstant},
    record,
    value::fair::QueueEntry,
    value::hold::{Hold, Notify},
    value::lock::Lock,
    value::resource::{Body, Resource},
};
use redis::Value;

use crate::support::{Client, Reply as _};

/// The lock in the payload of a `DLOCK.APPLY`, and whether the record is about a new grant.
#[track_caller]
pub fn decode(payload: &[u8]) -> (Resource, bool) {
    let mut resource = Resource::free(Kind::Lock);
    let replayed = record::replay(payload, Instant(0), LeaseInstant(0), &mut resource, false)
        .unwrap_or_else(|error| panic!("{error:?}: {}", payload.escape_ascii()));
    (resource, replayed.granted)
}

/// All durable fields of a lock but times, e.g. `a token 5 holds 2 lease 30000 ids [r1 r2] label "x" messages to c
/// tied 500`; then its waiters in order.
pub fn words(resource: &Resource) -> String {
    let lock = match resource.lock() {
        Lock::Free => "free".to_owned(),
        Lock::Closed { delay_ms, .. } => format!("closed for {delay_ms}"),
        Lock::Held(hold) => hold_in_words(hold),
    };
    let Body::Fair(fair) = &resource.body else { return lock };
    fair.entries
        .values()
        .fold(lock, |text, place| format!("{text}, then {}", place_in_words(place)))
}

fn place_in_words(QueueEntry { owner, ask, .. }: &QueueEntry) -> String {
    let mut text = format!("{} lease {}", owner.escape_ascii(), ask.lease_ms);
    if let Some(ms) = ask.queue_ms {
        let _ = write!(text, " queue {ms}");
    }
    if let Some(id) = &ask.request {
        let _ = write!(text, " id {}", id.escape_ascii());
    }
    if !ask.label.is_empty() {
        let _ = write!(text, " label \"{}\"", ask.label.escape_ascii());
    }
    write_channel(&ask.notify, &mut text);
    if let Some(ms) = ask.bind_ms {
        let _ = write!(text, " tied {ms}");
    }
    text
}

fn write_channel(notify: &Notify, text: &mut String) {
    match notify {
        Notify::Silent => {}
        Notify::Owner => *text += " messages to its owner",
        Notify::Channel(name) => {
            let _ = write!(text, " messages to {}", name.escape_ascii());
        }
        Notify::Sharded(name) => {
            let _ = write!(text, " messages to {} of the shard", name.escape_ascii());
        }
    }
}

fn hold_in_words(hold: &Hold) -> String {
    let mut text = format!(
        "{} token {} holds {} lease {}",
        hold.owner.escape_ascii(),
        hold.token,
        hold.count,
        hold.lease_ms
    );
    let ids = requests(hold);
    if !ids.is_empty() {
        let _ = write!(text, " ids [{}]", ids.join(" "));
    }
    if !hold.label().is_empty() {
        let _ = write!(text, " label \"{}\"", hold.label().escape_ascii());
    }
    if let Some(extras) = &hold.extras {
        write_channel(&extras.notify, &mut text);
    }
    if let Some(binding) = hold.binding() {
        let _ = write!(text, " tied {}", binding.ms);
    }
    if hold.unclaimed().is_some() {
        text.push_str(" unclaimed");
    }
    text
}

/// The request ids that count in a hold, oldest first.
pub fn requests(hold: &Hold) -> Vec<String> {
    hold.request_ids().map(|id| id.escape_ascii().to_string()).collect()
}

/// Remaining lease of a lock that was just decoded, in milliseconds; 0 if it is free.
pub fn remaining_ms(resource: &Resource) -> u64 {
    resource.next_end().map_or(0, |(until, _)| until - LeaseInstant(0))
}

/// The lock under `key` in the database of `client`, if it exists. The server must run with `rdbcompression no`.
#[track_caller]
pub fn stored(client: &mut Client, key: &[u8]) -> Option<Resource> {
    match client.cmd(&[b"DUMP", key]) {
        Value::Nil => None,
        dump => Some(decode(payload(&dump.bytes())).0),
    }
}

/// Beginning of a DUMP of a lock: the kind "module value", the name of the module's type in 9 bytes, and "a string
/// follows".
const HEAD: usize = 1 + 9 + 1;
/// Its end: "end of the module's value", the version of the format, a checksum.
const TAIL: usize = 1 + 2 + 8;

/// The payload in a DUMP.
#[track_caller]
fn payload(dump: &[u8]) -> &[u8] {
    let body = &dump[HEAD..dump.len() - TAIL];
    // Its length: in the lower 6 bits of one byte, or in 14 bits of two.
    let (len, body) = match *body {
        [short @ 0..=0x3f, ..] => (usize::from(short), &body[1..]),
        [high @ 0x40..=0x7f, low, ..] => {
            (usize::from(high & 0x3f) << 8 | usize::from(low), &body[2..])
        }
        _ => panic!("an uncompressed string, got {}", dump.escape_ascii()),
    };
    assert_eq!(body.len(), len, "one string and nothing else: {}", dump.escape_ascii());
    body
}
