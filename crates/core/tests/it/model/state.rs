//! The parts of the model, and its answers.

use dlock_wire::request::Mode;

/// An answer, as the specification names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Token(u64),
    Count(u64),
    Null,
    /// `LOST` with its reason.
    Lost(&'static str),
    Error(&'static str),
}

/// The complete output of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Out {
    /// `None`: the caller is blocked, or there is no caller.
    pub reply: Option<Answer>,
    /// By connection.
    pub wakes: Vec<(u64, Answer)>,
    /// Channel and text.
    pub messages: Vec<(String, String)>,
    /// Event and key.
    pub events: Vec<(&'static str, usize)>,
    pub counters: Counters,
}

impl Out {
    /// Adds the output of a further part of the same step.
    pub fn add(&mut self, more: Out) {
        self.wakes.extend(more.wakes);
        self.messages.extend(more.messages);
        self.events.extend(more.events);
        let (all, more) = (&mut self.counters, more.counters);
        all.grants_at_once += more.grants_at_once;
        all.grants_after_waiting += more.grants_after_waiting;
        all.timeouts += more.timeouts;
        all.expiries += more.expiries;
        all.releases += more.releases;
        all.broken += more.broken;
        all.disconnected += more.disconnected;
        all.replaced += more.replaced;
        all.unclaimed += more.unclaimed;
    }
}

/// Numbers of events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    pub grants_at_once: u64,
    pub grants_after_waiting: u64,
    pub timeouts: u64,
    pub expiries: u64,
    pub releases: u64,
    pub broken: u64,
    pub disconnected: u64,
    pub replaced: u64,
    pub unclaimed: u64,
}

/// The families that are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Lock,
    Fair,
    Rw,
}

/// A lock for one holder, or the write side of a read-write lock.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a model holds few of them")]
pub(super) enum Lock {
    Free,
    WrongType,
    Closed { until: u64, delay: u64 },
    Held(Hold),
}

#[derive(Debug, Clone)]
pub(super) struct Hold {
    /// Identifies this hold at any token and key.
    pub serial: u64,
    pub owner: String,
    pub token: u64,
    /// The requests that count in it, in the order in which they came, each with its id if it has one.
    pub counts: Vec<Option<Vec<u8>>>,
    pub ends: u64,
    pub lease: u64,
    pub since: u64,
    pub label: String,
    pub channel: Option<String>,
    /// The request that asked for messages; empty without an id.
    pub told_of: String,
    pub tie: Option<Binding>,
    /// A grant to a place that no request has reached yet: the connection of the waiter.
    pub unclaimed: Option<u64>,
}

/// What became of a request that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Its hold ended without its RELEASE: how.
    Lost(&'static str),
    /// Its RELEASE had this answer.
    Released(u64),
    /// Its RELEASE ended a wait.
    Waited,
    /// Its RELEASE found nothing of it.
    Unknown,
}

/// A request that is over.
#[derive(Debug, Clone)]
pub(super) struct Spent {
    pub k: usize,
    pub family: Family,
    pub mode: Mode,
    pub owner: String,
    pub id: Vec<u8>,
    pub used: Use,
    pub at: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub ms: u64,
    /// 0: closed or unknown.
    pub client: u64,
    /// Its connection closed, and therefore the hold will end.
    pub cut: bool,
}

#[derive(Debug, Clone)]
pub(super) enum How {
    Blocked {
        until: Option<u64>,
    },
    Queued,
    Absent {
        until: u64,
    },
    /// The process of the wait is gone, and this one has not opened the key yet.
    Saved,
}

#[derive(Debug, Clone)]
pub(super) struct Place {
    pub owner: String,
    pub mode: Mode,
    pub client: u64,
    pub how: How,
    /// Grows along the queue.
    pub number: i64,
    /// It belongs to the call that is being answered.
    pub calling: bool,
    pub since: u64,
    pub lease: u64,
    pub queue: Option<u64>,
    pub channel: Option<String>,
    pub request: Option<Vec<u8>>,
    pub bind: Option<u64>,
    pub label: String,
}

impl Place {
    /// A hold without any option, just granted.
    pub fn of(owner: &str, mode: Mode) -> Self {
        Self {
            owner: owner.to_owned(),
            mode,
            client: 0,
            how: How::Queued,
            number: 0,
            calling: false,
            since: 0,
            lease: 0,
            queue: None,
            channel: None,
            request: None,
            bind: None,
            label: String::new(),
        }
    }
}

/// A grant in flight to a blocked caller.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub client: u64,
    pub serial: u64,
    pub request: Option<Vec<u8>>,
    /// Time for which it stays as an offer if it cannot be delivered.
    pub kept: Option<u64>,
    /// The key, and the waiter that returns if it cannot be delivered.
    pub place: Option<(usize, Place)>,
    /// The owner got an answer for this hold since.
    pub known: bool,
    /// That answer was to the same request.
    pub repeated: bool,
}

/// Settings, in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub default_lease: u64,
    pub grace: u64,
    pub per_key: usize,
    /// Readers of one key.
    pub holds: usize,
    pub in_all: usize,
    pub quarantine: u64,
    pub lock_delay: u64,
    pub claim: u64,
    pub request_memory: u64,
    pub deadlock_detection: bool,
}
