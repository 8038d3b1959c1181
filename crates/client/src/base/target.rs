//! What an acquire takes, and the commands of each family of locks.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use dlock_wire::names::{KEYS_MAX, PERMITS_MAX};
use dlock_wire::reply::{Kind, quote};
use dlock_wire::request::{
    Acquire, Check, LockFamily, LockOp, LockRead, Mode, Op, Read, Release, Renew, RwAcquire, RwOp,
    RwRead, RwRelease, RwRenew,
};
use redis::Cmd;

use crate::base::command::command;
use crate::base::error::Error;

/// What an acquire takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Lock(Family),
    Permit {
        count: u32,
        limit: Option<u32>,
    },
    /// All of several locks.
    All,
    /// Any one of several locks.
    Any,
}

impl Target {
    pub(crate) fn is_several(self) -> bool {
        matches!(self, Self::All | Self::Any)
    }

    /// Of several locks, each is a DLOCK. Permits have none.
    pub(crate) fn family(self) -> Family {
        match self {
            Self::Lock(family) => family,
            Self::Permit { .. } | Self::All | Self::Any => Family::Lock,
        }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        let Self::Permit { count, limit } = self else { return Ok(()) };
        for (name, permits) in [("count", count), ("limit", limit.unwrap_or(1))] {
            if permits == 0 || permits > PERMITS_MAX {
                return Err(Error::invalid(format!("{name} must be 1 to {PERMITS_MAX}")));
            }
        }
        Ok(())
    }
}

/// The keys of an acquire.
#[derive(Clone)]
pub(crate) struct Keys(Arc<[Arc<[u8]>]>);

impl Keys {
    pub(crate) fn of<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Self {
        Self(keys.into_iter().map(|key| key.as_ref().into()).collect())
    }

    /// The key that tells the server.
    pub(crate) fn first(&self) -> &[u8] {
        self.0.first().map_or(&[], |key| key)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.iter().map(|key| &**key)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let most = usize::try_from(KEYS_MAX).unwrap_or(usize::MAX);
        if !(1..=most).contains(&self.0.len()) {
            return Err(Error::invalid(format!("1 to {most} keys can be locked together")));
        }
        if self.iter().any(<[u8]>::is_empty) {
            return Err(Error::invalid("key must not be empty"));
        }
        let mut seen = HashSet::new();
        match self.iter().find(|key| self.0.len() > 1 && !seen.insert(*key)) {
            Some(twice) => Err(Error::invalid(format!("key {} given twice", quote(twice)))),
            None => Ok(()),
        }
    }
}

/// How many of them, and the first few.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.iter().take(8).map(quote).collect();
        write!(f, "{} {shown:?}", self.0.len())
    }
}

/// The families of locks: DLOCK, DFAIR and DRW.
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

    pub(crate) fn check(self, check: Check<'_>) -> Cmd {
        command(match self {
            Self::Lock => Read::Lock(LockFamily::Lock, LockRead::Check(check)),
            Self::Fair => Read::Lock(LockFamily::Fair, LockRead::Check(check)),
            Self::Rw(_) => Read::Rw(RwRead::Check(check)),
        })
    }
}
