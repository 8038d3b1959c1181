//! Who is blocked, and what becomes of the answer.
//!
//! A blocked call is in one of three states: *waiting* (in [`Parking::waiting`]), *granted* (its
//! answer is on the way; in [`Parking::sent`] until the server settles it), or *gone* (in neither:
//! whatever still arrives for it is dropped).

use std::collections::HashMap;

use dlock_core::effects::Outcome;
use dlock_core::queue::WaiterId;

use crate::command;
use crate::ffi::{Blocked, Ctx, MainCell};
use crate::inbox::{self, Notice};
use crate::shell;

/// An answer on its way to a blocked caller.
#[derive(Debug)]
pub struct Delivery {
    waiter: WaiterId,
    handle: usize,
    outcome: Outcome,
}

#[derive(Default)]
struct Parking {
    waiting: HashMap<WaiterId, Blocked>,
    by_handle: HashMap<usize, WaiterId>,
    sent: HashMap<usize, WaiterId>,
}

static PARKING: MainCell<Option<Parking>> = MainCell::new(None);

fn with<R>(f: impl FnOnce(&mut Parking) -> R) -> Option<R> {
    PARKING.try_with(|parking| f(parking.get_or_insert_default()))
}

/// Blocks the caller as `waiter`. `false` if the server refuses.
pub fn park(ctx: Ctx<'_>, waiter: WaiterId) -> bool {
    let Some(blocked) = Blocked::block(ctx) else { return false };
    with(|parking| {
        parking.by_handle.insert(blocked.id(), waiter);
        parking.waiting.insert(waiter, blocked);
    })
    .is_some()
}

/// Answers a blocked caller, if it is still there.
pub fn wake(waiter: WaiterId, outcome: Outcome) {
    let is_grant = outcome.is_grant();
    let blocked = with(|parking| {
        let blocked = parking.waiting.remove(&waiter)?;
        parking.by_handle.remove(&blocked.id());
        parking.sent.insert(blocked.id(), waiter);
        Some(blocked)
    })
    .flatten();
    match blocked {
        Some(blocked) => {
            let handle = blocked.id();
            blocked.unblock(Box::new(Delivery { waiter, handle, outcome }));
        }
        None if is_grant => inbox::push(Notice::Undelivered(waiter)),
        None => {}
    }
}

/// Writes the answer of a blocked call.
pub fn reply(ctx: Ctx<'_>, delivery: &Delivery) {
    command::reply(ctx, &delivery.outcome);
}

/// The answer was written, or its receiver was gone.
pub fn settled(delivery: &Delivery, disconnected: bool) {
    let waiter = delivery.waiter;
    with(|parking| parking.sent.remove(&delivery.handle));
    if disconnected {
        inbox::push(Notice::Undelivered(waiter));
    } else if delivery.outcome.is_grant() {
        shell::with(|shell| shell.machine.delivered(waiter));
    }
}

/// A blocked call lost its connection, or the server ended it with an error.
pub fn disconnected(handle: usize) {
    inbox::push(Notice::HandleGone(handle));
}

/// CLIENT UNBLOCK ended a blocked call; it has been answered.
pub fn unblocked(handle: usize) {
    inbox::push(Notice::HandleGone(handle));
}

/// What a lost handle was.
pub enum Parted {
    /// A call that still waited; its place must be seen to.
    Waiting(WaiterId),
    /// A call whose grant was on the way.
    Sent(WaiterId),
    /// Seen to already.
    Unknown,
}

/// Lets go of a handle whose call has ended.
pub fn part(handle: usize) -> Parted {
    let found = with(|parking| {
        if let Some(waiter) = parking.by_handle.remove(&handle) {
            return (parking.waiting.remove(&waiter), Parted::Waiting(waiter));
        }
        match parking.sent.get(&handle) {
            Some(&waiter) => (None, Parted::Sent(waiter)),
            None => (None, Parted::Unknown),
        }
    });
    let (blocked, parted) = found.unwrap_or((None, Parted::Unknown));
    if let Some(blocked) = blocked {
        blocked.unblock_gone();
    }
    parted
}

/// How many calls are blocked.
pub fn count() -> usize {
    with(|parking| parking.waiting.len()).unwrap_or(0)
}
