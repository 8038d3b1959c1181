//! Requests of the count-down latch.

use super::Request;
use crate::cursor::Cursor;
use crate::fault::ParseError;
use crate::names::LATCH_MAX;
use crate::option::Opt;
use crate::table::CommandId;

/// `key count [PX ms|EX s]`
pub(super) fn init<'a>(id: CommandId, args: &'a [&'a [u8]]) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::at_least(id, args, 2)?;
    let key = cursor.key()?;
    let count = cursor.number32("count", 1..=LATCH_MAX)?;
    let mut lease_ms = None;
    while let Some(option) = cursor.option()? {
        match option {
            Opt::Px | Opt::Ex => lease_ms = Some(cursor.lease_ms(option)?),
            _ => return cursor.unknown(),
        }
    }
    Ok(Request::LatchInit { key, count, lease_ms })
}

/// `key [n] [REQID id]`
pub(super) fn count_down<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::at_least(id, args, 1)?;
    let key = cursor.key()?;
    let n = cursor.number32_or_one("n", LATCH_MAX)?;
    Ok(Request::CountDown { key, n, reqid: cursor.only_reqid()? })
}

/// `key [BLOCK ms]`
pub(super) fn await_<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::at_least(id, args, 1)?;
    let key = cursor.key()?;
    let mut block_ms = None;
    while let Some(option) = cursor.option()? {
        match option {
            Opt::Block => block_ms = Some(cursor.block_ms()?),
            _ => return cursor.unknown(),
        }
    }
    Ok(Request::Await { key, block_ms })
}
