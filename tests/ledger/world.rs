//! The two worlds: one server behind proxies that break connections, and a Sentinel group whose primary keeps failing.
//!
//! A failover by Sentinel can lose what was not replicated, and no client is promised otherwise. So that no verdict
//! depends on that, nothing that a client was told is lost here:
//!
//! - A primary that fails is paused first, until its replica has everything. Then it is killed, frozen, or replaced by
//!   order of the Sentinel.
//! - Locks have `replicas(1, …)`. For them the primary is also killed without a pause: the only replica has every
//!   grant.

use std::{
    path::PathBuf,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use dlock_client::Client;
use dlock_testing::{Cut, Dice, Fault, Proxy, Reply as _, Sentinels, Server, Way};
use tokio::runtime::Runtime;

use super::{
    witness::{Operator, Primary, Witness},
    work::{Crew, Kind, Worker},
};

/// Clients of a run, each with its own connections (and proxy), and workers of each client.
const CLIENTS: usize = 4;
const WORKERS: usize = 8;

/// A world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    Proxy,
    Failover,
}

impl World {
    pub const ALL: [World; 2] = [World::Proxy, World::Failover];

    pub fn name(self) -> &'static str {
        match self {
            World::Proxy => "proxy",
            World::Failover => "failover",
        }
    }

    /// Whether the primary is also killed without a pause, under this kind of turns.
    pub fn may_crash(self, kind: Kind) -> bool {
        self == World::Failover && kind == Kind::Locks
    }

    /// Lets the crew take its turns; returns the number of faults.
    pub fn run(self, crew: &Arc<Crew>, seed: u64) -> u64 {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        match self {
            World::Proxy => behind_proxies(&runtime, crew, seed),
            World::Failover => in_failovers(&runtime, crew, seed),
        }
    }
}

/// The clients detect a dead connection within half a second. Half of those for elections have the default settings.
fn connect(runtime: &Runtime, crew: &Crew, urls: &[String], lease: Duration) -> Vec<Client> {
    let quick = Client::builder()
        .lease(lease)
        .queue(Duration::from_secs(2))
        .response_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_secs(2));
    let builders = [Client::builder(), quick];
    let builder = |n: usize| {
        let is_default = crew.kind == Kind::Elections && n.is_multiple_of(2);
        builders[usize::from(!is_default)].clone()
    };
    let clients = urls.iter().enumerate().map(|(n, url)| builder(n).connect(url));
    clients.map(|client| runtime.block_on(client).expect("a connection")).collect()
}

fn socket(server: &Server) -> PathBuf {
    server.dir().join("s")
}

/// Runs all workers to the end of the turns, or until the faults have failed.
fn work(
    runtime: &Runtime,
    crew: &Arc<Crew>,
    clients: &[Client],
    seed: u64,
    have_failed: impl Fn() -> bool,
) {
    let mut workers: Vec<_> = (0..CLIENTS * WORKERS)
        .map(|n| Worker::new(crew, &clients[n % CLIENTS], n, seed))
        .map(|worker| runtime.spawn(worker.run()))
        .collect();
    runtime.block_on(async {
        for worker in &mut workers {
            while tokio::time::timeout(Duration::from_millis(200), &mut *worker)
                .await
                .map(|ended| ended.expect("a worker does not fail"))
                .is_err()
            {
                assert!(!have_failed(), "the faults go on");
            }
        }
    });
}

/// Calls `strike` after random pauses of at most `most` milliseconds until it is dropped.
struct Repeated {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Repeated {
    fn start(
        mut dice: Dice,
        most: u64,
        mut strike: impl FnMut(&mut Dice) + Send + 'static,
    ) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut times = 0;
            while stopped.recv_timeout(dice.millis(most)) == Err(mpsc::RecvTimeoutError::Timeout) {
                strike(&mut dice);
                times += 1;
            }
            times
        });
        Repeated { stop: Some(stop), thread: Some(thread) }
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    /// Ends it; returns how often it struck.
    fn end(mut self) -> u64 {
        self.stop = None;
        self.thread.take().map_or(0, |thread| thread.join().expect("the faults go on"))
    }
}

fn operator(crew: &Crew, primary: &Primary, replicas: u32, seed: u64) -> Repeated {
    let operator = Operator::new(crew.kind.keys(), crew.ledger.clone());
    let primary = primary.clone();
    Repeated::start(Dice::part(seed, 1), 300, move |dice| {
        // The server may be away, or have closed the connection.
        let _ = operator.strike(&primary, replicas, dice);
    })
}

