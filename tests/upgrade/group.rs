//! Groups of servers, and the steps that an operator takes with them (docs/upgrade.md).

use std::{
    path::Path,
    time::{Duration, Instant},
};

use dlock_testing::{
    Binary, Client, Heard, Nodes, Reply as _, Sentinels, Server, Setup, redis::Value, wait_until,
};

use crate::caller::Addresses;

/// Longest time for one answer of a server.
const ANSWER: Duration = Duration::from_secs(5);

/// Requests are remembered for longer than a run, so that no memory ends between two looks at it.
const SETTINGS: [&str; 4] = ["dlock.request-memory-ms", "3600000", "repl-backlog-size", "64mb"];

/// A restart from an RDB file, after which a replica resynchronizes in part.
pub const RDB: [&str; 2] = ["save", "3600 1"];
/// A restart from an append-only file, after which a replica resynchronizes in full.
pub const AOF: [&str; 2] = ["appendonly", "yes"];

/// From an RDB file, with the settings of docs/failover.md.
pub const PROFILE: [&str; 8] = [
    "save",
    "3600 1",
    "min-replicas-to-write",
    "1",
    "min-replicas-max-lag",
    "5",
    "dlock.restart-quarantine-ms",
    "2000",
];

/// Primaries with replicas.
pub struct Group {
    pub servers: Vec<Server>,
    way: FailoverBy,
}

/// Who makes a replica the primary.
enum FailoverBy {
    /// The operator, with FAILOVER.
    Command,
    Sentinel(Sentinels),
    Cluster,
}

impl Group {
    /// A primary and a replica.
    pub fn pair(binary: &Binary, module: &Path, persistence: &[&str]) -> Group {
        let primary = setup(binary, module, persistence).start();
        let replica = setup(binary, module, persistence).replica_of(&primary).start();
        Group { servers: vec![primary, replica], way: FailoverBy::Command }
    }

    /// A primary and two replicas under three sentinels.
    pub fn sentinel(binary: &Binary, module: &Path, persistence: &[&str]) -> Group {
        let primary = setup(binary, module, persistence).start();
        let replica = || setup(binary, module, persistence).replica_of(&primary).start();
        let servers = [replica(), replica()];
        let sentinels = Sentinels::start(3, &primary, servers.len());
        let servers = std::iter::once(primary).chain(servers).collect();
        Group { servers, way: FailoverBy::Sentinel(sentinels) }
    }

    /// Three primaries with a replica each.
    pub fn cluster(binary: &Binary, module: &Path, persistence: &[&str]) -> Group {
        let mut nodes = Nodes::of((0..3).map(|_| setup(binary, module, persistence)));
        for primary in 0..3 {
            nodes.add_replica_as(primary, setup(binary, module, persistence));
        }
        nodes.wait_whole();
        Group { servers: nodes.into_servers(), way: FailoverBy::Cluster }
    }

    pub fn addresses(&self) -> Addresses {
        Addresses::of(&self.servers)
    }

    /// The primaries and their replicas, by number.
    pub fn shards(&self) -> Vec<(usize, Vec<usize>)> {
        let roles: Vec<_> = self.servers.iter().map(|server| server.info("replication")).collect();
        let is_primary = |&n: &usize| roles[n]["role"] == "master";
        let follows = |n: usize, primary: usize| {
            let port = roles[n].get("master_port");
            port.is_some_and(|port| *port == self.servers[primary].port().to_string())
        };
        let all = 0..self.servers.len();
        let replicas_of = |primary| all.clone().filter(|&n| follows(n, primary)).collect();
        all.clone().filter(is_primary).map(|n| (n, replicas_of(n))).collect()
    }

    /// Restarts a replica with another module; returns when it follows its primary. Returns whether it resynchronized
    /// in part.
    pub fn restart_replica(&mut self, n: usize, module: &Path) -> bool {
        let server = &mut self.servers[n];
        // After a full synchronization a server writes its append-only file from the start, and refuses SHUTDOWN.
        wait_until("the append-only file", || {
            let info = server.info("persistence");
            info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0"
        });
        server.shutdown(&[]);
        server.replace_module(module);
        let logged = server.log().len();
        server.start_again();
        assert!(!is_primary(server), "a replica came back as a primary");
        self.wait_follows(n);
        self.wait_open();
        let server = &self.servers[n];
        let loaded = server.ask("MODULE LIST").items();
        let ours = loaded.iter().find(|row| row.field("name").text() == "dlock");
        let loaded = ours.expect("the module").field("path").text();
        assert_eq!(loaded, module.display().to_string(), "the module of the server");
        server.log()[logged..].contains("accepted a Partial Resynchronization")
    }

