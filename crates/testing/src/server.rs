//! A real server for one test.

mod life;
mod setup;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use redis::Value;
use tempfile::TempDir;

use crate::{
    client::{Blocked, Client, Heard, Subscription, words},
    family::Family,
    kind::{Binary, Kind},
    port::Reservation,
    process::Guarded,
    value::Reply as _,
    wait::{LIMIT, wait_until},
    wallclock::WallClock,
};

pub use setup::Setup;

/// Fields of INFO dlock that are 0 when there are no holds and no waiters.
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

/// A running server. Dropping it kills it. The test fails if the server had ended by itself or its log contains a
/// crash.
#[derive(Debug)]
pub struct Server {
    binary: Binary,
    dir: TempDir,
    socket: Arc<Path>,
    port: u16,
    /// They keep its ports reserved.
    _ports: Vec<Reservation>,
    child: Mutex<Option<Guarded>>,
    /// The connection of [`Server::cmd`] and of all checks.
    admin: Mutex<Option<Client>>,
    wallclock: Option<WallClock>,
    preload: bool,
    has_module: bool,
    family: Family,
    tolerated: Mutex<Vec<String>>,
}

impl Server {
    /// A server with the module and default settings.
    #[track_caller]
    pub fn start() -> Server {
        Server::with(&[]).start()
    }

    // Connections

    /// Its TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The family of its connections.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The server program.
    pub fn binary(&self) -> &Binary {
        &self.binary
    }

    /// Its kind and version.
    pub fn kind(&self) -> &Kind {
        self.binary.kind()
    }

    /// Its working folder: RDB, AOF, log, configuration.
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

    /// A new raw connection of this harness.
    #[track_caller]
    pub fn client(&self) -> Client {
        self.try_client().unwrap_or_else(|error| panic!("{error}\n{}", self.log_tail()))
    }

    /// As [`Server::client`], while connections may be cut.
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

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Sends one command over a permanent connection; returns the reply, which may be an error.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Value {
        let mut admin = self.admin.lock().unwrap_or_else(|poisoned| {
            // A test thread failed in the middle of a call: unread data belongs to that call.
            let mut admin = poisoned.into_inner();
            *admin = None;
            admin
        });
        admin.get_or_insert_with(|| self.client()).cmd(args)
    }

    /// Sends a command on a new connection and returns at once.
    #[track_caller]
    pub fn post<A: AsRef<[u8]>>(&self, args: &[A]) -> Blocked {
        Blocked::send(self.client(), self.socket.clone(), args)
    }

    /// As [`Server::post`], but returns when the server has blocked the connection, so successive calls arrive in
    /// order.
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

    /// As [`Server::cmd`], with a call given as one line of words.
    #[track_caller]
    pub fn ask(&self, call: &str) -> Value {
        self.cmd(&words(call))
    }

    /// As [`Server::block`], with a call given as one line of words.
    #[track_caller]
    pub fn wait(&self, call: &str) -> Blocked {
        self.block(&words(call))
    }

    /// A connection that subscribes to these channels.
    pub fn subscribe(&self, channels: &[&str]) -> Subscription {
        Subscription::open(self.client(), "SUBSCRIBE", channels)
    }

    /// A connection that subscribes to these patterns.
    pub fn psubscribe(&self, patterns: &[&str]) -> Subscription {
        Subscription::open(self.client(), "PSUBSCRIBE", patterns)
    }

    // State of the server

    /// INFO of one section, without the prefix `dlock_` of the module's fields.
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

    /// Number of calls of a command; small and capital letters are the same.
    #[track_caller]
    pub fn calls(&self, command: &str) -> usize {
        let stats = self.info("commandstats");
        let is_asked = |name: &str| {
            let name = name.strip_prefix("cmdstat_");
            name.is_some_and(|name| name.eq_ignore_ascii_case(command))
        };
        let stat = stats.iter().find(|(name, _)| is_asked(name));
        let calls = stat.and_then(|(_, stat)| stat.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number of calls"))
    }

    /// Number of blocked connections.
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

    /// Waits until this replica is connected to its primary.
    #[track_caller]
    pub fn wait_linked(&self) {
        wait_until("the link to the primary", || {
            self.info("replication").get("master_link_status").is_some_and(|status| status == "up")
        });
    }

    /// Waits until `replica` has applied this primary's whole stream.
    #[track_caller]
    pub fn wait_replica_synced(&self, replica: &Server) {
        wait_until("the replica to catch up", || {
            let (ours, theirs) = (self.info("replication"), replica.info("replication"));
            theirs.get("master_link_status").is_some_and(|status| status == "up")
                && theirs.get("slave_repl_offset") == ours.get("master_repl_offset")
        });
    }

    /// For the end of a test: checks that there are no holds, waiters, timers, parked calls, watched keys or keys.
    /// Waits for operations in progress; what remains fails the test by name.
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

    /// As [`Server::left_over_check`], without waiting.
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

    // Inside

    #[track_caller]
    fn open(&self, url: &str) -> redis::Connection {
        redis::Client::open(url)
            .and_then(|client| client.get_connection())
            .unwrap_or_else(|error| panic!("{url}: {error}\n{}", self.log_tail()))
    }

    fn child(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the connection of [`Server::cmd`]: a failover by Sentinel cuts it.
    pub fn forget_connection(&self) {
        *self.admin.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
