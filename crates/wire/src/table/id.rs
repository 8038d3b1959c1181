//! Identifiers of commands.

use super::{COMMANDS, Command};
use crate::request::{LatchVerb, LockVerb, MultiVerb, RwVerb, SemVerb};

/// The row of each command, by its number.
static ROWS: [usize; COMMANDS.len()] = {
    let (mut rows, mut row) = ([0; COMMANDS.len()], 0);
    while row < rows.len() {
        rows[COMMANDS[row].id.number()] = row;
        row += 1;
    }
    rows
};

/// Identifies the command of a row, a request or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandId {
    /// A command of DLOCK, the re-entrant lock.
    Lock(LockVerb),
    /// A command of DFAIR, the lock with a durable queue. The verbs and requests are DLOCK's.
    Fair(LockVerb),
    /// A command of DRW, the read-write lock.
    Rw(RwVerb),
    /// A command of DSEM, the semaphore.
    Sem(SemVerb),
    /// A command of DLATCH, the count-down latch.
    Latch(LatchVerb),
    /// A command for several DLOCK keys at once.
    Multi(MultiVerb),
    /// `DLOCK.UNBLOCK`, for the blocked calls of every family.
    Unblock,
    /// `DLOCK.APPLY`, the internal command of replication and the append-only file.
    Apply,
}

impl CommandId {
    /// The row of this command.
    #[inline]
    pub fn command(self) -> Option<&'static Command> {
        ROWS.get(self.number()).and_then(|&row| COMMANDS.get(row))
    }

    /// A number of its own, below that of all commands.
    const fn number(self) -> usize {
        const FAIR: usize = LockVerb::COUNT;
        const RW: usize = FAIR + LockVerb::COUNT;
        const SEM: usize = RW + RwVerb::COUNT;
        const LATCH: usize = SEM + SemVerb::COUNT;
        const MULTI: usize = LATCH + LatchVerb::COUNT;
        const UNBLOCK: usize = MULTI + MultiVerb::COUNT;
        match self {
            Self::Lock(verb) => verb as usize,
            Self::Fair(verb) => FAIR + verb as usize,
            Self::Rw(verb) => RW + verb as usize,
            Self::Sem(verb) => SEM + verb as usize,
            Self::Latch(verb) => LATCH + verb as usize,
            Self::Multi(verb) => MULTI + verb as usize,
            Self::Unblock => UNBLOCK,
            Self::Apply => UNBLOCK + 1,
        }
    }

    /// The name as it is registered and documented, for example `DLOCK.ACQUIRE`.
    pub fn name(self) -> &'static str {
        self.command().map_or("DLOCK", |command| command.name)
    }
}
