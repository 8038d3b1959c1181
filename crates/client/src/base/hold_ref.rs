//! What the server calls a hold, and the requests about it.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use dlock_wire::permit::PermitId;
use dlock_wire::request::{Op, Release, Renew, SemOp, SemRelease, SemRenew};
use redis::{Cmd, Value};

use crate::base::clock::millis;
use crate::base::command::command;
use crate::base::error::Error;
use crate::base::target::{Family, Keys};

/// What is held, by its names on the server.
#[derive(Debug, Clone)]
pub(crate) struct HoldRef {
    pub(crate) keys: Keys,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) held: Held,
}

/// What the server granted.
#[derive(Debug, Clone)]
pub(crate) enum Held {
    /// The fencing token.
    Lock(Family, u64),
    Permit(PermitId),
    /// The tokens of several locks, in the order of their keys.
    Multi(Vec<u64>),
}

impl HoldRef {
    /// The fencing tokens: one for each lock, none of permits.
    pub(crate) fn tokens(&self) -> &[u64] {
        match &self.held {
            Held::Lock(_, token) => slice::from_ref(token),
            Held::Multi(tokens) => tokens,
            Held::Permit(_) => &[],
        }
    }

    /// Its locks, one by one: MRENEW and MRELEASE would not tell which of them are lost, and would also apply to what a
    /// named owner has been granted since.
    fn locks(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.keys.iter().zip(self.tokens().iter().copied())
    }

    /// The family of its locks: several are DLOCKs. Permits have none.
    fn family(&self) -> Family {
        if let Held::Lock(family, _) = self.held { family } else { Family::Lock }
    }

    /// The requests of a renewal for this lease, all of which must succeed: one for each key.
    pub(crate) fn renewals(&self, lease: Duration, bind: Option<Duration>) -> Vec<Cmd> {
        let (owner, lease_ms, bind_ms) = (&*self.owner, Some(millis(lease)), bind.map(millis));
        if let Held::Permit(permit) = self.held {
            let renew = SemRenew { key: self.key(), permit, lease_ms, bind_ms };
            return vec![command(Op::Sem(SemOp::Renew(renew)))];
        }
        let renew = |(key, token)| Renew { key, owner, lease_ms, token: Some(token), bind_ms };
        self.locks().map(|lock| self.family().renew(renew(lock))).collect()
    }

    /// Whether these can be the replies to [`HoldRef::renewals`].
    pub(crate) fn are_renewed(&self, replies: &[Value]) -> bool {
        let is_error = |reply: &Value| matches!(reply, Value::ServerError(_));
        self.fit(replies.iter().map(|reply| Some(reply).filter(|reply| !is_error(reply))))
    }

    /// As [`HoldRef::are_renewed`], of replies that are read.
    pub(crate) fn have_renewed(&self, replies: &[Result<Value, Error>]) -> bool {
        self.fit(replies.iter().map(|reply| reply.as_ref().ok()))
    }

    /// Whether the replies without an error are the tokens; of permits, 1.
    fn fit<'a>(&self, replies: impl Iterator<Item = Option<&'a Value>>) -> bool {
        let tokens = if let Held::Permit(_) = self.held { &[1] } else { self.tokens() };
        let tokens = tokens.iter().map(|token| Value::Int(token.cast_signed()));
        replies.zip(tokens).all(|(reply, token)| reply.is_none_or(|reply| *reply == token))
    }

    /// The keys of its locks, or that of the semaphore.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.keys.iter().map(<[u8]>::to_vec).collect()
    }

    /// The requests that release it, one for each key, which the acquire with that id took. `done`: tell observers of a
    /// lock that the work under it is done.
    pub(crate) fn releases(&self, reqid: &[u8], done: bool) -> Vec<Cmd> {
        let (owner, reqid) = (&*self.owner, Some(reqid));
        if let Held::Permit(_) = self.held {
            let release = SemRelease { reqid, ..SemRelease::new(self.key(), owner) };
            return vec![command(Op::Sem(SemOp::Release(release)))];
        }
        let release = |(key, token)| {
            let token = Some(token);
            self.family().release(Release { reqid, done, token, ..Release::new(key, owner) })
        };
        self.locks().map(release).collect()
    }

    /// A key that tells the server.
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first()
    }

    /// The fencing token: of several locks, the first; of permits, 0.
    pub(crate) fn token(&self) -> u64 {
        self.tokens().first().copied().unwrap_or(0)
    }
}
