//! Calls, and the meaning of their replies for holds.

use std::{fmt::Write as _, time::Duration};

use super::key::{Key, Owner};

/// Mode of a hold: the holds that it excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// All other holds.
    Exclusive,
    /// Writers.
    Read,
    /// All other holds; the same owner may read.
    Write,
}

/// Scope of a call that ends holds, or may end them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Everything.
    World,
    /// All holds of a key.
    Key(Key),
    /// One hold.
    Hold(Key, Owner, Mode),
    /// One permit.
    Permit(Key, String),
}

/// Number of keys that a call is granted.
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
    /// Form of the reply, and the keys.
    pub form: Form,
    /// The owner.
    pub owner: Owner,
    /// The mode.
    pub mode: Mode,
    /// The lease.
    pub lease: Duration,
    /// Whether the hold ends with the connection.
    pub bind: bool,
}

/// Meaning of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// Nothing that the oracle tracks.
    Nothing,
    /// Takes a lock.
    Acquire(Acquire),
    /// Extends leases.
    Renew {
        /// The keys.
        keys: Vec<Key>,
        /// The owner of the holds.
        owner: Owner,
        /// Mode of the hold.
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
        /// The owner.
        owner: Owner,
        /// Number of permits.
        count: u64,
        /// The lease.
        lease: Duration,
        /// Whether the permit ends with the connection.
        bind: bool,
    },
    /// May end holds.
    Ends(Vec<Scope>),
    /// May end the holds of a key, and may store another value in it.
    Replaces(Key),
    /// May end the holds of a key later, until the system is settled.
    EndsLater(Key),
    /// Ends the bindings of all connections, as a restart does; the holds end after a grace.
    EndsBindings,
    /// The reply is an array, with one element for each of these (EXEC); Null: none was executed.
    Several(Vec<Meaning>),
}

/// One call: commands that are sent together; the reply to the last one counts.
#[derive(Debug, Clone)]
pub struct Call {
    /// The commands.
    pub frames: Vec<Vec<Vec<u8>>>,
    /// Its meaning.
    pub meaning: Meaning,
    /// Maximum block time; zero is forever.
    pub block: Option<Duration>,
    /// Semaphores that it may set to this capacity.
    pub capacity: Vec<(Key, u64)>,
    /// Owner and keys of its wait, and whether it waits for all of them.
    pub waits: Option<Waits>,
    /// May be repeated: it carries a request id.
    pub repeatable: bool,
    /// Key and request id of a RELEASE that names its request.
    pub release: Option<(Key, String)>,
}

/// The wait of a blocked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// The keys.
    pub keys: Vec<Key>,
    /// The owner, as WAITERS shows it.
    pub owner: String,
    /// Waits for all keys at once.
    pub all: bool,
    /// Number of permits, for a semaphore.
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
            release: None,
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

    /// Whether it ends soon, so that a busy connection may send it.
    pub fn is_brief(&self) -> bool {
        self.block.is_none_or(|block| !block.is_zero() && block < Duration::from_millis(50))
    }

    /// In the form of redis-cli.
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

    /// Whether one of its arguments names this key.
    pub fn names(&self, key: &str) -> bool {
        self.frames.iter().flatten().any(|word| word == key.as_bytes())
    }
}
