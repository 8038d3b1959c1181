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
    client::KEYS,
    group::{self, Group},
    history::Nanos,
    monotonic,
    net::{CLIENTS, HOSTS, Net, Node, World},
};

/// Enough for the Sentinels to promote a replica.
const PROMOTION: Duration = Duration::from_millis(2_500);

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident),*) => {
        /// A kind of fault. Of the groups of a cluster it meets one. *Judges* decide on primaries: the Sentinels, or
        /// the nodes of other groups. The servers of a quorum lock do not talk to each other: clients count as other
        /// hosts there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $kind),*
        }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];
        }
    };
}

kinds! {
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
    /// The primary and the judges do not reach each other; its replicas and the clients reach it.
    CutJudges,
    /// The primary and one replica do not reach the judges and the other replica.
    CutPairFromJudges,
    /// First the same, with one client at the side of the primary. Then the replica is back, and the primary and the
    /// client are alone: the replica goes over to a new primary that knows none of the latest grants.
    CutPairThenPrimary,
    StopPrimary,
    StopReplica,
    StopJudge,
    StopClient,
    KillPrimary,
    /// The primary and a replica.
    KillPair,
    /// The file system of the primary or of a replica is full.
    FillDisk,
    /// The wall clock of the primary or of a replica jumps.
    StepClock,
    OrderFailover,
    /// An operator promotes a replica, while the primary goes on with the other one.
    PromoteByHand,
    SlowPrimary,
    /// Slots of a cluster move, one after the other.
    MoveSlots,
    /// Moves of slots stay where they are until the fault ends.
    LeaveSlots,
    /// A replica of one primary of a duel goes over to the other.
    Swap
}

impl Kind {
    /// Whether a set-up has what the fault is about.
    pub fn is_of(self, world: World) -> bool {
        match self {
            Kind::Swap => matches!(world, World::Duel(_)),
            _ if matches!(world, World::Duel(_)) => false,
            Kind::MoveSlots | Kind::LeaveSlots => world == World::Cluster,
            Kind::CutJudges
            | Kind::CutPairFromJudges
            | Kind::CutPairThenPrimary
            | Kind::StopJudge
            | Kind::OrderFailover
            | Kind::PromoteByHand => world != World::Quorum,
            _ => true,
        }
    }
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
    /// See [`Group::whole`].
    primaries: Vec<usize>,
    /// How far a wall clock may jump, in milliseconds.
    step: u64,
    /// The primary of each server of a duel: 0 or 1.
    sides: Vec<usize>,
}

impl Nemesis {
    /// Starts set-up `n`, with its history in `folder`; returns when all clients are served.
    pub fn start(plan: &Plan, n: usize, folder: &Path) -> Nemesis {
        let net = Net::new(n, plan.world);
        let group = Group::start(&net, plan, n, folder);
        let stop = folder.join("stop");
        let seed = plan.seed.wrapping_mul(1_000).wrapping_add(n as u64);
        let args = |client: usize| {
            let url = format!("{}{}", group::url(&net, plan.world, client), plan.url_parameters);
            let seed = seed.wrapping_mul(10).wrapping_add(client as u64).to_string();
            [url, seed, plan.replicas_of_grants.to_string(), stop.display().to_string()]
        };
        let clients = (0..CLIENTS).map(|n| Process::start(&net, n, &args(n), folder)).collect();
        let episodes = new_file(folder, "episodes.log");
        let dice = Dice::new(seed);
        let (primaries, sides) = (Vec::new(), vec![0; plan.world.servers()]);
        let mut nemesis = Nemesis {
            clients,
            group,
            net,
            dice,
            episodes,
            stop,
            primaries,
            step: plan.step_ms,
            sides,
        };
        if let World::Duel(servers) = plan.world {
            super::wait_for("all replicas", || {
                let info = nemesis.group.servers[0].ask("INFO replication").unwrap_or_default();
                info.matches("state=online").count() == servers - 1
            });
            nemesis.group.promote(1);
            nemesis.sides[1] = 1;
            return nemesis;
        }
        assert!(nemesis.wait_served() > 0, "set-up {n} does not begin");
        nemesis
    }

