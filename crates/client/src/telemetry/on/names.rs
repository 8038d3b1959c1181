//! The words for kinds, outcomes and reasons, which stay as they are: dashboards count on them.

use dlock_wire::request::Mode;

use crate::base::error::ErrorKind;
use crate::base::hold_ref::{Held, HoldRef};
use crate::base::lost::Lost;
use crate::base::target::{Family, Target};

/// None: a quorum lock.
pub(super) fn target_kind(target: Option<Target>) -> &'static str {
    match target {
        Some(Target::Lock(family)) => family_kind(family),
        Some(Target::Permit { .. }) => "semaphore",
        Some(Target::All) => "multi",
        Some(Target::Any) => "any",
        None => "quorum",
    }
}

pub(super) fn hold_kind(hold: &HoldRef) -> &'static str {
    match hold.held {
        Held::Lock(family, _) => family_kind(family),
        Held::Permit(_) => "semaphore",
        Held::Multi(_) => "multi",
    }
}

fn family_kind(family: Family) -> &'static str {
    match family {
        Family::Lock => "lock",
        Family::Fair => "fair",
        Family::Rw(Mode::Read) => "read",
        Family::Rw(Mode::Write) => "write",
    }
}

pub(super) fn lost_name(lost: Lost) -> &'static str {
    match lost {
        Lost::Expired => "expired",
        Lost::Refused => "refused",
        Lost::Broken => "broken",
        Lost::Released => "released",
        Lost::Deleted => "deleted",
        Lost::Disconnected => "disconnected",
        Lost::Flushed => "flushed",
        Lost::Closed => "closed",
        Lost::Abandoned => "abandoned",
        Lost::MaxHold => "max_hold",
    }
}

pub(super) fn error_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotHeld => "not_held",
        ErrorKind::Reentry => "reentry",
        ErrorKind::Stale => "stale",
        ErrorKind::Deadlock => "deadlock",
        ErrorKind::Replaced => "replaced",
        ErrorKind::Limit => "limit",
        ErrorKind::Broken => "broken",
        ErrorKind::Quarantine => "quarantine",
        ErrorKind::Diverged => "diverged",
        ErrorKind::Stopped => "stopped",
        ErrorKind::Unblocked => "unblocked",
        ErrorKind::Lost { .. } => "lost",
        ErrorKind::ReleaseUnknown => "release_unknown",
        ErrorKind::Spent => "spent",
        ErrorKind::Closed => "closed",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::NotAcquired => "not_acquired",
        ErrorKind::Replicas { .. } => "replicas",
        ErrorKind::NoQuorum { .. } => "no_quorum",
        ErrorKind::Refused => "no_permission",
        ErrorKind::NoModule => "no_module",
        ErrorKind::WrongType => "wrong_type",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Server => "server",
        ErrorKind::Protocol => "protocol",
    }
}

/// The command of an acquire. None: a quorum lock.
#[cfg(feature = "tracing")]
pub(super) fn operation(target: Option<Target>) -> &'static str {
    use dlock_wire::table::{CommandId, LockVerb, MultiVerb, RwVerb, SemVerb};

    let id = match target {
        Some(Target::Lock(Family::Lock)) | None => CommandId::Lock(LockVerb::Acquire),
        Some(Target::Lock(Family::Fair)) => CommandId::Fair(LockVerb::Acquire),
        Some(Target::Lock(Family::Rw(_))) => CommandId::Rw(RwVerb::Acquire),
        Some(Target::Permit { .. }) => CommandId::Sem(SemVerb::Acquire),
        Some(Target::All) => CommandId::Multi(MultiVerb::Acquire),
        Some(Target::Any) => CommandId::Multi(MultiVerb::AnyAcquire),
    };
    id.name()
}

/// A key or an owner as text that can break neither a terminal nor a line of a log.
#[cfg(feature = "tracing")]
pub(super) fn quoted(bytes: &[u8]) -> String {
    dlock_wire::reply::quote(bytes)
}
