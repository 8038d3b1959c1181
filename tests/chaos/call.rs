//! Calls, with what their replies say about holds.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use super::key::{Key, Owner};

/// What a hold excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Everybody else.
    Exclusive,
    /// Writers.
    Read,
    /// Everybody else; the same owner may read.
    Write,
}

/// What a call ends, or may end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Everything.
    World,
    /// Whatever a key holds.
    Key(Key),
    /// One hold.
    Hold(Key, Owner, Mode),
    /// One permit.
    Permit(Key, String),
}

/// How many of the keys a call is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Its only key; the reply is a token.
    One,
    /// All; the reply is an array of tokens.
    All,
    /// One of them; the reply is a key and a token.
    Any,
}

/// An ACQUIRE of any lock family.
#[derive(Debug, Clone, PartialEq)]
pub struct Acquire {
    /// The keys, one unless `form` says otherwise.
    pub keys: Vec<Key>,
    /// Reply and keys.
    pub form: Form,
    /// For whom.
    pub owner: Owner,
    /// What it excludes.
    pub mode: Mode,
    /// The lease.
    pub lease: Duration,
    /// Whether the hold ends with the connection.
    pub bind: bool,
    /// When the first copy of this request was sent, if this is another one.
    pub first_sent: Option<Instant>,
}

/// What a call means.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// Nothing that is followed.
    Nothing,
    /// Takes a lock.
    Acquire(Acquire),
    /// Sets the end of leases again.
    Renew {
        /// The keys.
        keys: Vec<Key>,
        /// Whose holds.
        owner: Owner,
        /// Which hold.
        mode: Mode,
        /// The lease from now on.
        lease: Duration,
        /// Whether the hold ends with the connection from now on.
        bind: bool,
        /// The reply is the token of the only key, not a count.
        tells_token: bool,
    },
    /// Takes permits.
    Permit {
        /// The semaphore.
        key: Key,
        /// For whom.
        owner: Owner,
        /// How many.
        count: u64,
        /// The lease.
        lease: Duration,
        /// Whether the permit ends with the connection.
        bind: bool,
        /// When the first copy of this request was sent, if this is another one.
        first_sent: Option<Instant>,
    },
    /// May end holds.
    Ends(Vec<Scope>),
    /// May end what a key holds, and may bring something else to it.
    Replaces(Key),
    /// May end what a key holds at some later time, until things have settled.
    EndsLater(Key),
    /// Ends the bindings of all connections, as a restart does; the holds go after a grace.
    EndsBindings,
    /// Replies come as an array, one for each of these (EXEC); Null: none was carried out.
    Several(Vec<Meaning>),
}

/// One call: commands that are sent together, of which the last one's reply counts.
#[derive(Debug, Clone)]
pub struct Call {
    /// The commands.
    pub frames: Vec<Vec<Vec<u8>>>,
    /// What it means.
    pub meaning: Meaning,
    /// How long it may block; zero is forever.
    pub block: Option<Duration>,
    /// Semaphores that it may give this capacity.
    pub capacity: Vec<(Key, u64)>,
    /// For whom and for which keys it waits, and whether for all of them.
    pub waits: Option<Waits>,
    /// May be sent again: it carries a request id.
    pub repeatable: bool,
}

/// What a blocked call waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// The keys.
    pub keys: Vec<Key>,
    /// The owner, as WAITERS shows it.
    pub owner: String,
    /// Waits for all keys at a time.
    pub all: bool,
    /// Permits, for a semaphore.
    pub count: u64,
    /// May share the lock with readers.
    pub reads: bool,
}

impl Call {
    /// A call of one command.
    pub fn new<A: AsRef<[u8]>>(words: &[A], meaning: Meaning) -> Call {
        Call {
            frames: vec![words.iter().map(|word| word.as_ref().to_vec()).collect()],
            meaning,
            block: None,
            capacity: Vec::new(),
            waits: None,
            repeatable: false,
        }
    }

    /// A call that nothing is concluded from.
    pub fn plain<A: AsRef<[u8]>>(words: &[A]) -> Call {
        Call::new(words, Meaning::Nothing)
    }

    /// A call that may end holds.
    pub fn ending<A: AsRef<[u8]>>(words: &[A], scopes: Vec<Scope>) -> Call {
        Call::new(words, Meaning::Ends(scopes))
    }

    /// Whether it is over soon, so that a connection at work may send it.
    pub fn is_brief(&self) -> bool {
        self.block.is_none_or(|block| !block.is_zero() && block < Duration::from_millis(50))
    }

    /// As one would type it.
    pub fn show(&self) -> String {
        let mut text = String::new();
        for (n, frame) in self.frames.iter().enumerate() {
            text.push_str(if n == 0 { "" } else { "; " });
            for (n, word) in frame.iter().enumerate() {
                let space = if n == 0 { "" } else { " " };
                let shown = &word[..word.len().min(80)];
                let _ = write!(text, "{space}{}", shown.escape_ascii());
            }
        }
        text
    }

    /// Whether one of its words names this key.
    pub fn names(&self, key: &str) -> bool {
        self.frames.iter().flatten().any(|word| word == key.as_bytes())
    }
}
