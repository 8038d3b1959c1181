//! The one door for what clients ask, and their operations.

pub(crate) mod acquire;
pub(crate) mod await_end;
pub(crate) mod break_holds;
pub(crate) mod fence;
pub(crate) mod latch;
pub(crate) mod multi;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod rw;
pub(crate) mod semaphore;
pub(crate) mod unblock;

use crate::events::diverged;
use crate::ports::answers::diverged;
use crate::ports::effects::Answer;
use crate::ports::turn::Turn;
use crate::tables::Tables;
use dlock_wire::permit::PermitId;
use dlock_wire::request::{LatchOp, LockFamily, LockOp, MultiOp, Op, RwOp, SemOp};

/// Carries out an operation of [`Turn::caller`]. `permit` is a new id for the permits of DSEM.ACQUIRE; other operations
/// do not use it.
pub(crate) fn execute(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    op: &Op<'_>,
    permit: PermitId,
) -> Answer {
    // Not only new grants: a hold that is known here may have ended in a record that was refused, so its owner must
    // not enter it again, nor get a repeated answer.
    if asks_for_a_grant(op) && tables.regime.divergence.is_any() {
        return diverged(tables.regime.divergence).into();
    }
    match op {
        Op::Lock(family, LockOp::Acquire(call)) => {
            acquire::acquire(tables, turn, (*family).into(), call)
        }
        Op::Lock(family, LockOp::Release(call)) => {
            release::release(tables, turn, (*family).into(), call)
        }
        Op::Lock(family, LockOp::Renew(call)) => renew::renew(tables, turn, (*family).into(), call),
        Op::Lock(family, LockOp::Fence(call)) => fence::fence(tables, turn, (*family).into(), call),
        Op::Lock(family, LockOp::Break(call)) => {
            break_holds::break_lock(tables, turn, (*family).into(), call)
        }
        Op::Lock(family, LockOp::Await(call)) => {
            await_end::await_end(tables, turn, (*family).into(), call)
        }
        Op::Rw(RwOp::Acquire(call)) => acquire::rw_acquire(tables, turn, call),
        Op::Rw(RwOp::Release(call)) => release::rw_release(tables, turn, call),
        Op::Rw(RwOp::Renew(call)) => renew::rw_renew(tables, turn, call),
        Op::Rw(RwOp::Break(call)) => break_holds::rw_break(tables, turn, call),
        Op::Sem(SemOp::Init(call)) => semaphore::sem_init(tables, turn, call),
        Op::Sem(SemOp::Resize(call)) => semaphore::resize(tables, turn, call),
        Op::Sem(SemOp::Acquire(call)) => acquire::sem_acquire(tables, turn, call, permit),
        Op::Sem(SemOp::Release(call)) => release::sem_release(tables, turn, call),
        Op::Sem(SemOp::Renew(call)) => renew::sem_renew(tables, turn, call),
        Op::Sem(SemOp::Take(call)) => semaphore::take(tables, turn, call),
        Op::Sem(SemOp::Give(call)) => semaphore::give(tables, turn, call),
        Op::Sem(SemOp::Drain(call)) => semaphore::drain(tables, turn, call),
        Op::Sem(SemOp::Break(call)) => break_holds::sem_break(tables, turn, call),
        Op::Latch(LatchOp::Init(call)) => latch::latch_init(tables, turn, call),
        Op::Latch(LatchOp::CountDown(call)) => latch::count_down(tables, turn, call),
        Op::Latch(LatchOp::Await(call)) => latch::await_latch(tables, turn, call),
        Op::Multi(MultiOp::Acquire(call)) => multi::macquire(tables, turn, call),
        Op::Multi(MultiOp::AnyAcquire(call)) => multi::any_acquire(tables, turn, call),
        Op::Multi(MultiOp::Release(call)) => multi::mrelease(tables, turn, call),
        Op::Multi(MultiOp::Renew(call)) => multi::mrenew(tables, turn, call),
        Op::Unblock(call) => unblock::unblock(tables, turn, *call),
        Op::EndAbsent(call) => unblock::end_absent(tables, turn, *call),
        Op::Trust(_) => diverged::trust(tables, turn),
    }
}

/// Whether the operation may leave something of which the machine counts what each user has: a place without a
/// connection. Not the id of a RELEASE that found nothing to end: most find a hold, and to ask the server for the user
/// would cost each of them 0.2 µs. For the others see [`crate::ports::store::Store::caller`].
pub fn counts_by_user(op: &Op<'_>) -> bool {
    match op {
        Op::Lock(LockFamily::Lock, LockOp::Acquire(call)) => call.queue_ms.is_some(),
        Op::Rw(RwOp::Acquire(call)) => call.acquire.queue_ms.is_some(),
        Op::Sem(SemOp::Acquire(call)) => call.acquire.queue_ms.is_some(),
        _ => false,
    }
}

/// Whether the answer can be that the caller has something from now on.
fn asks_for_a_grant(op: &Op<'_>) -> bool {
    match op {
        Op::Lock(_, LockOp::Acquire(_))
        | Op::Rw(RwOp::Acquire(_))
        | Op::Sem(SemOp::Acquire(_) | SemOp::Take(_) | SemOp::Drain(_))
        | Op::Multi(MultiOp::Acquire(_) | MultiOp::AnyAcquire(_)) => true,
        Op::Lock(..)
        | Op::Rw(_)
        | Op::Sem(_)
        | Op::Latch(_)
        | Op::Multi(_)
        | Op::Unblock(_)
        | Op::EndAbsent(_)
        | Op::Trust(_) => false,
    }
}
