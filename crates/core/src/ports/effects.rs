//! The output of the machine.

use crate::base::ids::WaiterId;
use crate::base::key::Key;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use dlock_wire::message;
use dlock_wire::permit::PermitId;
use dlock_wire::reply::{ErrorCode, HoldEnd};

/// An answer to a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A grant: its fencing token.
    Token(u64),
    /// Grants of several keys: their tokens in the order of the keys.
    Tokens(Vec<u64>),
    /// A grant of one of several keys.
    Granted {
        /// The key.
        key: Vec<u8>,
        /// The fencing token.
        token: u64,
    },
    /// Leased permits: the permit id.
    Permit(PermitId),
    /// Permits without an owner.
    Taken,
    /// A number.
    Count(u64),
    /// The hold that an AWAIT observed has ended.
    Ended(HoldEnd),
    /// Number of free permits; negative while more are out than the semaphore has.
    Available(i64),
    /// Not granted (in time); nothing there.
    Null,
    /// An error.
    Fault(Fault),
}

/// The answer to the caller of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// The call gets this now.
    Now(Outcome),
    /// The call waits as this waiter, and gets its answer later ([`Effects::wakes`]).
    Parked(WaiterId),
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self::Now(outcome)
    }
}

/// An error and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The first word of the error.
    pub code: ErrorCode,
    /// The rest, for people.
    pub text: String,
}

impl Outcome {
    /// An error outcome.
    pub fn fault(code: ErrorCode, text: impl Into<String>) -> Self {
        Self::Fault(Fault { code, text: text.into() })
    }

    /// Whether the caller got something that it would have to give back.
    pub fn is_grant(&self) -> bool {
        match self {
            Self::Token(_)
            | Self::Tokens(_)
            | Self::Granted { .. }
            | Self::Permit(_)
            | Self::Taken => true,
            Self::Count(_) | Self::Ended(_) | Self::Available(_) | Self::Null | Self::Fault(_) => {
                false
            }
        }
    }
}

/// The answer to a parked caller.
#[derive(Debug, PartialEq, Eq)]
pub struct Wake {
    /// The waiter that is woken. The machine knows it only as an undelivered grant.
    pub waiter: WaiterId,
    /// Its answer.
    pub outcome: Outcome,
}

/// A keyspace event of class `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A grant to a new owner, or a re-entry.
    Acquire,
    /// A release, in part or in full.
    Release,
    /// A hold ended by itself.
    Expire,
    /// A hold was broken.
    Break,
    /// An owner began to wait.
    Wait,
}

/// What a replica and the AOF replay, in this order: `DLOCK.APPLY key payload`.
#[derive(Debug, Clone)]
pub struct Record {
    /// Database of the key.
    pub db: u32,
    name: Range<usize>,
    payload: Range<usize>,
}

/// A keyspace event on a key.
#[derive(Debug, Clone)]
pub struct Note {
    /// Database of the key.
    pub db: u32,
    /// What happened.
    pub event: Event,
    name: Range<usize>,
}

/// A message to the subscribers of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Name of the channel.
    pub channel: Vec<u8>,
    /// It goes to the shard only (sharded pub/sub).
    pub is_sharded: bool,
    /// The message.
    pub text: Vec<u8>,
}

/// The subject of messages about a hold or a place, and their channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject<'a> {
    /// Name of the channel.
    pub channel: Vec<u8>,
    /// Messages go to the shard only (sharded pub/sub).
    pub is_sharded: bool,
    /// What messages call it.
    pub id: SubjectId,
    /// The owner.
    pub owner: &'a [u8],
    /// Id of the request that asked for messages; empty if it had none.
    pub reqid: &'a [u8],
}

/// The id of a hold or a place in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubjectId {
    /// A fencing token; 0 for a place.
    Token(u64),
    Permit(PermitId),
}

