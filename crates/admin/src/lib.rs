//! For operators of dlock: which locks there are, their holders and waiters; and how to end holds and waits by force.
//!
//! The results were true when the server answered. To acquire and release locks, use the handles of [`Client`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
mod doc;

mod force;
mod latency;
mod log;
mod stats;
mod texts;
mod walk;
mod watch;

use dlock_client::internal::{self, read, read_or_null, value};
use dlock_client::{Client, Error, ErrorKind};
use dlock_wire::reply::Shape;
use dlock_wire::request::{OneKey, Read, Request, SemRead};
use redis::{Cmd, Value};

#[doc(inline)]
pub use dlock_wire::permit::PermitText;
#[doc(inline)]
pub use dlock_wire::reply::{
    HoldEnd, HolderInfo, Info, Kind, LatchInfo, LockInfo, LogEntry, LogEvent, LogToken, PermitInfo,
    RwInfo, RwMode, SemInfo, WaiterInfo,
};

pub use self::latency::Latency;
pub use self::log::ServerLog;
pub use self::stats::Stats;
pub use self::texts::InfoText;
pub use self::walk::Walk;

/// Inspection of the locks on a client's servers, and breaking holds by force. Clones are the same.
///
/// # Errors
///
/// All calls fail with [`ErrorKind::Unavailable`] when no server answers, [`ErrorKind::Refused`] when the user may not
/// do that, and [`ErrorKind::NoModule`] when the server has no dlock.
///
/// # Cancel safety
///
/// Dropping the future of a call that changes nothing has no effect. A request that ends holds or waits is not
/// recalled: the server may carry it out.
///
/// ```
#[doc = example!()]
/// use dlock_admin::Admin;
///
/// let guard = client.lock("door").owner("alice").acquire().await?;
///
/// let admin = Admin::new(&client);
/// for entry in admin.locks("*").await? {
///     if let Some(info) = admin.info_of(&entry).await? {
///         for holder in info.holders() {
///             println!("{} is held by {:?}", entry.key.escape_ascii(), holder.owner);
///             # assert_eq!(holder.owner, b"alice");
///         }
///         # assert_eq!(info.holders().count(), 1);
///     }
/// }
/// # guard.release().await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Admin {
    client: Client,
}

/// A key that [`Admin::locks`] found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its family.
    pub kind: Kind,
}

