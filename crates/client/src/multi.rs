//! Several locks at once: all of them, or any one.

use std::collections::HashSet;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_wire::names::KEYS_MAX;
use dlock_wire::reply::quote;
use dlock_wire::request::{Channel, MAcquire, MRelease, Request};
use dlock_wire::table::{CommandId, LockVerb, MultiVerb};
use redis::{Cmd, Value};

use crate::acquire::{Patience, SPENT};
use crate::channel::Draft;
use crate::clock::{Moment, millis};
use crate::core::{Core, command};
use crate::error::{Error, ErrorKind};
use crate::guard::{Guard, Hold, MultiGuard};
use crate::held::{Grip, Held, LeaseTerms, certain};
use crate::options::{Options, shared_options, ways_to_acquire};
use crate::private;

/// All of several locks, or none of them. Neither deadlock nor starvation between such calls, whatever the order of
/// their keys; while one waits for a busy key, it keeps the free ones closed.
///
/// In a cluster the keys have to share a slot (`{…}` in their names). Waiting takes a private connection.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let server = dlock_testing::Server::start();
/// # let client = dlock_client::Client::connect(&server.url()).await?;
/// let transfer = client.multi_lock(["account:1", "account:2"]);
/// let guard = transfer.acquire().await?;
/// assert_eq!(guard.tokens().len(), 2);
/// assert!(client.lock("account:2").try_acquire().await?.is_none());
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct MultiLock {
    several: Several,
    options: Options,
}

/// Any one of several locks: the first that is free. For stripes, so that many can work side by side.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let server = dlock_testing::Server::start();
/// # let client = dlock_client::Client::connect(&server.url()).await?;
/// let stripes = client.striped_lock("stock", 2);
/// let one = stripes.acquire().await?;
/// let two = stripes.acquire().await?;
/// assert_ne!(one.key(), two.key());
/// assert!(stripes.try_acquire().await?.is_none());
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct AnyLock {
    several: Several,
    options: Options,
}

#[derive(Clone)]
struct Several {
    core: Arc<Core>,
    keys: Arc<[Vec<u8>]>,
}

impl MultiLock {
    pub(crate) fn new(core: &Arc<Core>, keys: Vec<Vec<u8>>) -> Self {
        Self {
            several: Several { core: core.clone(), keys: keys.into() },
            options: Options::default(),
        }
    }

    shared_options!();

    ways_to_acquire!(
        MultiGuard,
        "Takes all of them if all are free. None: one is not.",
        "Takes all of them, as soon as it is one's turn at each."
    );

    /// Waits for all locks, works under them with their fencing tokens (in the order of the keys), gives them back; as
    /// [`Lock::with`](crate::Lock::with).
    ///
    /// # Errors
    ///
    /// As [`Lock::with`](crate::Lock::with). It is [`Lost`](crate::ErrorKind::Lost) as soon as one of the locks is.
    pub async fn with<T, F>(&self, work: impl FnOnce(Vec<u64>) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        self.acquire().await?.with(work).await
    }

    async fn acquire_with(&self, patience: Patience) -> Result<Option<MultiGuard>, Error> {
        let held = self.several.acquire(MultiVerb::Acquire, &self.options, patience).await?;
        Ok(held.map(MultiGuard::new))
    }
}

impl AnyLock {
    pub(crate) fn new(core: &Arc<Core>, keys: Vec<Vec<u8>>) -> Self {
        Self {
            several: Several { core: core.clone(), keys: keys.into() },
            options: Options::default(),
        }
    }

    shared_options!();

    ways_to_acquire!(
        Guard,
        "Takes one that is free; [`Hold::key`](crate::Hold::key) tells which. None: none is.",
        "Takes the first that becomes free."
    );

    /// As [`Lock::with`](crate::Lock::with).
    pub async fn with<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        self.acquire().await?.with(work).await
    }

    async fn acquire_with(&self, patience: Patience) -> Result<Option<Guard>, Error> {
        let held = self.several.acquire(MultiVerb::AnyAcquire, &self.options, patience).await?;
        Ok(held.map(Guard::new))
    }
}

impl Several {
    async fn acquire(
        &self,
        verb: MultiVerb,
        options: &Options,
        patience: Patience,
    ) -> Result<Option<Arc<Held>>, Error> {
        let gate = &self.core.registry.gate;
        let _call = gate.call();
        loop {
            let attempt = pin!(self.attempt(verb, options, patience));
            match gate.admit(attempt).await {
                // As for a single lock: granted, and over before the answer came.
                Err(error) if error.kind() == ErrorKind::Spent => tokio::time::sleep(SPENT).await,
                outcome => return outcome,
            }
        }
    }

