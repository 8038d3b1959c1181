//! A real server for one test.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;
use tempfile::TempDir;

use super::{
    client::{Blocked, Client, Heard, Subscription},
    family::Family,
    kind,
    module::{self, Profile},
    process::{self, Guarded},
    value::Reply as _,
    wait::{LIMIT, wait_until},
    wallclock::WallClock,
};

/// In the log, each of these is a failure of the test, whatever else it found.
const CRASH_MARKS: [&str; 5] =
    ["BUG REPORT START", "ASSERTION FAILED", "crashed by signal", "panicked", "internal error"];

/// Fields of INFO dlock that are 0 when nobody holds or waits for anything.
const LEFT_OVER_FIELDS: [&str; 10] = [
    "held_locks",
    "keys_entered",
    "leased_permits",
    "waiters_blocked",
    "waiters_queued",
    "armed_deadlines",
    "parked_clients",
    "connections_watched",
    "grants_in_flight",
    "notices_pending",
];

/// Lines of the log that a failed test shows; of a crash report, the first ones.
const LOG_LINES: usize = 150;

/// How a server is to be started.
#[derive(Debug)]
#[must_use = "call start()"]
pub struct Setup {
    settings: Vec<(String, String)>,
    module: Option<Profile>,
    module_args: Vec<String>,
    wallclock: bool,
    cluster: Cluster,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cluster {
    No,
    AllSlots,
    NoSlots,
}

impl Setup {
    /// Adds settings: name, value, name, value, … Later ones win.
    pub fn and(mut self, settings: &[&str]) -> Setup {
        assert!(settings.len().is_multiple_of(2), "settings come in pairs: {settings:?}");
        let pairs = settings.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned()));
        self.settings.extend(pairs);
        self
    }

    /// A replica of `primary`; [`Setup::start`] returns when it is in sync.
    pub fn replica_of(self, primary: &Server) -> Setup {
        let primary = format!("127.0.0.1 {}", primary.port());
        self.and(&["replicaof", &primary])
    }

    /// A cluster of this one node, with all slots.
    pub fn cluster(mut self) -> Setup {
        self.cluster = Cluster::AllSlots;
        self
    }

    /// A cluster node without slots, to be joined with others: see [`Server::meet`].
    pub fn cluster_without_slots(mut self) -> Setup {
        self.cluster = Cluster::NoSlots;
        self
    }

    /// Its connections send DLOCK commands as those of this family.
    pub fn speaking(mut self, family: Family) -> Setup {
        self.family = family;
        self
    }

    /// With a wall clock that [`Server::shift_wall_clock`] moves.
    pub fn preload_wallclock(mut self) -> Setup {
        self.wallclock = true;
        self
    }

    /// Arguments after the module's path.
    pub fn module_args(mut self, args: &[&str]) -> Setup {
        self.module_args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// With the module as users load it, not the one that checks its invariants.
    pub fn release(mut self) -> Setup {
        self.module = Some(Profile::Release);
        self
    }

    /// A plain server.
    pub fn without_module(mut self) -> Setup {
        self.module = None;
        self
    }

    /// Starts it; returns when it serves (and is in sync, if a replica). Fails the test, showing the log, if it does not.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(log) => panic!("the server does not start:\n{log}"),
        }
    }

    /// As [`Setup::start`]; a server that gives up gives its log, for tests of bad settings.
    pub fn try_start(self) -> Result<Server, String> {
        process::raise_file_limit();
        loop {
            let mut server = Server::prepare(&self);
            match server.launch() {
                Ok(()) => {}
                // Somebody else took the port between our look and the server's.
                Err(log) if log.contains("Address already in use") => continue,
                Err(log) => return Err(log),
            }
            if self.cluster == Cluster::AllSlots {
                server.add_slots(0, 16383);
                server.wait_cluster_ok();
            }
            if self.settings.iter().any(|(name, _)| name == "replicaof") {
                wait_until("the replica's first sync", || {
                    server.info("replication").get("master_link_status").is_some_and(|s| s == "up")
                });
            }
            return Ok(server);
        }
    }
}

