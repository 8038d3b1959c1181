//! The one door for what clients ask.

use crate::answers::diverged;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::turn::Turn;
use dlock_wire::permit::PermitId;
use dlock_wire::request::{LatchOp, LockFamily, LockOp, MultiOp, Op, RwOp, SemOp};

impl Machine {
    /// Carries out an operation of [`Turn::caller`]. The answer is in [`Turn::fx`], or the waiter of the parked caller.
    /// `permit` is a new id for the permits of DSEM.ACQUIRE; other operations do not use it.
    pub fn execute(&mut self, turn: &mut Turn<'_>, op: &Op<'_>, permit: PermitId) {
        // Not only new grants: a hold that is known here may have ended in a record that was refused, so its owner must
        // not enter it again, nor get a repeated answer.
        if asks_for_a_grant(op) && self.regime.divergence.is_any() {
            turn.fx.reply = Some(diverged(self.regime.divergence));
            return;
        }
        match op {
            Op::Lock(family, LockOp::Acquire(call)) => self.acquire(turn, (*family).into(), call),
            Op::Lock(family, LockOp::Release(call)) => self.release(turn, (*family).into(), call),
            Op::Lock(family, LockOp::Renew(call)) => self.renew(turn, (*family).into(), call),
            Op::Lock(family, LockOp::Fence(call)) => self.fence(turn, (*family).into(), call),
            Op::Lock(family, LockOp::Break(call)) => self.break_lock(turn, (*family).into(), call),
            Op::Lock(family, LockOp::Await(call)) => self.await_end(turn, (*family).into(), call),
            Op::Lock(family, LockOp::Cancel(call)) => self.cancel(turn, (*family).into(), call),
            Op::Rw(RwOp::Acquire(call)) => self.rw_acquire(turn, call),
            Op::Rw(RwOp::Release(call)) => self.rw_release(turn, call),
            Op::Rw(RwOp::Renew(call)) => self.rw_renew(turn, call),
            Op::Rw(RwOp::Break(call)) => self.rw_break(turn, call),
            Op::Rw(RwOp::Cancel(call)) => self.cancel(turn, Kind::Rw, call),
            Op::Sem(SemOp::Init(call)) => self.sem_init(turn, call),
            Op::Sem(SemOp::Resize(call)) => self.resize(turn, call),
            Op::Sem(SemOp::Acquire(call)) => self.sem_acquire(turn, call, permit),
            Op::Sem(SemOp::Release(call)) => self.sem_release(turn, call),
            Op::Sem(SemOp::Renew(call)) => self.sem_renew(turn, call),
            Op::Sem(SemOp::Take(call)) => self.take(turn, call),
            Op::Sem(SemOp::Give(call)) => self.give(turn, call),
            Op::Sem(SemOp::Drain(call)) => self.drain(turn, call),
            Op::Sem(SemOp::Break(call)) => self.sem_break(turn, call),
            Op::Sem(SemOp::Cancel(call)) => self.cancel(turn, Kind::Semaphore, call),
            Op::Latch(LatchOp::Init(call)) => self.latch_init(turn, call),
            Op::Latch(LatchOp::CountDown(call)) => self.count_down(turn, call),
            Op::Latch(LatchOp::Await(call)) => self.await_latch(turn, call),
            Op::Multi(MultiOp::Acquire(call)) => self.macquire(turn, call),
            Op::Multi(MultiOp::AnyAcquire(call)) => self.any_acquire(turn, call),
            Op::Multi(MultiOp::Release(call)) => self.mrelease(turn, call),
            Op::Multi(MultiOp::Renew(call)) => self.mrenew(turn, call),
            Op::Unblock(call) => self.unblock(turn, *call),
            Op::EndAbsent(call) => self.end_absent(turn, *call),
            Op::Trust(_) => self.trust(turn),
        }
    }
}

/// Whether the operation may leave something of which the machine counts what each user has: a place without a
/// connection, or the id of a CANCEL that found nothing to do. Not RELEASE: most find a hold, and to ask the server for
/// the user would cost each of them 0.2 µs.
pub fn counts_by_user(op: &Op<'_>) -> bool {
    match op {
        Op::Lock(LockFamily::Lock, LockOp::Acquire(call)) => call.queue_ms.is_some(),
        Op::Rw(RwOp::Acquire(call)) => call.acquire.queue_ms.is_some(),
        Op::Sem(SemOp::Acquire(call)) => call.acquire.queue_ms.is_some(),
        Op::Lock(_, LockOp::Cancel(call))
        | Op::Rw(RwOp::Cancel(call))
        | Op::Sem(SemOp::Cancel(call)) => call.reqid.is_some(),
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
