//! Which server has a key: the one there is, the primary that the Sentinels name, or the owner of its slot.

mod channel;
mod slots;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use self::slots::ClusterSlots;
use crate::base::command::NodeAddress;
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind};
use crate::base::slot::Slot;
use crate::base::url::Endpoints;
use crate::connection::link::Link;
use crate::connection::link::events::Events;
use crate::connection::link::opener::Opener;
#[cfg(feature = "sentinel")]
use crate::connection::link::opener::lookup;
use crate::connection::link::pool::Pool;
use crate::telemetry;

/// How long one node is asked about the slots before the next one is.
const ASK_NODE_FOR: Duration = Duration::from_secs(1);

/// One primary, with its connections.
pub(crate) struct Server {
    /// `host:port`, or the name of the primary among Sentinels.
    pub(crate) name: String,
    pub(crate) link: Link,
    pub(crate) pool: Pool,
    /// Limits the dedicated connections in use.
    pub(crate) dedicated: Arc<Semaphore>,
}

/// Key to server.
pub(crate) struct Routes {
    routing: Routing,
    pub(crate) ctx: Arc<Context>,
    events: Arc<dyn Events>,
    /// Counts what was learnt about slots.
    learnt: watch::Sender<u64>,
}

enum Routing {
    One(Arc<Server>),
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    // what handles it stays: little code, and no crate
    Cluster {
        seed: Box<ConnectionInfo>,
        /// The nodes that the user named.
        seeds: Vec<(String, ConnectionAddr)>,
        slots: Box<RwLock<Slots>>,
        refreshing: Box<Mutex<()>>,
    },
}

#[derive(Default)]
struct Slots {
    servers: HashMap<String, Arc<Server>>,
    owners: HashMap<Slot, Arc<Server>>,
    /// Nodes without slots of their own that may know the nodes of the slots: those that the user named, and replicas.
    others: Vec<(String, ConnectionAddr)>,
    /// Counts the times that all of them were learnt.
    version: u64,
}

impl Routes {
    /// Connects. An error: no server answers, or not as one with the module.
    pub(crate) async fn connect(
        endpoints: Endpoints,
        ctx: Arc<Context>,
        events: Arc<dyn Events>,
    ) -> Result<Self, Error> {
        let connect_timeout = ctx.settings.connect_timeout;
        let server = |name, opener| Arc::new(Server::new(name, opener, &ctx, &events));
        let routing = match endpoints {
            Endpoints::Single(info) => {
                Routing::One(server(info.addr().to_string(), Opener::Fixed(info)))
            }
            #[cfg(feature = "sentinel")]
            Endpoints::Sentinel(sentinels) => {
                let lookup = Box::new(Mutex::new(lookup(&sentinels)?));
                let opener = Opener::Sentinel { lookup, node: Box::new(sentinels.node) };
                Routing::One(server(sentinels.name, opener))
            }
            Endpoints::Given(dialer) => {
                Routing::One(server(dialer.address(), Opener::Given(dialer)))
            }
            #[cfg(feature = "cluster")]
            Endpoints::Cluster { nodes } => {
                let Some(seed) = nodes.first().cloned() else {
                    return Err(Error::invalid("no node of the cluster is named"));
                };
                let named = nodes.iter().map(|node| (node.addr().to_string(), node.addr().clone()));
                let seeds: Vec<_> = named.collect();
                let slots = Slots { others: seeds.clone(), ..Slots::default() };
                Routing::Cluster {
                    seed: Box::new(seed),
                    seeds,
                    slots: Box::new(RwLock::new(slots)),
                    refreshing: Box::default(),
                }
            }
        };
        let routes = Self { routing, ctx, events, learnt: watch::Sender::new(0) };
        match &routes.routing {
            Routing::One(server) => drop(server.link.first().await?),
            Routing::Cluster { .. } => routes.refresh(Instant::now() + connect_timeout).await?,
        }
        Ok(routes)
    }

