//! The requests of an acquire, and what their replies say.

use dlock_wire::permit::{self, PermitId};
use dlock_wire::reply::grant::{OneOf, Tokens};
use dlock_wire::request::{
    Acquire, Channel, MAcquire, MRelease, MultiOp, Op, Release, SemAcquire, SemOp, SemRelease,
};
use redis::{Cmd, Value};

use super::pending::{Grant, PendingAcquire, WaitRequest, is_grant};
use crate::base::clock::{Moment, millis};
use crate::base::command::{Draft, command};
use crate::base::error::Error;
use crate::base::hold_ref::HoldRef;
use crate::base::reply::read_or_null;
use crate::base::target::{Family, Keys, Target};
use crate::state::hold_state::Asked;

impl PendingAcquire {
    /// The request, waiting as said.
    pub(super) fn draft(&self, wait: WaitRequest) -> Draft<'_> {
        Draft::notified(move |channel| self.request(wait, channel))
    }

    fn request(&self, wait: WaitRequest, channel: Channel<'_>) -> Cmd {
        let mut acquire = Acquire::new(self.key(), &self.owner);
        acquire.lease_ms = Some(millis(self.lease));
        acquire.notify = Some(channel);
        acquire.reqid = Some(self.reqid.as_bytes());
        acquire.no_reentry = self.options.no_reentry;
        acquire.bind_ms = self.terms.bind.map(millis);
        acquire.label = self.options.label.as_deref();
        if let WaitRequest::Block(ms) = wait {
            acquire.block_ms = Some(ms);
        }
        if !matches!(wait, WaitRequest::Now) {
            // Also with BLOCK: the waiter outlives the end of the call, so that the next call keeps its position.
            acquire.queue_ms = Some(self.core.ctx.settings.queue_ms());
        }
        match self.target {
            Target::Permit { count, limit } => {
                let acquire = SemAcquire { acquire, count, limit };
                command(Op::Sem(SemOp::Acquire(acquire)))
            }
            Target::Lock(family) => family.acquire(acquire),
            Target::All | Target::Any => {
                let keys = self.keys.all();
                let call = MAcquire::of(&keys, &acquire);
                command(Op::Multi(if self.target == Target::Any {
                    MultiOp::AnyAcquire(call)
                } else {
                    MultiOp::Acquire(call)
                }))
            }
        }
    }

    /// The request that releases what this acquire has.
    pub(super) fn release_request(&self) -> Cmd {
        let (key, owner, reqid) = (self.key(), &*self.owner, Some(self.reqid.as_bytes()));
        match self.target {
            Target::Lock(family) => family.release(Release { reqid, ..Release::new(key, owner) }),
            Target::Permit { .. } => {
                let release = SemRelease { reqid, ..SemRelease::new(key, owner) };
                command(Op::Sem(SemOp::Release(release)))
            }
            Target::All | Target::Any => {
                let release = MRelease { keys: &self.keys.all(), owner, reqid };
                command(Op::Multi(MultiOp::Release(release)))
            }
        }
    }

    /// The grant that the reply to a request says. None: nothing yet.
    pub(super) fn granted(&self, reply: Value, sent: Moment) -> Result<Option<Grant>, Error> {
        let owner = || self.owner.clone();
        if !is_grant(&reply) {
            return Err(Error::protocol(&reply));
        }
        let hold = match (self.target, &self.keys) {
            (Target::All, Keys::Several(keys)) => {
                let tokens: Option<Tokens> = read_or_null(reply)?;
                tokens.map(|tokens| HoldRef::Multi { keys: keys.clone(), owner: owner(), tokens })
            }
            (Target::All | Target::Any, _) => {
                let found: Option<OneOf> = read_or_null(reply)?;
                found.map(|(key, token)| HoldRef::Lock {
                    family: Family::Lock,
                    key: key.into(),
                    owner: owner(),
                    token,
                })
            }
            (Target::Permit { .. }, _) => {
                read_or_null(reply)?.and_then(|permit| self.permit(permit))
            }
            (Target::Lock(_), _) => read_or_null(reply)?.and_then(|token| self.lock(token)),
        };
        let granted = Asked { sent, lease: self.lease };
        Ok(hold.map(|hold| Grant { hold, granted, begun: sent, is_confirmed: false }))
    }

    /// The hold that a message announces.
    pub(super) fn announced_hold(&self, id: &[u8]) -> Option<HoldRef> {
        match self.target {
            Target::Permit { .. } => self.permit(permit::parse(id)?),
            _ => self.lock(std::str::from_utf8(id).ok()?.parse().ok()?),
        }
    }

    fn permit(&self, permit: PermitId) -> Option<HoldRef> {
        let Keys::One(key) = &self.keys else { return None };
        Some(HoldRef::Permit { key: key.clone(), owner: self.owner.clone(), permit })
    }

    fn lock(&self, token: u64) -> Option<HoldRef> {
        let (Target::Lock(family), Keys::One(key)) = (self.target, &self.keys) else { return None };
        let (key, owner) = (key.clone(), self.owner.clone());
        Some(HoldRef::Lock { family, key, owner, token })
    }
}
