//! Requests that belong to no family.

use super::arguments::Optional;
use super::writer::{Arguments, Writer};
use crate::args::{ABSENT_KEY, ABSENT_USER, APPLY_KEY, CLIENT_ID, ERROR, PAYLOAD};
use crate::cursor::Cursor;
use crate::fault::Fault;

/// End the blocked call of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unblock {
    /// Client id, 1 or more.
    pub client: u64,
    /// Answer it with an error instead of Null.
    pub error: bool,
}

impl Unblock {
    #[inline]
    pub(super) fn parse<'a>(at: &mut Cursor<'a>) -> Result<Self, Fault<'a>> {
        let mut call = Self { client: at.number(&CLIENT_ID)?, error: false };
        while at.begin_option() {
            let Some(option) = at.takes(&ERROR)? else { return at.unknown() };
            call.error = Optional::read(at, option)?;
        }
        Ok(call)
    }
}

/// End places of callers whose connection is closed, outside of fair locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndAbsent<'a> {
    /// Those of a key.
    At(&'a [u8]),
    /// Those of an ACL user.
    Of(&'a [u8]),
}

impl<'a> EndAbsent<'a> {
    /// `None`: the call is an [`Unblock`].
    pub(super) fn parse(at: &mut Cursor<'a>) -> Result<Option<Self>, Fault<'a>> {
        let call = if at.word(&ABSENT_KEY) {
            Self::At(at.next(&ABSENT_KEY)?)
        } else if at.word(&ABSENT_USER) {
            Self::Of(at.next(&ABSENT_USER)?)
        } else {
            return Ok(None);
        };
        at.at_most(2)?;
        Ok(Some(call))
    }
}

impl Arguments for EndAbsent<'_> {
    fn write(&self, to: &mut Writer<'_>) {
        let (word, name) = match *self {
            Self::At(key) => (&ABSENT_KEY, key),
            Self::Of(user) => (&ABSENT_USER, user),
        };
        to.word(word);
        to.bytes(name);
    }
}

impl Arguments for Unblock {
    fn write(&self, to: &mut Writer<'_>) {
        to.number(self.client);
        self.error.write(&ERROR, to);
    }
}

/// An operator has compared the locks of this server: it may grant again, although it could not read everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust;

impl Arguments for Trust {
    fn write(&self, _to: &mut Writer<'_>) {}
}

/// Replay a record; only servers send this, to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Apply<'a> {
    /// The key that the record is about.
    pub key: &'a [u8],
    /// The record, opaque to this crate.
    pub payload: &'a [u8],
}

impl<'a> Apply<'a> {
    #[inline]
    pub(super) fn parse(at: &mut Cursor<'a>) -> Result<Self, Fault<'a>> {
        Ok(Self { key: at.next(&APPLY_KEY)?, payload: at.next(&PAYLOAD)? })
    }
}

impl Arguments for Apply<'_> {
    fn write(&self, to: &mut Writer<'_>) {
        to.bytes(self.key);
        to.bytes(self.payload);
    }
}