    /// Whose key that is, as far as is known.
    pub(crate) fn server_of(&self, key: &[u8]) -> Option<Arc<Server>> {
        match &self.routing {
            Routing::One(server) => Some(server.clone()),
            Routing::Cluster { slots, .. } => read(slots).owners.get(&Slot::for_key(key)).cloned(),
        }
    }

    /// Every primary that has keys.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        match &self.routing {
            Routing::One(server) => vec![server.clone()],
            Routing::Cluster { slots, .. } => {
                let slots = read(slots);
                let owns = |server: &&Arc<Server>| {
                    slots.owners.values().any(|owner| Arc::ptr_eq(owner, server))
                };
                slots.servers.values().filter(owns).cloned().collect()
            }
        }
    }

    /// Ends every connection, for good. The gate is shut.
    pub(crate) fn close(&self) {
        let servers = match &self.routing {
            Routing::One(server) => vec![server.clone()],
            Routing::Cluster { slots, .. } => read(slots).servers.values().cloned().collect(),
        };
        for server in servers {
            server.link.close();
            server.pool.clear();
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.routing, Routing::Cluster { .. })
    }

    /// The server at an address that server `by` named.
    pub(crate) fn redirected(&self, to: &NodeAddress, by: &Server) -> Option<Arc<Server>> {
        self.is_cluster().then(|| self.at(to, by))
    }

    /// A slot has moved for good.
    pub(crate) fn moved(&self, key: &[u8], to: &Arc<Server>) {
        if let Routing::Cluster { slots, .. } = &self.routing {
            let slot = Slot::for_key(key);
            let old_owner = write(slots).owners.insert(slot, to.clone());
            // Not under the lock, as in `learn_from`.
            drop(old_owner);
            self.learnt.send_modify(|count| *count += 1);
        }
    }

    /// Returns when the key is not that server's any more.
    pub(crate) async fn left(&self, key: &[u8], server: &Arc<Server>) {
        let mut learnt = self.learnt.subscribe();
        let mut elsewhere =
            |_: &u64| self.server_of(key).is_none_or(|now| !Arc::ptr_eq(&now, server));
        if !self.is_cluster() || learnt.wait_for(&mut elsewhere).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Learns which server has which slots; only waits if another task does.
    pub(crate) async fn refresh(&self, until: Instant) -> Result<(), Error> {
        let Routing::Cluster { slots, refreshing, .. } = &self.routing else { return Ok(()) };
        let known = read(slots).version;
        let Ok(_one_at_a_time) = timeout_at(until, refreshing.lock()).await else {
            return Err(Error::unavailable("the cluster does not say in time who has which slots"));
        };
        if read(slots).version != known {
            return Ok(());
        }
        let mut last = Error::unavailable("no node of the cluster is known");
        let (mut servers, others) = {
            let slots = read(slots);
            (slots.servers.values().cloned().collect::<Vec<_>>(), slots.others.clone())
        };
        // The time that there is must not be spent on a node that is gone.
        servers.sort_by_key(|server| server.link.generation() == 0);
        let mut left = servers.len() + others.len();
        for node in servers.into_iter().map(Ok).chain(others.into_iter().map(Err)) {
            left -= 1;
            // To one without slots, the client only connects now.
            let server = node.unwrap_or_else(|(name, addr)| self.server_at(&name, addr));
            match self.learn_from(&server, share_of(until, left)).await {
                Ok(()) => return Ok(()),
                // What a node says is wrong tells more than that another one is not there.
                Err(error) if last.kind() == ErrorKind::Unavailable => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }

    async fn learn_from(&self, server: &Arc<Server>, until: Instant) -> Result<(), Error> {
        let Routing::Cluster { slots, seeds, .. } = &self.routing else { return Ok(()) };
        let mut live = server.link.live(until).await?;
        let ask = redis::cmd("CLUSTER").arg("SLOTS").clone();
        let reply = timeout_at(until, live.send(&ask))
            .await
            .map_err(|_| Error::unavailable("a node of the cluster does not answer"))?
            .and_then(redis::Value::extract_error)
            .map_err(Error::from_redis)?;
        let reply = ClusterSlots::parse(&reply).ok_or_else(|| Error::protocol(&reply))?;
        if reply.ranges.is_empty() {
            // One that was reset, or has not joined yet.
            return Err(Error::unavailable("a node knows of no slots"));
        }
        let mut owners = HashMap::new();
        let mut named = Vec::new();
        for range in reply.ranges {
            let owner = self.at(&range.primary, server);
            let slots = (range.first..=range.last).filter_map(Slot::new);
            owners.extend(slots.map(|slot| (slot, owner.clone())));
            named.push(owner.name.clone());
        }
        let mut slots = write(slots);
        telemetry::slots_moved(&server.name, || moved(&slots.owners, &owners));
        let old_owners = std::mem::replace(&mut slots.owners, owners);
        slots.others.clone_from(seeds);
        for NodeAddress { host, port } in reply.replicas {
            slots.others.push((format!("{host}:{port}"), self.address(&host, port)));
        }
        slots.version += 1;
        // Nodes without slots end their connections; the one that told us stays, in case it is the only seed.
        let is_kept = |name: &String| named.contains(name) || *name == server.name;
        let gone: Vec<_> = slots.servers.extract_if(|name, _| !is_kept(name)).collect();
        drop(slots);
        // Not under the lock: connections end.
        drop((old_owners, gone));
        self.learnt.send_modify(|count| *count += 1);
        Ok(())
    }

    /// The server at an address that server `by` named; an empty host is its own.
    fn at(&self, to: &NodeAddress, by: &Server) -> Arc<Server> {
        let own = || by.name.rsplit_once(':').map_or("", |(host, _)| host);
        let host = if to.host.is_empty() { own() } else { &to.host };
        self.server_at(&format!("{host}:{}", to.port), self.address(host, to.port))
    }

    fn address(&self, host: &str, port: u16) -> ConnectionAddr {
        let host = host.to_owned();
        if let Routing::Cluster { seed, .. } = &self.routing
            && let ConnectionAddr::TcpTls { insecure, tls_params, .. } = seed.addr()
        {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            return ConnectionAddr::TcpTls { host, port, insecure, tls_params };
        }
        ConnectionAddr::Tcp(host, port)
    }

    fn server_at(&self, name: &str, addr: ConnectionAddr) -> Arc<Server> {
        let (seed, slots) = match &self.routing {
            Routing::One(server) => return server.clone(),
            Routing::Cluster { seed, slots, .. } => (seed, slots),
        };
        write(slots)
            .servers
            .entry(name.to_owned())
            .or_insert_with(|| {
                let info = Box::new(ConnectionInfo::clone(seed).set_addr(addr));
                let opener = Opener::Node(info);
                Arc::new(Server::new(name.to_owned(), opener, &self.ctx, &self.events))
            })
            .clone()
    }
}

impl Server {
    fn new(name: String, opener: Opener, ctx: &Arc<Context>, events: &Arc<dyn Events>) -> Self {
        Self {
            link: Link::new(name.clone(), opener, ctx.clone(), events.clone()),
            name,
            pool: Pool::new(ctx.clone()),
            dedicated: Arc::new(Semaphore::new(ctx.settings.dedicated_connections)),
        }
    }
}

/// How many slots have another owner than before.
fn moved(before: &HashMap<Slot, Arc<Server>>, now: &HashMap<Slot, Arc<Server>>) -> usize {
    let has_moved = |(slot, server): &(&Slot, &Arc<Server>)| {
        before.get(slot).is_some_and(|before| !Arc::ptr_eq(before, server))
    };
    now.iter().filter(has_moved).count()
}

/// The end of asking one node: half of the time there is, so that something is left for the others, if there are some.
fn share_of(until: Instant, others: usize) -> Instant {
    if others == 0 {
        return until;
    }
    let now = Instant::now();
    now + (until.saturating_duration_since(now) / 2).min(ASK_NODE_FOR)
}

fn read(slots: &RwLock<Slots>) -> RwLockReadGuard<'_, Slots> {
    slots.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(slots: &RwLock<Slots>) -> RwLockWriteGuard<'_, Slots> {
    slots.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[cfg(feature = "cluster")]
mod tests;
