//! Sentinels over a primary and its replicas.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use redis::Value;
use tempfile::TempDir;

use super::{
    client::Heard,
    kind::Binary,
    port::{Reservation, free_port},
    process::Guarded,
    server::Server,
    tls::Tls,
    value::Reply as _,
    wait::LIMIT,
};

/// The name of the primary in Sentinel.
const NAME: &str = "locks";

/// A failover takes some seconds on a busy machine: elections are repeated at random times.
const FAILOVER_LIMIT: Duration = Duration::from_mins(1);

/// Some sentinels that monitor one primary.
#[derive(Debug)]
pub struct Sentinels(Vec<Sentinel>);

/// The configuration of sentinels to start.
#[derive(Debug, Default)]
#[must_use = "call start()"]
pub struct SentinelSetup {
    password: Option<String>,
    /// The TLS authority, and the TLS port of the primary.
    tls: Option<(Tls, u16)>,
    settings: Vec<String>,
}

#[derive(Debug)]
struct Sentinel {
    /// For the harness; clients get the TLS port, if there is one.
    port: u16,
    tls: Option<Tls>,
    password: Option<String>,
    _port: Reservation,
    dir: TempDir,
    _child: Guarded,
}

impl Sentinels {
    /// Starts `count` sentinels, by the program of `primary`, for `primary` and its running replicas. Returns when each
    /// knows all the others and `replicas` replicas. They consider a server down after half a second.
    #[track_caller]
    pub fn start(count: usize, primary: &Server, replicas: usize) -> Sentinels {
        Sentinels::with().start(count, primary, replicas)
    }

    /// Sentinels with other settings than those of [`Sentinels::start`].
    pub fn with() -> SentinelSetup {
        SentinelSetup::default()
    }

