//! The blocked calls and their answers.
//!
//! A blocked call is in one of three states: *waiting* (in [`Parking::waiting`]), *answered* (only in
//! [`Parking::calls`], until the server settles the answer), or *gone* (in neither: any later answer for it is
//! dropped).

use std::iter;

use dlock_core::base::ids::WaiterId;
use dlock_core::base::kind::Kind;
use dlock_core::base::time::Instant;
use dlock_core::machine::Fact;
use dlock_core::ports::effects::Outcome;
use dlock_wire::reply::ErrorCode;

use crate::ffi::{self, Blocked, CallId, Ctx, MainCell, OwnedName};
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
    /// With the moment since when they wait.
    waiting: NumberMap<WaiterId, (Blocked, Instant)>,
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
        parking.waiting.insert(waiter, (blocked, shell::now().mono));
    })
    .is_some()
}

/// Answers a blocked caller, if it is still there. A grant is taken back from a caller that may not hold it any more.
pub fn wake(waiter: WaiterId, mut outcome: Outcome) {
    let blocked = with(|parking| parking.waiting.remove(&waiter)).flatten();
    if outcome.is_grant() {
        let has_waited = |since: Instant| shell::now().mono > since + CHECKED_AFTER_MS;
        let is_refused = blocked.as_ref().is_some_and(|(_, since)| has_waited(*since))
            && !may_get(waiter, &outcome);
        if is_refused {
            outcome = Outcome::fault(ErrorCode::NoPerm, NO_RIGHT);
            let _ = shell::with(|shell| shell.machine.learn(Fact::Withheld(waiter)));
        }
        if is_refused || blocked.is_none() {
            inbox::push(Notice::Undelivered(waiter));
        }
    }
    if let Some((blocked, _)) = blocked {
        let call = blocked.call();
        blocked.unblock(Delivery { waiter, call, outcome });
    }
}

/// Whether the caller that this grant goes to may still make the call that it answers.
fn may_get(waiter: WaiterId, grant: &Outcome) -> bool {
    let may = shell::with(|shell| {
        let (client, kind, db, keys) = shell.machine.tables().in_flight.sent_to(waiter)?;
        let owner = &["owner"][..];
        let (command, count, rest): (&[u8], _, _) = match (grant, kind) {
            (Outcome::Tokens(_), _) => (b"DLOCK.MACQUIRE", Some(keys.len()), owner),
            (Outcome::Granted { .. }, _) => (b"DLOCK.ANYACQUIRE", Some(1), owner),
            (Outcome::Taken, _) => (b"DSEM.TAKE", None, &[]),
            (_, Kind::Fair) => (b"DFAIR.ACQUIRE", None, owner),
            (_, Kind::Rw) => (b"DRW.ACQUIRE", None, &["owner", "READ"]),
            (_, Kind::Semaphore) => (b"DSEM.ACQUIRE", None, owner),
            (_, Kind::Lock | Kind::Latch) => (b"DLOCK.ACQUIRE", None, owner),
        };
        let count = count.map(|count| OwnedName::new(count.to_string().as_bytes()));
        let call = iter::once(OwnedName::new(command)).chain(count);
        // Redis 8.6 looks at the number of words first. The rights do not depend on these.
        let rest = rest.iter().map(|word| OwnedName::new(word.as_bytes()));
        let call: Vec<_> = call.chain(keys.map(OwnedName::new)).chain(rest).collect();
        Some(ffi::may_still(client, db, &call))
    });
    may.flatten().unwrap_or(true)
}

const NO_RIGHT: &str = "while the call waited, this user lost the right to it or to its key";

/// A call that waited for less, in milliseconds, was checked by the server a moment ago. To ask once more costs as much
/// as 4 % of a hand-off.
const CHECKED_AFTER_MS: u64 = 1;

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
        let Some((blocked, _)) = parking.waiting.remove(&waiter) else {
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
