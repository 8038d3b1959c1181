//! The servers and Sentinels in the namespaces of a set-up. The program talks to them over unix sockets, which no cut
//! reaches.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use dlock_testing::{Binary, Guarded, Profile, WallClock, frame_len, module_path};
use tempfile::TempDir;

use super::{
    Plan,
    net::{HOSTS, Net, Node, World},
};

/// The name of the primary in Sentinel.
pub const NAME: &str = "locks";

pub const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// How long an answer may take. A process that is stopped gives none.
const ANSWER: Duration = Duration::from_millis(300);

/// The periods of the Sentinels, shorter than in production. They hold a stopped Sentinel back (`TILT`) for a second
/// instead of thirty.
const PERIODS: &str = "SENTINEL DEBUG INFO-PERIOD 200 PING-PERIOD 300 PUBLISH-PERIOD 500 ASK-PERIOD 100 \
    TILT-PERIOD 1000 SLAVE-RECONF-TIMEOUT 1000";

const CLUSTER: &str = "cluster-enabled yes\ncluster-node-timeout 1500\ncluster-require-full-coverage no\n\
    cluster-allow-replica-migration no\n";

/// A server or Sentinel.
#[derive(Debug)]
pub struct Member {
    node: Node,
    /// A file system of its own, if it is a server.
    folder: PathBuf,
    pub process: Guarded,
    pub clock: WallClock,
}

impl Member {
    /// The reply to one command: the text of a bulk string, or the line of another reply. `None`: there was none.
    pub fn ask(&self, line: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.folder.join("s")).ok()?;
        stream.set_read_timeout(Some(ANSWER)).ok()?;
        stream.set_write_timeout(Some(ANSWER)).ok()?;
        write!(stream, "{line}\r\n").ok()?;
        let (mut reply, mut part) = (Vec::new(), [0; 4096]);
        while frame_len(&reply).is_none() {
            let count = stream.read(&mut part).ok().filter(|&count| count > 0)?;
            reply.extend_from_slice(&part[..count]);
        }
        let reply = String::from_utf8(reply).ok()?;
        let (head, rest) = reply.split_once("\r\n")?;
        Some(if head.starts_with('$') { rest.to_owned() } else { head.to_owned() })
    }

    /// Leaves no space on its file system.
    pub fn fill_disk(&self) {
        let mut file = File::create(self.fill()).expect("a file in a folder of ours");
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    /// Ends [`Member::fill_disk`] and a step of its wall clock.
    pub fn mend(&self) {
        // There is none, as a rule.
        let _ = fs::remove_file(self.fill());
        self.clock.shift_nanos(0);
    }

    fn fill(&self) -> PathBuf {
        self.folder.join("fill")
    }
}

/// The servers and Sentinels. Dropping it kills them.
#[derive(Debug)]
pub struct Group {
    pub world: World,
    pub servers: Vec<Member>,
    pub sentinels: Vec<Member>,
    program: String,
    _dir: TempDir,
}

impl Group {
    /// Starts them; the first server is the primary. Their logs are in `logs`.
    pub fn start(net: &Net, plan: &Plan, setup: usize, logs: &Path) -> Group {
        let program = Binary::default().path().to_owned();
        let dir = tempfile::Builder::new().prefix("dlock-").tempdir().expect("a temporary folder");
        let start = |node: Node| {
            let folder = dir.path().join(node.name());
            fs::create_dir(&folder).expect("a folder");
            let settings = if let Node::Sentinel(_) = node {
                sentinel_settings(net)
            } else {
                mount(&folder);
                server_settings(net, plan, setup, node)
            };
            let (home, log) = (folder.display(), logs.join(format!("{}.txt", node.name())));
            let lines = format!(
                "bind 0.0.0.0\nprotected-mode no\ndir {home}\nunixsocket {home}/s\nlogfile {}\n{settings}",
                log.display()
            );
            fs::write(folder.join("conf"), lines).expect("a file in a folder of ours");
            launch(net, &program, node, folder)
        };
        let world = plan.world;
        let of = |is_wanted: fn(&Node) -> bool| world.nodes().into_iter().filter(is_wanted);
        let servers = of(|node| matches!(node, Node::Server(_))).map(start).collect();
        let sentinels: Vec<_> = of(|node| matches!(node, Node::Sentinel(_))).map(start).collect();
        for sentinel in &sentinels {
            super::wait_for("a Sentinel", || sentinel.ask(PERIODS).is_some());
        }
        let group = Group { world, servers, sentinels, program, _dir: dir };
        if world == World::Cluster {
            group.form_cluster(net);
        }
        group
    }

    /// The primary of each group, if the set-up is as it was at first: everything answers, all replicas are online, and
    /// all who decide on primaries agree. None has a quorum lock, so that its first server counts as one.
    pub fn whole(&self) -> Option<Vec<usize>> {
        let primaries = match self.world {
            World::Sentinel => vec![self.named()?],
            World::Cluster => self.agreed()?,
            World::Quorum | World::Duel(_) => vec![0],
        };
        let leads = |&primary: &usize| {
            self.servers[primary].ask("INFO replication").is_some_and(|info| {
                info.contains("role:master") && info.matches("state=online").count() == HOSTS - 1
            })
        };
        let is_whole = (self.world == World::Quorum || primaries.iter().all(leads))
            && self.servers.iter().all(|server| server.ask("PING").is_some());
        is_whole.then_some(primaries)
    }

