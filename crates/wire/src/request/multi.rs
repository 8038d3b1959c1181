//! Requests for several locks at once.
//!
//! The keys are a slice of the arguments: 1 to 262,144, all different.

use super::{Acquire, Channel, Writer};
use crate::cursor::Cursor;
use crate::fault::ParseError;
use crate::option::Opt;
use crate::table::CommandId;

/// `numkeys key [key …] owner [PX ms|EX s] [BLOCK ms] [NOTIFY|SNOTIFY channel] [REQID id] [BIND ms] [LABEL text]`,
/// for all of the locks (MACQUIRE) or any one (ANYACQUIRE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MAcquire<'a> {
    /// The locks, 1 to 262,144, all different.
    pub keys: &'a [&'a [u8]],
    /// The owner that asks, 1 to 256 bytes.
    pub owner: &'a [u8],
    /// Lease of each lock, 1 ms to 365 days; `None` uses the server's default.
    pub lease_ms: Option<u64>,
    /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
    pub block_ms: Option<u64>,
    /// Channel of the messages about these holds, 1 to 256 bytes.
    pub notify: Option<Channel<'a>>,
    /// Request id, 1 to 64 bytes.
    pub reqid: Option<&'a [u8]>,
    /// Lease after the connection closes, up to 365 days; `Some(0)` ends the hold at once.
    pub bind_ms: Option<u64>,
    /// Shown by INFO and WAITERS, 0 to 256 bytes.
    pub label: Option<&'a [u8]>,
}

impl<'a> MAcquire<'a> {
    /// Without options: never waits, and has the server's default lease.
    pub const fn new(keys: &'a [&'a [u8]], owner: &'a [u8]) -> Self {
        Self {
            keys,
            owner,
            lease_ms: None,
            block_ms: None,
            notify: None,
            reqid: None,
            bind_ms: None,
            label: None,
        }
    }

    /// The same call for only one lock.
    pub const fn for_key(&self, key: &'a [u8]) -> Acquire<'a> {
        Acquire {
            key,
            owner: self.owner,
            lease_ms: self.lease_ms,
            block_ms: self.block_ms,
            queue_ms: None,
            notify: self.notify,
            reqid: self.reqid,
            no_reentry: false,
            bind_ms: self.bind_ms,
            label: self.label,
        }
    }

    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 3)?;
        let mut call = Self::new(cursor.counted_keys()?, cursor.owner()?);
        while let Some(option) = cursor.option()? {
            match option {
                Opt::Px | Opt::Ex => call.lease_ms = Some(cursor.lease_ms(option)?),
                Opt::Block => call.block_ms = Some(cursor.block_ms()?),
                Opt::Notify | Opt::SNotify => call.notify = Some(cursor.channel(option)?),
                Opt::ReqId => call.reqid = Some(cursor.reqid()?),
                Opt::Bind => call.bind_ms = Some(cursor.bind_ms()?),
                Opt::Label => call.label = Some(cursor.label()?),
                _ => return cursor.unknown(),
            }
        }
        Ok(call)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.counted_keys(self.keys);
        to.bytes(self.owner);
        to.option_number("PX", self.lease_ms);
        to.option_number("BLOCK", self.block_ms);
        to.channel(self.notify);
        to.option_bytes("REQID", self.reqid);
        to.option_number("BIND", self.bind_ms);
        to.option_bytes("LABEL", self.label);
    }
}

/// `numkeys key [key …] owner [REQID id]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MRelease<'a> {
    /// The locks, 1 to 262,144, all different.
    pub keys: &'a [&'a [u8]],
    /// The holder, 1 to 256 bytes.
    pub owner: &'a [u8],
    /// Request id, 1 to 64 bytes.
    pub reqid: Option<&'a [u8]>,
}

impl<'a> MRelease<'a> {
    /// Without options: releases one hold of each lock.
    pub const fn new(keys: &'a [&'a [u8]], owner: &'a [u8]) -> Self {
        Self { keys, owner, reqid: None }
    }

    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 3)?;
        let mut call = Self::new(cursor.counted_keys()?, cursor.owner()?);
        call.reqid = cursor.only_reqid()?;
        Ok(call)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.counted_keys(self.keys);
        to.bytes(self.owner);
        to.option_bytes("REQID", self.reqid);
    }
}

/// `numkeys key [key …] owner [PX ms|EX s]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MRenew<'a> {
    /// The locks, 1 to 262,144, all different.
    pub keys: &'a [&'a [u8]],
    /// The holder, 1 to 256 bytes.
    pub owner: &'a [u8],
    /// Lease from now, 1 ms to 365 days; `None` keeps the length of each hold's lease.
    pub lease_ms: Option<u64>,
}

impl<'a> MRenew<'a> {
    /// Without options: restarts each hold's current lease.
    pub const fn new(keys: &'a [&'a [u8]], owner: &'a [u8]) -> Self {
        Self { keys, owner, lease_ms: None }
    }

    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 3)?;
        let mut call = Self::new(cursor.counted_keys()?, cursor.owner()?);
        while let Some(option) = cursor.option()? {
            match option {
                Opt::Px | Opt::Ex => call.lease_ms = Some(cursor.lease_ms(option)?),
                _ => return cursor.unknown(),
            }
        }
        Ok(call)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.counted_keys(self.keys);
        to.bytes(self.owner);
        to.option_number("PX", self.lease_ms);
    }
}