    #[track_caller]
    fn start_as(
        setup: &SentinelSetup,
        binary: &Binary,
        count: usize,
        primary: u16,
        replicas: usize,
    ) -> Sentinels {
        let quorum = count / 2 + 1;
        let start = |_| Sentinel::start(setup, binary, primary, quorum);
        let all = Sentinels((0..count).map(start).collect());
        all.wait("the sentinels to know each other and the replicas", LIMIT, |sentinel| {
            let known = sentinel.ask(&["SENTINEL", "MASTER", NAME])?;
            let number = |field: &str| known.field(field).text().parse::<usize>().ok();
            let ready = number("num-other-sentinels")? == count - 1
                && number("num-slaves")? == replicas
                && known.field("flags").text() == "master"
                && sentinel.replicas_are_fit()?;
            Some(ready)
        });
        // From here on nearly as in production: a sentinel that learns of a promotion late reverts it after four of
        // these periods.
        all.cmd(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "1000"]);
        all
    }

    /// The name of the primary in Sentinel.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// Their ports on 127.0.0.1.
    pub fn ports(&self) -> Vec<u16> {
        self.0.iter().map(Sentinel::client_port).collect()
    }

    /// Their ports on 127.0.0.1 without TLS, which always exist.
    pub fn plain_ports(&self) -> Vec<u16> {
        self.0.iter().map(|sentinel| sentinel.port).collect()
    }

    /// The URL for clients: `redis-sentinel://127.0.0.1:p,127.0.0.1:p/name`, without password.
    pub fn url(&self) -> String {
        let scheme =
            if self.0.iter().any(|sentinel| sentinel.tls.is_some()) { "rediss" } else { "redis" };
        let hosts: Vec<String> =
            self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{scheme}-sentinel://{}/{NAME}", hosts.join(","))
    }

    /// Sends one command to each of them.
    #[track_caller]
    pub fn cmd(&self, words: &[&str]) {
        for sentinel in &self.0 {
            sentinel.ask(words).expect("a sentinel that answers").ok();
        }
    }

    /// The port of the primary (the TLS port, if they use TLS), if all agree.
    pub fn primary_port(&self) -> Option<u16> {
        let ports: Vec<Option<u16>> = self.0.iter().map(Sentinel::primary_port).collect();
        let first = ports.first().copied().flatten();
        first.filter(|_| ports.iter().all(|&port| port == first))
    }

    /// Orders a failover while the primary is up; returns when all name another primary.
    #[track_caller]
    pub fn failover(&self) {
        let before = self.primary_port();
        // It would give up a failover without one, and not try again.
        self.wait_fit();
        let reply =
            self.0[0].ask(&["SENTINEL", "FAILOVER", NAME]).expect("a sentinel that answers");
        reply.ok();
        self.wait_primary_other_than(before);
    }

    /// Waits until all of them could promote any replica: after restarts of replicas.
    #[track_caller]
    pub fn wait_fit(&self) {
        self.wait("replicas that can be promoted", FAILOVER_LIMIT, Sentinel::replicas_are_fit);
    }

    /// Waits until all name a primary on another port than `before`: after [`Server::kill9`] or [`Server::freeze`] of
    /// the primary.
    #[track_caller]
    pub fn wait_primary_other_than(&self, before: Option<u16>) {
        self.wait("another primary", FAILOVER_LIMIT, |sentinel| {
            Some(sentinel.primary_port().is_some_and(|port| Some(port) != before))
        });
    }

    /// Waits until all name this server.
    #[track_caller]
    pub fn wait_primary(&self, server: &Server) {
        self.wait("the primary", FAILOVER_LIMIT, |sentinel| {
            Some(sentinel.primary_port()? == server.port())
        });
    }

    /// Waits until they have made this former primary a replica that is in sync.
    #[track_caller]
    pub fn wait_replica(&self, server: &Server) {
        let start = Instant::now();
        loop {
            // A reconfiguration cuts the server's connections: that of [`Server::cmd`], and one that is being opened.
            server.forget_connection();
            if let Ok(mut client) = server.try_client()
                && client.try_send(&["INFO", "replication"])
                && let Heard::Reply(reply) = client.hear(LIMIT)
                && reply.text().contains("master_link_status:up")
            {
                return;
            }
            assert!(start.elapsed() < FAILOVER_LIMIT, "no replica after {FAILOVER_LIMIT:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn wait(&self, what: &str, limit: Duration, ready: impl Fn(&Sentinel) -> Option<bool>) {
        let start = Instant::now();
        while !self.0.iter().all(|sentinel| ready(sentinel).unwrap_or(false)) {
            if start.elapsed() > limit {
                let logs: Vec<String> = self.0.iter().map(Sentinel::log).collect();
                panic!("waited {limit:?} in vain for: {what}\n{}", logs.join("\n---\n"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl SentinelSetup {
    /// They require this password, also from each other.
    pub fn requirepass(mut self, password: &str) -> SentinelSetup {
        self.password = Some(password.to_owned());
        self
    }

    /// They use TLS for clients, for each other and for the servers; the primary is on the TLS port of `tls`.
    pub fn tls(mut self, tls: &Tls) -> SentinelSetup {
        self.tls = Some((tls.another(), tls.port()));
        self
    }

    /// Adds a line to their configuration.
    pub fn and(mut self, line: &str) -> SentinelSetup {
        self.settings.push(line.to_owned());
        self
    }

    /// As [`Sentinels::start`].
    #[track_caller]
    pub fn start(self, count: usize, primary: &Server, replicas: usize) -> Sentinels {
        let port = self.tls.as_ref().map_or(primary.port(), |(_, port)| *port);
        Sentinels::start_as(&self, primary.binary(), count, port, replicas)
    }
}

impl Sentinel {
    fn start(setup: &SentinelSetup, binary: &Binary, primary: u16, quorum: usize) -> Sentinel {
        let dir = tempfile::Builder::new().prefix("dlock-").tempdir().expect("a temporary folder");
        let (port, reservation) = free_port();
        let config = dir.path().join("sentinel.conf");
        let log = dir.path().join("log");
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {port}"),
            "daemonize no".to_owned(),
            format!("dir {}", dir.path().display()),
            format!("logfile {}", log.display()),
            format!("sentinel monitor {NAME} 127.0.0.1 {primary} {quorum}"),
            format!("sentinel down-after-milliseconds {NAME} 500"),
            format!("sentinel failover-timeout {NAME} 2000"),
        ];
        if let Some(password) = &setup.password {
            lines.push(format!("requirepass {password}"));
            lines.push(format!("sentinel sentinel-pass {password}"));
        }
        let tls = setup.tls.as_ref().map(|(tls, _)| tls.another());
        if let Some(tls) = &tls {
            let settings = tls.settings();
            lines.extend(settings.iter().map(|(name, value)| format!("{name} {value}")));
            lines.push("tls-replication yes".to_owned());
        }
        lines.extend(setup.settings.iter().cloned());
        fs::write(&config, lines.join("\n")).expect("a file in a folder of ours");
        let mut command = Command::new(binary.path());
        command
            .arg(&config)
            .arg("--sentinel")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = Guarded::spawn(command).expect("the server binary runs");
        let password = setup.password.clone();
        let sentinel = Sentinel { port, tls, password, _port: reservation, dir, _child: child };
        let start = Instant::now();
        // They poll each other and the servers more often than in production.
        let hurry = [
            "SENTINEL",
            "DEBUG",
            "INFO-PERIOD",
            "200",
            // They promote only replicas heard from within five of these periods, and while the primary is down they
            // poll replicas once a second.
            "PING-PERIOD",
            "300",
            "PUBLISH-PERIOD",
            "100",
            "ASK-PERIOD",
            "100",
        ];
        while sentinel.ask(&hurry).is_none() {
            assert!(start.elapsed() < LIMIT, "no sentinel after {LIMIT:?}\n{}", sentinel.log());
            thread::sleep(Duration::from_millis(5));
        }
        sentinel
    }

    /// Sends one command; `None` without a reply.
    fn ask(&self, words: &[&str]) -> Option<Value> {
        let password = self.password.as_ref().map(|password| format!(":{password}@"));
        let url = format!("redis://{}127.0.0.1:{}/", password.unwrap_or_default(), self.port);
        let mut connection = redis::Client::open(url)
            .and_then(|client| client.get_connection_with_timeout(Duration::from_secs(2)))
            .ok()?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut connection).ok()
    }

    fn client_port(&self) -> u16 {
        self.tls.as_ref().map_or(self.port, Tls::port)
    }

    fn primary_port(&self) -> Option<u16> {
        let named = self.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
        named.items().get(1)?.text().parse().ok()
    }

    /// Whether every replica can be promoted.
    fn replicas_are_fit(&self) -> Option<bool> {
        let replicas = self.ask(&["SENTINEL", "REPLICAS", NAME])?.items();
        let fit = |replica: &Value| {
            replica.field("flags").text() == "slave"
                && replica.field("master-link-status").text() == "ok"
        };
        Some(replicas.iter().all(fit))
    }

    fn log(&self) -> String {
        let log = fs::read(self.dir.path().join("log")).unwrap_or_default();
        format!(
            "--- log of the sentinel on port {} ---\n{}",
            self.port,
            String::from_utf8_lossy(&log)
        )
    }
}
