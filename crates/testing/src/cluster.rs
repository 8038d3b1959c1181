//! Clusters of several nodes, and slots that move between them.

use std::time::{Duration, Instant};

use redis::Value;

use super::{
    server::{Server, Setup},
    value::Reply,
    wait::wait_until,
};

impl Server {
    /// Its node id.
    #[track_caller]
    pub fn node_id(&self) -> String {
        self.cmd(&["CLUSTER", "MYID"]).text()
    }

    /// Assigns it the slots `from..=to`.
    #[track_caller]
    pub fn add_slots(&self, from: u16, to: u16) {
        self.cmd(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]).ok();
    }

    /// Another node of this node's cluster, without slots.
    #[track_caller]
    pub fn join(&self, other: Setup) -> Server {
        let other = other.cluster_without_slots().start();
        self.meet(&other);
        other.wait_cluster_ok();
        other
    }

    /// Joins the two nodes' clusters; returns when each knows the other.
    #[track_caller]
    pub fn meet(&self, other: &Server) {
        let bus = other.cmd(&["CONFIG", "GET", "cluster-port"]).field("cluster-port").text();
        self.cmd(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus]).ok();
        let (ours, theirs) = (self.node_id(), other.node_id());
        wait_until("the nodes to know each other", || {
            self.cmd(&["CLUSTER", "NODES"]).text().contains(&theirs)
                && other.cmd(&["CLUSTER", "NODES"]).text().contains(&ours)
        });
    }

    /// Waits until this node reports the cluster as up.
    #[track_caller]
    pub fn wait_cluster_ok(&self) {
        wait_until("cluster_state:ok", || {
            self.cmd(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
        });
    }

    /// The slot of a key.
    #[track_caller]
    pub fn slot(&self, key: &str) -> u16 {
        u16::try_from(self.cmd(&["CLUSTER", "KEYSLOT", key]).int()).expect("a slot number")
    }

    /// Begins the migration of one slot to `target`: from now on, missing keys are redirected there.
    #[track_caller]
    pub fn begin_slot_move(&self, slot: u16, target: &Server) {
        let slot = slot.to_string();
        target.cmd(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.node_id()]).ok();
        self.cmd(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.node_id()]).ok();
    }

    /// Moves the keys of a slot to `target` with MIGRATE; returns their number.
    #[track_caller]
    pub fn migrate_slot_keys(&self, slot: u16, target: &Server) -> usize {
        let keys = self.cmd(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]).items();
        let port = target.port().to_string();
        for key in &keys {
            let key = key.bytes();
            let call: [&[u8]; 6] =
                [b"MIGRATE", b"127.0.0.1", port.as_bytes(), &key, b"0", b"20000"];
            self.cmd(&call).ok();
        }
        keys.len()
    }

    /// Ends the migration: the slot belongs to `target`, and both nodes know it.
    #[track_caller]
    pub fn end_slot_move(&self, slot: u16, target: &Server) {
        let (slot, owner) = (slot.to_string(), target.node_id());
        for node in [target, self] {
            node.cmd(&["CLUSTER", "SETSLOT", &slot, "NODE", &owner]).ok();
        }
    }
}

/// A cluster of several nodes with the module and evenly distributed slots.
#[derive(Debug)]
pub struct Nodes(Vec<Server>);

impl Nodes {
    /// A cluster of `count` primaries; returns when each sees the cluster as up.
    #[track_caller]
    pub fn start(count: usize) -> Nodes {
        Nodes::with(count, &[])
    }

    /// As [`Nodes::start`], with these settings on every node.
    #[track_caller]
    pub fn with(count: usize, settings: &[&str]) -> Nodes {
        Nodes::of((0..count).map(|_| Server::with(settings)))
    }

