//! The commands of each family. Identifiers, requests, parser and writer come from these lists.

use super::writer::Arguments;
use super::{
    Acquire, Await, Cancel, Check, CountDown, Drain, Fence, FindPosition, Give, LatchInit,
    ListWaiters, MAcquire, MRelease, MRenew, OneKey, OnePermit, Op, Parsed, Read, Release, Renew,
    Resize, RwAcquire, RwBreak, RwRelease, RwRenew, SemAcquire, SemInit, SemRenew, Take,
};
use crate::cursor::Cursor;
use crate::table::CommandId;

/// A family: the name of its verbs, then its requests. Each line is a verb and its arguments.
macro_rules! family {
    (
        $(#[$about:meta])*
        $verb:ident
        $(
            $(#[$which:meta])*
            $requests:ident ($to:ident: $request:ident) {
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
            pub(super) fn parse<'a>(
                self,
                at: &mut Cursor<'a>,
                $($to: impl FnOnce($requests<'a>) -> $request<'a>,)+
            ) -> Parsed<'a> {
                Ok(match self {
                    $($(Self::$name => $to($requests::$name($call::parse(at)?)).into(),)*)+
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
                pub(super) fn parts(
                    &self,
                    id: impl FnOnce($verb) -> CommandId,
                ) -> (CommandId, &dyn Arguments) {
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
    LockOp (op: Op) {
        Acquire(Acquire), Release(Release), Renew(Renew), Fence(Fence), Break(OneKey),
        Cancel(Cancel),
    }

    /// What a lock with one holder shows.
    LockRead (read: Read) {
        Check(Check), Info(OneKey), Waiters(ListWaiters), Position(FindPosition),
    }
}

family! {
    /// The commands of DRW.
    RwVerb

    /// Operations on a read-write lock.
    RwOp (op: Op) {
        Acquire(RwAcquire), Release(RwRelease), Renew(RwRenew), Break(RwBreak),
        Cancel(Cancel),
    }

    /// What a read-write lock shows.
    RwRead (read: Read) {
        Check(Check), Info(OneKey), Waiters(ListWaiters), Position(FindPosition),
    }
}

family! {
    /// The commands of DSEM.
    SemVerb

    /// Operations on a semaphore.
    SemOp (op: Op) {
        Init(SemInit), Resize(Resize), Acquire(SemAcquire), Release(OnePermit),
        Renew(SemRenew), Take(Take), Give(Give), Drain(Drain), Break(OnePermit),
        Cancel(Cancel),
    }

    /// What a semaphore shows.
    SemRead (read: Read) {
        Info(OneKey), Permits(OneKey), Waiters(ListWaiters), Position(FindPosition),
    }
}

family! {
    /// The commands of DLATCH.
    LatchVerb

    /// Operations on a latch.
    LatchOp (op: Op) {
        Init(LatchInit), CountDown(CountDown), Await(Await),
    }

    /// What a latch shows.
    LatchRead (read: Read) {
        Info(OneKey), Waiters(ListWaiters),
    }
}

family! {
    /// The commands for several DLOCK keys at once.
    MultiVerb

    /// Operations on several locks at once.
    MultiOp (op: Op) {
        Acquire(MAcquire), Release(MRelease), Renew(MRenew), AnyAcquire(MAcquire),
    }
}
