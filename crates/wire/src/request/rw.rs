//! Requests of the read-write lock: those of the lock, with a mode.

use super::{Acquire, Release, Renew, Request, Writer};
use crate::cursor::Cursor;
use crate::fault::ParseError;
use crate::table::CommandId;

/// Mode of a hold of a read-write lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
        }
    }
}

/// `key owner READ|WRITE [PX ms|EX s] [BLOCK ms] [QUEUE ms] [NOTIFY|SNOTIFY channel] [REQID id] [BIND ms]
/// [LABEL text]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RwAcquire<'a> {
    /// All fields but the mode. `no_reentry` is false: the command has no such option.
    pub acquire: Acquire<'a>,
    /// The requested mode.
    pub mode: Mode,
}

impl<'a> RwAcquire<'a> {
    /// Without options: never waits, and has the server's default lease.
    pub const fn new(key: &'a [u8], owner: &'a [u8], mode: Mode) -> Self {
        Self { acquire: Acquire::new(key, owner), mode }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 3)?;
        let mut call = Self::new(cursor.key()?, cursor.owner()?, cursor.mode()?);
        while let Some(option) = cursor.option()? {
            call.acquire.option(&mut cursor, option)?;
        }
        Ok(call)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.acquire.key);
        to.bytes(self.acquire.owner);
        to.bytes(self.mode.as_str().as_bytes());
        self.acquire.write_options(to);
    }
}

/// `key owner READ|WRITE [ALL] [TOKEN t] [REQID id]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RwRelease<'a> {
    /// All fields but the mode.
    pub release: Release<'a>,
    /// Mode of the hold to release.
    pub mode: Mode,
}

impl<'a> RwRelease<'a> {
    /// Without options: releases one hold of that mode.
    pub const fn new(key: &'a [u8], owner: &'a [u8], mode: Mode) -> Self {
        Self { release: Release::new(key, owner), mode }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 3)?;
        let mut call = Self::new(cursor.key()?, cursor.owner()?, cursor.mode()?);
        call.release.options(&mut cursor)?;
        Ok(call)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.release.key);
        to.bytes(self.release.owner);
        to.bytes(self.mode.as_str().as_bytes());
        self.release.write_options(to);
    }
}

/// `key owner READ|WRITE [PX ms|EX s] [TOKEN t] [BIND ms]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RwRenew<'a> {
    /// All fields but the mode.
    pub renew: Renew<'a>,
    /// Mode of the hold to renew.
    pub mode: Mode,
}

impl<'a> RwRenew<'a> {
    /// Without options: restarts the current lease of the hold of that mode.
    pub const fn new(key: &'a [u8], owner: &'a [u8], mode: Mode) -> Self {
        Self { renew: Renew::new(key, owner), mode }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 3)?;
        let mut call = Self::new(cursor.key()?, cursor.owner()?, cursor.mode()?);
        call.renew.options(&mut cursor)?;
        Ok(call)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.renew.key);
        to.bytes(self.renew.owner);
        to.bytes(self.mode.as_str().as_bytes());
        self.renew.write_options(to);
    }
}

/// `key [owner]`
pub(super) fn break_<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::between(id, args, 1..=2)?;
    let key = cursor.key()?;
    let owner = if cursor.is_at_end() { None } else { Some(cursor.owner()?) };
    Ok(Request::RwBreak { key, owner })
}
