//! Three servers and three Sentinels in the namespaces of a set-up. The program talks to them over unix sockets, which
//! no cut reaches.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use dlock_testing::{Binary, Guarded, Profile, frame_len, module_path};
use tempfile::TempDir;

use super::{
    Plan,
    net::{HOSTS, Net, Node},
};

/// The name of the primary in Sentinel.
pub const NAME: &str = "locks";

const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// How long an answer may take. A process that is stopped gives none.
const ANSWER: Duration = Duration::from_millis(300);

/// The periods of the Sentinels, shorter than in production. They hold a stopped Sentinel back (`TILT`) for a second
/// instead of thirty.
const PERIODS: &str = "SENTINEL DEBUG INFO-PERIOD 200 PING-PERIOD 300 PUBLISH-PERIOD 500 ASK-PERIOD 100 \
    TILT-PERIOD 1000 SLAVE-RECONF-TIMEOUT 1000";

/// A server or Sentinel.
#[derive(Debug)]
pub struct Member {
    node: Node,
    socket: PathBuf,
    pub process: Guarded,
}

impl Member {
    /// The reply to one command: the text of a bulk string, or the line of another reply. `None`: there was none.
    pub fn ask(&self, line: &str) -> Option<String> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
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
}

/// The servers and Sentinels. Dropping it kills them.
#[derive(Debug)]
pub struct Group {
    pub servers: Vec<Member>,
    pub sentinels: Vec<Member>,
    program: String,
    dir: TempDir,
}

impl Group {
    /// Starts them; the first server is the primary. Their logs are in `logs`.
    pub fn start(net: &Net, plan: &Plan, setup: usize, logs: &Path) -> Group {
        let program = Binary::default().path().to_owned();
        let dir = tempfile::Builder::new().prefix("dlock-").tempdir().expect("a temporary folder");
        let nodes = |of: fn(usize) -> Node| (0..HOSTS).map(of);
        let start = |node: Node| {
            let folder = dir.path().join(node.name());
            fs::create_dir(&folder).expect("a folder");
            let settings = match node {
                Node::Sentinel(_) => sentinel_settings(net),
                _ => server_settings(net, plan, setup, node),
            };
            let (home, log) = (folder.display(), logs.join(format!("{}.txt", node.name())));
            let lines = format!(
                "bind 0.0.0.0\nprotected-mode no\ndir {home}\nunixsocket {home}/s\nlogfile {}\n{settings}",
                log.display()
            );
            fs::write(folder.join("conf"), lines).expect("a file in a folder of ours");
            let process = launch(net, &program, node, &folder);
            Member { node, socket: folder.join("s"), process }
        };
        let servers = nodes(Node::Server).map(start).collect();
        let sentinels: Vec<Member> = nodes(Node::Sentinel).map(start).collect();
        for sentinel in &sentinels {
            super::wait_for("a Sentinel", || sentinel.ask(PERIODS).is_some());
        }
        Group { servers, sentinels, program, dir }
    }

    /// The server that all Sentinels name, if it has two replicas online and everything answers.
    pub fn whole(&self) -> Option<usize> {
        let primary = self.named()?;
        let info = self.servers[primary].ask("INFO replication")?;
        let is_whole = info.contains("role:master")
            && info.matches("state=online").count() == HOSTS - 1
            && self.servers.iter().all(|server| server.ask("PING").is_some());
        is_whole.then_some(primary)
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
                let folder = self.dir.path().join(server.node.name());
                server.process = launch(net, &self.program, server.node, &folder);
            }
        }
    }

    /// Makes a server a replica of another one, by hand.
    pub fn follow(&self, net: &Net, server: usize, primary: usize) {
        let address = net.address(Node::Server(primary));
        self.servers[server].ask(&format!("REPLICAOF {address} {SERVER_PORT}"));
    }
}

/// The URL for clients.
pub fn url(net: &Net) -> String {
    let addresses =
        (0..HOSTS).map(|n| format!("{}:{SENTINEL_PORT}", net.address(Node::Sentinel(n))));
    format!("redis-sentinel://{}/{NAME}", addresses.collect::<Vec<_>>().join(","))
}

fn launch(net: &Net, program: &str, node: Node, folder: &Path) -> Guarded {
    let mut command = net.within(node, program);
    command.arg(folder.join("conf")).current_dir(folder);
    command.args(matches!(node, Node::Sentinel(_)).then_some("--sentinel"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Guarded::spawn(command).expect("the server binary runs")
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
    let is_primary = node == Node::Server(0);
    // Every second set-up loses what it has in memory when a server is killed.
    let appendonly = if setup.is_multiple_of(2) { "yes" } else { "no" };
    let replicaof =
        if is_primary { String::new() } else { format!("replicaof {primary} {SERVER_PORT}") };
    let module = module_path(Profile::Checked).display();
    let Plan { replicas, quarantine_ms, .. } = plan;
    format!(
        "port {SERVER_PORT}\n\
        save \"\"\n\
        appendonly {appendonly}\n\
        appendfsync everysec\n\
        repl-diskless-sync-delay 0\n\
        repl-ping-replica-period 1\n\
        repl-timeout 3\n\
        min-replicas-to-write {replicas}\n\
        min-replicas-max-lag 2\n\
        loadmodule {module}\n\
        dlock.restart-quarantine-ms {quarantine_ms}\n\
        {replicaof}\n"
    )
}
