//! Requests of the semaphore. Parser and writer of each are side by side.

use super::{Acquire, Request, Writer};
use crate::cursor::Cursor;
use crate::fault::ParseError;
use crate::names::PERMITS_MAX;
use crate::option::Opt;
use crate::permit::{self, PermitId};
use crate::table::CommandId;

/// `key owner [COUNT n] [LIMIT permits] [PX ms|EX s] [BLOCK ms] [QUEUE ms] [NOTIFY|SNOTIFY channel]
/// [REQID id] [BIND ms] [LABEL text]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemAcquire<'a> {
    /// The fields shared with a lock. `no_reentry` is false: the command has no such option.
    pub acquire: Acquire<'a>,
    /// Number of permits, 1 to 2^31 - 1.
    pub count: u32,
    /// Capacity to create the semaphore with if it does not exist, 1 to 2^31 - 1.
    pub limit: Option<u32>,
}

impl<'a> SemAcquire<'a> {
    /// Without options: one permit, never waits, and has the server's default lease.
    pub const fn new(key: &'a [u8], owner: &'a [u8]) -> Self {
        Self { acquire: Acquire::new(key, owner), count: 1, limit: None }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 2)?;
        let mut call = Self::new(cursor.key()?, cursor.owner()?);
        while let Some(option) = cursor.option()? {
            match option {
                Opt::Count => call.count = cursor.width()?,
                Opt::Limit => call.limit = Some(cursor.limit()?),
                _ => call.acquire.option(&mut cursor, option)?,
            }
        }
        Ok(call)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.acquire.key);
        to.bytes(self.acquire.owner);
        if self.count != 1 {
            to.option_number("COUNT", Some(u64::from(self.count)));
        }
        to.option_number("LIMIT", self.limit.map(u64::from));
        self.acquire.write_options(to);
    }
}

/// `key permit-id [PX ms|EX s] [BIND ms]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemRenew<'a> {
    /// The semaphore.
    pub key: &'a [u8],
    /// The permit id.
    pub permit: PermitId,
    /// Lease from now, 1 ms to 365 days; `None` keeps the length of the permit's lease.
    pub lease_ms: Option<u64>,
    /// Bind the permit to this connection, 0 ms to 365 days; `None` leaves the binding unchanged.
    pub bind_ms: Option<u64>,
}

impl<'a> SemRenew<'a> {
    /// Without options: restarts the permit's current lease.
    pub const fn new(key: &'a [u8], permit: PermitId) -> Self {
        Self { key, permit, lease_ms: None, bind_ms: None }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 2)?;
        let mut renew = Self::new(cursor.key()?, cursor.permit()?);
        while let Some(option) = cursor.option()? {
            match option {
                Opt::Px | Opt::Ex => renew.lease_ms = Some(cursor.lease_ms(option)?),
                Opt::Bind => renew.bind_ms = Some(cursor.bind_ms()?),
                _ => return cursor.unknown(),
            }
        }
        Ok(renew)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.key);
        to.bytes(&permit::text(&self.permit));
        to.option_number("PX", self.lease_ms);
        to.option_number("BIND", self.bind_ms);
    }
}

/// `key [n] [BLOCK ms] [REQID id]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take<'a> {
    /// The semaphore.
    pub key: &'a [u8],
    /// Number of permits, 1 to 2^31 - 1.
    pub n: u32,
    /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
    pub block_ms: Option<u64>,
    /// Request id, 1 to 64 bytes.
    pub reqid: Option<&'a [u8]>,
}

impl<'a> Take<'a> {
    /// Without options: one permit, never waits.
    pub const fn new(key: &'a [u8]) -> Self {
        Self { key, n: 1, block_ms: None, reqid: None }
    }

    #[inline]
    pub(super) fn parse(id: CommandId, args: &'a [&'a [u8]]) -> Result<Self, ParseError<'a>> {
        let mut cursor = Cursor::at_least(id, args, 1)?;
        let mut take = Self::new(cursor.key()?);
        take.n = cursor.number32_or_one("n", PERMITS_MAX)?;
        while let Some(option) = cursor.option()? {
            match option {
                Opt::Block => take.block_ms = Some(cursor.block_ms()?),
                Opt::ReqId => take.reqid = Some(cursor.reqid()?),
                _ => return cursor.unknown(),
            }
        }
        Ok(take)
    }

    pub(super) fn write(&self, to: &mut Writer<impl FnMut(&[u8])>) {
        to.bytes(self.key);
        to.number(u64::from(self.n));
        to.option_number("BLOCK", self.block_ms);
        to.option_bytes("REQID", self.reqid);
    }
}

/// The new capacity that RESIZE asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// The capacity, 1 to 2^31 - 1.
    Absolute(u32),
    /// A change of the capacity, -(2^31 - 1) to 2^31 - 1.
    By(i64),
}

impl ResizeTo {
    pub(super) fn write(self, to: &mut Writer<impl FnMut(&[u8])>) {
        match self {
            Self::Absolute(permits) => to.number(u64::from(permits)),
            Self::By(delta) => {
                to.bytes(b"BY");
                to.signed(delta);
            }
        }
    }
}

/// `key permits`
pub(super) fn init<'a>(id: CommandId, args: &'a [&'a [u8]]) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::exactly(id, args, 2)?;
    let key = cursor.key()?;
    Ok(Request::SemInit { key, permits: cursor.number32("permits", 1..=PERMITS_MAX)? })
}

/// `key permits|BY delta [REQID id]`
pub(super) fn resize<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    const MOST: i64 = PERMITS_MAX as i64;
    let mut cursor = Cursor::at_least(id, args, 2)?;
    let key = cursor.key()?;
    let to = if cursor.word("BY") {
        ResizeTo::By(cursor.signed("BY", -MOST..=MOST)?)
    } else {
        ResizeTo::Absolute(cursor.number32("permits", 1..=PERMITS_MAX)?)
    };
    Ok(Request::Resize { key, to, reqid: cursor.only_reqid()? })
}

/// `key permit-id`
pub(super) fn release<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::exactly(id, args, 2)?;
    Ok(Request::SemRelease { key: cursor.key()?, permit: cursor.permit()? })
}

/// `key [n] [REQID id]`
pub(super) fn give<'a>(id: CommandId, args: &'a [&'a [u8]]) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::at_least(id, args, 1)?;
    let key = cursor.key()?;
    let n = cursor.number32_or_one("n", PERMITS_MAX)?;
    Ok(Request::Give { key, n, reqid: cursor.only_reqid()? })
}

/// `key [REQID id]`
pub(super) fn drain<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::at_least(id, args, 1)?;
    Ok(Request::Drain { key: cursor.key()?, reqid: cursor.only_reqid()? })
}

/// `key permit-id`
pub(super) fn break_<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::exactly(id, args, 2)?;
    Ok(Request::SemBreak { key: cursor.key()?, permit: cursor.permit()? })
}

/// `key`
pub(super) fn permits<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    Ok(Request::Permits { key: Cursor::exactly(id, args, 1)?.key()? })
}
