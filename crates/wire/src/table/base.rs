//! What rows of the same kind share: how they use their key, and what that means for the server and for ACLs.

use super::command::{Access, Command, Group, KeyFlag, Keys};
use crate::args::KEY;
use crate::request::{CommandId, LockVerb};

/// Shows something in O(1).
pub(super) const SHOW: Command = Command {
    name: "",
    id: CommandId::Lock(LockVerb::Info),
    group: Group::Lock,
    summary: "",
    like: None,
    since: "1.0.0",
    complexity: "O(1)",
    arity: 0,
    access: Access::Read,
    flags: "readonly fast",
    acl: &["read", "fast"],
    keys: Keys::First,
    key_flags: &[KeyFlag::Ro, KeyFlag::Access],
    args: &[KEY],
    reply: "",
    maps: &[],
    errors: &[],
    notes: "",
    example: "",
};

/// Shows something that takes longer.
pub(super) const LIST: Command = Command { flags: "readonly", acl: &["read", "slow"], ..SHOW };

/// Makes a key.
pub(super) const INIT: Command = Command {
    access: Access::Write,
    flags: "write deny-oom fast",
    acl: &["write", "fast"],
    key_flags: &[KeyFlag::Rw, KeyFlag::Insert],
    ..SHOW
};

/// Changes a hold, or a number.
pub(super) const CHANGE: Command = Command {
    flags: "write fast",
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    ..INIT
};

/// Gives something back.
pub(super) const RELEASE: Command =
    Command { key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Delete], ..CHANGE };

/// Takes something, or waits for it.
pub(super) const ACQUIRE: Command =
    Command { flags: "write deny-oom blocking", acl: &["write", "slow", "blocking"], ..CHANGE };

/// Ends holds by force.
pub(super) const BREAK: Command = Command {
    flags: "write",
    acl: &["write", "slow", "dangerous"],
    key_flags: &[KeyFlag::Rw, KeyFlag::Delete],
    ..CHANGE
};

impl Command {
    /// The same in another chapter.
    pub(super) const fn of(self, group: Group) -> Self {
        Self { group, ..self }
    }
}