    /// As [`Nodes::start`], with one setup per node: `Nodes::of((0..3).map(|_| Server::of("redis-8.2")))`.
    #[track_caller]
    pub fn of(setups: impl IntoIterator<Item = Setup>) -> Nodes {
        let start = |setup: Setup| setup.cluster_without_slots().start();
        let nodes: Vec<Server> = setups.into_iter().map(start).collect();
        let count = nodes.len();
        let slots = |n: usize| u16::try_from(16384 * n / count).expect("a slot number");
        for (n, node) in nodes.iter().enumerate() {
            node.add_slots(slots(n), slots(n + 1) - 1);
        }
        // Two nodes with the same epoch would dispute their slots for a while.
        for (n, node) in nodes.iter().enumerate() {
            node.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]).ok();
        }
        for node in &nodes[1..] {
            nodes[0].meet(node);
        }
        let nodes = Nodes(nodes);
        nodes.wait_whole();
        nodes
    }

    /// The nodes, in the order they were started.
    pub fn all(&self) -> &[Server] {
        &self.0
    }

    /// The nodes as single servers.
    pub fn into_servers(self) -> Vec<Server> {
        self.0
    }

    /// One node, to kill or restart it.
    pub fn node(&mut self, n: usize) -> &mut Server {
        &mut self.0[n]
    }

    /// The URL for clients: `redis-cluster://127.0.0.1:p,127.0.0.1:p`.
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.0.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Adds a primary without slots.
    #[track_caller]
    pub fn add_empty(&mut self, setup: Setup) {
        let node = self.0[0].join(setup);
        self.0.push(node);
        self.wait_whole();
    }

    /// Adds a replica of a node; returns its number when it is in sync.
    #[track_caller]
    pub fn add_replica(&mut self, of: usize) -> usize {
        self.add_replica_as(of, Server::with(&[]).binary(self.0[of].binary()))
    }

    /// As [`Nodes::add_replica`], with this setup.
    #[track_caller]
    pub fn add_replica_as(&mut self, of: usize, setup: Setup) -> usize {
        let replica = setup.cluster_without_slots().start();
        self.0[0].meet(&replica);
        let primary = self.0[of].node_id();
        wait_until("the replica to know its primary", || {
            replica.cmd(&["CLUSTER", "NODES"]).text().contains(&primary)
        });
        replica.cmd(&["CLUSTER", "REPLICATE", &primary]).ok();
        replica.wait_linked();
        self.0.push(replica);
        self.0.len() - 1
    }

    /// Waits until every node knows every other and sees all slots served.
    #[track_caller]
    pub fn wait_whole(&self) {
        let ids: Vec<String> = self.0.iter().map(Server::node_id).collect();
        for node in &self.0 {
            wait_until("each node to know every other", || {
                let known = node.cmd(&["CLUSTER", "NODES"]).text();
                ids.iter().all(|id| known.contains(id)) && !known.contains("handshake")
            });
            node.wait_cluster_ok();
        }
    }

    /// The number of the node that serves a slot; `None` while the nodes disagree.
    pub fn owner_of(&self, slot: u16) -> Option<usize> {
        let owners = self.0.iter().map(|node| node.slot_owner(slot));
        let owners: Vec<Option<u16>> = owners.collect();
        let first = owners.first().copied().flatten()?;
        if owners.iter().any(|&owner| owner != Some(first)) {
            return None;
        }
        self.0.iter().position(|node| node.port() == first)
    }

    /// Moves a slot with its keys between two nodes, as an operator does, and tells every node; returns when all
    /// agree.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (&self.0[from], &self.0[to]);
        source.begin_slot_move(slot, target);
        // Clients that are redirected after a key has moved create keys on the target meanwhile.
        while source.migrate_slot_keys(slot, target) > 0 {}
        source.end_slot_move(slot, target);
        let owner = target.node_id();
        for node in &self.0 {
            if node.cmd(&["ROLE"]).items()[0].text() == "master" {
                node.cmd(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &owner]).ok();
            }
        }
        // Two nodes that took over slots at the same time may have the same epoch. Until that is resolved, an old
        // claim can win over a new one, and then no node has the slot.
        self.wait_settled();
    }

    /// Waits until all nodes agree on the slots of every node, with distinct epochs.
    #[track_caller]
    pub fn wait_settled(&self) {
        wait_until("the nodes to agree about slots and epochs", || self.is_settled());
    }

    /// Whether all nodes agree on the slots of every node, with distinct epochs.
    fn is_settled(&self) -> bool {
        let mut views = self.0.iter().map(Server::primaries);
        let first = views.next().unwrap_or_default();
        let mut epochs: Vec<_> = first.iter().map(|(_, epoch, _)| epoch).collect();
        epochs.sort_unstable();
        epochs.dedup();
        epochs.len() == first.len() && views.all(|view| view == first)
    }

    /// Promotes a replica of a running primary; returns when it has taken over. Retries: a replica whose link to its
    /// primary is down refuses, and an attempt without a majority ends silently after five seconds.
    #[track_caller]
    pub fn fail_over(&self, replica: usize) {
        let replica = &self.0[replica];
        let mut asked: Option<Instant> = None;
        wait_until("the failover", || {
            if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(6)) {
                let answer = replica.cmd(&["CLUSTER", "FAILOVER"]);
                asked = matches!(answer, Value::Okay).then(Instant::now);
            }
            replica.cmd(&["ROLE"]).items()[0].text() == "master"
        });
    }

    /// Pub/sub messages that all nodes have sent over the cluster bus: to all nodes, and within a shard.
    pub fn bus_messages(&self) -> (i64, i64) {
        let of_each = self.0.iter().map(Server::bus_messages);
        of_each.fold((0, 0), |sum, sent| (sum.0 + sent.0, sum.1 + sent.1))
    }

    /// Whether the servers count these messages. Valkey 8.0 does not: it sends them with a short header.
    pub fn counts_bus_messages(&self) -> bool {
        let node = &self.0[0];
        let before = node.bus_messages();
        node.cmd(&["PUBLISH", "probe", ""]).int();
        node.bus_messages() != before
    }

    /// [`Server::left_over_check`] of every node.
    #[track_caller]
    pub fn left_over_check(&self) {
        self.0.iter().for_each(Server::left_over_check);
    }
}

impl Server {
    /// Pub/sub messages that it has sent over the cluster bus: to all nodes, and within its shard.
    pub fn bus_messages(&self) -> (i64, i64) {
        let info = self.cmd(&["CLUSTER", "INFO"]).text();
        let sent = |kind: &str| {
            let name = format!("cluster_stats_messages_{kind}_sent:");
            let line = info.lines().find_map(|line| line.strip_prefix(&name));
            line.map_or(0, |count| count.trim().parse().expect("a count"))
        };
        (sent("publish"), sent("publishshard"))
    }

    /// Id, epoch and slots of each primary, as this node sees them.
    fn primaries(&self) -> Vec<(String, String, Vec<String>)> {
        let known = self.cmd(&["CLUSTER", "NODES"]).text();
        let mut primaries: Vec<_> = known
            .lines()
            .map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
            .filter(|node| node[2].contains("master"))
            .map(|node| (node[0].clone(), node[6].clone(), node[8..].to_vec()))
            .collect();
        primaries.sort_unstable();
        primaries
    }

    /// The port of the node that serves a slot, as this node sees it.
    fn slot_owner(&self, slot: u16) -> Option<u16> {
        let ranges = self.cmd(&["CLUSTER", "SLOTS"]).items();
        ranges.iter().map(Reply::items).find_map(|range| {
            let slots = range[0].int()..=range[1].int();
            let port = range[2].items()[1].int();
            slots.contains(&i64::from(slot)).then(|| u16::try_from(port).ok())?
        })
    }
}
