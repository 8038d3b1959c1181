//! Which server has a key: the one there is, the primary that the Sentinels name, or the owner of its slot.

mod channel;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use redis::cluster_routing::Slot;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, TlsCertificates, TlsMode, Value};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use crate::clock::Moment;
use crate::config::Settings;
use crate::error::{Error, ErrorKind};
use crate::held::Held;
use crate::link::{Link, Pool};
use crate::registry::Registry;
use crate::url::Target;

/// How long one node is asked about the slots before the next one is.
const ASK_NODE_FOR: Duration = Duration::from_secs(1);

/// One primary, with its connections.
pub(crate) struct Server {
    /// `host:port`, or the name of the primary among Sentinels.
    pub(crate) name: String,
    pub(crate) link: Link,
    pub(crate) pool: Pool,
    /// Places for blocked calls.
    pub(crate) blockable: Arc<Semaphore>,
}

/// Makes the configuration of a connection to one server.
pub(crate) enum Opener {
    Fixed(Box<ConnectionInfo>),
    /// A node of a cluster.
    Node(Box<ConnectionInfo>),
    Sentinel {
        lookup: Box<Mutex<SentinelClient>>,
        /// How the servers themselves are spoken to.
        node: Box<ConnectionInfo>,
    },
}

impl Opener {
    /// Where to connect to now: with Sentinels the primary of this moment, which was asked whether it is one.
    pub(crate) async fn client(&self, protocol: ProtocolVersion) -> Result<redis::Client, Error> {
        let info = match self {
            Self::Fixed(info) | Self::Node(info) => ConnectionInfo::clone(info),
            Self::Sentinel { lookup, node } => {
                let primary = lookup.lock().await.async_get_client().await?;
                ConnectionInfo::clone(node).set_addr(primary.get_connection_info().addr().clone())
            }
        };
        let settings = info.redis_settings().clone().set_protocol(protocol);
        // Many small requests of many tasks: none waits for the acknowledgement of another. And a connection on which
        // nothing happens for long must not be forgotten by what is between, nor outlive a peer that is gone.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(15))
            .with_interval(Duration::from_secs(5))
            .with_retries(3);
        let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(keepalive);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        Ok(redis::Client::open(info)?)
    }
}

impl Opener {
    /// Whether somebody else says where the server is, and may say otherwise tomorrow.
    pub(crate) fn is_named_by_sentinels(&self) -> bool {
        matches!(self, Self::Sentinel { .. })
    }

    pub(crate) fn is_cluster_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }
}

/// The way from a key to its server.
pub(crate) struct Routes {
    target: Routing,
    settings: Arc<Settings>,
    registry: Arc<Registry>,
    /// Counts what was learnt about slots.
    learnt: watch::Sender<u64>,
}

enum Routing {
    One(Arc<Server>),
    Cluster {
        seed: Box<ConnectionInfo>,
        /// The nodes that the user named.
        seeds: Vec<(String, ConnectionAddr)>,
        slots: Box<RwLock<Slots>>,
        refreshing: Box<Mutex<()>>,
    },
}

struct Slots {
    servers: HashMap<String, Arc<Server>>,
    owners: HashMap<Slot, Arc<Server>>,
    /// Nodes without slots of their own that may know who has them now: those that the user named, and replicas.
    others: Vec<(String, ConnectionAddr)>,
    /// Counts the times that all of them were learnt.
    version: u64,
}

impl Routes {
    /// Connects. Errors: nobody there answers, or not as a server with which we can speak.
    pub(crate) async fn connect(
        target: Target,
        tls: Option<TlsCertificates>,
        settings: Arc<Settings>,
        registry: Arc<Registry>,
    ) -> Result<Self, Error> {
        let of = |target| Self {
            target,
            settings: settings.clone(),
            registry: registry.clone(),
            learnt: watch::Sender::new(0),
        };
        let server = |name, opener| Arc::new(Server::new(name, opener, &settings, &registry));
        match target {
            Target::Single(info) => {
                let name = info.addr().to_string();
                let server = server(name, Opener::Fixed(info));
                server.link.first().await?;
                Ok(of(Routing::One(server)))
            }
            Target::Sentinel { sentinels, name, node } => {
                let lookup = lookup(&sentinels, &name, &node, tls)?;
                let opener = Opener::Sentinel { lookup: Box::new(Mutex::new(lookup)), node };
                let server = server(name, opener);
                server.link.first().await?;
                Ok(of(Routing::One(server)))
            }
            Target::Cluster { nodes } => {
                let Some(seed) = nodes.first().cloned() else {
                    return Err(Error::invalid("no node of the cluster is named"));
                };
                let slots = Slots {
                    servers: HashMap::new(),
                    owners: HashMap::new(),
                    others: Vec::new(),
                    version: 0,
                };
                let mut routes = of(Routing::Cluster {
                    seed: Box::new(seed),
                    seeds: Vec::new(),
                    slots: Box::new(RwLock::new(slots)),
                    refreshing: Box::new(Mutex::new(())),
                });
                let named = nodes.iter().map(|node| (node.addr().to_string(), node.addr().clone()));
                if let Routing::Cluster { slots, seeds, .. } = &mut routes.target {
                    *seeds = named.clone().collect();
                    write(slots).others = named.collect();
                }
                routes.refresh(Instant::now() + settings.connect_timeout).await?;
                Ok(routes)
            }
        }
    }

