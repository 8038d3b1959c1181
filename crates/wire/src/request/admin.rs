//! Requests that belong to no family.

use super::Request;
use crate::cursor::Cursor;
use crate::fault::ParseError;
use crate::names::CLIENT_ID_MAX;
use crate::option::Opt;
use crate::table::CommandId;

/// `client-id [ERROR]`
pub(super) fn unblock<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::at_least(id, args, 1)?;
    let client = cursor.number("client-id", 1..=CLIENT_ID_MAX)?;
    let mut error = false;
    while let Some(option) = cursor.option()? {
        match option {
            Opt::Error => error = true,
            _ => return cursor.unknown(),
        }
    }
    Ok(Request::Unblock { client, error })
}

/// `key payload`. The key may be empty: commands name no such key, but RENAME can give a lock that name.
pub(super) fn apply<'a>(
    id: CommandId,
    args: &'a [&'a [u8]],
) -> Result<Request<'a>, ParseError<'a>> {
    let mut cursor = Cursor::exactly(id, args, 2)?;
    Ok(Request::Apply { key: cursor.bytes()?, payload: cursor.bytes()? })
}