    /// The server that all Sentinels name, if they know all others and see no fault.
    fn named(&self) -> Option<usize> {
        let mut named = None;
        for sentinel in &self.sentinels {
            let info = sentinel.ask("INFO sentinel")?;
            let line = info.lines().find(|line| line.starts_with("master0:"))?;
            let is_calm = info.contains("sentinel_tilt:0")
                && line.contains(",status=ok,")
                && line.trim_end().ends_with(&format!(",slaves={},sentinels={HOSTS}", HOSTS - 1));
            let (_, address) = line.split_once(",address=10.")?;
            let server = address.split('.').nth(1)?.parse::<usize>().ok()?.checked_sub(1)?;
            if !is_calm || named.is_some_and(|other| other != server) {
                return None;
            }
            named = Some(server);
        }
        named
    }

    /// Starts the servers that were killed again, with what is in their folders.
    pub fn revive(&mut self, net: &Net) {
        for server in &mut self.servers {
            if server.process.ended().is_some() {
                *server = launch(net, &self.program, server.node, server.folder.clone());
            }
        }
    }

    pub fn member(&mut self, node: Node) -> &mut Member {
        match node {
            Node::Sentinel(n) => &mut self.sentinels[n],
            Node::Server(n) | Node::Client(n) => &mut self.servers[n],
        }
    }

    /// Asks for a failover without a fault. Sentinel chooses the replica by itself.
    pub fn order_failover(&self, replica: usize) {
        match self.world {
            World::Cluster => self.servers[replica].ask("CLUSTER FAILOVER"),
            _ => self.sentinels[replica].ask(&format!("SENTINEL FAILOVER {NAME}")),
        };
    }

    /// Promotes a replica, while its primary goes on.
    pub fn promote(&self, replica: usize) {
        let cluster = self.world == World::Cluster;
        let line = if cluster { "CLUSTER FAILOVER TAKEOVER" } else { "REPLICAOF NO ONE" };
        self.servers[replica].ask(line);
    }

    /// Makes a server a replica of another one, by hand.
    pub fn follow(&self, net: &Net, server: usize, primary: usize) {
        let address = net.address(Node::Server(primary));
        self.servers[server].ask(&format!("REPLICAOF {address} {SERVER_PORT}"));
    }
}

/// The URL for a client. Those of a quorum lock have one URL for each server, separated by spaces.
pub fn url(net: &Net, world: World, client: usize) -> String {
    let servers =
        (0..world.servers()).map(|n| format!("{}:{SERVER_PORT}", net.address(Node::Server(n))));
    let servers: Vec<_> = servers.collect();
    let sentinels =
        (0..HOSTS).map(|n| format!("{}:{SENTINEL_PORT}", net.address(Node::Sentinel(n))));
    match world {
        World::Sentinel => {
            format!("redis-sentinel://{}/{NAME}", sentinels.collect::<Vec<_>>().join(","))
        }
        World::Cluster => format!("redis-cluster://{}", servers.join(",")),
        World::Quorum => format!("redis://{}", servers.join(" redis://")),
        World::Duel(_) => format!("redis://{}", servers[client % 2]),
    }
}

/// A small file system, in the program's own namespace of mounts.
fn mount(folder: &Path) {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", "size=24m", "dlock"]).arg(folder);
    assert!(command.status().is_ok_and(|status| status.success()), "no tmpfs");
}

fn launch(net: &Net, program: &str, node: Node, folder: PathBuf) -> Member {
    let mut command = net.within(node, program);
    command.arg(folder.join("conf")).current_dir(&folder);
    command.args(matches!(node, Node::Sentinel(_)).then_some("--sentinel"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let clock = WallClock::install(&folder, &mut command);
    let process = Guarded::spawn(command).expect("the server binary runs");
    Member { node, folder, process, clock }
}

fn sentinel_settings(net: &Net) -> String {
    let primary = net.address(Node::Server(0));
    format!(
        "port {SENTINEL_PORT}\n\
        sentinel monitor {NAME} {primary} {SERVER_PORT} 2\n\
        sentinel down-after-milliseconds {NAME} 500\n\
        sentinel failover-timeout {NAME} 1000\n"
    )
}

fn server_settings(net: &Net, plan: &Plan, setup: usize, node: Node) -> String {
    let primary = net.address(Node::Server(0));
    // Every second set-up loses what it has in memory when a server is killed.
    let keeps_data = setup.is_multiple_of(2) || plan.replicas as usize == HOSTS - 1;
    let appendonly = if keeps_data { "yes" } else { "no" };
    let role = match plan.world {
        World::Sentinel | World::Duel(_) if node != Node::Server(0) => {
            format!("replicaof {primary} {SERVER_PORT}")
        }
        World::Cluster => format!("{CLUSTER}cluster-announce-ip {}", net.address(node)),
        _ => String::new(),
    };
    let module = module_path(Profile::Dev).display();
    let Plan { replicas, quarantine_ms, .. } = plan;
    format!(
        "port {SERVER_PORT}\n\
        save \"\"\n\
        appendonly {appendonly}\n\
        appendfsync everysec\n\
        auto-aof-rewrite-min-size 2mb\n\
        repl-diskless-sync-delay 0\n\
        repl-ping-replica-period 1\n\
        repl-timeout 3\n\
        min-replicas-to-write {replicas}\n\
        min-replicas-max-lag 2\n\
        loadmodule {module}\n\
        dlock.restart-quarantine-ms {quarantine_ms}\n\
        {role}\n"
    )
}
