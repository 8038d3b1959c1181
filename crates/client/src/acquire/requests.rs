//! The requests of an acquire, and what their replies say.

use dlock_wire::permit::{self, PermitId};
use dlock_wire::reply::grant::{OneOf, Tokens};
use dlock_wire::request::{
    Acquire, Cancel, Channel, MAcquire, MRelease, MultiOp, Op, Release, SemAcquire, SemOp,
};
use redis::{Cmd, Value};

use super::pending::{Grant, PendingAcquire, WaitRequest};
use crate::base::clock::millis;
use crate::base::command::{Draft, command};
use crate::base::error::Error;
use crate::base::hold_ref::HoldRef;
use crate::base::reply::read_or_null;
use crate::base::target::{Family, Keys, Target};
use crate::connection::exchange::Sent;

impl PendingAcquire {
    /// The request, waiting as said.
    pub(super) fn draft(&self, wait: WaitRequest) -> Draft<'_> {
        Draft::notified(move |channel| self.request(wait, channel))
    }

    fn request(&self, wait: WaitRequest, channel: Channel<'_>) -> Cmd {
        let mut acquire = Acquire::new(self.key(), &self.owner);
        acquire.lease_ms = Some(millis(self.terms.lease));
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

    /// The request that releases whatever the owner holds of these keys; None for permits, which have no owner.
    pub(super) fn release_all(&self) -> Option<Cmd> {
        let release = Release { all: true, ..Release::new(self.key(), &self.owner) };
        Some(match self.target {
            Target::Permit { .. } => return None,
            Target::Lock(family) => family.release(release),
            Target::All | Target::Any => {
                let release = MRelease { keys: &self.keys.all(), owner: &self.owner, reqid: None };
                command(Op::Multi(MultiOp::Release(release)))
            }
        })
    }

    pub(super) async fn cancel(&self) -> Result<Value, Error> {
        let (key, owner) = (self.key(), &*self.owner);
        let cancel = Cancel { key, owner, reqid: Some(self.reqid.as_bytes()) };
        let request = match self.target {
            Target::Permit { .. } => command(Op::Sem(SemOp::Cancel(cancel))),
            target => target.family().cancel(cancel),
        };
        self.core.routes.send(key, request, self.core.ctx.retry_until()).await
    }

    /// The grant that the reply to a request says. None: nothing yet.
    pub(super) fn granted(&self, reply: Value, sent: Sent) -> Result<Option<Grant>, Error> {
        let owner = || self.owner.clone();
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
        Ok(hold.map(|hold| self.granted_hold(hold, sent)))
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
        Some(HoldRef::Permit { key: key.clone(), permit })
    }

    fn lock(&self, token: u64) -> Option<HoldRef> {
        let (Target::Lock(family), Keys::One(key)) = (self.target, &self.keys) else { return None };
        let (key, owner) = (key.clone(), self.owner.clone());
        Some(HoldRef::Lock { family, key, owner, token })
    }
}