/// Lets the last messages reach the witnesses.
fn let_messages_arrive(runtime: &Runtime) {
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(500)).await });
}

fn behind_proxies(runtime: &Runtime, crew: &Arc<Crew>, seed: u64) -> u64 {
    let server = Arc::new(Server::start());
    let witness = Witness::new(socket(&server), crew.ledger.clone());
    let proxies: Vec<_> = (0..CLIENTS).map(|_| Arc::new(Proxy::to(&server))).collect();
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url()).collect();
    let clients = connect(runtime, crew, &urls, Duration::from_secs(1));
    let primary: Primary = Arc::new(RwLock::new(socket(&server)));
    let mut faults = vec![operator(crew, &primary, 0, seed)];
    for (n, proxy) in proxies.iter().enumerate() {
        let (proxy, server, kind) = (proxy.clone(), server.clone(), crew.kind);
        let dice = Dice::part(seed, 2 + n as u64);
        faults.push(Repeated::start(dice, 400, move |dice| strike(&proxy, &server, kind, dice)));
    }
    work(runtime, crew, &clients, seed, || faults.iter().any(Repeated::has_ended));
    let struck = faults.into_iter().map(Repeated::end).sum();
    for proxy in &proxies {
        proxy.heal();
    }
    let_messages_arrive(runtime);
    drop(witness);
    struck
}

/// The requests of a kind, for faults that hit one.
fn verb(kind: Kind, dice: &mut Dice) -> String {
    let (family, verbs) = match kind {
        Kind::Locks | Kind::Owners => (dice.pick(&["DLOCK", "DFAIR"]), "ACQUIRE RELEASE RENEW"),
        Kind::Multi => ("DLOCK", "MACQUIRE MRELEASE MRENEW RELEASE RENEW"),
        Kind::Elections => ("DLOCK", "ACQUIRE RELEASE RENEW"),
    };
    let verbs: Vec<&str> = verbs.split(' ').collect();
    format!("{family}.{}", dice.pick(&verbs))
}

/// One fault of a proxy.
fn strike(proxy: &Proxy, server: &Server, kind: Kind, dice: &mut Dice) {
    match dice.below(16) {
        0 => proxy.cut(Cut::Fin),
        1 => proxy.cut(Cut::Reset),
        2 => proxy.cut(Cut::HalfOpen),
        3 => proxy.delay(dice.pick(&Way::BOTH), dice.millis(15)),
        4 => {
            proxy.refuse();
            proxy.cut(Cut::Reset);
            thread::park_timeout(dice.millis(60));
            proxy.accept();
        }
        5 | 6 => stall(proxy, dice),
        7 => drop(proxy.cut_after(dice.pick(&Way::BOTH), 1 + dice.index(400))),
        8 => {
            proxy.swallow_messages();
            thread::park_timeout(dice.millis(300));
            proxy.heal();
        }
        9 if kind == Kind::Elections || dice.one_in(4) => close_at_the_server(proxy, server, dice),
        10 => kill_clients(server, 1 + dice.index(3), dice),
        _ => {
            let fault = [Fault::LoseRequest, Fault::LoseReply, Fault::HalfOpen, Fault::StallReply];
            proxy.once(&verb(kind, dice), dice.pick(&fault));
        }
    }
}

/// A stall without an end of the connection; then the data arrives late (also the copies of repeated requests), or
/// never. Some are longer than a lease.
fn stall(proxy: &Proxy, dice: &mut Dice) {
    match dice.below(3) {
        0 => proxy.stall(Way::ToServer),
        1 => proxy.stall(Way::ToClient),
        _ => proxy.stall_all(),
    }
    thread::park_timeout(if dice.one_in(6) { dice.millis(3_500) } else { dice.millis(150) });
    if dice.one_in(2) {
        proxy.cut(Cut::Reset);
    }
    proxy.flow();
}

/// The server's end closes, and the client does not notice.
fn close_at_the_server(proxy: &Proxy, server: &Server, dice: &mut Dice) {
    let stalled = proxy.on(1, Fault::StallReply, |_| true);
    thread::park_timeout(Duration::from_millis(40));
    if stalled.fired() > 0 {
        kill_clients(server, usize::MAX, dice);
    }
    thread::park_timeout(dice.millis(6_000));
    proxy.flow();
}