    /// As [`Several::acquire`], with one request id.
    async fn attempt(
        &self,
        verb: MultiVerb,
        options: &Options,
        patience: Patience,
    ) -> Result<Option<Arc<Held>>, Error> {
        options.check()?;
        self.check_keys()?;
        let core = &self.core;
        let lease = options.lease.unwrap_or(core.settings.lease);
        let ask = Asked {
            several: self.clone(),
            verb,
            owner: options.owner(),
            reqid: crate::random::name(),
            lease,
            options: options.clone(),
        };
        // What is said of these keys from now on is heard.
        let entered: Vec<_> =
            self.keys.iter().map(|key| core.registry.enter(key, &ask.owner, Weak::new())).collect();
        let undo = Undo { ask: Some(ask), pending: true };
        let Some(ask) = &undo.ask else { return Ok(None) };
        let mut tied_to = self.connection();
        let mut sent = Moment::now();
        let reply = if patience == Patience::None {
            core.send(self.first(), ask.draft(None), core.patience()).await
        } else {
            let request = |ms| ask.draft(Some(ms));
            private::blocking(core, self.first(), patience, private::LONG, request).await
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                if error.is_refusal() {
                    undo.nothing::<()>();
                }
                return Err(error);
            }
        };
        let Some(mut grip) = ask.grip(&reply)? else { return Ok(undo.nothing()) };
        if options.bind.is_some() && patience != Patience::None {
            // The tie is to the private connection: asking again moves it to the shared one. What was granted may have
            // ended in between; then this is a grant of its own, or none.
            tied_to = self.connection();
            sent = Moment::now();
            let again = core.send(self.first(), ask.draft(None), core.patience()).await?;
            let Some(now) = ask.grip(&again)? else { return Ok(undo.nothing()) };
            grip = now;
        }
        if options.bind.is_some() || Moment::now().since(sent) >= lease / 4 {
            // After a long wait nobody knows when the lease began: it begins anew.
            sent = Moment::now();
            let renewal = grip.renewal(lease, None);
            match core.send(self.first(), &renewal, core.patience()).await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotHeld => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let terms = LeaseTerms {
            lease,
            watched: options.lease.is_none(),
            bind: options.bind,
            unclaimed: false,
            own_name: options.owner.is_none(),
        };
        let held = Held::new(core, grip, terms, sent.after(certain(lease)));
        undo.nothing::<()>();
        if options.bind.is_some() && (tied_to == 0 || tied_to != self.connection()) {
            // As for a single lock: it may have been lost before anybody knew what was tied to it.
            held.untied(sent);
            core.registry.renew_now.notify_one();
        }
        if let Some(how) = entered.iter().find_map(|entered| entered.ended(&held)) {
            held.is_said_to_be_lost(how);
        }
        Ok(Some(held))
    }

    fn first(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
    }

    /// Which of the shared connections to their server is up; 0: none.
    fn connection(&self) -> u64 {
        let server = self.core.routes.server_of(self.first());
        server.map_or(0, |server| server.link.generation())
    }

    fn check_keys(&self) -> Result<(), Error> {
        let most = usize::try_from(KEYS_MAX).unwrap_or(usize::MAX);
        if self.keys.is_empty() || self.keys.len() > most {
            return Err(Error::invalid(format!("1 to {most} keys can be locked together")));
        }
        if self.keys.iter().any(Vec::is_empty) {
            return Err(Error::invalid("key must not be empty"));
        }
        let mut seen = HashSet::with_capacity(self.keys.len());
        match self.keys.iter().find(|key| !seen.insert(key.as_slice())) {
            Some(twice) => Err(Error::invalid(format!("key {} given twice", quote(twice)))),
            None => Ok(()),
        }
    }
}

/// One acquire of one owner.
struct Asked {
    several: Several,
    verb: MultiVerb,
    owner: Arc<[u8]>,
    reqid: String,
    lease: Duration,
    options: Options,
}

