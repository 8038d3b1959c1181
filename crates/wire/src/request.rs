//! Requests of clients. [`parse()`](crate::parse()) reads a request from the wire and [`Request::write`] writes it.
//! `parse(write(x)) == x` for every valid request.

mod admin;
pub(crate) mod arguments;
mod channel;
mod family;
mod id;
mod latch;
mod lock;
mod log;
mod multi;
mod rw;
mod semaphore;
mod writer;

use alloc::vec::Vec;

pub use crate::fault::Fault;
pub use admin::{Apply, EndAbsent, Trust, Unblock};
pub use channel::Channel;
pub use family::{
    LatchOp, LatchRead, LatchVerb, LockOp, LockRead, LockVerb, MultiOp, MultiVerb, RwOp, RwRead,
    RwVerb, SemOp, SemRead, SemVerb,
};
pub use id::CommandId;
pub use latch::{Await, CountDown, LatchInit};
pub use lock::{
    Acquire, AwaitEnd, Check, Fence, FindPosition, ListWaiters, OneKey, Release, Renew,
};
pub use log::Log;
pub use multi::{MAcquire, MRelease, MRenew};
pub use rw::{Mode, RwAcquire, RwBreak, RwRelease, RwRenew};
pub use semaphore::{
    Drain, Give, OnePermit, Resize, ResizeTo, SemAcquire, SemInit, SemRelease, SemRenew, Take,
};
use writer::{Arguments, Writer};

use crate::cursor::Cursor;
use crate::reply::Kind;