/// A running server. Dropping it kills it; if it had died by itself or its log speaks of a crash, the test fails.
#[derive(Debug)]
pub struct Server {
    dir: TempDir,
    socket: Arc<Path>,
    port: u16,
    /// They keep its ports reserved.
    _ports: Vec<Reservation>,
    child: Mutex<Option<Guarded>>,
    /// The connection behind [`Server::cmd`] and everything that looks at the server.
    admin: Mutex<Option<Client>>,
    wallclock: Option<WallClock>,
    preload: bool,
    has_module: bool,
    family: Family,
    tolerated: Mutex<Vec<String>>,
}

impl Server {
    /// A server with the module and nothing special.
    #[track_caller]
    pub fn start() -> Server {
        Server::with(&[]).start()
    }

    /// A setup with the module and these settings: name, value, name, value, …
    pub fn with(settings: &[&str]) -> Setup {
        let setup = Setup {
            settings: Vec::new(),
            module: Some(Profile::Checked),
            module_args: Vec::new(),
            wallclock: false,
            cluster: Cluster::No,
            family: Family::default(),
        };
        setup.and(settings)
    }

    // Connections

    /// Its TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The family that its connections speak.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The folder it works in: RDB, AOF, log, configuration.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Path of its configuration file (as CONFIG REWRITE changes it).
    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("redis.conf")
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child().as_ref().expect("the server runs").id()
    }

    /// A new connection: the harness' own, which shows everything.
    #[track_caller]
    pub fn client(&self) -> Client {
        self.try_client().unwrap_or_else(|error| panic!("{error}\n{}", self.log_tail()))
    }

    /// As [`Server::client`], for times in which somebody may cut connections.
    pub(super) fn try_client(&self) -> std::io::Result<Client> {
        Client::connect(&self.socket, LIMIT).map(|client| client.speaking(self.family))
    }

    /// A new connection that speaks RESP3.
    #[track_caller]
    pub fn client3(&self) -> Client {
        self.client().resp3()
    }

    /// A new connection of redis-rs, over the unix socket.
    #[track_caller]
    pub fn conn(&self) -> redis::Connection {
        self.open(&format!("unix://{}", self.socket.display()))
    }

    /// A new connection of redis-rs that speaks RESP3.
    #[track_caller]
    pub fn conn3(&self) -> redis::Connection {
        self.open(&format!("unix://{}?protocol=resp3", self.socket.display()))
    }

    /// A new connection of redis-rs, over TCP.
    #[track_caller]
    pub fn conn_tcp(&self) -> redis::Connection {
        self.open(&self.url())
    }

    /// For clients that want a URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// One command over a connection that is kept for this; the reply, an error too.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Value {
        let mut admin = self.admin.lock().unwrap_or_else(|poisoned| {
            // A test thread failed in the middle of a call: what is left unread belongs to that call.
            let mut admin = poisoned.into_inner();
            *admin = None;
            admin
        });
        admin.get_or_insert_with(|| self.client()).cmd(args)
    }

    /// Sends a command on a connection of its own without waiting for anything.
    #[track_caller]
    pub fn post<A: AsRef<[u8]>>(&self, args: &[A]) -> Blocked {
        Blocked::send(self.client(), self.socket.clone(), args)
    }

    /// As [`Server::post`], and returns when the server has blocked the connection: so calls one after the other arrive in that order.
    #[track_caller]
    pub fn block<A: AsRef<[u8]>>(&self, args: &[A]) -> Blocked {
        let mut blocked = self.post(args);
        let start = Instant::now();
        while !self.is_blocked(blocked.id()) {
            if let Heard::Reply(value) = blocked.client().hear(Duration::ZERO) {
                panic!("the call was answered instead of blocked: {}", value.show());
            }
            assert!(start.elapsed() < LIMIT, "the call was not blocked within {LIMIT:?}");
        }
        blocked
    }

    /// A connection that listens to these channels.
    pub fn subscribe(&self, channels: &[&str]) -> Subscription {
        Subscription::open(self.client(), "SUBSCRIBE", channels)
    }

    /// A connection that listens to the channels that match these patterns.
    pub fn psubscribe(&self, patterns: &[&str]) -> Subscription {
        Subscription::open(self.client(), "PSUBSCRIBE", patterns)
    }

    // Looking at it

    /// INFO of one section. The prefix `dlock_` that the server puts before the module's fields is taken off.
    #[track_caller]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        let text = self.cmd(&["INFO", section]).text();
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| {
                (name.strip_prefix("dlock_").unwrap_or(name).to_owned(), value.trim().to_owned())
            })
            .collect()
    }

    /// One number of INFO.
    #[track_caller]
    pub fn info_number(&self, section: &str, field: &str) -> i64 {
        let info = self.info(section);
        let value = info.get(field);
        value
            .and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("INFO {section}: {field} is {value:?} in {info:?}"))
    }

    /// Blocked connections, as the server counts them.
    #[track_caller]
    pub fn blocked_clients(&self) -> i64 {
        self.info_number("clients", "blocked_clients")
    }

    /// Waits until exactly `n` connections are blocked.
    #[track_caller]
    pub fn wait_blocked(&self, n: usize) {
        let wanted = i64::try_from(n).expect("a small number");
        wait_until(&format!("{n} blocked connections"), || self.blocked_clients() == wanted);
    }

    /// Whether this connection is blocked now.
    #[track_caller]
    pub fn is_blocked(&self, client: u64) -> bool {
        let listed = self.cmd(&["CLIENT", "LIST", "ID", &client.to_string()]).text();
        listed.split(' ').any(|word| word.strip_prefix("flags=").is_some_and(|f| f.contains('b')))
    }

    /// DEBUG DIGEST of all databases.
    #[track_caller]
    pub fn digest(&self) -> String {
        self.cmd(&["DEBUG", "DIGEST"]).text()
    }

    /// Keys in all databases together.
    #[track_caller]
    pub fn keys(&self) -> i64 {
        let counts = self.info("keyspace");
        let keys = |db: &String| db.strip_prefix("keys=")?.split(',').next()?.parse::<i64>().ok();
        counts.values().filter_map(keys).sum()
    }

    /// Waits until this primary's whole stream has been applied by `replica`.
    #[track_caller]
    pub fn wait_replica_synced(&self, replica: &Server) {
        wait_until("the replica to catch up", || {
            let (ours, theirs) = (self.info("replication"), replica.info("replication"));
            theirs.get("master_link_status").is_some_and(|status| status == "up")
                && theirs.get("slave_repl_offset") == ours.get("master_repl_offset")
        });
    }

    /// For the end of a test: nothing is held, nobody waits, nothing is armed, parked or watched, no key is left. What is on its way
    /// gets time to arrive; what stays fails the test by name.
    #[track_caller]
    pub fn left_over_check(&self) {
        let start = Instant::now();
        loop {
            let left = self.left_over();
            if left.is_empty() {
                return;
            }
            assert!(start.elapsed() < LIMIT, "left over on the server: {}", left.join(", "));
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// As [`Server::left_over_check`], without giving it time.
    #[track_caller]
    pub fn left_over_check_now(&self) {
        let left = self.left_over();
        assert!(left.is_empty(), "left over on the server: {}", left.join(", "));
    }

    #[track_caller]
    fn left_over(&self) -> Vec<String> {
        let mut counts = vec![("keys", self.keys()), ("blocked_clients", self.blocked_clients())];
        if self.has_module {
            let info = self.info("dlock");
            counts.extend(LEFT_OVER_FIELDS.map(|field| {
                let value = info.get(field).and_then(|value| value.parse().ok());
                (field, value.unwrap_or_else(|| panic!("INFO dlock lacks {field}: {info:?}")))
            }));
        }
        let left = counts.into_iter().filter(|&(_, count)| count != 0);
        left.map(|(name, count)| format!("{name} {count}")).collect()
    }

    // What befalls it

    /// Moves the server's wall clock this many seconds away from the true one. Needs [`Setup::preload_wallclock`].
    #[track_caller]
    pub fn shift_wall_clock(&self, seconds: i64) {
        let clock = self.wallclock.as_ref().expect("started with preload_wallclock()");
        clock.shift_nanos(seconds.checked_mul(1_000_000_000).expect("less than 292 years"));
    }

    /// SIGSTOP: the process hangs, its connections stay. Returns when it has stopped.
    #[track_caller]
    pub fn freeze(&self) {
        self.child().as_mut().expect("the server runs").freeze();
        let stat = format!("/proc/{}/stat", self.pid());
        wait_until("the server to stop", || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        });
    }

    /// SIGCONT: ends [`Server::freeze`].
    #[track_caller]
    pub fn thaw(&self) {
        self.child().as_mut().expect("the server runs").thaw();
    }

    /// SIGKILL, as a power cut would look to it. [`Server::start_again`] brings it back.
    #[track_caller]
    pub fn kill9(&mut self) {
        let mut child = self.child().take().expect("the server runs");
        assert_eq!(child.ended(), None, "the server had died before kill9\n{}", self.log_tail());
        child.kill();
        self.forget_connection();
    }

    /// SHUTDOWN with these words (`NOSAVE`, `SAVE`, …); returns when the process has ended.
    #[track_caller]
    pub fn shutdown(&mut self, words: &[&str]) {
        let mut command = vec!["SHUTDOWN"];
        command.extend(words);
        let mut client = self.client();
        client.send(&command);
        if let Heard::Reply(refusal) = client.hear(LIMIT) {
            panic!("SHUTDOWN was refused: {}", refusal.show());
        }
        let mut child = self.child().take().expect("the server runs");
        wait_until("the server to end", || child.ended().is_some());
        self.forget_connection();
    }

    /// Starts it again with the same configuration, folder and port, after [`Server::kill9`] or [`Server::shutdown`].
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.child().is_none(), "the server still runs");
        if let Err(log) = self.launch() {
            panic!("the server does not start again:\n{log}");
        }
    }

    /// SHUTDOWN and start.
    #[track_caller]
    pub fn restart(&mut self) {
        self.shutdown(&[]);
        self.start_again();
    }

    /// How the server ended without having been told to, if it did.
    pub fn crashed(&self) -> Option<ExitStatus> {
        self.child().as_mut().and_then(Guarded::ended)
    }

    /// For tests that provoke a line which would otherwise count as a crash: lines with this text are overlooked.
    pub fn tolerate_in_log(&self, text: &str) {
        self.tolerated.lock().expect("no test thread fails here").push(text.to_owned());
    }

    /// Everything the server wrote: its log, and what it said before it opened that.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.dir.path().join(name)).unwrap_or_default();
        let mut text = read("output");
        text.extend(read("log"));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The end of [`Server::log`] with a heading; after a crash, the part from a little before it, where the stack is.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let crash =
            lines.iter().position(|line| CRASH_MARKS.iter().any(|mark| line.contains(mark)));
        let end = lines.len().saturating_sub(LOG_LINES);
        let from = crash.map_or(end, |crash| end.min(crash.saturating_sub(LOG_LINES / 3)));
        let shown = &lines[from..lines.len().min(from + LOG_LINES)];
        format!("--- log of the server on port {} ---\n{}\n---", self.port, shown.join("\n"))
    }

    // Inside

    fn prepare(setup: &Setup) -> Server {
        let dir = tempfile::Builder::new().prefix("dlock-").tempdir().expect("a temporary folder");
        let socket = dir.path().join("s");
        let (port, reservation) = free_port();
        let mut ports = vec![reservation];
        let mut config = vec![
            ("bind".to_owned(), "127.0.0.1".to_owned()),
            ("port".to_owned(), port.to_string()),
            ("unixsocket".to_owned(), socket.display().to_string()),
            ("dir".to_owned(), dir.path().display().to_string()),
            ("logfile".to_owned(), dir.path().join("log").display().to_string()),
        ];
        for (name, value) in [
            ("daemonize", "no"),
            ("save", "\"\""),
            ("appendonly", "no"),
            ("maxclients", "15000"),
            ("enable-debug-command", "yes"),
            ("enable-module-command", "yes"),
            // A replica is there at once instead of after five seconds.
            ("repl-diskless-sync-delay", "0"),
        ] {
            config.push((name.to_owned(), value.to_owned()));
        }
        if setup.cluster != Cluster::No {
            config.push(("cluster-enabled".to_owned(), "yes".to_owned()));
            let (port, reservation) = free_port();
            ports.push(reservation);
            config.push(("cluster-port".to_owned(), port.to_string()));
            config.push(("cluster-node-timeout".to_owned(), "2000".to_owned()));
        }
        if let Some(profile) = setup.module {
            let path = module::path(profile).display().to_string();
            let words: Vec<String> =
                std::iter::once(path).chain(setup.module_args.iter().cloned()).collect();
            config.push(("loadmodule".to_owned(), words.join(" ")));
        }
        config.extend(setup.settings.iter().map(|(name, value)| {
            (name.clone(), if value.is_empty() { "\"\"".to_owned() } else { value.clone() })
        }));
        let lines: Vec<String> =
            config.iter().map(|(name, value)| format!("{name} {value}")).collect();
        fs::write(dir.path().join("redis.conf"), lines.join("\n"))
            .expect("a file in a folder of ours");
        Server {
            socket: socket.into(),
            dir,
            port,
            _ports: ports,
            child: Mutex::new(None),
            admin: Mutex::new(None),
            wallclock: None,
            preload: setup.wallclock,
            has_module: setup.module.is_some(),
            family: setup.family,
            tolerated: Mutex::new(Vec::new()),
        }
    }

    /// Starts the process and waits until it serves; else its log.
    fn launch(&mut self) -> Result<(), String> {
        let output = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("output"))
            .expect("a file in a folder of ours");
        let mut command = Command::new(kind::binary());
        command
            .arg(self.config_file())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file handle"))
            .stderr(output);
        if self.preload {
            self.wallclock = Some(WallClock::install(self.dir.path(), &mut command));
        }
        // A socket file of the life before would refuse connections until the new one is there; that is fine.
        let child = Guarded::spawn(command)
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", kind::binary()));
        *self.child() = Some(child);
        let start = Instant::now();
        while !self.serves() {
            if let Some(status) = self.crashed() {
                *self.child() = None;
                return Err(format!("{}\nended with {status}", self.log_tail()));
            }
            assert!(start.elapsed() < LIMIT, "no server after {LIMIT:?}\n{}", self.log_tail());
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Connected, and not loading any more.
    fn serves(&self) -> bool {
        let Ok(mut client) = Client::connect(&self.socket, LIMIT) else {
            return false;
        };
        client.send(&["PING"]);
        matches!(client.hear(LIMIT), Heard::Reply(Value::SimpleString(pong)) if pong == "PONG")
    }

    #[track_caller]
    fn open(&self, url: &str) -> redis::Connection {
        redis::Client::open(url)
            .and_then(|client| client.get_connection())
            .unwrap_or_else(|error| panic!("{url}: {error}\n{}", self.log_tail()))
    }

    fn child(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Gives up the connection behind [`Server::cmd`]: a failover by Sentinel cuts it.
    pub fn forget_connection(&self) {
        *self.admin.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    /// What the test must know about the server's end, if anything.
    fn complaint(&self) -> Option<String> {
        if let Some(status) = self.crashed() {
            return Some(format!("the server died: {status}"));
        }
        let tolerated = self.tolerated.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let log = self.log();
        let bad = log.lines().find(|line| {
            CRASH_MARKS.iter().any(|mark| line.contains(mark))
                && !tolerated.iter().any(|text| line.contains(text))
        });
        bad.map(|line| format!("the server's log speaks of a crash: {line}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let complaint = self.complaint();
        // The process goes before the folder that it writes to.
        *self.child() = None;
        if thread::panicking() {
            eprintln!("{}\n{}", complaint.unwrap_or_default(), self.log_tail());
        } else if let Some(complaint) = complaint {
            let _ = std::io::stderr().flush();
            panic!("{complaint}\n{}", self.log_tail());
        }
    }
}

/// A port that nobody listens on. Below the range that the system hands out to clients, so that it stays free until the server has it;
/// each call gives another. Other test processes keep off it while the reservation lives: a server that is down for a moment, or was
/// killed, must not find a stranger in its place.
pub(super) fn free_port() -> (u16, Reservation) {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes side by side begin at different places.
    let offset = u16::try_from(std::process::id() % u32::from(COUNT)).expect("below COUNT");
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (offset + step) % COUNT;
        let name = SocketAddr::from_abstract_name(format!("dlock-test-port-{port}"));
        let Ok(reservation) = UnixListener::bind_addr(&name.expect("a short name")) else {
            continue;
        };
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return (port, reservation);
        }
    }
}

/// A name that one process on this machine can have at a time, and that goes with it.
pub(super) type Reservation = UnixListener;