    /// Whose key that is, as far as is known.
    pub(crate) fn server_of(&self, key: &[u8]) -> Option<Arc<Server>> {
        match &self.target {
            Routing::One(server) => Some(server.clone()),
            Routing::Cluster { slots, .. } => read(slots).owners.get(&Slot::for_key(key)).cloned(),
        }
    }

    /// Every primary that has keys.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        match &self.target {
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
        let servers = match &self.target {
            Routing::One(server) => vec![server.clone()],
            Routing::Cluster { slots, .. } => read(slots).servers.values().cloned().collect(),
        };
        for server in servers {
            server.link.close();
            server.pool.clear();
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.target, Routing::Cluster { .. })
    }

    /// The server at an address that another one named; an empty host is that one's own.
    pub(crate) fn redirected(&self, host: &str, port: u16, by: &Server) -> Option<Arc<Server>> {
        let Routing::Cluster { .. } = &self.target else { return None };
        let host = if host.is_empty() { by.name.rsplit_once(':')?.0 } else { host };
        Some(self.at(host, port))
    }

    /// A slot has moved for good.
    pub(crate) fn moved(&self, key: &[u8], to: &Arc<Server>) {
        if let Routing::Cluster { slots, .. } = &self.target {
            let slot = Slot::for_key(key);
            let untied = self.untied_by(|other| (*other == slot).then_some(to));
            write(slots).owners.insert(slot, to.clone());
            self.learnt(untied);
        }
    }

    /// Holds that are tied to a connection to a server whose slots another one has now, and when that connection was
    /// known to be alive: the new server has cut them.
    fn untied_by<'a>(
        &self,
        owner: impl Fn(&Slot) -> Option<&'a Arc<Server>>,
    ) -> Vec<(Arc<Held>, Moment)> {
        let left = |held: Arc<Held>| {
            let before = self.server_of(held.key())?;
            let now = owner(&Slot::for_key(held.key()))?;
            (!Arc::ptr_eq(&before, now)).then(|| (held, before.link.alive()))
        };
        self.registry.tied().into_iter().filter_map(left).collect()
    }

    /// Says that slots are elsewhere by now, and has holds tied there.
    fn learnt(&self, untied: Vec<(Arc<Held>, Moment)>) {
        self.learnt.send_modify(|count| *count += 1);
        if untied.is_empty() {
            return;
        }
        for (held, alive) in untied {
            held.untied(alive);
        }
        self.registry.renew_now.notify_one();
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

    /// Learns which slots belong to whom; does nothing but wait if somebody else is at it.
    pub(crate) async fn refresh(&self, until: Instant) -> Result<(), Error> {
        let Routing::Cluster { slots, refreshing, .. } = &self.target else { return Ok(()) };
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
        let mut failed = |error: Error| {
            // What a node says is wrong tells more than that another one is not there.
            if last.kind() == ErrorKind::Unavailable {
                last = error;
            }
        };
        for server in servers {
            left -= 1;
            match self.learn_from(&server, share_of(until, left)).await {
                Ok(()) => return Ok(()),
                Err(error) => failed(error),
            }
        }
        for (name, addr) in others {
            left -= 1;
            let server = self.server_at(&name, addr);
            match self.learn_from(&server, share_of(until, left)).await {
                Ok(()) => return Ok(()),
                Err(error) => failed(error),
            }
        }
        Err(last)
    }

    async fn learn_from(&self, server: &Arc<Server>, until: Instant) -> Result<(), Error> {
        let Routing::Cluster { slots, seeds, .. } = &self.target else { return Ok(()) };
        let mut live = server.link.live(until).await?;
        let ask = redis::cmd("CLUSTER").arg("SLOTS").clone();
        let reply = timeout_at(until, live.send(&ask))
            .await
            .map_err(|_| Error::unavailable("a node of the cluster does not answer"))??
            .extract_error()?;
        let (ranges, replicas) = ranges(&reply).ok_or_else(|| Error::protocol(&reply))?;
        if ranges.is_empty() {
            // One that was reset, or has not joined yet.
            return Err(Error::unavailable("a node knows of no slots"));
        }
        let mut owners = HashMap::new();
        let mut named = Vec::new();
        for (from, to, host, port) in ranges {
            let host = if host.is_empty() {
                server.name.rsplit_once(':').map_or("", |(host, _)| host).to_owned()
            } else {
                host
            };
            let owner = self.at(&host, port);
            let slots = (from..=to).filter_map(Slot::new);
            owners.extend(slots.map(|slot| (slot, owner.clone())));
            named.push(owner.name.clone());
        }
        let untied = self.untied_by(|slot| owners.get(slot));
        let mut slots = write(slots);
        slots.owners = owners;
        slots.others.clone_from(seeds);
        for (host, port) in replicas {
            slots.others.push((format!("{host}:{port}"), self.address(&host, port)));
        }
        slots.version += 1;
        // Nodes that own nothing any more end their connections; the one that told us stays, in case it is the only seed.
        slots.servers.retain(|name, _| named.contains(name) || *name == server.name);
        drop(slots);
        self.learnt(untied);
        Ok(())
    }

    fn at(&self, host: &str, port: u16) -> Arc<Server> {
        self.server_at(&format!("{host}:{port}"), self.address(host, port))
    }

    fn address(&self, host: &str, port: u16) -> ConnectionAddr {
        let host = host.to_owned();
        match &self.target {
            Routing::Cluster { seed, .. } => match seed.addr() {
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure: *insecure,
                    tls_params: tls_params.clone(),
                },
                _ => ConnectionAddr::Tcp(host, port),
            },
            Routing::One(_) => ConnectionAddr::Tcp(host, port),
        }
    }

    fn server_at(&self, name: &str, addr: ConnectionAddr) -> Arc<Server> {
        let (seed, slots) = match &self.target {
            Routing::One(server) => return server.clone(),
            Routing::Cluster { seed, slots, .. } => (seed, slots),
        };
        write(slots)
            .servers
            .entry(name.to_owned())
            .or_insert_with(|| {
                let info = Box::new(ConnectionInfo::clone(seed).set_addr(addr));
                let opener = Opener::Node(info);
                Arc::new(Server::new(name.to_owned(), opener, &self.settings, &self.registry))
            })
            .clone()
    }
}