/// One call, checked: all lengths and numbers are in range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// It may change keys, or wait.
    Op(Op<'a>),
    /// It changes nothing and never waits.
    Read(Read<'a>),
    /// It reads or clears the log of notable events; it touches no key.
    Log(Log),
    /// Replay a record; only servers send this, to servers.
    Apply(Apply<'a>),
}

/// An operation: a request that may change keys, or wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Of a lock for one holder.
    Lock(LockFamily, LockOp<'a>),
    /// Of a read-write lock.
    Rw(RwOp<'a>),
    /// Of a semaphore.
    Sem(SemOp<'a>),
    /// Of a latch.
    Latch(LatchOp<'a>),
    /// Of several locks at once.
    Multi(MultiOp<'a>),
    /// DLOCK.UNBLOCK of a connection.
    Unblock(Unblock),
    /// DLOCK.UNBLOCK of absent places.
    EndAbsent(EndAbsent<'a>),
    /// DLOCK.TRUST.
    Trust(Trust),
}

/// A request that changes nothing and never waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read<'a> {
    /// Of a lock for one holder.
    Lock(LockFamily, LockRead<'a>),
    /// Of a read-write lock.
    Rw(RwRead<'a>),
    /// Of a semaphore.
    Sem(SemRead<'a>),
    /// Of a latch.
    Latch(LatchRead<'a>),
}

/// The two families of locks for one holder. They have the same requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockFamily {
    /// DLOCK, the re-entrant lock.
    Lock,
    /// DFAIR, the lock with a durable queue.
    Fair,
}

impl LockFamily {
    /// The command of this family.
    const fn id(self, verb: LockVerb) -> CommandId {
        match self {
            Self::Lock => CommandId::Lock(verb),
            Self::Fair => CommandId::Fair(verb),
        }
    }

    #[inline]
    fn parse<'a>(self, verb: LockVerb, at: &mut Cursor<'a>) -> Result<Request<'a>, Fault<'a>> {
        verb.parse(at, |op| Op::Lock(self, op).into(), |read| Read::Lock(self, read).into())
    }
}

impl<'a> Request<'a> {
    /// Reads the arguments of a call of command `id`.
    #[inline]
    pub(crate) fn read(id: CommandId, at: &mut Cursor<'a>) -> Result<Self, Fault<'a>> {
        match id {
            CommandId::Lock(verb) => LockFamily::Lock.parse(verb, at),
            CommandId::Fair(verb) => LockFamily::Fair.parse(verb, at),
            CommandId::Rw(verb) => {
                verb.parse(at, |op| Op::Rw(op).into(), |read| Read::Rw(read).into())
            }
            CommandId::Sem(verb) => {
                verb.parse(at, |op| Op::Sem(op).into(), |read| Read::Sem(read).into())
            }
            CommandId::Latch(verb) => {
                verb.parse(at, |op| Op::Latch(op).into(), |read| Read::Latch(read).into())
            }
            CommandId::Multi(verb) => verb.parse(at, |op| Op::Multi(op).into()),
            CommandId::Unblock => match EndAbsent::parse(at)? {
                Some(call) => Ok(Op::EndAbsent(call).into()),
                None => Ok(Op::Unblock(Unblock::parse(at)?).into()),
            },
            CommandId::Trust => Ok(Op::Trust(Trust).into()),
            CommandId::Log => Ok(Self::Log(Log::parse(at)?)),
            CommandId::Apply => Ok(Self::Apply(Apply::parse(at)?)),
        }
    }
}

impl Request<'_> {
    /// Its command.
    pub fn id(&self) -> CommandId {
        self.parts().0
    }

    /// Appends the arguments after the command's name to `out`.
    pub fn write(&self, out: &mut Vec<Vec<u8>>) {
        self.each_arg(|arg| out.push(arg.to_vec()));
    }

    /// Passes the arguments after the command's name to `arg`, one by one and in order, for clients that write them
    /// into their own buffer. Leases are written as `PX`.
    pub fn each_arg(&self, mut arg: impl FnMut(&[u8])) {
        self.parts().1.write(&mut Writer::new(&mut arg));
    }

    fn parts(&self) -> (CommandId, &dyn Arguments) {
        match self {
            Self::Op(Op::Lock(family, op)) => op.parts(|verb| family.id(verb)),
            Self::Op(Op::Rw(op)) => op.parts(CommandId::Rw),
            Self::Op(Op::Sem(op)) => op.parts(CommandId::Sem),
            Self::Op(Op::Latch(op)) => op.parts(CommandId::Latch),
            Self::Op(Op::Multi(op)) => op.parts(CommandId::Multi),
            Self::Op(Op::Unblock(call)) => (CommandId::Unblock, call),
            Self::Op(Op::EndAbsent(call)) => (CommandId::Unblock, call),
            Self::Op(Op::Trust(call)) => (CommandId::Trust, call),
            Self::Read(Read::Lock(family, read)) => read.parts(|verb| family.id(verb)),
            Self::Read(Read::Rw(read)) => read.parts(CommandId::Rw),
            Self::Read(Read::Sem(read)) => read.parts(CommandId::Sem),
            Self::Read(Read::Latch(read)) => read.parts(CommandId::Latch),
            Self::Log(call) => (CommandId::Log, call),
            Self::Apply(call) => (CommandId::Apply, call),
        }
    }
}

impl<'a> Op<'a> {
    /// The channel that `NOTIFY` or `SNOTIFY` names.
    pub const fn notify(&self) -> Option<Channel<'a>> {
        match self {
            Self::Lock(_, LockOp::Acquire(call)) => call.notify,
            Self::Rw(RwOp::Acquire(call)) => call.acquire.notify,
            Self::Sem(SemOp::Acquire(call)) => call.acquire.notify,
            Self::Multi(MultiOp::Acquire(call) | MultiOp::AnyAcquire(call)) => call.notify,
            _ => None,
        }
    }
}

impl<'a> Read<'a> {
    /// INFO of a family.
    pub const fn info(kind: Kind, key: &'a [u8]) -> Self {
        let call = OneKey { key };
        match kind {
            Kind::Lock => Self::Lock(LockFamily::Lock, LockRead::Info(call)),
            Kind::Fair => Self::Lock(LockFamily::Fair, LockRead::Info(call)),
            Kind::ReadWrite => Self::Rw(RwRead::Info(call)),
            Kind::Semaphore => Self::Sem(SemRead::Info(call)),
            Kind::Latch => Self::Latch(LatchRead::Info(call)),
        }
    }

    /// WAITERS of a family.
    pub const fn waiters(kind: Kind, key: &'a [u8], count: Option<u64>) -> Self {
        let call = ListWaiters { key, count };
        match kind {
            Kind::Lock => Self::Lock(LockFamily::Lock, LockRead::Waiters(call)),
            Kind::Fair => Self::Lock(LockFamily::Fair, LockRead::Waiters(call)),
            Kind::ReadWrite => Self::Rw(RwRead::Waiters(call)),
            Kind::Semaphore => Self::Sem(SemRead::Waiters(call)),
            Kind::Latch => Self::Latch(LatchRead::Waiters(call)),
        }
    }

    /// POSITION of a family; `None` for latches, whose waiters have no owner.
    pub const fn position(kind: Kind, key: &'a [u8], owner: &'a [u8]) -> Option<Self> {
        let call = FindPosition { key, owner };
        Some(match kind {
            Kind::Lock => Self::Lock(LockFamily::Lock, LockRead::Position(call)),
            Kind::Fair => Self::Lock(LockFamily::Fair, LockRead::Position(call)),
            Kind::ReadWrite => Self::Rw(RwRead::Position(call)),
            Kind::Semaphore => Self::Sem(SemRead::Position(call)),
            Kind::Latch => return None,
        })
    }
}

impl<'a> From<Op<'a>> for Request<'a> {
    fn from(op: Op<'a>) -> Self {
        Self::Op(op)
    }
}

impl<'a> From<Read<'a>> for Request<'a> {
    fn from(read: Read<'a>) -> Self {
        Self::Read(read)
    }
}
