//! The I/O of a client: connections, tasks and timers around its machine.

mod asks;
mod blocked;
pub(crate) mod cluster;
mod link;
pub(crate) mod opener;
mod timer;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use dlock_wire::names::default_channel;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;

use self::cluster::Cluster;
use self::link::Wire;
use self::opener::Opener;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::flight::Flights;
use crate::base::settings::Settings;
use crate::base::url::Endpoints;
use crate::machine::calls::{Call, Outcome, Replies};
use crate::machine::servers::Servers;
use crate::machine::tracked::TrackedHold;
use crate::machine::{Action, Effects, Machine};

/// All that the handles of one client share.
pub struct Core {
    pub(crate) settings: Arc<Settings>,
    /// Where background work runs.
    pub(crate) runtime: Handle,
    /// The client listens to it at every server. No other client has its name.
    pub(crate) channel: Arc<[u8]>,
    pub(crate) flights: Flights,
    /// The longest lease that is known not to outlive the quarantine of the server.
    pub(crate) safe_lease_ms: AtomicU64,
    /// How nodes of a cluster are connected to, if it is one.
    cluster: Option<Cluster>,
    signals: Arc<Signals>,
    this: Weak<Core>,
    inner: Mutex<Inner>,
}

/// Wakes the tasks of the client. They do not keep it alive.
#[derive(Default)]
struct Signals {
    timer: Notify,
    learn: Notify,
    /// The phase of the client, a connection, or whether a release is under way: see [`Core::reached`].
    changed: Notify,
}

struct Inner {
    machine: Machine,
    /// By the numbers of their servers.
    wires: Vec<Wire>,
    /// The client, while releases are under way that nobody waits for.
    kept: Option<Arc<Core>>,
    /// Tasks that block connections of their own, by call and copy.
    blocked: HashMap<(u64, u32), AbortHandle>,
}

/// The replies to what is on its way.
type Flying = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

/// Sends these in one go; the first `skip` replies do not count.
async fn exchange(
    connection: &mut MultiplexedConnection,
    commands: &[Cmd],
    skip: usize,
) -> RedisResult<Vec<Value>> {
    if let [only] = commands {
        return Ok(vec![connection.send_packed_command(only).await?]);
    }
    let mut pipeline = redis::Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command.clone());
    }
    connection.send_packed_commands(&pipeline, skip, commands.len() - skip).await
}

impl Core {
    /// Connects. An error: no server answers, or not as one with the module.
    pub(crate) async fn connect(
        endpoints: Endpoints,
        settings: Settings,
        runtime: Handle,
    ) -> Result<Arc<Self>, Error> {
        let db = endpoints.db();
        let is_cluster = matches!(endpoints, Endpoints::Cluster { .. });
        let mut servers = Servers::new(is_cluster, settings.dedicated_connections);
        let (name, opener, cluster) = match endpoints {
            Endpoints::Single(info) => (info.addr().to_string(), Some(Opener::Fixed(info)), None),
            #[cfg(feature = "sentinel")]
            Endpoints::Sentinel(named) => {
                let opener = Opener::of_sentinels(&named)?;
                (named.name, Some(opener), None)
            }
            Endpoints::Given(dialer) => (dialer.address(), Some(Opener::Given(dialer)), None),
            Endpoints::Cluster { nodes } => (String::new(), None, Some(Cluster::new(nodes)?)),
        };
        if opener.is_some() {
            servers.named(&name);
        }
        let settings = Arc::new(settings);
        let machine = Machine::new(settings.clone(), db, servers);
        let core = Arc::new_cyclic(|this: &Weak<Self>| Self {
            settings,
            runtime,
            channel: default_channel(crate::base::random::name().as_bytes()).into(),
            flights: Flights::default(),
            safe_lease_ms: AtomicU64::new(0),
            cluster,
            signals: Arc::default(),
            this: this.clone(),
            inner: Mutex::new(Inner {
                machine,
                wires: Vec::new(),
                kept: None,
                blocked: HashMap::new(),
            }),
        });
        timer::start(&core);
        if let Some(opener) = opener {
            {
                // It may connect before the next line: with the lock, its wire is there by then.
                let mut inner = core.inner();
                let wire = Wire::start(&core, 0, name, opener);
                inner.wires.push(wire);
            }
            core.first(0).await?;
        } else {
            core.learn(Moment::now().after(core.settings.connect_timeout)).await?;
            cluster::start(&core);
        }
        Ok(core)
    }

