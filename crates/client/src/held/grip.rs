//! What is held, and the words that it goes by.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::permit::{self, PermitId};
use dlock_wire::request::{MRenew, Mode, Renew, Request, RwRenew, SemRenew};
use dlock_wire::table::{CommandId, LockVerb, MultiVerb, RwVerb, SemVerb};
use redis::Cmd;

use crate::clock::millis;
use crate::core::{command, lock_command};
use crate::registry::hold_name;

/// What is held, and by which words it is renewed and released.
#[derive(Debug)]
pub(crate) enum Grip {
    Lock { fair: bool, key: Arc<[u8]>, owner: Arc<[u8]>, token: u64 },
    Rw { mode: Mode, key: Arc<[u8]>, owner: Arc<[u8]>, token: u64 },
    Permit { key: Arc<[u8]>, permit: PermitId },
    Multi { keys: Arc<[Vec<u8>]>, owner: Arc<[u8]>, tokens: Vec<u64> },
}

impl Grip {
    /// The request that renews it.
    pub(crate) fn renewal(&self, lease: Duration, bind: Option<Duration>) -> Cmd {
        let lease_ms = Some(millis(lease));
        let bind_ms = bind.map(millis);
        match self {
            Grip::Lock { fair, key, owner, token } => {
                let id = lock_command(*fair, LockVerb::Renew);
                let renew = Renew { key, owner, lease_ms, token: Some(*token), bind_ms };
                command(id, &Request::Renew(renew))
            }
            Grip::Rw { mode, key, owner, token } => {
                let renew = Renew { key, owner, lease_ms, token: Some(*token), bind_ms };
                let renew = RwRenew { renew, mode: *mode };
                command(CommandId::Rw(RwVerb::Renew), &Request::RwRenew(renew))
            }
            Grip::Permit { key, permit } => {
                let renew = SemRenew { key, permit: *permit, lease_ms, bind_ms };
                command(CommandId::Sem(SemVerb::Renew), &Request::SemRenew(renew))
            }
            Grip::Multi { keys, owner, .. } => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let renew = MRenew { keys: &keys, owner, lease_ms };
                command(CommandId::Multi(MultiVerb::Renew), &Request::MRenew(renew))
            }
        }
    }

    /// The requests that renew several locks of an owner that others act for: one by one, as MRENEW would also renew what
    /// that owner has been granted since. Of one lock, none.
    pub(crate) fn renewals_by_token(&self, lease: Duration, bind: Option<Duration>) -> Vec<Cmd> {
        let Grip::Multi { keys, owner, tokens } = self else { return Vec::new() };
        let (lease_ms, bind_ms) = (Some(millis(lease)), bind.map(millis));
        let renew = |(key, token): (&Vec<u8>, &u64)| {
            let renew = Renew { key, owner, lease_ms, token: Some(*token), bind_ms };
            command(lock_command(false, LockVerb::Renew), &Request::Renew(renew))
        };
        keys.iter().zip(tokens).map(renew).collect()
    }

    /// The request that tells, by an error, that it is gone, and changes nothing; None if there is no such request.
    pub(crate) fn check(&self) -> Option<Cmd> {
        let (id, key, token) = match self {
            Grip::Lock { fair, key, token, .. } => {
                (lock_command(*fair, LockVerb::Check), key, token)
            }
            Grip::Rw { key, token, .. } => (CommandId::Rw(RwVerb::Check), key, token),
            Grip::Permit { .. } | Grip::Multi { .. } => return None,
        };
        Some(command(id, &Request::Check { key, token: *token }))
    }

    /// By which names messages speak of the hold.
    pub(crate) fn names(&self) -> Vec<Box<[u8]>> {
        match self {
            Grip::Lock { key, token, .. } | Grip::Rw { key, token, .. } => {
                vec![hold_name(token.to_string().as_bytes(), key)]
            }
            Grip::Permit { key, permit } => vec![hold_name(&permit::text(permit), key)],
            Grip::Multi { keys, tokens, .. } => {
                let name =
                    |(key, token): (&Vec<u8>, &u64)| hold_name(token.to_string().as_bytes(), key);
                keys.iter().zip(tokens).map(name).collect()
            }
        }
    }

    /// A key that tells the server.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Grip::Lock { key, .. } | Grip::Rw { key, .. } | Grip::Permit { key, .. } => key,
            Grip::Multi { keys, .. } => keys.first().map_or(&[], Vec::as_slice),
        }
    }
}
