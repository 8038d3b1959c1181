//! The messages on `NOTIFY` channels.
//!
//! A message about one waiter or hold is `event db id owner-length owner reqid-length reqid key`, with single spaces;
//! the key is the rest. A parser must read from the left, because owner, request id and key may contain any byte. Any
//! client that may publish on the channel can forge a message. The request id tells an owner that a message is about
//! its own request. FLUSHDB and FLUSHALL send `flushed db` on [`crate::names::FLUSH_CHANNEL`] instead.

use alloc::vec::Vec;

use crate::cursor::integer;

/// What happened to a waiter or a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A request that waited with QUEUE was granted the lock.
    Granted,
    /// The lock is reserved for a place without a connection: its owner gets it by asking again.
    Offered,
    /// The lease expired.
    Expired,
    /// An operator broke the hold.
    Broken,
    /// The key was deleted or overwritten.
    Deleted,
    /// The connection that the hold was bound to closed.
    Disconnected,
    /// Another request of the owner took over the place of a request that waited without a blocked call.
    Replaced,
    /// A request that waited without a blocked call was part of a cycle of waiting owners: it waits no more.
    Deadlock,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 8] = [
        Self::Granted,
        Self::Offered,
        Self::Expired,
        Self::Broken,
        Self::Deleted,
        Self::Disconnected,
        Self::Replaced,
        Self::Deadlock,
    ];

    /// First word of the message.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Offered => "offered",
            Self::Expired => "expired",
            Self::Broken => "broken",
            Self::Deleted => "deleted",
            Self::Disconnected => "disconnected",
            Self::Replaced => "replaced",
            Self::Deadlock => "deadlock",
        }
    }
}

/// A message of one of the notification channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// An event of a waiter or a hold.
    Hold {
        /// The event.
        event: Event,
        /// Number of the database.
        db: u32,
        /// Fencing token or permit id, without spaces; 0 for a request that waits no more.
        id: &'a [u8],
        /// The owner of the waiter or hold.
        owner: &'a [u8],
        /// Id of the request that asked for the messages; empty if it had none.
        reqid: &'a [u8],
        /// The key.
        key: &'a [u8],
    },
    /// All holds of a database are gone.
    Flushed {
        /// Number of the database.
        db: u32,
    },
}

impl<'a> Message<'a> {
    /// The text to publish.
    pub fn write(&self) -> Vec<u8> {
        match *self {
            Self::Hold { event, db, id, owner, reqid, key } => {
                let [mut one, mut two, mut three] = [itoa::Buffer::new(); 3];
                let (db, owner_length) = (one.format(db), two.format(owner.len()));
                let (event, reqid_length) = (event.as_str(), three.format(reqid.len()));
                let (event, db) = (event.as_bytes(), db.as_bytes());
                let (owner_length, reqid_length) =
                    (owner_length.as_bytes(), reqid_length.as_bytes());
                [event, db, id, owner_length, owner, reqid_length, reqid, key].join(&b' ')
            }
            Self::Flushed { db } => alloc::format!("flushed {db}").into_bytes(),
        }
    }

    /// Parses a published text; None if dlock did not write it.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (event, rest) = word(text)?;
        if event == b"flushed" {
            return Some(Self::Flushed { db: number(rest)? });
        }
        let event = Event::ALL.into_iter().find(|known| known.as_str().as_bytes() == event)?;
        let (db, rest) = word(rest)?;
        let (id, rest) = word(rest)?;
        let (owner, rest) = counted(rest)?;
        let (reqid, key) = counted(rest)?;
        Some(Self::Hold { event, db: number(db)?, id, owner, reqid, key })
    }
}

/// Splits `length bytes` and the following space off a text.
fn counted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = word(text)?;
    let (bytes, rest) = rest.split_at_checked(usize::try_from(number(length)?).ok()?)?;
    Some((bytes, rest.strip_prefix(b" ")?))
}

/// Splits a text at its first space.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&byte| byte == b' ')?;
    Some((&text[..end], &text[end + 1..]))
}

fn number(text: &[u8]) -> Option<u32> {
    integer(text).and_then(|number| u32::try_from(number).ok())
}
