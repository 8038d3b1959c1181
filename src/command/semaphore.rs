//! DSEM: translates requests into calls of the machine.

use dlock_core::effects::Outcome;
use dlock_core::store::Store;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Request;

use super::Desk;
use crate::permit_id;

pub(super) fn write(desk: Desk<'_, impl Store>, request: &Request<'_>) {
    let Desk { machine, store, now, caller, fx } = desk;
    match *request {
        Request::SemInit { key, permits } => {
            machine.sem_init(store, now, caller, (key, permits), fx);
        }
        Request::Resize { key, to, reqid } => {
            machine.resize(store, now, caller, (key, to, reqid), fx);
        }
        Request::SemAcquire(ref call) => match permit_id::next() {
            Ok(permit) => machine.sem_acquire(store, now, caller, (call, permit), fx),
            Err(error) => fx.reply = Some(Outcome::fault(ErrorCode::Err, error)),
        },
        Request::SemRelease { key, permit } => {
            machine.sem_release(store, now, caller, (key, permit), fx);
        }
        Request::SemRenew(ref call) => machine.sem_renew(store, now, caller, call, fx),
        Request::Take(ref call) => machine.take(store, now, caller, call, fx),
        Request::Give { key, n, reqid } => machine.give(store, now, caller, (key, n, reqid), fx),
        Request::Drain { key, reqid } => machine.drain(store, now, caller, (key, reqid), fx),
        Request::SemBreak { key, permit } => {
            machine.sem_break(store, now, caller, (key, permit), fx);
        }
        _ => super::misplaced(request),
    }
}
