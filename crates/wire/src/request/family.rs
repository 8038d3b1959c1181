//! The commands of each family. Identifiers and dispatch come from these lists; the fields of a request are in the file
//! of its family.

use super::latch::{Await, CountDown, LatchInit};
use super::lock::{
    Acquire, AwaitEnd, Check, Fence, FindPosition, ListWaiters, OneKey, Release, Renew,
};
use super::multi::{MAcquire, MRelease, MRenew};
use super::rw::{RwAcquire, RwBreak, RwRelease, RwRenew};
use super::semaphore::{
    Drain, Give, OnePermit, Resize, SemAcquire, SemInit, SemRelease, SemRenew, Take,
};
use super::writer::Arguments;
use crate::cursor::Cursor;
use crate::fault::Fault;

/// A family: the name of its verbs, then its requests. Each line is a verb and its arguments.
macro_rules! family {
    (
        $(#[$about:meta])*
        $verb:ident
        $(
            $(#[$which:meta])*
            $requests:ident ($to:ident) {
                $($name:ident($call:ident),)*
            }
        )+
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // each is a command
        pub enum $verb {
            $($($name,)*)+
        }

        impl $verb {
            /// Number of verbs.
            pub(crate) const COUNT: usize = [$($(Self::$name,)*)+].len();

            #[inline]
            pub(super) fn parse<'a, R>(
                self,
                at: &mut Cursor<'a>,
                $($to: impl FnOnce($requests<'a>) -> R,)+
            ) -> Result<R, Fault<'a>> {
                Ok(match self {
                    $($(Self::$name => $to($requests::$name($call::parse(at)?)),)*)+
                })
            }
        }

        $(
            $(#[$which])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            #[allow(missing_docs)] // the calls say what they do
            pub enum $requests<'a> {
                $($name($call<'a>),)*
            }

            impl $requests<'_> {
                pub(super) fn parts<I>(&self, id: impl FnOnce($verb) -> I) -> (I, &dyn Arguments) {
                    match self {
                        $(Self::$name(call) => (id($verb::$name), call),)*
                    }
                }
            }
        )+
    };
}

family! {
    /// The commands of DLOCK and DFAIR.
    LockVerb

    /// Operations on a lock with one holder.
    LockOp (op) {
        Acquire(Acquire), Release(Release), Renew(Renew), Fence(Fence), Break(OneKey),
        Await(AwaitEnd),
    }

    /// What a lock with one holder shows.
    LockRead (read) {
        Check(Check), Info(OneKey), Waiters(ListWaiters), Position(FindPosition),
    }
}

family! {
    /// The commands of DRW.
    RwVerb

    /// Operations on a read-write lock.
    RwOp (op) {
        Acquire(RwAcquire), Release(RwRelease), Renew(RwRenew), Break(RwBreak),
    }

    /// What a read-write lock shows.
    RwRead (read) {
        Check(Check), Info(OneKey), Waiters(ListWaiters), Position(FindPosition),
    }
}

family! {
    /// The commands of DSEM.
    SemVerb

    /// Operations on a semaphore.
    SemOp (op) {
        Init(SemInit), Resize(Resize), Acquire(SemAcquire), Release(SemRelease),
        Renew(SemRenew), Take(Take), Give(Give), Drain(Drain), Break(OnePermit),
    }

    /// What a semaphore shows.
    SemRead (read) {
        Info(OneKey), Permits(OneKey), Waiters(ListWaiters), Position(FindPosition),
    }
}

family! {
    /// The commands of DLATCH.
    LatchVerb

    /// Operations on a latch.
    LatchOp (op) {
        Init(LatchInit), CountDown(CountDown), Await(Await),
    }

    /// What a latch shows.
    LatchRead (read) {
        Info(OneKey), Waiters(ListWaiters),
    }
}

family! {
    /// The commands for several DLOCK keys at once.
    MultiVerb

    /// Operations on several locks at once.
    MultiOp (op) {
        Acquire(MAcquire), Release(MRelease), Renew(MRenew), AnyAcquire(MAcquire),
    }
}

impl<'a> MultiOp<'a> {
    /// The locks that it is about.
    pub const fn keys(&self) -> &'a [&'a [u8]] {
        match self {
            Self::Acquire(call) | Self::AnyAcquire(call) => call.keys,
            Self::Release(call) => call.keys,
            Self::Renew(call) => call.keys,
        }
    }
}
