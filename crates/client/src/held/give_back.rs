//! Giving a hold back.

use std::sync::Arc;

use dlock_wire::request::{MRelease, Release, Request, RwRelease};
use dlock_wire::table::{CommandId, LockVerb, MultiVerb, RwVerb, SemVerb};
use redis::{Cmd, Value};

use super::{Grip, Held, Released};
use crate::core::{Answer, command, lock_command};
use crate::error::{Error, ErrorKind};

impl Held {
    /// True for the first who wants to give it back.
    ///
    /// Also what was lost is given back: that it is over by our clock does not say that the server thinks so, and of
    /// several locks only one may be gone.
    pub(crate) fn may_give_back(&self) -> bool {
        self.end();
        let first = self.state().begin_release();
        if first {
            self.core.registry.given_back(self);
        }
        first
    }

    /// Gives it back. The renewals have ended before.
    ///
    /// A copy of a request that got no answer, and now finds nothing, is a success: either the first copy gave the hold
    /// back, or the hold ended between the copies. Both are after everything that was done under it.
    pub(crate) async fn give_back(&self) -> Result<Released, Error> {
        if let (Grip::Multi { keys, owner, tokens }, false) = (&self.grip, self.terms().own_name) {
            return self.give_back_each(keys, owner, tokens).await;
        }
        let core = &self.core;
        match core.exchange(self.key(), &self.release(), core.patience()).await {
            Ok(Answer { value: Value::Int(0), repeated }) if self.is_several() => {
                Ok(if repeated { Released::Already } else { Released::Gone })
            }
            Ok(Answer { value: Value::Int(remaining), .. }) => Ok(Released::Remaining(remaining)),
            Ok(Answer { value, .. }) => Err(Error::protocol(&value)),
            Err(error) if error.kind() == ErrorKind::NotHeld && error.is_repeated() => {
                Ok(match self.grip {
                    // The owner holds nothing with this token any more.
                    Grip::Lock { .. } | Grip::Rw { .. } => Released::Remaining(0),
                    Grip::Permit { .. } | Grip::Multi { .. } => Released::Already,
                })
            }
            Err(error) if error.kind() == ErrorKind::NotHeld => Ok(Released::Gone),
            Err(error) => Err(error),
        }
    }

    fn is_several(&self) -> bool {
        matches!(self.grip, Grip::Multi { .. })
    }

    /// The request id of the release, however often that is sent.
    fn release_id(&self) -> &[u8] {
        self.release_id.get_or_init(crate::random::name).as_bytes()
    }

    /// The one request that gives it back.
    fn release(&self) -> Cmd {
        let reqid = (!self.terms().own_name).then(|| self.release_id());
        match &self.grip {
            Grip::Lock { fair, key, owner, token } => {
                let release = Release { key, owner, all: false, token: Some(*token), reqid };
                command(lock_command(*fair, LockVerb::Release), &Request::Release(release))
            }
            Grip::Rw { mode, key, owner, token } => {
                let release = Release { key, owner, all: false, token: Some(*token), reqid };
                let release = RwRelease { release, mode: *mode };
                command(CommandId::Rw(RwVerb::Release), &Request::RwRelease(release))
            }
            Grip::Permit { key, permit } => {
                let release = Request::SemRelease { key, permit: *permit };
                command(CommandId::Sem(SemVerb::Release), &release)
            }
            Grip::Multi { keys, owner, .. } => {
                let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let release = Request::MRelease(MRelease { keys: &names, owner, reqid });
                command(CommandId::Multi(MultiVerb::Release), &release)
            }
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
        let reqid = Some(self.release_id());
        let core = &self.core;
        let mut released = 0;
        for (key, token) in keys.iter().zip(tokens) {
            let release = Release { key, owner, all: false, token: Some(*token), reqid };
            let release =
                command(lock_command(false, LockVerb::Release), &Request::Release(release));
            match core.exchange(key, &release, core.patience()).await {
                Ok(_) => released += 1,
                Err(error) if error.kind() == ErrorKind::NotHeld => {
                    released += i64::from(error.is_repeated());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(if released == 0 { Released::Gone } else { Released::Remaining(released) })
    }

    /// Gives it back without anybody waiting for it.
    pub(crate) fn give_back_later(self: Arc<Self>) {
        if self.may_give_back() {
            self.give_back_in_background();
        }
    }

    /// Goes on with a release that nobody waits for.
    pub(crate) fn give_back_in_background(self: Arc<Self>) {
        let runtime = self.core.runtime.clone();
        let cleanup = self.core.registry.gate.cleanup();
        runtime.spawn(async move {
            // Nobody is there to be told but `close`; the lease ends by itself.
            if self.give_back().await.is_err() {
                self.core.registry.gate.failed();
            }
            drop(cleanup);
        });
    }
}