    /// A replica of a duel changes sides, for a moment, or until the clients at its side are served. At times the
    /// primary that it left follows the other one for a while, and is promoted again.
    fn swap(&mut self) {
        let begin = monotonic();
        let replica = 2 + self.dice.index(self.sides.len() - 2);
        let (old, new) = (self.sides[replica], 1 - self.sides[replica]);
        self.sides[replica] = new;
        // The primary that it leaves counts a replica that went silently, and may count it twice when it is back.
        self.net.heal();
        if self.dice.one_in(2) {
            self.net.cut(&[Node::Server(replica)], &[Node::Server(old)]);
        }
        self.group.follow(&self.net, replica, new);
        if self.dice.one_in(16) {
            self.group.follow(&self.net, old, new);
            park_timeout(self.dice.millis(3_000));
            self.group.promote(old);
        }
        let most = self.dice.pick(&[60, 1_000, 3_000, 0]);
        park_timeout(self.dice.millis(most));
        // A majority of the servers.
        let strong = usize::from(self.sides.iter().sum::<usize>() > self.sides.len() / 2);
        let start = Instant::now();
        let is_served = |clients: &mut [Process]| {
            let mut side = clients.iter_mut().skip(strong).step_by(2);
            side.all(|client| client.probed() > begin)
        };
        while most == 0 && start.elapsed() < HEALS && !is_served(&mut self.clients) {
            park_timeout(POLL);
        }
        let end = if start.elapsed() < HEALS { monotonic() } else { 0 };
        writeln!(self.episodes, "episode Swap {begin} {end} {end}")
            .expect("the file of the episodes");
    }

