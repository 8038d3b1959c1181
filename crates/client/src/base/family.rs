//! Locks by family: the commands of DLOCK, DFAIR and DRW.

use dlock_wire::reply::Kind;
use dlock_wire::request::{
    Acquire, Cancel, Check, LockFamily, LockOp, LockRead, Mode, Op, Read, Release, Renew,
    RwAcquire, RwOp, RwRead, RwRelease, RwRenew,
};
use redis::Cmd;

use crate::base::command::command;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    Lock,
    Fair,
    Rw(Mode),
}

impl Family {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Lock => Kind::Lock,
            Self::Fair => Kind::Fair,
            Self::Rw(_) => Kind::ReadWrite,
        }
    }

    fn command<'a>(self, lock: LockOp<'a>, rw: impl FnOnce(Mode) -> RwOp<'a>) -> Cmd {
        command(match self {
            Self::Lock => Op::Lock(LockFamily::Lock, lock),
            Self::Fair => Op::Lock(LockFamily::Fair, lock),
            Self::Rw(mode) => Op::Rw(rw(mode)),
        })
    }

    pub(crate) fn acquire(self, acquire: Acquire<'_>) -> Cmd {
        self.command(LockOp::Acquire(acquire), |mode| RwOp::Acquire(RwAcquire { acquire, mode }))
    }

    pub(crate) fn renew(self, renew: Renew<'_>) -> Cmd {
        self.command(LockOp::Renew(renew), |mode| RwOp::Renew(RwRenew { renew, mode }))
    }

    pub(crate) fn release(self, release: Release<'_>) -> Cmd {
        self.command(LockOp::Release(release), |mode| RwOp::Release(RwRelease { release, mode }))
    }

    pub(crate) fn cancel(self, cancel: Cancel<'_>) -> Cmd {
        self.command(LockOp::Cancel(cancel), |_| RwOp::Cancel(cancel))
    }

    pub(crate) fn check(self, check: Check<'_>) -> Cmd {
        command(match self {
            Self::Lock => Read::Lock(LockFamily::Lock, LockRead::Check(check)),
            Self::Fair => Read::Lock(LockFamily::Fair, LockRead::Check(check)),
            Self::Rw(_) => Read::Rw(RwRead::Check(check)),
        })
    }
}