impl Admin {
    /// Asks and changes the servers of `client`.
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    /// The locks, semaphores and latches whose keys match `pattern` (as `KEYS` and `SCAN` match: `*`, `?`, `[a-z]`,
    /// `\`), of all primaries, sorted by key. Of the database that the client is connected to.
    ///
    /// The server visits each of its keys five times, some thousand at a time, and serves other clients in between.
    /// Keys that appear or vanish meanwhile may be missed. A semaphore with waiters that was never created is not a
    /// key.
    #[doc = as_all_calls!()]
    ///
    /// ```
    #[doc = example!()]
    /// use dlock_admin::Kind;
    ///
    /// client.semaphore("licences").init(3).await?;
    /// let found = admin.locks("lic*").await?;
    /// assert_eq!((found[0].key.as_slice(), found[0].kind), (&b"licences"[..], Kind::Semaphore));
    /// # server.cmd(&["DEL", "licences"]);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn locks(&self, pattern: impl AsRef<[u8]>) -> Result<Vec<Entry>, Error> {
        let mut found = Vec::new();
        let mut walk = self.walk(pattern);
        while let Some(page) = walk.next_page().await? {
            found.extend(page);
        }
        found.sort_unstable();
        // SCAN may show a key twice; during the move of a slot two servers may.
        found.dedup();
        Ok(found)
    }

    /// The state of a key of any family; None: there is no such key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongType`] when the key holds something else than a lock.
    #[doc = cancel_read!()]
    ///
    /// ```
    #[doc = example!()]
    /// use dlock_admin::Info;
    ///
    /// let latch = client.latch("ready");
    /// latch.init(2).await?;
    /// let Some(Info::Latch(seen)) = admin.info("ready").await? else { panic!() };
    /// assert_eq!((seen.count, seen.left), (2, None));
    ///
    /// latch.count_down(2).await?;
    /// assert_eq!(admin.info("ready").await?, None);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn info(&self, key: impl AsRef<[u8]>) -> Result<Option<Info>, Error> {
        let key = key.as_ref();
        let info = self.by_family(key, |kind| Read::info(kind, key)).await?;
        Ok(info.map_or(Ok(None), |(kind, reply)| Info::read(kind, value(reply)))?)
    }

    /// As [`Admin::info`], of a key whose family is known: one request instead of up to five. None also if the key
    /// belongs to another family by now.
    #[doc = as_all_calls!()]
    pub async fn info_of(&self, entry: &Entry) -> Result<Option<Info>, Error> {
        let key = entry.key.as_slice();
        let info = self.call_of(key, Read::info(entry.kind, key)).await?;
        Ok(info.map_or(Ok(None), |reply| Info::read(entry.kind, value(reply)))?)
    }

    /// The waiters of a key, in the order of their grants; at most `count` (1 or more), or all.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongType`] when the key holds something else than a lock.
    #[doc = cancel_read!()]
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DLOCK.ACQUIRE", "door", "alice"]);
    /// # let bob = server.block(&["DLOCK.ACQUIRE", "door", "bob", "BLOCK", "0"]);
    /// let waiters = admin.waiters("door", Some(10)).await?;
    /// assert_eq!(waiters[0].owner, b"bob");
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn waiters(
        &self,
        key: impl AsRef<[u8]>,
        count: Option<u64>,
    ) -> Result<Vec<WaiterInfo>, Error> {
        let key = key.as_ref();
        let waiters = self.by_family(key, |kind| Read::waiters(kind, key, count)).await?;
        waiters.map_or(Ok(Vec::new()), |(_, reply)| read(reply))
    }

    /// As [`Admin::waiters`], of a key whose family is known. Empty also if the key belongs to another family by now.
    #[doc = as_all_calls!()]
    pub async fn waiters_of(
        &self,
        entry: &Entry,
        count: Option<u64>,
    ) -> Result<Vec<WaiterInfo>, Error> {
        let key = entry.key.as_slice();
        let waiters = self.call_of(key, Read::waiters(entry.kind, key, count)).await?;
        waiters.map_or(Ok(Vec::new()), read)
    }

    /// The position of an owner: 0 holds it, 1 is the first in the queue, and so on; None: neither holds it nor waits.
    /// None also if the key belongs to another family than `entry` says, and for latches, whose calls have no owner.
    #[doc = as_all_calls!()]
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DLOCK.ACQUIRE", "door", "alice"]);
    /// # let bob = server.block(&["DLOCK.ACQUIRE", "door", "bob", "BLOCK", "0"]);
    /// use dlock_admin::{Entry, Kind};
    ///
    /// let door = Entry { key: b"door".to_vec(), kind: Kind::Lock };
    /// assert_eq!(admin.position(&door, "bob").await?, Some(1));
    /// assert_eq!(admin.position(&door, "zoe").await?, None);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn position(
        &self,
        entry: &Entry,
        owner: impl AsRef<[u8]>,
    ) -> Result<Option<u64>, Error> {
        let (key, owner) = (entry.key.as_slice(), owner.as_ref());
        let Some(position) = Read::position(entry.kind, key, owner) else { return Ok(None) };
        let position = self.call_of(key, position).await?;
        position.map_or(Ok(None), read_or_null)
    }

    /// The permits of a semaphore that are out with an owner and a lease; none if there is no such semaphore.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongType`] when the key holds something else.
    #[doc = cancel_read!()]
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DSEM.ACQUIRE", "licences", "alice", "LIMIT", "2"]);
    /// for permit in admin.permits("licences").await? {
    ///     println!("{} {:?}", permit.id, permit.owner);
    ///     # assert_eq!((permit.owner.as_slice(), permit.count), (&b"alice"[..], 1));
    /// }
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn permits(&self, key: impl AsRef<[u8]>) -> Result<Vec<PermitInfo>, Error> {
        let key = key.as_ref();
        read(self.call(key, Read::Sem(SemRead::Permits(OneKey { key }))).await?)
    }

    /// The statistics of each primary, sorted by address.
    #[doc = as_all_calls!()]
    ///
    /// ```
    #[doc = example!()]
    /// for server in admin.stats().await? {
    ///     println!("{}: {} locks are held", server.address, server.held_locks);
    ///     # assert_eq!(server.held_locks, 0);
    /// }
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn stats(&self) -> Result<Vec<Stats>, Error> {
        let mut sections = redis::cmd("INFO");
        sections.arg(&["server", "clients", "memory", "replication", "modules", "dlock"]);
        let texts = self.ask_servers::<Vec<u8>>(&sections).await?.into_iter();
        let stats =
            texts.map(|(server, text)| Stats::parse(server, &String::from_utf8_lossy(&text)));
        Ok(stats.collect())
    }

    /// Asks each primary. The replies are sorted by server.
    async fn ask_servers<T: Shape>(&self, request: &Cmd) -> Result<Vec<(String, T)>, Error> {
        let core = self.client.core();
        let mut all = Vec::new();
        for (number, server) in core.servers() {
            all.push((server, read(core.ask_once(number, request.clone(), true).await?)?));
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(all)
    }

    async fn call<'a>(&self, key: &[u8], request: impl Into<Request<'a>>) -> Result<Value, Error> {
        let within = internal::retry_for(&self.client);
        self.client.core().ask(key, internal::command(request), within).await
    }

    /// Asks in the name of one family. None: the key belongs to another one.
    async fn call_of<'a>(
        &self,
        key: &[u8],
        request: impl Into<Request<'a>>,
    ) -> Result<Option<Value>, Error> {
        match self.call(key, request).await {
            Err(error) if error.kind() == ErrorKind::WrongType => Ok(None),
            reply => reply.map(Some),
        }
    }

    /// Asks in the name of one family after the other. The commands of the others say WRONGTYPE; for a key that is not
    /// there, too, if it has waiters. None: it is not there for any family.
    async fn by_family<'a>(
        &self,
        key: &[u8],
        request: impl Fn(Kind) -> Read<'a>,
    ) -> Result<Option<(Kind, Value)>, Error> {
        let mut refused = None;
        for kind in Kind::ALL {
            match self.call(key, request(kind)).await {
                // Null to one family is Null to all.
                Ok(Value::Nil) => return Ok(None),
                Ok(reply) => return Ok(Some((kind, reply))),
                Err(error) if error.kind() == ErrorKind::WrongType => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        match refused {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }
}
