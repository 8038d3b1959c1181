//! What an acquire asks for, and what its replies say.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::permit::{self, PermitId};
use dlock_wire::reply::grant::{OneOf, Tokens};
use dlock_wire::request::{
    Acquire, Channel, MAcquire, MRelease, MultiOp, Op, Release, SemAcquire, SemOp, SemRelease,
};
use redis::{Cmd, Value};

use super::acquire::Copy;
use super::hold_state::LeaseTerms;
use crate::base::clock::millis;
use crate::base::command::command;
use crate::base::error::Error;
use crate::base::hold_ref::{Held, HoldRef};
use crate::base::random::Name;
use crate::base::reply::read_or_null;
use crate::base::target::{Family, Keys, Target};

/// One acquire, with all that its copies have in common.
pub(crate) struct Request {
    pub(crate) target: Target,
    pub(crate) keys: Keys,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) reqid: Name,
    /// What the copies ask for.
    pub(crate) lease: Duration,
    /// Of the hold.
    pub(crate) terms: LeaseTerms,
    pub(crate) queue_ms: u64,
    pub(crate) channel: Arc<[u8]>,
    pub(crate) label: Option<Arc<[u8]>>,
    pub(crate) no_reentry: bool,
}

impl Request {
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first()
    }

    /// A copy of the request.
    pub(crate) fn copy(&self, wait: Copy) -> Cmd {
        let mut acquire = Acquire::new(self.key(), &self.owner);
        acquire.lease_ms = Some(millis(self.lease));
        acquire.notify = Some(Channel::Plain(&self.channel));
        acquire.reqid = Some(self.reqid.as_bytes());
        acquire.no_reentry = self.no_reentry;
        acquire.bind_ms = self.terms.bind.map(millis);
        acquire.label = self.label.as_deref();
        if let Copy::Block(time) = wait {
            acquire.block_ms = Some(millis(time).max(1));
        }
        if wait != Copy::Now {
            // Also with BLOCK: the waiter outlives the end of the call, so that the next call keeps its position.
            acquire.queue_ms = Some(self.queue_ms);
        }
        match self.target {
            Target::Permit { count, limit } => {
                let acquire = SemAcquire { acquire, count, limit };
                command(Op::Sem(SemOp::Acquire(acquire)))
            }
            Target::Lock(family) => family.acquire(acquire),
            Target::All | Target::Any => {
                let keys: Vec<_> = self.keys.iter().collect();
                let call = MAcquire::of(&keys, &acquire);
                command(Op::Multi(if self.target == Target::Any {
                    MultiOp::AnyAcquire(call)
                } else {
                    MultiOp::Acquire(call)
                }))
            }
        }
    }

    /// Releases whatever the request has.
    pub(crate) fn release(&self) -> Cmd {
        let (key, owner, reqid) = (self.key(), &*self.owner, Some(self.reqid.as_bytes()));
        match self.target {
            Target::Lock(family) => family.release(Release { reqid, ..Release::new(key, owner) }),
            Target::Permit { .. } => {
                let release = SemRelease { reqid, ..SemRelease::new(key, owner) };
                command(Op::Sem(SemOp::Release(release)))
            }
            Target::All | Target::Any => {
                let keys: Vec<_> = self.keys.iter().collect();
                let release = MRelease { keys: &keys, owner, reqid };
                command(Op::Multi(MultiOp::Release(release)))
            }
        }
    }

    /// The grant that the reply to a copy says. None: nothing yet.
    pub(crate) fn granted(&self, reply: Value) -> Result<Option<HoldRef>, Error> {
        Ok(match self.target {
            Target::All => read_or_null::<Tokens>(reply)?
                .map(|tokens| self.hold(self.keys.clone(), Held::Multi(tokens))),
            Target::Any => read_or_null::<OneOf>(reply)?
                .map(|(key, token)| self.hold(Keys::of([key]), Held::Lock(Family::Lock, token))),
            Target::Permit { .. } => read_or_null(reply)?.map(|permit| self.permit(permit)),
            Target::Lock(_) => read_or_null(reply)?.and_then(|token| self.lock(token)),
        })
    }

    /// The hold that a message announces.
    pub(crate) fn announced(&self, id: &[u8]) -> Option<HoldRef> {
        match self.target {
            Target::Permit { .. } => Some(self.permit(permit::parse(id)?)),
            _ => self.lock(std::str::from_utf8(id).ok()?.parse().ok()?),
        }
    }

    fn permit(&self, permit: PermitId) -> HoldRef {
        self.hold(self.keys.clone(), Held::Permit(permit))
    }

    /// None: it asks for several locks.
    fn lock(&self, token: u64) -> Option<HoldRef> {
        let Target::Lock(family) = self.target else { return None };
        Some(self.hold(self.keys.clone(), Held::Lock(family, token)))
    }

    fn hold(&self, keys: Keys, held: Held) -> HoldRef {
        HoldRef { keys, owner: self.owner.clone(), held }
    }
}

/// Whether it has tokens or permit ids, or is Null.
pub(crate) fn is_grant(reply: &Value) -> bool {
    match reply {
        Value::Int(token) => *token > 0,
        Value::Array(items) => items.iter().all(is_grant),
        reply => matches!(reply, Value::Nil | Value::BulkString(_)),
    }
}
