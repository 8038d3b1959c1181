//! The words for kinds, outcomes and reasons, which stay as they are: dashboards count on them.

use std::fmt::Debug;

pub(super) use dlock_wire::reply::quote as quoted;
use dlock_wire::request::Mode;
use dlock_wire::table::{CommandId, LockVerb, MultiVerb, RwVerb, SemVerb};

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

pub(super) fn lost_name(lost: Lost) -> String {
    snake_case(lost)
}

pub(super) fn error_name(kind: ErrorKind) -> String {
    match kind {
        // A hold that is refused is another matter.
        ErrorKind::Refused => "no_permission".to_owned(),
        kind => snake_case(kind),
    }
}

/// The name of a variant in snake case. The variants are public, so their names stay as these words have to.
fn snake_case(variant: impl Debug) -> String {
    let text = format!("{variant:?}");
    let name = text.split(' ').next().unwrap_or_default();
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// The command of an acquire. None: a quorum lock.
pub(super) fn operation(target: Option<Target>) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_with_fields_and_of_several_words_have_plain_names() {
        let reason = Lost::MaxHold;
        for (kind, name) in [
            (ErrorKind::NotAcquired, "not_acquired"),
            (ErrorKind::Lost { reason, finished: true }, "lost"),
            (ErrorKind::ReleaseUnknown, "release_unknown"),
            (ErrorKind::NoQuorum { granted: 1, wanted: 2 }, "no_quorum"),
            (ErrorKind::Refused, "no_permission"),
            (ErrorKind::WrongType, "wrong_type"),
            (ErrorKind::Server, "server"),
        ] {
            assert_eq!(error_name(kind), name);
        }
        assert_eq!(
            (lost_name(reason), lost_name(Lost::Refused)),
            ("max_hold".into(), "refused".into())
        );
    }
}