impl Asked {
    fn draft(&self, block_ms: Option<u64>) -> Draft<'_> {
        Draft::notified(move |channel| self.request(block_ms, channel))
    }

    fn request(&self, block_ms: Option<u64>, channel: Channel<'_>) -> Cmd {
        let keys: Vec<&[u8]> = self.several.keys.iter().map(Vec::as_slice).collect();
        let mut acquire = MAcquire::new(&keys, &self.owner);
        acquire.lease_ms = Some(millis(self.lease));
        acquire.block_ms = block_ms;
        acquire.notify = Some(channel);
        acquire.reqid = Some(self.reqid.as_bytes());
        acquire.bind_ms = self.options.bind.map(millis);
        acquire.label = self.options.label.as_deref();
        let request = match self.verb {
            MultiVerb::AnyAcquire => Request::AnyAcquire(acquire),
            _ => Request::MAcquire(acquire),
        };
        command(CommandId::Multi(self.verb), &request)
    }

    fn grip(&self, reply: &Value) -> Result<Option<Grip>, Error> {
        let Value::Array(items) = reply else {
            return if *reply == Value::Nil { Ok(None) } else { Err(Error::protocol(reply)) };
        };
        let token = |item: &Value| match item {
            Value::Int(token) => u64::try_from(*token).map_err(|_| Error::protocol(item)),
            _ => Err(Error::protocol(item)),
        };
        let owner = self.owner.clone();
        match (self.verb, items.as_slice()) {
            (MultiVerb::AnyAcquire, [Value::BulkString(key), number]) => {
                let key = key.as_slice().into();
                Ok(Some(Grip::Lock { fair: false, key, owner, token: token(number)? }))
            }
            (MultiVerb::AnyAcquire, _) => Err(Error::protocol(reply)),
            (_, items) => {
                let tokens = items.iter().map(token).collect::<Result<Vec<_>, _>>()?;
                Ok(Some(Grip::Multi { keys: self.several.keys.clone(), owner, tokens }))
            }
        }
    }

    /// Gives back whatever this call was granted, if anything. An error may be that there was nothing.
    ///
    /// The call itself may still be on its way over its private connection, or be granted there before the server sees
    /// that this is closed: so it is cancelled first. Its id is over then at its first key, and that refuses all of it.
    async fn undo(&self) -> Result<(), Error> {
        let core = &self.several.core;
        let first = self.several.first();
        let cancel =
            Request::Cancel { key: first, owner: &self.owner, reqid: Some(self.reqid.as_bytes()) };
        let cancelled =
            core.call(first, CommandId::Lock(LockVerb::Cancel), &cancel, core.patience()).await;
        if self.options.owner.is_none() {
            let keys: Vec<&[u8]> = self.several.keys.iter().map(Vec::as_slice).collect();
            let release = MRelease { keys: &keys, owner: &self.owner, reqid: None };
            let release = Request::MRelease(release);
            core.call(first, CommandId::Multi(MultiVerb::Release), &release, core.patience())
                .await?;
            return cancelled.map(drop);
        }
        // Of an owner that others act for, only what this request was given: asking once more with its id says what
        // that is, and counts nothing.
        let reply = core.send(first, self.draft(None), core.patience()).await?;
        if let Some(grip) = self.grip(&reply)? {
            let terms = LeaseTerms {
                lease: self.lease,
                watched: false,
                bind: None,
                unclaimed: false,
                own_name: false,
            };
            Held::new(core, grip, terms, Moment::now().after(self.lease)).give_back_later();
        }
        cancelled.map(drop)
    }
}

/// Cancels in the background a call that nobody waits for any more, and gives back what it was granted.
struct Undo {
    ask: Option<Asked>,
    pending: bool,
}

impl Undo {
    /// Nothing is left to be given back.
    fn nothing<T>(mut self) -> Option<T> {
        self.pending = false;
        None
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(ask) = self.ask.take().filter(|_| self.pending) {
            let runtime = ask.several.core.runtime.clone();
            let gate = ask.several.core.registry.gate.clone();
            let cleanup = gate.cleanup();
            runtime.spawn(async move {
                if ask.undo().await.is_err_and(|error| error.is_unanswered()) {
                    gate.failed();
                }
                drop(cleanup);
            });
        }
    }
}

fn debug_keys(name: &str, several: &Several, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let keys: Vec<_> = several.keys.iter().take(8).map(|key| quote(key)).collect();
    f.debug_struct(name)
        .field("keys", &keys)
        .field("of", &several.keys.len())
        .finish_non_exhaustive()
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_keys("MultiLock", &self.several, f)
    }
}

impl fmt::Debug for AnyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_keys("AnyLock", &self.several, f)
    }
}
