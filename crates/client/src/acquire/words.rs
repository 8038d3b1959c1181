//! The requests of an acquire, and what their answers say.

use dlock_wire::permit;
use dlock_wire::request::{Acquire, Channel, Release, Request, RwAcquire, RwRelease, SemAcquire};
use dlock_wire::table::{CommandId, LockVerb, RwVerb, SemVerb};
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::{Ask, Granted, Id, What};
use crate::channel::Draft;
use crate::clock::{Moment, millis};
use crate::core::{command, lock_command};
use crate::error::Error;
use crate::held::Grip;

/// How one request waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    Now,
    Queue,
    Block(u64),
}

impl Ask {
    /// What asks, waiting as said.
    pub(super) fn draft(&self, how: How) -> Draft<'_> {
        Draft::notified(move |channel| self.request(how, channel))
    }

    fn request(&self, how: How, channel: Channel<'_>) -> Cmd {
        let settings = &self.core.settings;
        let mut acquire = Acquire::new(&self.key, &self.owner);
        acquire.lease_ms = Some(millis(self.lease));
        acquire.notify = Some(channel);
        acquire.reqid = Some(self.reqid.as_bytes());
        acquire.no_reentry = self.options.no_reentry;
        acquire.bind_ms = self.options.bind.map(millis);
        acquire.label = self.options.label.as_deref();
        match how {
            How::Now => {}
            How::Queue => acquire.queue_ms = Some(settings.queue_ms()),
            How::Block(ms) => {
                acquire.block_ms = Some(ms);
                // The place outlives the end of the call, so that the next call does not begin at the end.
                acquire.queue_ms = Some(settings.queue_ms());
            }
        }
        match self.what {
            What::Lock { fair } => {
                command(lock_command(fair, LockVerb::Acquire), &Request::Acquire(acquire))
            }
            What::Rw(mode) => {
                let acquire = RwAcquire { acquire, mode };
                command(CommandId::Rw(RwVerb::Acquire), &Request::RwAcquire(acquire))
            }
            What::Permit { count, limit } => {
                let acquire = SemAcquire { acquire, count, limit };
                command(CommandId::Sem(SemVerb::Acquire), &Request::SemAcquire(acquire))
            }
        }
    }

    /// What was granted, by the answer to a request; None: nothing yet.
    fn id(reply: &Value) -> Result<Option<Id>, Error> {
        let id = match reply {
            Value::Nil => return Ok(None),
            Value::Int(token) => u64::try_from(*token).ok().map(Id::Token),
            Value::BulkString(text) => permit::parse(text).map(Id::Permit),
            _ => None,
        };
        id.map(Some).ok_or_else(|| Error::protocol(reply))
    }

    pub(super) fn granted(&self, reply: &Value, sent: Moment) -> Result<Option<Granted>, Error> {
        let granted = |id| Granted { id, sent, lasts: self.lease, unclaimed: false };
        Ok(Self::id(reply)?.map(granted))
    }

    pub(super) fn grip(&self, id: Id) -> Grip {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        match (self.what, id) {
            (What::Lock { fair }, Id::Token(token)) => Grip::Lock { fair, key, owner, token },
            (What::Rw(mode), Id::Token(token)) => Grip::Rw { mode, key, owner, token },
            (_, Id::Permit(permit)) => Grip::Permit { key, permit },
            // `id` lets no token through for a semaphore.
            (What::Permit { .. }, Id::Token(_)) => Grip::Permit { key, permit: [0; 16] },
        }
    }

    pub(super) async fn release(
        &self,
        release: Release<'_>,
        until: Instant,
    ) -> Result<Value, Error> {
        let (id, request) = match self.what {
            What::Lock { fair } => {
                (lock_command(fair, LockVerb::Release), Request::Release(release))
            }
            What::Rw(mode) => {
                (CommandId::Rw(RwVerb::Release), Request::RwRelease(RwRelease { release, mode }))
            }
            What::Permit { .. } => return Err(Error::invalid("permits are released by their id")),
        };
        self.core.call(&self.key, id, &request, until).await
    }

    pub(super) async fn cancel(&self) -> Result<Value, Error> {
        let (key, owner) = (&*self.key, &*self.owner);
        let id = match self.what {
            What::Lock { fair } => lock_command(fair, LockVerb::Cancel),
            What::Rw(_) => CommandId::Rw(RwVerb::Cancel),
            What::Permit { .. } => CommandId::Sem(SemVerb::Cancel),
        };
        let request = Request::Cancel { key, owner, reqid: Some(self.reqid.as_bytes()) };
        self.core.call(key, id, &request, self.core.patience()).await
    }
}
