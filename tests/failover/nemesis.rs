//! The faults of one set-up: one episode after the other, each from a seed. An episode ends when everything is healed
//! and each client was granted a fresh lock.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    thread::park_timeout,
    time::{Duration, Instant},
};

use dlock_testing::{Dice, Guarded};

use super::{
    HEALS, POLL, Plan,
    group::{self, Group, NAME},
    history::Nanos,
    monotonic,
    net::{CLIENTS, HOSTS, Net, Node},
};

/// Enough for the Sentinels to promote a replica.
const PROMOTION: Duration = Duration::from_millis(2_500);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The primary's host and the other hosts do not reach each other.
    CutHost,
    /// Nothing from the other hosts reaches the primary's host.
    CutToHost,
    /// Nothing from the primary's host reaches the other hosts.
    CutFromHost,
    /// The primary's host and one client are apart from all others.
    CutWithClient,
    /// The hosts of the primary and of one replica are apart from the third, and from all clients but one.
    CutPair,
    /// The primary and the Sentinels do not reach each other; its replicas and the clients reach it.
    CutSentinels,
    /// The primary and one replica do not reach the Sentinels and the other replica.
    CutPairFromSentinels,
    /// First the same, with one client at the side of the primary. Then the replica is back, and the primary and the
    /// client are alone: the replica goes over to a new primary that knows none of the latest grants.
    CutPairThenPrimary,
    StopPrimary,
    StopReplica,
    StopSentinel,
    StopClient,
    KillPrimary,
    OrderFailover,
    /// An operator promotes a replica, while the primary goes on with the other one.
    PromoteByHand,
    SlowPrimary,
}

impl Kind {
    pub const ALL: [Kind; 16] = [
        Kind::CutHost,
        Kind::CutToHost,
        Kind::CutFromHost,
        Kind::CutWithClient,
        Kind::CutPair,
        Kind::CutSentinels,
        Kind::CutPairFromSentinels,
        Kind::CutPairThenPrimary,
        Kind::StopPrimary,
        Kind::StopReplica,
        Kind::StopSentinel,
        Kind::StopClient,
        Kind::KillPrimary,
        Kind::OrderFailover,
        Kind::PromoteByHand,
        Kind::SlowPrimary,
    ];
}

/// A client process and the part of its history that was read.
struct Process {
    child: Guarded,
    file: File,
    unread: String,
    /// When its latest granted probe was called.
    probed: Nanos,
}

impl Process {
    fn start(net: &Net, n: usize, args: &[String], folder: &Path) -> Process {
        let exe = std::env::current_exe().expect("a path of this program");
        let mut command = net.within(Node::Client(n), &exe.display().to_string());
        let name = format!("client{n}.log");
        command
            .arg(super::CLIENT)
            .args(args)
            .stdin(Stdio::null())
            .stdout(new_file(folder, &name))
            .stderr(new_file(folder, &format!("client{n}.txt")));
        let child = Guarded::spawn(command).expect("this program runs");
        let file = File::open(folder.join(name)).expect("a file in a folder of ours");
        Process { child, file, unread: String::new(), probed: 0 }
    }

    /// When its latest granted probe was called. Ends the program if the client has ended.
    fn probed(&mut self) -> Nanos {
        assert!(self.child.ended().is_none(), "a client ended: see its file of errors");
        let _ = self.file.read_to_string(&mut self.unread);
        while let Some((line, rest)) = self.unread.split_once('\n') {
            let invoked = line.strip_prefix("probe ").and_then(|times| times.split(' ').next());
            self.probed = invoked.and_then(|at| at.parse().ok()).unwrap_or(self.probed);
            self.unread = rest.to_owned();
        }
        self.probed
    }
}

fn new_file(folder: &Path, name: &str) -> File {
    File::create(folder.join(name)).expect("a file in a folder of ours")
}

/// A running set-up. Dropping it ends all its processes and deletes its namespaces.
pub struct Nemesis {
    // In this order they are dropped.
    clients: Vec<Process>,
    group: Group,
    net: Net,
    dice: Dice,
    episodes: File,
    stop: PathBuf,
    /// The primary of the last whole group.
    primary: usize,
}

impl Nemesis {
    /// Starts set-up `n`, with its history in `folder`; returns when all clients are served.
    pub fn start(plan: &Plan, n: usize, folder: &Path) -> Nemesis {
        let net = Net::new(n);
        let group = Group::start(&net, plan, n, folder);
        let stop = folder.join("stop");
        let seed = plan.seed.wrapping_mul(1_000).wrapping_add(n as u64);
        let args = |client: usize| {
            let url = format!("{}{}", group::url(&net), plan.url_parameters);
            let seed = seed.wrapping_mul(10).wrapping_add(client as u64).to_string();
            [url, seed, plan.replicas_of_grants.to_string(), stop.display().to_string()]
        };
        let clients = (0..CLIENTS).map(|n| Process::start(&net, n, &args(n), folder)).collect();
        let episodes = new_file(folder, "episodes.log");
        let dice = Dice::new(seed);
        let mut nemesis = Nemesis { clients, group, net, dice, episodes, stop, primary: 0 };
        assert!(nemesis.wait_served() > 0, "set-up {n} does not begin");
        nemesis
    }

