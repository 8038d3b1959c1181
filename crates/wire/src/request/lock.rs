//! Requests of the locks with one holder. Parser and writer of each are side by side.

use super::{Channel, Request, Writer};
use crate::cursor::Cursor;
use crate::fault::ParseError;
use crate::names::{TOKEN_MAX, TOKEN_MIN};
use crate::option::Opt;
use crate::table::CommandId;

/// `key owner [PX ms|EX s] [BLOCK ms] [QUEUE ms] [NOTIFY|SNOTIFY channel] [REQID id]
/// [NOREENTRY] [BIND ms] [LABEL text]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// The lock.
    pub key: &'a [u8],
    /// The owner that asks, 1 to 256 bytes.
    pub owner: &'a [u8],
    /// Lease, 1 ms to 365 days; `None` uses the server's default.
    pub lease_ms: Option<u64>,
    /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
    pub block_ms: Option<u64>,
    /// Wait without blocking, 1 ms to 1 day.
    pub queue_ms: Option<u64>,
    /// Channel of the messages about this waiter and its hold.
    pub notify: Option<Channel<'a>>,
    /// Request id, 1 to 64 bytes.
    pub reqid: Option<&'a [u8]>,
    /// Refuse re-entry.
    pub no_reentry: bool,
    /// Lease after the connection closes, up to 365 days; `Some(0)` ends the hold at once.
    pub bind_ms: Option<u64>,
    /// Shown by INFO and WAITERS, 0 to 256 bytes.
    pub label: Option<&'a [u8]>,
}

impl<'a> Acquire<'a> {
    /// Without options: never waits, and has the server's default lease.
    pub const fn new(key: &'a [u8], owner: &'a [u8]) -> Self {
        Self {
            key,
            owner,
            lease_ms: None,
            block_ms: None,
            queue_ms: None,
            notify: None,
            reqid: None,
            no_reentry: false,
            bind_ms: None,
            label: None,
        }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 2)?;
        let mut acquire = Self::new(cursor.key()?, cursor.owner()?);
        while let Some(option) = cursor.option()? {
            match option {
                Opt::NoReentry => acquire.no_reentry = true,
                _ => acquire.option(&mut cursor, option)?,
            }
        }
        Ok(acquire)
    }

    /// Parses an option that every family has: all but NOREENTRY.
    #[inline]
    pub(super) fn option(
        &mut self,
        cursor: &mut Cursor<'a>,
        option: Opt,
    ) -> Result<(), ParseError<'a>> {
        match option {
            Opt::Px | Opt::Ex => self.lease_ms = Some(cursor.lease_ms(option)?),
            Opt::Block => self.block_ms = Some(cursor.block_ms()?),
            Opt::Queue => self.queue_ms = Some(cursor.queue_ms()?),
            Opt::Notify | Opt::SNotify => self.notify = Some(cursor.channel(option)?),
            Opt::ReqId => self.reqid = Some(cursor.reqid()?),
            Opt::Bind => self.bind_ms = Some(cursor.bind_ms()?),
            Opt::Label => self.label = Some(cursor.label()?),
            _ => return cursor.unknown(),
        }
        Ok(())
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.key);
        to.bytes(self.owner);
        to.flag("NOREENTRY", self.no_reentry);
        self.write_options(to);
    }

    /// The options that every family has.
    pub(super) fn write_options(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.option_number("PX", self.lease_ms);
        to.option_number("BLOCK", self.block_ms);
        to.option_number("QUEUE", self.queue_ms);
        to.channel(self.notify);
        to.option_bytes("REQID", self.reqid);
        to.option_number("BIND", self.bind_ms);
        to.option_bytes("LABEL", self.label);
    }
}

/// `key owner [ALL] [TOKEN t] [REQID id]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release<'a> {
    /// The lock.
    pub key: &'a [u8],
    /// The holder, 1 to 256 bytes.
    pub owner: &'a [u8],
    /// Release all holds, not one.
    pub all: bool,
    /// Only if the hold has this token, 1 to 2^53 - 1.
    pub token: Option<u64>,
    /// Request id, 1 to 64 bytes.
    pub reqid: Option<&'a [u8]>,
}

