//! The nodes of a cluster: how they are connected to, and which has which slots.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::time::{sleep, timeout};

use super::Core;
use super::opener::Opener;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::machine::Action;
use crate::machine::slots::ClusterSlots;

/// How long one node is asked about the slots before the next one is.
const ASK_NODE_FOR: Duration = Duration::from_secs(1);
/// How often the slots are learnt while something waits: when one moves, a place is lost without a message.
const POLL: Duration = Duration::from_secs(2);
/// Between two times that they are learnt.
const PAUSE: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Cluster {
    seed: ConnectionInfo,
    /// The nodes that the user named, and replicas: they may know the nodes of the slots.
    others: Mutex<Vec<String>>,
    seeds: Vec<String>,
}

impl Cluster {
    pub(super) fn new(nodes: Vec<ConnectionInfo>) -> Result<Self, Error> {
        let seeds: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let Some(seed) = nodes.into_iter().next() else {
            return Err(Error::invalid("no node of the cluster is named"));
        };
        Ok(Self { seed, others: Mutex::new(seeds.clone()), seeds })
    }

    /// How the node of that name, `host:port`, is connected to.
    pub(super) fn opener(&self, name: &str) -> Opener {
        let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
        let (host, port) = (host.to_owned(), port.parse().unwrap_or(6379));
        let addr = match self.seed.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                let (insecure, tls_params) = (*insecure, tls_params.clone());
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Opener::Fixed(Box::new(self.seed.clone().set_addr(addr)))
    }

    fn others(&self) -> Vec<String> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The task ends when the client is gone.
pub(super) fn start(core: &Arc<Core>) {
    let (weak, signals) = (Arc::downgrade(core), core.signals.clone());
    core.runtime.spawn(async move {
        loop {
            let is_asked = timeout(POLL, signals.learn.notified()).await.is_ok();
            let Some(core) = weak.upgrade() else { return };
            if core.inner().machine.refusal().is_some() {
                return;
            }
            if is_asked || core.inner().machine.waits() {
                // An error: the next time may succeed, and what waits asks again.
                let learnt = core.learn(Moment::now().after(POLL)).await;
                if learnt.is_err() && is_asked {
                    core.signals.learn.notify_one();
                }
            }
            drop(core);
            sleep(PAUSE).await;
        }
    });
}

impl Core {
    /// Learns which server has which slots.
    ///
    /// # Errors
    ///
    /// No node says it in time.
    pub async fn learn(&self, until: Moment) -> Result<(), Error> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let mut last = Error::unavailable("no node of the cluster is known");
        let known = self.inner().machine.servers.known();
        let others = cluster.others();
        let mut left = known.len() + others.len();
        for node in known.into_iter().map(Ok).chain(others.into_iter().map(Err)) {
            left -= 1;
            let server = node.unwrap_or_else(|name| {
                self.with(|machine, _| {
                    let (number, is_new) = machine.servers.named(&name);
                    machine.actions.extend(is_new.then_some(Action::Open(number)));
                    number
                })
            });
            match self.learn_from(server, share_of(until, left)).await {
                Ok(()) => return Ok(()),
                // What a node says is wrong tells more than that another one is not there.
                Err(error) if last.kind() == ErrorKind::Unavailable => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }

    async fn learn_from(&self, server: usize, within: Duration) -> Result<(), Error> {
        let ask = redis::cmd("CLUSTER").arg("SLOTS").clone();
        let reply = self.ask_server(server, ask, within).await?;
        let slots = ClusterSlots::parse(&reply).ok_or_else(|| Error::protocol(&reply))?;
        if slots.ranges.is_empty() {
            // One that was reset, or has not joined yet.
            return Err(Error::unavailable("a node knows of no slots"));
        }
        if let Some(cluster) = &self.cluster {
            let replicas = slots.replicas.iter().map(|node| format!("{}:{}", node.host, node.port));
            let others = cluster.seeds.iter().cloned().chain(replicas).collect();
            *cluster.others.lock().unwrap_or_else(PoisonError::into_inner) = others;
        }
        self.with(|machine, _| machine.learn(&slots, server));
        Ok(())
    }
}

/// How long to ask one node: half of the time there is, so that something is left for the others, if there are some.
fn share_of(until: Moment, others: usize) -> Duration {
    let left = until.since(Moment::now());
    if others == 0 { left } else { (left / 2).min(ASK_NODE_FOR) }
}
