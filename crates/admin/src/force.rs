//! Ending holds and waits by force.

use dlock_client::Error;
use dlock_client::internal::{self, read};
use dlock_wire::permit;
use dlock_wire::request::{
    LockFamily, LockOp, OneKey, OnePermit, Op, Read, RwBreak, RwOp, SemOp, Unblock,
};

use crate::{Admin, Kind};

impl Admin {
    /// Ends the holds of a lock by force: the one of a DLOCK or DFAIR key, all of a DRW key. Returns how many there
    /// were. The first waiter gets the lock in the same step (with `dlock.lock-delay-ms`, later).
    ///
    /// The holder works on until it notices. Break a hold only when its holder is known to be dead, or when what the
    /// lock protects checks fencing tokens.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a semaphore (see [`Admin::break_permit`]) and for a latch, which has
    /// no holder; [`WrongType`](crate::ErrorKind::WrongType) when the key holds something else.
    #[doc = cancel_sent!()]
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DLOCK.ACQUIRE", "door", "alice"]);
    /// assert_eq!(admin.break_key("door").await?, 1);
    /// assert_eq!(admin.break_key("door").await?, 0);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn break_key(&self, key: impl AsRef<[u8]>) -> Result<u64, Error> {
        let key = key.as_ref();
        let info = self.by_family(key, |kind| Read::info(kind, key)).await?;
        let Some((kind, _)) = info else { return Ok(0) };
        let op = match kind {
            Kind::Lock => Op::Lock(LockFamily::Lock, LockOp::Break(OneKey { key })),
            Kind::Fair => Op::Lock(LockFamily::Fair, LockOp::Break(OneKey { key })),
            Kind::ReadWrite => Op::Rw(RwOp::Break(RwBreak { key, owner: None })),
            Kind::Semaphore => {
                return Err(internal::invalid(
                    "it is a semaphore: break one of its permits (break_permit)",
                ));
            }
            _ => {
                return Err(internal::invalid(
                    "it is a latch: it has no holder, so there is nothing to break",
                ));
            }
        };
        read(self.call(key, op).await?)
    }

    /// As [`Admin::break_key`], of a read-write lock the holds of one owner alone: reading and writing.
    ///
    /// # Errors
    ///
    /// [`WrongType`](crate::ErrorKind::WrongType) when the key holds something else.
    #[doc = cancel_sent!()]
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DRW.ACQUIRE", "page", "alice", "READ"]);
    /// # server.cmd(&["DRW.ACQUIRE", "page", "bob", "READ"]);
    /// assert_eq!(admin.break_owner("page", "alice").await?, 1);
    /// # server.cmd(&["DRW.RELEASE", "page", "bob", "READ"]);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn break_owner(
        &self,
        key: impl AsRef<[u8]>,
        owner: impl AsRef<[u8]>,
    ) -> Result<u64, Error> {
        let key = key.as_ref();
        let call = RwBreak { key, owner: Some(owner.as_ref()) };
        read(self.call(key, Op::Rw(RwOp::Break(call))).await?)
    }

    /// Ends a permit of a semaphore by force; false: there is none of this id (any more). See
    /// [`Admin::break_key`] for the risk.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) when `id` is not a permit id, [`WrongType`](crate::ErrorKind::WrongType)
    /// when the key holds something else.
    #[doc = cancel_sent!()]
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DSEM.ACQUIRE", "licences", "alice", "LIMIT", "2"]);
    /// for permit in admin.permits(b"licences").await? {
    ///     assert!(admin.break_permit(b"licences", &permit.id).await?);
    /// }
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn break_permit(&self, key: impl AsRef<[u8]>, id: &str) -> Result<bool, Error> {
        let key = key.as_ref();
        let Some(permit) = permit::parse(id.as_bytes()) else {
            return Err(internal::invalid(format!("{id:?} is not a permit id")));
        };
        let reply = self.call(key, Op::Sem(SemOp::Break(OnePermit { key, permit }))).await?;
        Ok(read::<u64>(reply)? == 1)
    }

    /// Ends the blocked call of a connection, of whatever family: it is answered Null, or with `error`
    /// [`Stopped`](crate::ErrorKind::Stopped). False: that connection has no blocked call.
    ///
    /// Client ids count for one server. Errors: [`Invalid`](crate::ErrorKind::Invalid) in a cluster of several
    /// primaries: connect to the node itself.
    #[doc = as_all_calls!()]
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DLOCK.ACQUIRE", "door", "alice"]);
    /// # let _bob = server.block(&["DLOCK.ACQUIRE", "door", "bob", "BLOCK", "0"]);
    /// let first = admin.waiters(b"door", Some(1)).await?.remove(0);
    /// if let Some(id) = first.client {
    ///     assert!(admin.unblock(id, false).await?);
    /// }
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn unblock(&self, client_id: u64, error: bool) -> Result<bool, Error> {
        let core = self.client.core();
        let [(server, _)] = core.servers()[..] else {
            return Err(internal::invalid(
                "client ids count for one server, and this is a cluster: connect to the node itself",
            ));
        };
        let cmd = internal::command(Op::Unblock(Unblock { client: client_id, error }));
        Ok(read::<u64>(core.ask_once(server, cmd, true).await?)? == 1)
    }
}