    /// Waits for the first connection to a server, or the first failure.
    async fn first(&self, server: usize) -> Result<(), Error> {
        self.reached(|machine| {
            let server = machine.servers.all.get(server)?;
            if server.is_up { Some(Ok(())) } else { server.error.clone().map(Err) }
        })
        .await
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the machine, or passes it something, and does what follows from that.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Machine, Moment) -> T) -> T {
        self.act(|inner, now| act(&mut inner.machine, now))
    }

    fn act<T>(&self, act: impl FnOnce(&mut Inner, Moment) -> T) -> T {
        let now = Moment::now();
        let mut inner = self.inner();
        let result = act(&mut inner, now);
        let (effects, kept) = inner.settle(self, now);
        drop(inner);
        drop(kept);
        if effects.wakes {
            self.signals.timer.notify_one();
        }
        if effects.learns {
            self.signals.learn.notify_one();
        }
        if effects.changes {
            self.signals.changed.notify_waiters();
        }
        for waker in effects.wakers {
            waker.wake();
        }
        result
    }

    /// That connection is of no use any more. False: nor is one wanted, or it has a successor.
    fn broken(&self, server: usize, generation: u64) -> bool {
        self.act(|inner, _| {
            let wire = inner.wires.get(server).filter(|wire| wire.is(generation));
            if wire.is_some_and(|wire| wire.up.is_some()) {
                inner.machine.actions.push_back(Action::Break(server));
            }
            wire.is_some()
        })
    }

    // Calls.

    /// Begins a call. `takes`: it may take something. Dropping what is returned ends the call.
    pub(crate) fn begin(&self, call: impl Call + 'static, takes: bool) -> Result<Pending, Error> {
        let core = self.this.upgrade().ok_or_else(Error::closed)?;
        let call = Box::new(call);
        let id = self.with(|machine, now| machine.begin(call, takes, now))?;
        Ok(Pending { core, id: Some(id) })
    }

    /// Begins the release of a hold; None: another call did.
    pub(crate) fn begin_release(&self, hold: &TrackedHold) -> Option<Result<Pending, Error>> {
        let core = self.this.upgrade()?;
        let begun = self.with(|machine, now| {
            let call = Box::new(machine.release(hold, now)?);
            Some(machine.begin(call, false, now))
        })?;
        Some(begun.map(|id| Pending { core, id: Some(id) }))
    }

    /// Resolves when that is so, as far as the phase of the client, its connections and its releases are concerned.
    pub(crate) async fn reached<T>(&self, find: impl Fn(&Machine) -> Option<T>) -> T {
        loop {
            let changed = self.signals.changed.notified();
            if let Some(found) = find(&self.inner().machine) {
                return found;
            }
            changed.await;
        }
    }

    /// Ends every connection, for good.
    pub(crate) fn disconnect(&self) {
        let mut inner = self.inner();
        for wire in &mut inner.wires {
            drop(wire.close());
        }
        for (_, task) in inner.blocked.drain() {
            task.abort();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.disconnect();
        self.signals.timer.notify_one();
        self.signals.learn.notify_one();
    }
}