    /// Makes a replica of each primary the primary; loses nothing, as long as all servers are up.
    pub fn fail_over(&self) {
        for (primary, replicas) in self.shards() {
            match &self.way {
                FailoverBy::Command => self.fail_over_by_command(primary, replicas[0]),
                FailoverBy::Sentinel(sentinels) => self.fail_over_by_sentinel(sentinels, primary),
                FailoverBy::Cluster => self.fail_over_in_cluster(replicas[0]),
            }
            self.wait_follows(primary);
        }
        // Sentinels make the other replicas follow, too.
        wait_until("each replica to follow a primary", || {
            let shards = self.shards();
            shards.iter().map(|(_, replicas)| 1 + replicas.len()).sum::<usize>()
                == self.servers.len()
        });
        for (_, replicas) in self.shards() {
            for replica in replicas {
                self.wait_follows(replica);
            }
        }
        self.wait_open();
    }

    /// Waits until no primary is in quarantine, nor will be: one begins when a replica comes online.
    fn wait_open(&self) {
        for (primary, replicas) in self.shards() {
            let server = &self.servers[primary];
            wait_until("the end of the quarantine", || {
                let info = server.ask("INFO replication").text();
                info.matches("state=online").count() == replicas.len()
                    && server.info_number("dlock", "quarantine_left_ms") == 0
            });
        }
    }

    /// FAILOVER stops writes and waits for the replica. CONFIG REWRITE: else a restart would bring the old roles back.
    fn fail_over_by_command(&self, primary: usize, replica: usize) {
        let (old, new) = (&self.servers[primary], &self.servers[replica]);
        wait_until("FAILOVER to begin", || old.ask("FAILOVER") == Value::Okay);
        wait_until("the failover", || is_primary(new) && !is_primary(old));
        self.wait_follows(primary);
        for server in [old, new] {
            server.ask("CONFIG REWRITE").ok();
        }
    }

    /// Sentinel does not stop the old primary, so the operator does: no grant is lost, and no server grants beside the
    /// new primary.
    fn fail_over_by_sentinel(&self, sentinels: &Sentinels, primary: usize) {
        let old = &self.servers[primary];
        sentinels.wait_fit();
        let before = sentinels.primary_port();
        old.ask("CLIENT PAUSE 60000 WRITE").ok();
        let offset = old.info_number("replication", "master_repl_offset");
        let mut operator = old.client();
        wait_until("the replicas to catch up", || {
            let replicas = self.servers.iter().enumerate().filter(|(n, _)| *n != primary);
            replicas
                .map(|(_, server)| server)
                .all(|server| server.info_number("replication", "slave_repl_offset") >= offset)
        });
        sentinels.failover();
        sentinels.wait_primary_other_than(before);
        let port = sentinels.primary_port().expect("all sentinels agree").to_string();
        // Sentinel sends this, too, but behind what the pause keeps waiting.
        operator.cmd(&["REPLICAOF", "127.0.0.1", &port]).ok();
        operator.cmd(&["CLIENT", "UNPAUSE"]).ok();
        // Sentinel sends it with a change of roles, but finds nothing to change.
        operator.cmd(&["CONFIG", "REWRITE"]).ok();
        sentinels.wait_replica(old);
        self.servers.iter().for_each(Server::forget_connection);
    }

    /// CLUSTER FAILOVER stops writes and waits for the replica. An attempt without a majority ends silently.
    fn fail_over_in_cluster(&self, replica: usize) {
        let new = &self.servers[replica];
        let mut asked: Option<Instant> = None;
        wait_until("the failover", || {
            if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(6)) {
                asked = (new.ask("CLUSTER FAILOVER") == Value::Okay).then(Instant::now);
            }
            is_primary(new)
        });
    }

    /// Waits until a server is a replica that is in sync. Sentinels cut connections meanwhile.
    fn wait_follows(&self, n: usize) {
        let server = &self.servers[n];
        wait_until("the replica to follow", || {
            server.forget_connection();
            let info = probe(server, &["INFO", "replication"]).map(|info| info.text());
            info.is_some_and(|info| {
                info.contains("role:slave") && info.contains("master_link_status:up")
            })
        });
        server.forget_connection();
    }
}

/// A server of a group.
fn setup(binary: &Binary, module: &Path, persistence: &[&str]) -> Setup {
    Server::with(&SETTINGS).and(persistence).binary(binary).module(module)
}

fn is_primary(server: &Server) -> bool {
    let role = probe(server, &["ROLE"]);
    role.is_some_and(|role| role.items()[0].text() == "master")
}

/// One reply; `None` while connections are cut.
fn probe(server: &Server, words: &[&str]) -> Option<Value> {
    let mut client = Client::connect(&server.dir().join("s"), ANSWER).ok()?;
    if !client.try_send(words) {
        return None;
    }
    match client.hear(ANSWER) {
        Heard::Reply(value) => Some(value),
        Heard::Nothing | Heard::Closed => None,
    }
}