/// CLIENT KILL of at most this many connections behind proxies.
fn kill_clients(server: &Server, most: usize, dice: &mut Dice) {
    let list = server.cmd(&["CLIENT", "LIST"]).text();
    let mut ids: Vec<&str> = list
        .lines()
        .filter(|line| line.contains(" addr=127.0.0.1:"))
        .filter_map(|line| line.strip_prefix("id=")?.split(' ').next())
        .collect();
    while ids.len() > most {
        ids.swap_remove(dice.index(ids.len()));
    }
    for id in ids {
        server.cmd(&["CLIENT", "KILL", "ID", id]);
    }
}

/// A primary, its replica, and a Sentinel that swaps them.
struct Group {
    servers: Vec<Server>,
    /// Index of the primary.
    primary: usize,
    socket: Primary,
    sentinels: Sentinels,
    witnesses: Vec<Witness>,
}

fn in_failovers(runtime: &Runtime, crew: &Arc<Crew>, seed: u64) -> u64 {
    let first = Server::start();
    let second = Server::with(&[]).replica_of(&first).start();
    let setup = Sentinels::with().and("sentinel failover-timeout locks 1000");
    let sentinels = setup.start(1, &first, 1);
    let url = sentinels.url();
    let servers = vec![first, second];
    let witness = |server| Witness::new(socket(server), crew.ledger.clone());
    let witnesses: Vec<_> = servers.iter().map(witness).collect();
    let primary: Primary = Arc::new(RwLock::new(socket(&servers[0])));
    let mut group = Group { servers, primary: 0, socket: primary.clone(), sentinels, witnesses };
    let clients = connect(runtime, crew, &vec![url; CLIENTS], Duration::from_secs(5));
    let operator = operator(crew, &primary, 1, seed);
    let is_over = Arc::new(AtomicBool::new(false));
    let failovers = thread::spawn({
        let (is_over, may_crash, mut dice) = (is_over.clone(), crew.replicas, Dice::part(seed, 2));
        move || {
            let mut times = 0;
            while !is_over.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(300) + dice.millis(900));
                group.fail_over(may_crash, &mut dice);
                times += 1;
            }
            (group, times)
        }
    });
    work(runtime, crew, &clients, seed, || failovers.is_finished());
    is_over.store(true, Ordering::SeqCst);
    let (group, times) = failovers.join().expect("the failovers go on");
    let struck = operator.end();
    let_messages_arrive(runtime);
    drop(group);
    times + struck
}

impl Group {
    fn fail_over(&mut self, may_crash: bool, dice: &mut Dice) {
        // The operator waits: what it did has reached the replica.
        let lock = self.socket.clone();
        let mut socket_of_primary = lock.write().unwrap_or_else(PoisonError::into_inner);
        let (old, new) = (self.primary, 1 - self.primary);
        let port = Some(self.servers[old].port());
        let is_crash = may_crash && dice.one_in(2);
        if !is_crash {
            self.servers[old].cmd(&["CLIENT", "PAUSE", "120000", "WRITE"]).ok();
            self.servers[old].wait_replica_synced(&self.servers[new]);
        }
        self.witnesses[old].is_muted.store(true, Ordering::SeqCst);
        match dice.below(3) {
            0 if !is_crash => self.sentinels.failover(),
            1 if !is_crash => {
                self.servers[old].freeze();
                self.sentinels.wait_primary_other_than(port);
                self.servers[old].thaw();
            }
            _ => {
                self.servers[old].kill9();
                self.sentinels.wait_primary_other_than(port);
                self.servers[old].start_again();
            }
        }
        // The pause keeps the Sentinel's orders back, and without the pause it would still grant locks.
        self.servers[old].forget_connection();
        let port = self.servers[new].port().to_string();
        self.servers[old].cmd(&["REPLICAOF", "127.0.0.1", &port]).ok();
        self.servers[old].cmd(&["CLIENT", "UNPAUSE"]).ok();
        self.sentinels.wait_replica(&self.servers[old]);
        for server in &self.servers {
            server.forget_connection();
        }
        self.servers[new].wait_replica_synced(&self.servers[old]);
        self.witnesses[old].is_muted.store(false, Ordering::SeqCst);
        *socket_of_primary = socket(&self.servers[new]);
        self.primary = new;
    }
}