impl Inner {
    /// Does what the machine wants, and returns what is left to do, and to drop, without the lock.
    fn settle(&mut self, core: &Core, now: Moment) -> (Effects, Option<Arc<Core>>) {
        while let Some(action) = self.machine.actions.pop_front() {
            match action {
                Action::Send(server) => self.send(server, now),
                Action::Open(server) => self.open(core, server),
                Action::Block(blocked) => self.block(core, blocked),
                Action::Unblock(call, copy) => {
                    if let Some(task) = self.blocked.remove(&(call, copy)) {
                        task.abort();
                    }
                }
                Action::Close(server) => {
                    let flying = self.wires.get_mut(server).map(Wire::close).unwrap_or_default();
                    let error = Error::unavailable("the client does not use this server any more");
                    self.machine.disconnected(server, &error, flying, now);
                }
                Action::Break(server) => {
                    if let Some(wire) = self.wires.get_mut(server) {
                        let error = wire.lost();
                        self.machine.disconnected(server, &error, wire.lose(), now);
                    }
                }
                Action::ReadOnly(server) => {
                    if let Some(wire) = self.wires.get_mut(server) {
                        self.machine.effects.changes |= wire.is_read_only();
                    }
                }
            }
        }
        let kept = if self.machine.is_clean() {
            self.kept.take()
        } else {
            self.kept = self.kept.take().or_else(|| core.this.upgrade());
            None
        };
        (std::mem::take(&mut self.machine.effects), kept)
    }

    /// Sends what there is to send to that server.
    fn send(&mut self, server: usize, now: Moment) {
        let Some(wire) = self.wires.get_mut(server) else { return };
        let Some(up) = &wire.up else { return };
        let mut is_answered = false;
        while let Some((flight, commands)) = self.machine.next(server, now) {
            let (mut shared, skip) = (up.shared.clone(), usize::from(flight.entry.asking));
            let replies = async move { exchange(&mut shared, &commands, skip).await };
            let mut flying: Flying = Box::pin(unconstrained(replies));
            // It is polled once here, and has to be sent by that.
            let polled = flying.as_mut().poll(&mut Context::from_waker(&wire.reader));
            if let Poll::Ready(replies) = polled {
                flying = Box::pin(std::future::ready(replies));
                is_answered = true;
            }
            wire.flying.push_back((flight, flying));
        }
        if is_answered {
            self.read(server, now);
        }
    }

    /// Reads the replies of that server that have come.
    fn read(&mut self, server: usize, now: Moment) {
        let Self { machine, wires, .. } = self;
        let Some(Wire { flying, reader, .. }) = wires.get_mut(server) else { return };
        let mut context = Context::from_waker(reader);
        while let Some((_, first)) = flying.front_mut()
            && let Poll::Ready(replies) = first.as_mut().poll(&mut context)
            && let Some((flight, _)) = flying.pop_front()
            && machine.replied(server, flight, replies.map_err(Error::from_redis), now)
        {}
    }

    fn open(&mut self, core: &Core, server: usize) {
        let (Some(cluster), Some(core)) = (&core.cluster, core.this.upgrade()) else { return };
        let Some(name) = self.machine.servers.all.get(server).map(|server| server.name.clone())
        else {
            return;
        };
        let opener = cluster.opener(&name);
        let wire = Wire::start(&core, server, name, opener);
        // New ones are told in the order of their numbers.
        match self.wires.get_mut(server) {
            Some(gone) => *gone = wire,
            None => self.wires.push(wire),
        }
    }
}

/// A call under way. Dropping it ends the call.
#[must_use]
pub(crate) struct Pending {
    core: Arc<Core>,
    /// None: its outcome is known.
    id: Option<u64>,
}

impl Pending {
    /// The replies to what it asks.
    pub(crate) async fn replies(self) -> Result<Replies, Error> {
        match self.await {
            Outcome::Answered(replies) => Ok(replies),
            _ => Err(Error::closed()),
        }
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Some(id) = self.id else { return Poll::Pending };
        // The waker from before is dropped without the lock.
        let (polled, _waker) = self.core.inner().machine.poll(id, context);
        if polled.is_ready() {
            self.id = None;
        }
        polled
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.core.with(|machine, now| machine.leave(id, now));
        }
    }
}