/// Everything the shell has to do after an operation, in the order of the fields. One value is reused, so that an
/// uncontended operation allocates nothing for it.
#[derive(Debug, Default)]
#[must_use]
pub struct Effects {
    /// What replicas and the AOF must see.
    pub records: Vec<Record>,
    /// Keyspace events.
    pub notes: Vec<Note>,
    /// Messages to channels.
    pub messages: Vec<Message>,
    /// Answers to parked callers, in grant order.
    pub wakes: Vec<Wake>,
    /// The answer to the caller, if there is one.
    pub answer: Option<Answer>,
    bytes: Vec<u8>,
    /// The key named last, and the range of its bytes: most operations name only one.
    last_name: Option<(u32, Range<usize>)>,
}

impl Effects {
    /// Empties it for the next operation. Keeps its memory, unless a burst made it large.
    pub fn clear(&mut self) {
        const KEPT: usize = 256;
        self.records.clear();
        self.notes.clear();
        self.messages.clear();
        self.wakes.clear();
        self.bytes.clear();
        self.records.shrink_to(KEPT);
        self.notes.shrink_to(KEPT);
        self.messages.shrink_to(KEPT);
        self.wakes.shrink_to(KEPT);
        self.bytes.shrink_to(64 * KEPT);
        self.last_name = None;
        self.answer = None;
    }

    /// Whether there is nothing to do besides the reply.
    pub fn is_quiet(&self) -> bool {
        self.records.is_empty()
            && self.notes.is_empty()
            && self.messages.is_empty()
            && self.wakes.is_empty()
    }

    /// The amount of work besides the reply: it bounds the work in one turn of the server's loop. An answer to a
    /// blocked call weighs more than other effects: the server has to write it to a connection.
    pub fn weight(&self) -> usize {
        self.records.len() + self.notes.len() + self.messages.len() + 2 * self.wakes.len()
    }

    /// Makes room for records and keyspace events of `keys` keys: a growing list is copied again and again.
    pub(crate) fn expect(&mut self, keys: usize) {
        const RECORD_BYTES: usize = 80;
        self.records.reserve(keys);
        self.notes.reserve(keys);
        self.bytes.reserve(keys.saturating_mul(RECORD_BYTES));
    }

    /// The key a record is about.
    pub fn record_key(&self, record: &Record) -> &[u8] {
        &self.bytes[record.name.clone()]
    }

    /// The payload of a record; see [`crate::record`].
    pub fn record_payload(&self, record: &Record) -> &[u8] {
        &self.bytes[record.payload.clone()]
    }

    /// The key a note is about.
    pub fn note_key(&self, note: &Note) -> &[u8] {
        &self.bytes[note.name.clone()]
    }

    /// Adds a record; `write` appends its payload.
    pub(crate) fn record(&mut self, key: Key<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let name = self.name(key);
        let start = self.bytes.len();
        write(&mut self.bytes);
        let payload = start..self.bytes.len();
        self.records.push(Record { db: key.db, name, payload });
    }

    /// Adds a keyspace event.
    pub(crate) fn note(&mut self, key: Key<'_>, event: Event) {
        let name = self.name(key);
        self.notes.push(Note { db: key.db, event, name });
    }

    /// Adds a message about a hold.
    pub(crate) fn message(&mut self, event: message::Event, key: Key<'_>, subject: Subject<'_>) {
        let Subject { channel, is_sharded, id, owner, reqid } = subject;
        let (mut digits, permit);
        let id = match id {
            SubjectId::Token(token) => {
                digits = itoa::Buffer::new();
                digits.format(token).as_bytes()
            }
            SubjectId::Permit(id) => {
                permit = dlock_wire::permit::text(&id);
                &permit[..]
            }
        };
        let text = message::Message::Hold { event, db: key.db, id, owner, reqid, key: key.name };
        self.messages.push(Message { channel, is_sharded, text: text.write() });
    }

    /// Answers a parked caller.
    pub(crate) fn wake(&mut self, waiter: WaiterId, outcome: Outcome) {
        self.wakes.push(Wake { waiter, outcome });
    }

    fn name(&mut self, key: Key<'_>) -> Range<usize> {
        if let Some((db, range)) = &self.last_name
            && *db == key.db
            && self.bytes[range.clone()] == *key.name
        {
            return range.clone();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key.name);
        let range = start..self.bytes.len();
        self.last_name = Some((key.db, range.clone()));
        range
    }
}
