//! The blocked calls and their answers.
//!
//! A blocked call is in one of three states: *waiting* (in [`Parking::waiting`]), *answered* (only in
//! [`Parking::calls`], until the server settles the answer), or *gone* (in neither: any later answer for it is
//! dropped).

use dlock_core::base::ids::WaiterId;
use dlock_core::machine::Fact;
use dlock_core::ports::effects::Outcome;

use crate::ffi::{Blocked, CallId, Ctx, MainCell};
use crate::inbox::{self, Notice};
use crate::numbers::NumberMap;
use crate::{reply, shell};

/// An answer on its way to a blocked caller.
#[derive(Debug)]
pub struct Delivery {
    waiter: WaiterId,
    call: CallId,
    outcome: Outcome,
}

#[derive(Default)]
struct Parking {
    waiting: NumberMap<WaiterId, Blocked>,
    calls: NumberMap<CallId, WaiterId>,
}

static PARKING: MainCell<Option<Parking>> = MainCell::new(None);

fn with<R>(f: impl FnOnce(&mut Parking) -> R) -> Option<R> {
    PARKING.try_with(|parking| f(parking.get_or_insert_default()))
}

/// Blocks the caller as `waiter`. `false` if the server refuses.
pub fn park(ctx: Ctx<'_>, waiter: WaiterId) -> bool {
    let Some(blocked) = Blocked::block(ctx) else { return false };
    with(|parking| {
        parking.calls.insert(blocked.call(), waiter);
        parking.waiting.insert(waiter, blocked);
    })
    .is_some()
}

/// Answers a blocked caller, if it is still there.
pub fn wake(waiter: WaiterId, outcome: Outcome) {
    let is_grant = outcome.is_grant();
    match with(|parking| parking.waiting.remove(&waiter)).flatten() {
        Some(blocked) => {
            let call = blocked.call();
            blocked.unblock(Delivery { waiter, call, outcome });
        }
        None if is_grant => inbox::push(Notice::Undelivered(waiter)),
        None => {}
    }
}

/// Writes the answer of a blocked call.
pub fn reply(ctx: Ctx<'_>, delivery: &Delivery) {
    reply::reply(ctx, &delivery.outcome);
}

/// The answer was written, or the connection was gone.
pub fn settled(delivery: &Delivery, disconnected: bool) {
    let waiter = delivery.waiter;
    with(|parking| parking.calls.remove(&delivery.call));
    if disconnected {
        inbox::push(Notice::Undelivered(waiter));
    } else if delivery.outcome.is_grant() {
        shell::with(|shell| shell.machine.learn(Fact::Delivered(waiter)));
    }
}

/// A blocked call lost its connection, or the server ended it with an error.
pub fn disconnected(call: CallId) {
    inbox::push(Notice::HandleGone(call));
}

/// CLIENT UNBLOCK ended a blocked call; it has been answered.
pub fn unblocked(call: CallId) {
    inbox::push(Notice::HandleGone(call));
}

/// State of a call that has ended.
pub enum Detached {
    /// The call was still waiting; its waiter must be removed.
    Waiting(WaiterId),
    /// The grant was being sent.
    Sent(WaiterId),
    /// The call is unknown: it was already processed.
    Unknown,
}

/// Drops the handle of an ended call.
pub fn part(call: CallId) -> Detached {
    let found = with(|parking| {
        let waiter = *parking.calls.get(&call)?;
        let Some(blocked) = parking.waiting.remove(&waiter) else {
            return Some((None, Detached::Sent(waiter)));
        };
        parking.calls.remove(&call);
        Some((Some(blocked), Detached::Waiting(waiter)))
    });
    let (blocked, parted) = found.flatten().unwrap_or((None, Detached::Unknown));
    if let Some(blocked) = blocked {
        blocked.unblock_gone();
    }
    parted
}

/// How many calls are blocked.
pub fn count() -> usize {
    with(|parking| parking.waiting.len()).unwrap_or(0)
}