impl Server {
    fn new(
        name: String,
        opener: Opener,
        settings: &Arc<Settings>,
        registry: &Arc<Registry>,
    ) -> Self {
        Self {
            link: Link::new(name.clone(), opener, settings.clone(), registry.clone()),
            name,
            pool: Pool::new(settings.clone(), registry.gate.clone()),
            blockable: Arc::new(Semaphore::new(settings.private_connections)),
        }
    }
}

/// The end of asking one node: half of the time there is, so that something is left for the others, if there are some.
fn share_of(until: Instant, others: usize) -> Instant {
    if others == 0 {
        return until;
    }
    let now = Instant::now();
    now + (until.saturating_duration_since(now) / 2).min(ASK_NODE_FOR)
}

/// Who asks the Sentinels, and then the server that they name whether it is a primary. (Certificates for the Sentinels are
/// part of their addresses already.)
fn lookup(
    sentinels: &[ConnectionInfo],
    name: &str,
    node: &ConnectionInfo,
    tls: Option<TlsCertificates>,
) -> Result<SentinelClient, Error> {
    let addresses = sentinels.iter().map(|sentinel| sentinel.addr().clone());
    let mut builder = SentinelClientBuilder::new(addresses, name, SentinelServerType::Master)?;
    if let Some(asked) = sentinels.first() {
        builder = builder.set_client_to_sentinel_tcp_settings(asked.tcp_settings().clone());
        if let Some(user) = asked.redis_settings().username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = asked.redis_settings().password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
    }
    builder = builder.set_client_to_redis_tcp_settings(node.tcp_settings().clone());
    if let Some(user) = node.redis_settings().username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = node.redis_settings().password() {
        builder = builder.set_client_to_redis_password(password);
    }
    builder = match node.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            builder.set_client_to_redis_tls_mode(TlsMode::Insecure)
        }
        ConnectionAddr::TcpTls { .. } => builder.set_client_to_redis_tls_mode(TlsMode::Secure),
        _ => builder,
    };
    if let Some(tls) = tls {
        builder = builder.set_client_to_redis_certificates(tls);
    }
    Ok(builder.build()?)
}

type Ranges = Vec<(u16, u16, String, u16)>;

/// First slot, last slot, host, port of each range in a reply of CLUSTER SLOTS; and the replicas.
fn ranges(reply: &Value) -> Option<(Ranges, Vec<(String, u16)>)> {
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let node = |node: &Value| {
        let Value::Array(node) = node else { return None };
        let [host, port, ..] = node.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            Value::Nil => String::new(),
            _ => return None,
        };
        // "?": it does not know its own address.
        Some((if host == "?" { String::new() } else { host }, number(port)?))
    };
    let Value::Array(all) = reply else { return None };
    let (mut ranges, mut replicas) = (Vec::new(), Vec::new());
    for range in all {
        let Value::Array(range) = range else { return None };
        let [from, to, primary, others @ ..] = range.as_slice() else { return None };
        let (host, port) = node(primary)?;
        ranges.push((number(from)?, number(to)?, host, port));
        replicas.extend(others.iter().filter_map(node).filter(|(host, _)| !host.is_empty()));
    }
    Some((ranges, replicas))
}

fn read(slots: &RwLock<Slots>) -> RwLockReadGuard<'_, Slots> {
    slots.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(slots: &RwLock<Slots>) -> RwLockWriteGuard<'_, Slots> {
    slots.write().unwrap_or_else(PoisonError::into_inner)
}
