//! The requests of an acquire, and what their replies say.

use dlock_wire::permit;
use dlock_wire::request::{Acquire, Channel, MAcquire, MRelease, Release, Request, SemAcquire};
use dlock_wire::table::{CommandId, MultiVerb, SemVerb};
use redis::{Cmd, Value};

use super::pending::{Grant, Keys, PendingAcquire, Sent, Target, WaitRequest};
use crate::clock::millis;
use crate::command::{Draft, command};
use crate::error::Error;
use crate::family::Family;
use crate::hold_ref::HoldRef;

impl PendingAcquire {
    /// The request, waiting as said.
    pub(super) fn draft(&self, wait: WaitRequest) -> Draft<'_> {
        Draft::notified(move |channel| {
            if self.target.is_several() {
                self.request_several(wait, channel)
            } else {
                self.request_one(wait, channel)
            }
        })
    }

    fn request_one(&self, wait: WaitRequest, channel: Channel<'_>) -> Cmd {
        let mut acquire = Acquire::new(self.key(), &self.owner);
        acquire.lease_ms = Some(millis(self.lease));
        acquire.notify = Some(channel);
        acquire.reqid = Some(self.reqid.as_bytes());
        acquire.no_reentry = self.options.no_reentry;
        acquire.bind_ms = self.options.bind.map(millis);
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
                command(CommandId::Sem(SemVerb::Acquire), &Request::SemAcquire(acquire))
            }
            target => target.family().acquire(acquire),
        }
    }

    fn request_several(&self, wait: WaitRequest, channel: Channel<'_>) -> Cmd {
        let keys = self.keys.all();
        let mut acquire = MAcquire::new(&keys, &self.owner);
        acquire.lease_ms = Some(millis(self.lease));
        acquire.notify = Some(channel);
        acquire.reqid = Some(self.reqid.as_bytes());
        acquire.bind_ms = self.options.bind.map(millis);
        acquire.label = self.options.label.as_deref();
        if let WaitRequest::Block(ms) = wait {
            acquire.block_ms = Some(ms);
        }
        if self.target == Target::Any {
            command(CommandId::Multi(MultiVerb::AnyAcquire), &Request::AnyAcquire(acquire))
        } else {
            command(CommandId::Multi(MultiVerb::Acquire), &Request::MAcquire(acquire))
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
                command(CommandId::Multi(MultiVerb::Release), &Request::MRelease(release))
            }
        })
    }

    pub(super) async fn cancel(&self) -> Result<Value, Error> {
        let (key, owner) = (self.key(), &*self.owner);
        let id = match self.target {
            Target::Permit { .. } => CommandId::Sem(SemVerb::Cancel),
            target => target.family().cancel(),
        };
        let request = Request::Cancel { key, owner, reqid: Some(self.reqid.as_bytes()) };
        self.core.routes.call(key, id, &request, self.core.ctx.retry_until()).await
    }

    /// The grant that the reply to a request says. None: nothing yet.
    pub(super) fn granted(&self, reply: &Value, sent: Sent) -> Result<Option<Grant>, Error> {
        let hold = match (self.target, &self.keys, reply) {
            (_, _, Value::Nil) => return Ok(None),
            (Target::All, Keys::Several(keys), Value::Array(tokens)) => {
                let tokens = tokens.iter().map(token).collect::<Option<Vec<_>>>();
                let (keys, owner) = (keys.clone(), self.owner.clone());
                tokens.map(|tokens| HoldRef::Multi { keys, owner, tokens })
            }
            (Target::Any, _, Value::Array(items)) => match items.as_slice() {
                [Value::BulkString(key), number] => {
                    let (key, owner) = (key.as_slice().into(), self.owner.clone());
                    token(number).map(|token| HoldRef::Lock {
                        family: Family::Lock,
                        key,
                        owner,
                        token,
                    })
                }
                _ => None,
            },
            (_, _, Value::BulkString(id)) => self.permit(id),
            (_, _, number) => token(number).and_then(|token| self.lock(token)),
        };
        let hold = hold.ok_or_else(|| Error::protocol(reply))?;
        Ok(Some(Grant { hold, sent, lasts: self.lease, unclaimed: false }))
    }

    /// The hold that a message announces.
    pub(super) fn announced_hold(&self, id: &[u8]) -> Option<HoldRef> {
        match self.target {
            Target::Permit { .. } => self.permit(id),
            _ => self.lock(std::str::from_utf8(id).ok()?.parse().ok()?),
        }
    }

    fn permit(&self, id: &[u8]) -> Option<HoldRef> {
        let (Target::Permit { .. }, Keys::One(key)) = (self.target, &self.keys) else {
            return None;
        };
        permit::parse(id).map(|permit| HoldRef::Permit { key: key.clone(), permit })
    }

    fn lock(&self, token: u64) -> Option<HoldRef> {
        let (Target::Lock(family), Keys::One(key)) = (self.target, &self.keys) else { return None };
        let (key, owner) = (key.clone(), self.owner.clone());
        Some(HoldRef::Lock { family, key, owner, token })
    }
}

fn token(reply: &Value) -> Option<u64> {
    match reply {
        Value::Int(token) => u64::try_from(*token).ok(),
        _ => None,
    }
}
