//! Locks by family: the commands of DLOCK, DFAIR and DRW.

use dlock_wire::request::{Acquire, Mode, Release, Renew, Request, RwAcquire, RwRelease, RwRenew};
use dlock_wire::table::{CommandId, LockVerb, RwVerb};
use redis::Cmd;

use crate::command::command;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Lock,
    Fair,
    Rw(Mode),
}

impl Family {
    fn id(self, lock: LockVerb, rw: RwVerb) -> CommandId {
        match self {
            Self::Lock => CommandId::Lock(lock),
            Self::Fair => CommandId::Fair(lock),
            Self::Rw(_) => CommandId::Rw(rw),
        }
    }

    pub(crate) fn acquire(self, acquire: Acquire<'_>) -> Cmd {
        let request = match self {
            Self::Rw(mode) => Request::RwAcquire(RwAcquire { acquire, mode }),
            Self::Lock | Self::Fair => Request::Acquire(acquire),
        };
        command(self.id(LockVerb::Acquire, RwVerb::Acquire), &request)
    }

    pub(crate) fn renew(self, renew: Renew<'_>) -> Cmd {
        let request = match self {
            Self::Rw(mode) => Request::RwRenew(RwRenew { renew, mode }),
            Self::Lock | Self::Fair => Request::Renew(renew),
        };
        command(self.id(LockVerb::Renew, RwVerb::Renew), &request)
    }

    pub(crate) fn release(self, release: Release<'_>) -> Cmd {
        let request = match self {
            Self::Rw(mode) => Request::RwRelease(RwRelease { release, mode }),
            Self::Lock | Self::Fair => Request::Release(release),
        };
        command(self.id(LockVerb::Release, RwVerb::Release), &request)
    }

    pub(crate) fn cancel(self) -> CommandId {
        self.id(LockVerb::Cancel, RwVerb::Cancel)
    }

    pub(crate) fn check(self) -> CommandId {
        self.id(LockVerb::Check, RwVerb::Check)
    }
}
