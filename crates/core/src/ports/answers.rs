//! Answers that several operations give.

use crate::base::ids::HoldId;
use crate::base::time::Millis;
use crate::ports::effects::Outcome;
use crate::record::divergence::Divergence;
use crate::value::wait_request::Demand;
use alloc::format;
use alloc::string::String;
use dlock_wire::reply::ErrorCode;

/// Begins the text of a cycle.
pub(crate) const FOREVER: &str = "this call would wait forever: ";

/// The answer to the owner of a new hold.
pub(crate) fn granted(id: HoldId, token: u64, demand: Demand) -> Outcome {
    match demand {
        Demand::Permits { .. } => Outcome::Permit(id.to_be_bytes()),
        Demand::Lock | Demand::Rw(_) | Demand::Taken(_) | Demand::Open | Demand::End { .. } => {
            Outcome::Token(token)
        }
    }
}

pub(crate) fn in_quarantine(left_ms: Millis) -> Outcome {
    let text = format!("{left_ms} ms until this server grants again (dlock.restart-quarantine-ms)");
    Outcome::fault(ErrorCode::Quarantine, text)
}

/// The answer to a call for a grant on a server that could not read everything.
#[cold]
pub(crate) fn diverged(missing: Divergence) -> Outcome {
    Outcome::fault(ErrorCode::Diverged, missing.text())
}

pub(crate) fn tokens_used_up() -> Outcome {
    Outcome::fault(ErrorCode::Err, "the fencing tokens of this server are used up")
}

/// The answer to a call for a grant while the server refuses writes. The server refuses such a call itself, so clients
/// should not see this answer.
#[cold]
pub(crate) fn grants_are_closed() -> Outcome {
    Outcome::fault(ErrorCode::Err, "nothing is granted while the server refuses writes; try again")
}

/// Why a request can never be granted.
pub(crate) fn too_wide(key: &[u8], n: u32, capacity: u32) -> String {
    format!("{n} permits are asked for and {} has {capacity}", quoted(key))
}

pub(crate) fn wrong_type() -> Outcome {
    Outcome::fault(ErrorCode::WrongType, "Operation against a key holding the wrong kind of value")
}

/// Formats a key or owner for a text.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    dlock_wire::reply::quote(bytes)
}

/// Why waiters get `BROKEN`.
pub(crate) const BROKEN: &str = "the latch was deleted or its time ended before it was open";
