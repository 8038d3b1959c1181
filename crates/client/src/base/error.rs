//! Errors, by what a caller can do about them.

mod codes;
pub(crate) mod hints;

use std::fmt;

use dlock_wire::reply::quote;

use self::hints::SAME_SLOT;
use crate::base::lost::Lost;

/// Why a call failed: a [kind](ErrorKind) for the program, and the server's text for people.
///
/// `Display` adds the key and the server where they are known and the text does not name them.
///
/// Where "not granted (in time)" is an answer, calls return `None`.
///
/// ```
/// # use dlock_client::{Error, ErrorKind};
/// fn is_worth_another_try(error: &Error) -> bool {
///     matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::NotAcquired)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    text: String,
    source: Option<redis::RedisError>,
    /// `host:port`; of one that Sentinels name, the name of the primary if its address is not known.
    server: Option<String>,
    keys: Vec<Key>,
}

#[derive(Clone, PartialEq)]
struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.0))
    }
}

/// How many keys a text names.
const KEYS_SHOWN: usize = 8;

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The [`timeout`](crate::Lock::timeout) is over: others have the lock.
    NotAcquired,
    /// The hold is gone, or was never there: stop the work that it protected.
    NotHeld,
    /// The owner holds the lock already, and re-entry was refused on purpose.
    Reentry,
    /// The token is not that of the current hold: stop.
    Stale,
    /// Waiting would have closed a cycle of owners that wait for each other: release what you hold and begin again.
    Deadlock,
    /// Another call of the same owner took the place in the queue over.
    Replaced,
    /// A limit of the server or of the semaphore: ask for less, or raise it.
    Limit,
    /// The latch was deleted or its time ended before it opened.
    Broken,
    /// The server has just started and grants nothing yet: try later.
    Quarantine,
    /// The server could not read records of its primary or its file, and grants nothing until an operator has looked.
    Diverged,
    /// An operator ended the wait: do not ask again without a reason.
    Stopped,
    /// The server ended the wait, as at a demotion. The client asks again by itself: this is what the last answer was
    /// when its time was over.
    Unblocked,
    /// The hold was lost before it was released: others may have worked under the lock since.
    Lost {
        /// Why it was lost.
        reason: Lost,
        /// True if the work had run to its end when the loss was noticed: of a release, and of
        /// [`with`](crate::Lock::with), which drops its result. False if `with` cancelled it, and of everything else.
        finished: bool,
    },
    /// The work had finished, and whether the hold lasted until then is not known: decide whether its result counts.
    /// [`with`](crate::Lock::with) drops that: work whose result may count has a place for it, or a guard.
    ///
    /// The server does not know the hold: it has lost or forgotten it. From [`with`](crate::Lock::with) also: no server
    /// answered to the release.
    ReleaseUnknown,
    /// The request is over: what it was granted has ended. An acquire asks again by itself then.
    Spent,
    /// The client was closed ([`Client::close`](crate::Client::close)), or the runtime in which it was connected has
    /// ended: connect a new one. A request that was on its way may or may not have been carried out.
    Closed,
    /// No server answered in the time there was. The request may or may not have been carried out.
    Unavailable,
    /// Fewer replicas than asked for have the grant; it was released.
    Replicas {
        /// How many acknowledged it.
        acknowledged: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// Fewer servers than a majority granted the quorum lock; what was granted was released.
    NoQuorum {
        /// How many servers granted it.
        granted: u32,
        /// How many are a majority.
        wanted: u32,
    },
    /// The server does not let this user do that (password, ACL).
    Refused,
    /// The server does not know the commands: the module is not loaded there.
    NoModule,
    /// The key holds something of another type.
    WrongType,
    /// Something is wrong with the call itself, and the same call would fail again: an argument that no server would
    /// take, or whatever the server answered `ERR` to, such as a semaphore that is not there. Where the server said it,
    /// the text is the server's.
    Invalid,
    /// Anything else that the server said.
    Server,
    /// The server answered something that this version of the client does not understand.
    Protocol,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            text: text.into(),
            source: None,
            server: None,
            keys: Vec::new(),
        }))
    }

    /// The error of a request or a connection.
    pub(crate) fn from_redis(error: redis::RedisError) -> Self {
        let kind = codes::kind_of(&error);
        let text = match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            _ if error.kind() == redis::ErrorKind::Parse => "the reply is broken".to_owned(),
            _ => error.to_string(),
        };
        let mut this = Self::new(kind, text);
        if error.code() == Some("CROSSSLOT") {
            this = this.hint(SAME_SLOT);
        }
        this.0.source = Some(error);
        this
    }

    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, text)
    }

    pub(crate) fn replaced(key: &[u8], owner: &[u8]) -> Self {
        let text = format!("{} asked again for {} with another call", quote(owner), quote(key));
        Self::new(ErrorKind::Replaced, text).of_key(key)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client was closed")
    }

    pub(crate) fn abandoned() -> Self {
        Self::new(
            ErrorKind::Closed,
            "the runtime in which the client was connected has ended: connect a new client",
        )
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, text)
    }

    /// The hold was lost before the work under it was done, or there is no such work.
    pub(crate) fn lost(reason: Lost) -> Self {
        Self::new(ErrorKind::Lost { reason, finished: false }, reason.to_string())
    }

    /// The work under the hold was done, but the hold may have ended before that.
    pub(crate) fn lost_by_the_end(reason: Lost) -> Self {
        let text = format!("{reason} (the work had finished)");
        Self::new(ErrorKind::Lost { reason, finished: true }, text)
    }

    /// The server knows nothing of what is released.
    pub(crate) fn release_unknown() -> Self {
        Self::new(
            ErrorKind::ReleaseUnknown,
            "the server does not know the hold: whether it had ended before its release is not known",
        )
    }

    /// Of a grant that came before the quarantine of its server.
    pub(crate) fn in_quarantine() -> Self {
        let text = "a replica came to the server, which grants nothing new for a while";
        Self::new(ErrorKind::Quarantine, text)
    }

    pub(crate) fn not_acquired() -> Self {
        Self::new(ErrorKind::NotAcquired, "not acquired in time: others have it, or come first")
    }

    /// The error of a release, for work that had finished under the hold.
    pub(crate) fn after_work(mut self) -> Self {
        if self.kind() != ErrorKind::ReleaseUnknown {
            self.0.kind = ErrorKind::ReleaseUnknown;
            self.0
                .text
                .insert_str(0, "the work had finished, but its hold could not be released: ");
        }
        self
    }

    pub(crate) fn protocol(reply: &redis::Value) -> Self {
        Self::new(ErrorKind::Protocol, format!("unexpected reply: {reply:?}"))
    }

    /// The server that it is about, unless one is noted already.
    pub(crate) fn at(mut self, server: &str) -> Self {
        self.0.server.get_or_insert_with(|| server.to_owned());
        self
    }

    /// The key that it is about, unless one is noted already.
    pub(crate) fn of_key(self, key: &[u8]) -> Self {
        if key.is_empty() { self } else { self.of_keys(vec![key.to_vec()]) }
    }

    /// The keys that it is about, unless some are noted already.
    pub(crate) fn of_keys(self, keys: Vec<Vec<u8>>) -> Self {
        if self.0.keys.is_empty() { self.of_just(keys) } else { self }
    }

    /// It is about these keys, and no other.
    pub(crate) fn of_just(mut self, keys: Vec<Vec<u8>>) -> Self {
        self.0.keys = keys.into_iter().map(Key).collect();
        self
    }

    /// Adds what to do about it to the text.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.0.text = format!("{}: {hint}", self.0.text);
        self
    }

    /// Whether it is unknown what the request did.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unavailable | ErrorKind::Closed | ErrorKind::Protocol)
    }

    /// Whether a server said it.
    pub(crate) fn is_reply(&self) -> bool {
        self.0.source.as_ref().is_some_and(|error| error.code().is_some())
    }

    /// A redirection, for a client that was told of one server.
    pub(crate) fn of_a_cluster(mut self) -> Self {
        self.0.kind = ErrorKind::Invalid;
        self.0.text += " (this is a node of a cluster: connect with redis-cluster://)";
        self
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The text without kind, key and server: the server's own where it came from there.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The server, if one is known: `host:port`, the path of its socket, or the name that Sentinels have for it.
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    /// The key, if the call was about one; of several, the first.
    pub fn key(&self) -> Option<&[u8]> {
        self.keys().next()
    }

    /// The keys, if the call was about some. Where a hold of several locks was lost, those of them that were.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys.iter().map(|key| key.0.as_slice())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(text)?;
        // Only the first keys: people read the text.
        let mut keys: Vec<_> =
            self.keys().map(quote).filter(|key| !text.contains(&**key)).collect();
        let more = keys.len().saturating_sub(KEYS_SHOWN);
        keys.truncate(KEYS_SHOWN);
        let word = if keys.len() > 1 { "keys" } else { "key" };
        if more > 0 {
            keys.push(format!("and {more} more"));
        }
        let mut about = Vec::new();
        if !keys.is_empty() {
            about.push(format!("{word} {}", keys.join(", ")));
        }
        let server = self.server().filter(|server| !text.contains(*server));
        about.extend(server.map(|server| format!("server {server}")));
        if about.is_empty() { Ok(()) } else { write!(f, " ({})", about.join(", ")) }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

#[cfg(feature = "redis")]
impl From<redis::RedisError> for Error {
    fn from(error: redis::RedisError) -> Self {
        Self::from_redis(error)
    }
}

#[cfg(test)]
mod tests;