    /// One fault of one of these kinds, or two of them at once, until all are served again.
    pub fn episode(&mut self, kinds: &[Kind]) {
        let kind = self.dice.pick(kinds);
        let second = self.dice.pick(kinds);
        let is_double = self.dice.one_in(4) && second != kind;
        let lasts = Duration::from_millis(300) + self.dice.millis(4_200);
        let fault = monotonic();
        self.strike(kind);
        if is_double {
            park_timeout(lasts / 3);
            self.strike(second);
        }
        park_timeout(lasts);
        // Otherwise the Sentinels correct it.
        if kind == Kind::PromoteByHand && !is_double && self.dice.one_in(2) {
            for server in (0..HOSTS).filter(|&server| server != self.primary) {
                self.group.follow(&self.net, server, self.primary);
            }
        }
        self.heal();
        let healed = monotonic();
        let name = if is_double { format!("{kind:?}+{second:?}") } else { format!("{kind:?}") };
        let served = self.wait_served();
        if served == 0 {
            eprintln!("{name}: not served {HEALS:?} after it was healed, at {healed}");
        }
        writeln!(self.episodes, "episode {name} {fault} {healed} {served}")
            .expect("the file of the episodes");
    }

    /// Lets the clients end by themselves, so that their histories are complete.
    pub fn finish(mut self) {
        File::create(&self.stop).expect("a file in a folder of ours");
        for client in &mut self.clients {
            let mut status = None;
            super::wait_for("a client to end", || {
                status = client.child.ended();
                status.is_some()
            });
            assert!(status.is_some_and(|status| status.success()), "a client failed: {status:?}");
        }
    }

    fn strike(&mut self, kind: Kind) {
        let primary = self.primary;
        let first = self.dice.index(HOSTS - 1);
        let replicas = [(primary + 1 + first) % HOSTS, (primary + 2 - first) % HOSTS];
        let client = self.dice.index(CLIENTS);
        let host = |n| [Node::Server(n), Node::Sentinel(n)];
        let hosts = |some: &[usize]| some.iter().flat_map(|&n| host(n)).collect::<Vec<_>>();
        let all_but =
            |some: &[Node]| Node::all().filter(|node| !some.contains(node)).collect::<Vec<_>>();
        let sentinels: Vec<Node> = (0..HOSTS).map(Node::Sentinel).collect();
        let (one, others) = (host(primary), hosts(&replicas));
        match kind {
            Kind::CutHost => self.net.cut(&one, &others),
            Kind::CutToHost => self.net.cut_way(&others, &one),
            Kind::CutFromHost => self.net.cut_way(&one, &others),
            Kind::CutWithClient => {
                let side = [one[0], one[1], Node::Client(client)];
                self.net.cut(&side, &all_but(&side));
            }
            Kind::CutPair => {
                let mut side = hosts(&[primary, replicas[0]]);
                side.push(Node::Client(client));
                self.net.cut(&side, &all_but(&side));
            }
            Kind::CutSentinels => self.net.cut(&one[..1], &sentinels),
            Kind::CutPairFromSentinels => {
                let mut others = sentinels;
                others.push(Node::Server(replicas[1]));
                self.net.cut(&[one[0], Node::Server(replicas[0])], &others);
            }
            Kind::CutPairThenPrimary => {
                let side = [one[0], Node::Server(replicas[0]), Node::Client(client)];
                self.net.cut(&side, &all_but(&side));
                park_timeout(PROMOTION);
                self.net.heal();
                let side = [one[0], Node::Client(client)];
                self.net.cut(&side, &all_but(&side));
            }
            Kind::StopPrimary => self.group.servers[primary].process.freeze(),
            Kind::StopReplica => self.group.servers[replicas[0]].process.freeze(),
            Kind::StopSentinel => self.group.sentinels[replicas[0]].process.freeze(),
            Kind::StopClient => self.clients[client].child.freeze(),
            Kind::KillPrimary => self.group.servers[primary].process.kill(),
            Kind::OrderFailover => {
                // A Sentinel may refuse; then the episode is a quiet one.
                self.group.sentinels[first].ask(&format!("SENTINEL FAILOVER {NAME}"));
            }
            Kind::PromoteByHand => {
                self.group.servers[replicas[0]].ask("REPLICAOF NO ONE");
            }
            Kind::SlowPrimary => {
                let kbit = 40 + self.dice.below(200);
                self.net.slow_down(Node::Server(primary), kbit);
            }
        }
    }

    fn heal(&mut self) {
        self.net.heal();
        for member in self.group.servers.iter_mut().chain(&mut self.group.sentinels) {
            member.process.thaw();
        }
        for client in &mut self.clients {
            client.child.thaw();
        }
        self.group.revive(&self.net);
    }

    /// Waits for a whole group, and then for a fresh lock of each client. Returns when that was; 0: it took too long.
    fn wait_served(&mut self) -> Nanos {
        let start = Instant::now();
        let mut whole = None;
        while start.elapsed() < HEALS {
            match self.group.whole() {
                Some(primary) if self.primary == primary && whole.is_some() => {
                    if self.clients.iter_mut().map(Process::probed).min() > whole {
                        return monotonic();
                    }
                }
                Some(primary) => (self.primary, whole) = (primary, Some(monotonic())),
                None => whole = None,
            }
            park_timeout(POLL);
        }
        0
    }
}