impl<'a> Release<'a> {
    /// Without options: releases one hold.
    pub const fn new(key: &'a [u8], owner: &'a [u8]) -> Self {
        Self { key, owner, all: false, token: None, reqid: None }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 2)?;
        let mut release = Self::new(cursor.key()?, cursor.owner()?);
        release.options(&mut cursor)?;
        Ok(release)
    }

    #[inline]
    pub(super) fn options(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ParseError<'a>> {
        while let Some(option) = cursor.option()? {
            match option {
                Opt::All => self.all = true,
                Opt::Token => self.token = Some(cursor.token()?),
                Opt::ReqId => self.reqid = Some(cursor.reqid()?),
                _ => return cursor.unknown(),
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.key);
        to.bytes(self.owner);
        self.write_options(to);
    }

    pub(super) fn write_options(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.flag("ALL", self.all);
        to.option_number("TOKEN", self.token);
        to.option_bytes("REQID", self.reqid);
    }
}

/// `key owner [PX ms|EX s] [TOKEN t] [BIND ms]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renew<'a> {
    /// The lock.
    pub key: &'a [u8],
    /// The holder, 1 to 256 bytes.
    pub owner: &'a [u8],
    /// Lease from now, 1 ms to 365 days; `None` keeps the length of the hold's lease.
    pub lease_ms: Option<u64>,
    /// Only if the hold has this token, 1 to 2^53 - 1.
    pub token: Option<u64>,
    /// Bind the hold to this connection, 0 ms to 365 days; `None` leaves the binding unchanged.
    pub bind_ms: Option<u64>,
}

impl<'a> Renew<'a> {
    /// Without options: restarts the hold's current lease.
    pub const fn new(key: &'a [u8], owner: &'a [u8]) -> Self {
        Self { key, owner, lease_ms: None, token: None, bind_ms: None }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 2)?;
        let mut renew = Self::new(cursor.key()?, cursor.owner()?);
        renew.options(&mut cursor)?;
        Ok(renew)
    }

    #[inline]
    pub(super) fn options(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ParseError<'a>> {
        while let Some(option) = cursor.option()? {
            match option {
                Opt::Px | Opt::Ex => self.lease_ms = Some(cursor.lease_ms(option)?),
                Opt::Token => self.token = Some(cursor.token()?),
                Opt::Bind => self.bind_ms = Some(cursor.bind_ms()?),
                _ => return cursor.unknown(),
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.key);
        to.bytes(self.owner);
        self.write_options(to);
    }

    pub(super) fn write_options(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.option_number("PX", self.lease_ms);
        to.option_number("TOKEN", self.token);
        to.option_number("BIND", self.bind_ms);
    }
}

/// `key token`
pub(super) fn check<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::exactly(id, args, 2)?;
    Ok(Request::Check { key: cursor.key()?, token: cursor.number("token", TOKEN_MIN..=TOKEN_MAX)? })
}

/// `key owner token`
pub(super) fn fence<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::exactly(id, args, 3)?;
    Ok(Request::Fence {
        key: cursor.key()?,
        owner: cursor.owner()?,
        token: cursor.number("token", TOKEN_MIN..=TOKEN_MAX)?,
    })
}

/// `key`
pub(super) fn break_<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    Ok(Request::Break { key: Cursor::exactly(id, args, 1)?.key()? })
}

/// `key`
pub(super) fn info<'a>(id: CommandId, args: &'a [&'a [u8]]) -> Result<Request<'a>, ParseError<'a>> {
    Ok(Request::Info { key: Cursor::exactly(id, args, 1)?.key()? })
}

/// `key [COUNT n]`
pub(super) fn waiters<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::at_least(id, args, 1)?;
    let key = cursor.key()?;
    let mut count = None;
    while let Some(option) = cursor.option()? {
        match option {
            Opt::Count => count = Some(cursor.count()?),
            _ => return cursor.unknown(),
        }
    }
    Ok(Request::Waiters { key, count })
}

/// `key owner`
pub(super) fn position<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::exactly(id, args, 2)?;
    Ok(Request::Position { key: cursor.key()?, owner: cursor.owner()? })
}

/// `key owner [REQID id]`
pub(super) fn cancel<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::at_least(id, args, 2)?;
    let (key, owner) = (cursor.key()?, cursor.owner()?);
    let mut reqid = None;
    while let Some(option) = cursor.option()? {
        match option {
            Opt::ReqId => reqid = Some(cursor.reqid()?),
            _ => return cursor.unknown(),
        }
    }
    Ok(Request::Cancel { key, owner, reqid })
}
