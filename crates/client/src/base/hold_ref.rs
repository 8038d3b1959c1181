//! What the server calls a hold, and the requests about it.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::permit::PermitId;
use dlock_wire::request::{MRenew, MultiOp, Op, Release, Renew, SemOp, SemRelease, SemRenew};
use redis::{Cmd, Value};

use crate::base::clock::millis;
use crate::base::command::command;
use crate::base::error::Error;
use crate::base::target::Family;

/// What is held, by its names on the server.
#[derive(Debug, Clone)]
pub(crate) enum HoldRef {
    Lock { family: Family, key: Arc<[u8]>, owner: Arc<[u8]>, token: u64 },
    Permit { key: Arc<[u8]>, owner: Arc<[u8]>, permit: PermitId },
    Multi { keys: Arc<[Vec<u8>]>, owner: Arc<[u8]>, tokens: Vec<u64> },
}

impl HoldRef {
    /// The request that renews a part.
    fn renewal(&self, lease: Duration, bind: Option<Duration>) -> Cmd {
        let lease_ms = Some(millis(lease));
        let bind_ms = bind.map(millis);
        match self {
            Self::Lock { family, key, owner, token } => {
                family.renew(Renew { key, owner, lease_ms, token: Some(*token), bind_ms })
            }
            Self::Permit { key, permit, .. } => {
                let renew = SemRenew { key, permit: *permit, lease_ms, bind_ms };
                command(Op::Sem(SemOp::Renew(renew)))
            }
            Self::Multi { keys, owner, .. } => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let renew = MRenew { keys: &keys, owner, lease_ms, bind_ms };
                command(Op::Multi(MultiOp::Renew(renew)))
            }
        }
    }

    /// The requests of a renewal for this lease, all of which must succeed: one for each part.
    pub(crate) fn renewals(&self, lease: Duration, bind: Option<Duration>) -> Vec<Cmd> {
        self.parts().iter().map(|part| part.renewal(lease, bind)).collect()
    }

    /// Whether these can be the replies to [`HoldRef::renewals`].
    pub(crate) fn are_renewed(&self, replies: &[Value]) -> bool {
        let parts = self.parts();
        replies
            .iter()
            .zip(&parts)
            .all(|(reply, part)| *reply == part.renewed() || matches!(reply, Value::ServerError(_)))
    }

    /// As [`HoldRef::are_renewed`], of replies that are read.
    pub(crate) fn have_renewed(&self, replies: &[Result<Value, Error>]) -> bool {
        let parts = self.parts();
        let mut replies = replies.iter().zip(&parts);
        replies.all(|(reply, part)| reply.as_ref().map_or(true, |reply| *reply == part.renewed()))
    }

    /// The reply to the renewal of a part.
    fn renewed(&self) -> Value {
        let token = match self {
            Self::Permit { .. } => 1,
            part => part.token(),
        };
        Value::Int(token.try_into().unwrap_or(0))
    }

    /// Its locks, one by one: MRENEW and MRELEASE would not tell which of them are lost, and would also apply to what a
    /// named owner has been granted since. Anything else as it is.
    pub(crate) fn parts(&self) -> Vec<Self> {
        let Self::Multi { keys, owner, tokens } = self else { return vec![self.clone()] };
        let lock = |(key, token): (&Vec<u8>, &u64)| {
            let (key, owner) = (key.as_slice().into(), owner.clone());
            Self::Lock { family: Family::Lock, key, owner, token: *token }
        };
        keys.iter().zip(tokens).map(lock).collect()
    }

    /// The keys of its parts.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Lock { key, .. } | Self::Permit { key, .. } => vec![key.to_vec()],
            Self::Multi { keys, .. } => keys.to_vec(),
        }
    }

    /// The requests that release its parts, which the acquire with that id took. `done`: tell observers of a lock that
    /// the work under it is done.
    pub(crate) fn releases(&self, reqid: &[u8], done: bool) -> Vec<Cmd> {
        self.parts().iter().filter_map(|part| part.release(reqid, done)).collect()
    }

    /// The request that releases a part, which the acquire with that id took. `done`: tell observers of a lock that the
    /// work under it is done. None: several locks, which are released part by part.
    fn release(&self, reqid: &[u8], done: bool) -> Option<Cmd> {
        let reqid = Some(reqid);
        match self {
            Self::Lock { family, key, owner, token } => {
                let token = Some(*token);
                Some(family.release(Release { reqid, done, token, ..Release::new(key, owner) }))
            }
            Self::Permit { key, owner, .. } => {
                let release = SemRelease { reqid, ..SemRelease::new(key, owner) };
                Some(command(Op::Sem(SemOp::Release(release))))
            }
            Self::Multi { .. } => None,
        }
    }

    /// A key that tells the server.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Lock { key, .. } | Self::Permit { key, .. } => key,
            Self::Multi { keys, .. } => keys.first().map_or(&[], Vec::as_slice),
        }
    }

    /// The owner.
    pub(crate) fn owner(&self) -> &[u8] {
        let (Self::Lock { owner, .. } | Self::Permit { owner, .. } | Self::Multi { owner, .. }) =
            self;
        owner
    }

    /// The fencing token: of several locks, the first; of permits, 0.
    pub(crate) fn token(&self) -> u64 {
        match self {
            Self::Lock { token, .. } => *token,
            Self::Multi { tokens, .. } => tokens.first().copied().unwrap_or(0),
            Self::Permit { .. } => 0,
        }
    }
}
