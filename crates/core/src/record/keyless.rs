//! Records that belong to no key. They have a name because each record has one.

use super::{Clocks, DecodeError, FLOOR, Level, MARK, check};
use crate::base::time::{Instant, LeaseInstant};
use crate::record::divergence::Refused;
use crate::record::input::Input;
use alloc::vec::Vec;
use dlock_wire::names::TOKEN_MAX;

/// The content of a record that belongs to no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyless {
    /// All later tokens are larger than this one, and the data has this level. The token may be 0.
    Floor(u64, Level),
    /// What the server that wrote this could not read. If that is nothing, an operator has compared its locks.
    Mark(Refused),
}

/// The payload for the largest `token`; 0: none was issued.
pub fn encode_floor(token: u64, level: Level) -> Vec<u8> {
    let mut payload = Vec::from([level.number(), FLOOR]);
    payload.extend_from_slice(&token.to_le_bytes());
    payload
}

/// The payload for what the server could not read. Readers of any level must know of it.
pub fn encode_mark(refused: Refused) -> Vec<u8> {
    let mut payload = Vec::from([Level::FIRST.number(), MARK]);
    write_refused(refused, &mut payload);
    payload
}

/// The content of a record that belongs to no key; `None` for any other.
pub fn keyless(payload: &[u8]) -> Result<Option<Keyless>, DecodeError> {
    let &[_, flags @ (FLOOR | MARK), ref rest @ ..] = payload else { return Ok(None) };
    let level = Level::of(payload)?;
    let (content, rest) = if flags == FLOOR {
        let (token, rest) = number(rest)?;
        check(token <= TOKEN_MAX)?;
        (Keyless::Floor(token, level), rest)
    } else {
        let (refused, rest) = read_refused(rest)?;
        (Keyless::Mark(refused), rest)
    };
    Input::of(rest, Clocks { mono: Instant(0), lease: LeaseInstant(0) }).end()?;
    Ok(Some(content))
}

/// Appends the numbers of refused records: 17 bytes.
pub(super) fn write_refused(refused: Refused, out: &mut Vec<u8>) {
    out.extend_from_slice(&refused.later.to_le_bytes());
    out.extend_from_slice(&refused.damaged.to_le_bytes());
    out.push(refused.level);
}

/// Reads what [`write_refused`] wrote, and returns the rest.
pub(super) fn read_refused(bytes: &[u8]) -> Result<(Refused, &[u8]), DecodeError> {
    let (later, rest) = number(bytes)?;
    let (damaged, rest) = number(rest)?;
    let (&level, rest) = rest.split_first().ok_or(DecodeError::Damaged)?;
    Ok((Refused { later, damaged, level }, rest))
}

/// A number of 8 bytes, little-endian.
fn number(bytes: &[u8]) -> Result<(u64, &[u8]), DecodeError> {
    let (number, rest) = bytes.split_first_chunk().ok_or(DecodeError::Damaged)?;
    Ok((u64::from_le_bytes(*number), rest))
}
