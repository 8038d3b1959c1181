//! Which command takes which request.

use super::{
    Acquire, MAcquire, MRelease, MRenew, Release, Renew, Request, ResizeTo, RwAcquire, RwRelease,
    RwRenew, SemAcquire, SemRenew, Take,
};
use crate::cursor::Cursor;
use crate::fault::ParseError;
use crate::table::args::{
    APPLY_KEY, BLOCK, BROKEN_OWNER, CANCELLED, CLIENT_ID, COUNT, ERROR, KEY, LATCH_COUNT,
    LATCH_LEASE, N, OWNER, PAYLOAD, PERMIT_ID, PERMITS, REQID, STEPS, TOKEN,
};
use crate::table::{CommandId, LatchVerb, LockVerb, MultiVerb, RwVerb, SemVerb};

type Parsed<'a> = Result<Request<'a>, ParseError<'a>>;

/// Parses the arguments of one call; `args` are those after the command's name.
///
/// Their number is checked first, then they are read from left to right; the first error is returned. The request
/// borrows from the arguments. Nothing is allocated, except to find repeated keys in large sets.
#[inline]
pub fn parse<'a>(id: CommandId, args: &'a [&'a [u8]]) -> Parsed<'a> {
    let at = &mut Cursor::new(id, args)?;
    match id {
        CommandId::Lock(verb) | CommandId::Fair(verb) => lock(verb, at),
        CommandId::Rw(verb) => read_write(verb, at),
        CommandId::Sem(verb) => semaphore(verb, at),
        CommandId::Latch(verb) => latch(verb, at),
        CommandId::Multi(verb) => multi(verb, at),
        CommandId::Unblock => {
            Ok(Request::Unblock { client: at.number(&CLIENT_ID)?, error: at.only(&ERROR)? })
        }
        CommandId::Apply => {
            Ok(Request::Apply { key: at.next(&APPLY_KEY)?, payload: at.next(&PAYLOAD)? })
        }
    }
}

#[inline]
fn lock<'a>(verb: LockVerb, at: &mut Cursor<'a>) -> Parsed<'a> {
    Ok(match verb {
        LockVerb::Acquire => Request::Acquire(Acquire::parse(at)?),
        LockVerb::Release => Request::Release(Release::parse(at)?),
        LockVerb::Renew => Request::Renew(Renew::parse(at)?),
        LockVerb::Check => Request::Check { key: at.bytes(&KEY)?, token: at.number(&TOKEN)? },
        LockVerb::Fence => Request::Fence {
            key: at.bytes(&KEY)?,
            owner: at.bytes(&OWNER)?,
            token: at.number(&TOKEN)?,
        },
        LockVerb::Break => Request::Break { key: at.bytes(&KEY)? },
        LockVerb::Info => Request::Info { key: at.bytes(&KEY)? },
        LockVerb::Waiters => Request::Waiters { key: at.bytes(&KEY)?, count: at.only(&COUNT)? },
        LockVerb::Position => Request::Position { key: at.bytes(&KEY)?, owner: at.bytes(&OWNER)? },
        LockVerb::Cancel => Request::Cancel {
            key: at.bytes(&KEY)?,
            owner: at.bytes(&OWNER)?,
            reqid: at.only(&CANCELLED)?,
        },
    })
}

#[inline]
fn read_write<'a>(verb: RwVerb, at: &mut Cursor<'a>) -> Parsed<'a> {
    Ok(match verb {
        RwVerb::Acquire => Request::RwAcquire(RwAcquire::parse(at)?),
        RwVerb::Release => Request::RwRelease(RwRelease::parse(at)?),
        RwVerb::Renew => Request::RwRenew(RwRenew::parse(at)?),
        RwVerb::Break => {
            at.at_most(2)?;
            let key = at.bytes(&KEY)?;
            let owner = if at.is_at_end() { None } else { Some(at.bytes(&BROKEN_OWNER)?) };
            Request::RwBreak { key, owner }
        }
        RwVerb::Check => return lock(LockVerb::Check, at),
        RwVerb::Info => return lock(LockVerb::Info, at),
        RwVerb::Waiters => return lock(LockVerb::Waiters, at),
        RwVerb::Position => return lock(LockVerb::Position, at),
        RwVerb::Cancel => return lock(LockVerb::Cancel, at),
    })
}

#[inline]
fn semaphore<'a>(verb: SemVerb, at: &mut Cursor<'a>) -> Parsed<'a> {
    Ok(match verb {
        SemVerb::Init => Request::SemInit { key: at.bytes(&KEY)?, permits: at.number(&PERMITS)? },
        SemVerb::Resize => Request::Resize {
            key: at.bytes(&KEY)?,
            to: ResizeTo::read(at)?,
            reqid: at.only(&REQID)?,
        },
        SemVerb::Acquire => Request::SemAcquire(SemAcquire::parse(at)?),
        SemVerb::Release => {
            Request::SemRelease { key: at.bytes(&KEY)?, permit: at.permit(&PERMIT_ID)? }
        }
        SemVerb::Renew => Request::SemRenew(SemRenew::parse(at)?),
        SemVerb::Take => Request::Take(Take::parse(at)?),
        SemVerb::Give => Request::Give {
            key: at.bytes(&KEY)?,
            n: at.number_or_one(&N)?,
            reqid: at.only(&REQID)?,
        },
        SemVerb::Drain => Request::Drain { key: at.bytes(&KEY)?, reqid: at.only(&REQID)? },
        SemVerb::Break => {
            Request::SemBreak { key: at.bytes(&KEY)?, permit: at.permit(&PERMIT_ID)? }
        }
        SemVerb::Permits => Request::Permits { key: at.bytes(&KEY)? },
        SemVerb::Info => return lock(LockVerb::Info, at),
        SemVerb::Waiters => return lock(LockVerb::Waiters, at),
        SemVerb::Position => return lock(LockVerb::Position, at),
        SemVerb::Cancel => return lock(LockVerb::Cancel, at),
    })
}

#[inline]
fn latch<'a>(verb: LatchVerb, at: &mut Cursor<'a>) -> Parsed<'a> {
    Ok(match verb {
        LatchVerb::Init => Request::LatchInit {
            key: at.bytes(&KEY)?,
            count: at.number(&LATCH_COUNT)?,
            lease_ms: at.only(&LATCH_LEASE)?,
        },
        LatchVerb::CountDown => Request::CountDown {
            key: at.bytes(&KEY)?,
            n: at.number_or_one(&STEPS)?,
            reqid: at.only(&REQID)?,
        },
        LatchVerb::Await => Request::Await { key: at.bytes(&KEY)?, block_ms: at.only(&BLOCK)? },
        LatchVerb::Info => return lock(LockVerb::Info, at),
        LatchVerb::Waiters => return lock(LockVerb::Waiters, at),
    })
}

fn multi<'a>(verb: MultiVerb, at: &mut Cursor<'a>) -> Parsed<'a> {
    Ok(match verb {
        MultiVerb::Acquire => Request::MAcquire(MAcquire::parse(at)?),
        MultiVerb::Release => Request::MRelease(MRelease::parse(at)?),
        MultiVerb::Renew => Request::MRenew(MRenew::parse(at)?),
        MultiVerb::AnyAcquire => Request::AnyAcquire(MAcquire::parse(at)?),
    })
}
