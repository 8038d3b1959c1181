//! The end of a hold of another owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dlock_wire::reply::HoldEnd;
use dlock_wire::request::{AwaitEnd, LockFamily, LockOp, Op};

use super::Lock;
use crate::acquire::Handle;
use crate::base::clock::Moment;
use crate::base::command::command;
use crate::base::error::Error;
use crate::base::reply::read;
use crate::base::target::Family;

impl Lock {
    /// The family of a lock with one holder; an error for the modes of read-write locks, which have no such commands.
    pub(super) fn lock_family(&self) -> Result<LockFamily, Error> {
        match self.handle.target.family() {
            Family::Lock => Ok(LockFamily::Lock),
            Family::Fair => Ok(LockFamily::Fair),
            Family::Rw(_) => Err(Error::invalid("not possible with a read-write lock")),
        }
    }

    /// Waits until the hold with this token has ended. None: the time is over, until which the hold was in force.
    pub(crate) async fn await_end(
        &self,
        token: u64,
        deadline: Moment,
    ) -> Result<Option<Ended>, Error> {
        let Handle { core, keys, .. } = &self.handle;
        let (key, family) = (keys.first(), self.lock_family()?);
        let (tries, name) = (Arc::new(AtomicU32::new(0)), key.to_vec());
        let count = tries.clone();
        let request = move |block_ms| {
            count.fetch_add(1, Ordering::Relaxed);
            let (token, reason) = (Some(token), true);
            let call = AwaitEnd { token, block_ms, reason, ..AwaitEnd::new(&name) };
            command(Op::Lock(family, LockOp::Await(call)))
        };
        let reply = core.wait(key, deadline, false, Box::new(request)).await?;
        if reply == redis::Value::Nil {
            return Ok(None);
        }
        Ok(Some(Ended { how: read(reply)?, is_late: tries.load(Ordering::Relaxed) > 2 }))
    }
}

/// The end of a hold.
pub(crate) struct Ended {
    pub(crate) how: HoldEnd,
    /// It may have ended some time before the answer: the request was sent more than once.
    pub(crate) is_late: bool,
}
