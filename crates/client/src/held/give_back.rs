//! Giving a hold back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dlock_wire::request::{MRelease, Release, Request, RwRelease};
use dlock_wire::table::{CommandId, LockVerb, MultiVerb, RwVerb, SemVerb};

use super::{Grip, Held, Released};
use crate::core::lock_command;
use crate::error::{Error, ErrorKind};

impl Held {
    /// True for the first who wants to give it back.
    ///
    /// Also what was lost is given back: that it is over by our clock does not say that the server thinks so, and of
    /// several locks only one may be gone.
    pub(crate) fn may_give_back(&self) -> bool {
        self.end();
        !self.given_back.swap(true, Ordering::AcqRel)
    }

    /// Gives it back. The renewals have ended before.
    pub(crate) async fn give_back(&self) -> Result<Released, Error> {
        let reqid =
            (!self.own_name).then(|| self.release_id.get_or_init(crate::random::name).as_bytes());
        let core = &self.core;
        let until = core.patience();
        let reply = match &self.grip {
            Grip::Lock { fair, key, owner, token } => {
                let id = lock_command(*fair, LockVerb::Release);
                let release = Release { key, owner, all: false, token: Some(*token), reqid };
                core.call(key, id, &Request::Release(release), until).await
            }
            Grip::Rw { mode, key, owner, token } => {
                let release = Release { key, owner, all: false, token: Some(*token), reqid };
                let release = RwRelease { release, mode: *mode };
                core.call(key, CommandId::Rw(RwVerb::Release), &Request::RwRelease(release), until)
                    .await
            }
            Grip::Permit { key, permit } => {
                let release = Request::SemRelease { key, permit: *permit };
                core.call(key, CommandId::Sem(SemVerb::Release), &release, until).await
            }
            Grip::Multi { keys, owner, tokens } if !self.own_name => {
                return self.give_back_each(keys, owner, tokens).await;
            }
            Grip::Multi { keys, owner, .. } => {
                let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let release = Request::MRelease(MRelease { keys: &names, owner, reqid });
                core.call(self.key(), CommandId::Multi(MultiVerb::Release), &release, until).await
            }
        };
        match reply {
            Ok(redis::Value::Int(0)) if matches!(self.grip, Grip::Multi { .. }) => {
                Ok(Released::Gone)
            }
            Ok(redis::Value::Int(remaining)) => Ok(Released::Remaining(remaining)),
            Ok(reply) => Err(Error::protocol(&reply)),
            Err(error) if error.kind() == ErrorKind::NotHeld => Ok(Released::Gone),
            Err(error) => Err(error),
        }
    }

    /// Several locks of an owner that others act for: one by one, by token. MRELEASE would also take what that owner has
    /// been granted since.
    async fn give_back_each(
        &self,
        keys: &[Vec<u8>],
        owner: &[u8],
        tokens: &[u64],
    ) -> Result<Released, Error> {
        let reqid = Some(self.release_id.get_or_init(crate::random::name).as_bytes());
        let mut released = 0;
        for (key, token) in keys.iter().zip(tokens) {
            let release = Release { key, owner, all: false, token: Some(*token), reqid };
            let id = lock_command(false, LockVerb::Release);
            match self.core.call(key, id, &Request::Release(release), self.core.patience()).await {
                Ok(_) => released += 1,
                Err(error) if error.kind() == ErrorKind::NotHeld => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if released == 0 { Released::Gone } else { Released::Remaining(released) })
    }

    /// Gives it back without anybody waiting for it.
    pub(crate) fn give_back_later(self: Arc<Self>) {
        if self.may_give_back() {
            let runtime = self.core.runtime.clone();
            runtime.spawn(async move {
                // Nobody is there to be told; the lease ends by itself.
                let _ = self.give_back().await;
            });
        }
    }
}