    /// One fault of one of these kinds, or two of them at once, until all are served again.
    pub fn episode(&mut self, kinds: &[Kind]) {
        if matches!(self.group.world, World::Duel(_)) {
            return self.swap();
        }
        let kind = self.dice.pick(kinds);
        let second = self.dice.pick(kinds);
        // Moves of slots alone are harmless: let there be many with another fault.
        let of_pairs = if self.group.world == World::Cluster { 2 } else { 4 };
        let is_double = self.dice.one_in(of_pairs) && second != kind;
        let lasts = Duration::from_millis(300) + self.dice.millis(4_200);
        let fault = monotonic();
        self.strike(kind);
        if is_double {
            park_timeout(lasts / 3);
            self.strike(second);
        }
        park_timeout(lasts);
        // Otherwise the Sentinels correct it.
        let is_by_hand = kind == Kind::PromoteByHand && self.group.world == World::Sentinel;
        if is_by_hand && !is_double && self.dice.one_in(2) {
            for server in (0..HOSTS).filter(|&server| server != self.primaries[0]) {
                self.group.follow(&self.net, server, self.primaries[0]);
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
        let world = self.group.world;
        let primary = match world {
            World::Quorum => self.dice.index(HOSTS),
            _ => self.dice.pick(&self.primaries),
        };
        let group = world.group(primary);
        let first = self.dice.index(HOSTS - 1);
        let replicas =
            [1 + first, 2 - first].map(|n| group.start + (primary - group.start + n) % HOSTS);
        let n = self.dice.index(CLIENTS);
        let client = Node::Client(n);
        let is_judge = |node: &Node| match world {
            World::Sentinel => matches!(node, Node::Sentinel(_)),
            _ => matches!(node, &Node::Server(n) if !group.contains(&n)),
        };
        let judges: Vec<Node> = world.nodes().into_iter().filter(is_judge).collect();
        let host = |n: usize| {
            let has_sentinel = (world == World::Sentinel).then_some(Node::Sentinel(n));
            [Some(Node::Server(n)), has_sentinel].into_iter().flatten().collect::<Vec<_>>()
        };
        let all_but = |some: &[Node]| {
            let nodes = world.nodes().into_iter();
            nodes.filter(|node| !some.contains(node)).collect::<Vec<_>>()
        };
        let is_host = |node: &Node| world == World::Quorum || !matches!(node, Node::Client(_));
        let (one, pair) = (host(primary), [host(primary), host(replicas[0])].concat());
        let servers = [Node::Server(primary), Node::Server(replicas[0])];
        let others: Vec<Node> = all_but(&one).into_iter().filter(is_host).collect();
        let chosen = self.dice.pick(&[primary, replicas[0]]);
        match kind {
            Kind::CutHost => self.net.cut(&one, &others),
            Kind::CutToHost => self.net.cut_way(&others, &one),
            Kind::CutFromHost => self.net.cut_way(&one, &others),
            Kind::CutWithClient => self.cut_off(&[&one[..], &[client]].concat()),
            Kind::CutPair => self.cut_off(&[&pair[..], &[client]].concat()),
            Kind::CutJudges => self.net.cut(&servers[..1], &judges),
            Kind::CutPairFromJudges => {
                self.net.cut(&servers, &[&judges[..], &[Node::Server(replicas[1])]].concat());
            }
            Kind::CutPairThenPrimary => {
                self.cut_off(&[servers[0], servers[1], client]);
                park_timeout(PROMOTION);
                self.net.heal();
                self.cut_off(&[servers[0], client]);
            }
            Kind::StopPrimary => self.group.servers[primary].process.freeze(),
            Kind::StopReplica => self.group.servers[replicas[0]].process.freeze(),
            Kind::StopJudge => {
                let judge = self.dice.pick(&judges);
                self.group.member(judge).process.freeze();
            }
            Kind::StopClient => self.clients[n].child.freeze(),
            Kind::KillPrimary => self.group.servers[primary].process.kill(),
            Kind::KillPair => {
                for server in [primary, replicas[0]] {
                    self.group.servers[server].process.kill();
                }
            }
            Kind::FillDisk => self.group.servers[chosen].fill_disk(),
            Kind::StepClock => {
                let ms = i64::try_from(self.dice.below(2 * self.step)).unwrap_or(0);
                let ms = ms - i64::try_from(self.step).unwrap_or(0);
                self.group.servers[chosen].clock.shift_nanos(ms * 1_000_000);
            }
            // Sentinels and nodes may refuse; then the episode is a quiet one.
            Kind::OrderFailover => self.group.order_failover(replicas[0]),
            Kind::PromoteByHand => self.group.promote(replicas[0]),
            Kind::SlowPrimary => {
                let kbit = 40 + self.dice.below(200);
                self.net.slow_down(servers[0], kbit);
            }
            Kind::MoveSlots | Kind::LeaveSlots => self.move_slots(kind),
            // An episode of its own.
            Kind::Swap => {}
        }
    }

    /// Cuts these nodes off from all others.
    fn cut_off(&mut self, side: &[Node]) {
        let mut others = self.group.world.nodes();
        others.retain(|node| !side.contains(node));
        self.net.cut(side, &others);
    }

    fn move_slots(&mut self, kind: Kind) {
        for key in KEYS {
            let steps = if kind == Kind::MoveSlots { 3 } else { 1 + self.dice.below(2) };
            // What is not done is left to `end_moves`.
            let _ = self.group.move_slot(&self.net, key, &self.primaries, steps);
            park_timeout(self.dice.millis(100));
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
        for server in &self.group.servers {
            server.mend();
        }
        self.group.revive(&self.net);
    }

    /// Waits for a whole group, and then for a fresh lock of each client. Returns when that was; 0: it took too long.
    fn wait_served(&mut self) -> Nanos {
        let start = Instant::now();
        let mut whole = None;
        while start.elapsed() < HEALS {
            match self.group.whole() {
                Some(primaries) if self.primaries == primaries && whole.is_some() => {
                    if self.clients.iter_mut().map(Process::probed).min() > whole {
                        return monotonic();
                    }
                }
                Some(primaries) => (self.primaries, whole) = (primaries, Some(monotonic())),
                None => {
                    whole = None;
                    // A full disk ends the process of a cluster's node, also after it was healed.
                    self.group.revive(&self.net);
                    self.group.end_moves(&self.net);
                }
            }
            park_timeout(POLL);
        }
        0
    }
}
