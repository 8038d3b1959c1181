//! Leaders under cuts: a leader knows that it has lost before the next one leads, and a reset costs no leadership.

mod failover;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dlock_client::{Client, Election, Hold, Leadership};
use dlock_testing::{Cut, Guarded, Proxy, Reply as _, Server, Way};

use crate::support::{number, start, until, within};

/// Ends a leadership whose connection stays open at the server.
const LEASE: Duration = Duration::from_secs(4);
/// The default of [`Election::bind`].
const BIND: Duration = Duration::from_secs(2);
/// How often candidates are asked whether they lead.
const ASK: Duration = Duration::from_micros(500);

/// When a candidate said that it leads.
#[derive(Clone, Copy, Debug)]
struct Yes {
    /// It had said so by then.
    first: Instant,
    /// It was asked then, and said so.
    last: Instant,
}

/// Asks a candidate over and over whether it leads, on a thread of its own.
struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Yes>>,
}

impl Sampler {
    fn new(mut leads: impl FnMut() -> bool + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = is_over.clone();
        let thread = thread::spawn(move || {
            let mut yes = None;
            while !until.load(Ordering::Relaxed) {
                let asked = Instant::now();
                if leads() {
                    yes.get_or_insert(Yes { first: Instant::now(), last: asked }).last = asked;
                }
                thread::sleep(ASK);
            }
            yes
        });
        Self { is_over, thread }
    }

    fn of(hold: Hold) -> Self {
        Self::new(move || !hold.valid_for().is_zero())
    }

    /// None: it never said yes.
    fn end(self) -> Option<Yes> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Of each two, the former said no before the latter said yes. Returns the time between them.
#[track_caller]
fn check_order(scene: &str, former: Sampler, latter: Sampler) -> Duration {
    let (former, latter) = (former.end().expect("it led"), latter.end().expect("it leads"));
    let both = former.last.saturating_duration_since(latter.first);
    assert!(both.is_zero(), "{scene}: two leaders for {both:?}");
    latter.first - former.last
}

/// What happens to the connection of a leader. Nothing passes afterwards.
#[derive(Clone, Copy, Debug)]
enum Scene {
    /// The server closes it, and the client gets no FIN.
    ServerCloses,
    /// The client gets a RST, and the server does not.
    ClientLoses,
    /// Both get a RST.
    BothLose,
    /// It stalls without an end.
    Stalls(Way),
    StallsBothWays,
}

impl Scene {
    const ALL: [Self; 6] = [
        Self::ServerCloses,
        Self::ClientLoses,
        Self::BothLose,
        Self::Stalls(Way::ToServer),
        Self::Stalls(Way::ToClient),
        Self::StallsBothWays,
    ];

    fn begin(self, proxy: &Proxy, server: &Server, election: &str) {
        proxy.refuse();
        match self {
            Self::ServerCloses => {
                proxy.stall_all();
                kill_leader(server, election);
            }
            Self::ClientLoses => proxy.cut(Cut::HalfOpen),
            Self::BothLose => proxy.cut(Cut::Reset),
            Self::Stalls(way) => proxy.stall(way),
            Self::StallsBothWays => proxy.stall_all(),
        }
    }
}

fn leader_connection(server: &Server, election: &str) -> i64 {
    number(&server.cmd(&["DLOCK.INFO", election]), "bound-client")
}

fn kill_leader(server: &Server, election: &str) {
    let id = leader_connection(server, election).to_string();
    assert_ne!(id, "0", "{election} is not bound");
    server.cmd(&["CLIENT", "KILL", "ID", &id]).int();
}

/// Waits for the next leader of an election that another candidate leads.
async fn followed_by(server: &Server, election: &Election, name: &str) -> NextLeader {
    let election = election.clone();
    let next = tokio::spawn(async move {
        let leadership = election.campaign().await.unwrap();
        let since = Instant::now();
        let sampler = Sampler::of(leadership.hold());
        (leadership, sampler, since)
    });
    until("a candidate", || number(&server.cmd(&["DLOCK.INFO", name]), "waiters") == 1).await;
    next
}

type NextLeader = tokio::task::JoinHandle<(Leadership, Sampler, Instant)>;

/// The leader did nothing for some time before the cut, so that its last answer is of any age.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_says_no_before_the_next_one_leads() {
    let (server, client) = start().await;
    let server = Arc::new(server);
    let mut scenes = Vec::new();
    for round in 0..4_u64 {
        for scene in Scene::ALL {
            let (server, client) = (server.clone(), client.clone());
            let idle = Duration::from_millis(100 + 800 * round);
            scenes.push(tokio::spawn(async move {
                let name = format!("{scene:?} after {idle:?}");
                let proxy = Proxy::to(&server);
                let cut_off = Client::connect(&proxy.url()).await.unwrap();
                let leadership = cut_off.election(&name).lease(LEASE).campaign().await.unwrap();
                let former = Sampler::of(leadership.hold());
                let next = followed_by(&server, &client.election(&name), &name).await;
                tokio::time::sleep(idle).await;
                assert_eq!(leadership.lost_now(), None, "{name}");
                tokio::task::block_in_place(|| scene.begin(&proxy, &server, &name));
                let (next, latter, _) = within("the next leader", next).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                let between = check_order(&name, former, latter);
                println!("{name}: {between:?} between the leaders");
                proxy.heal();
                within("its end", next.resign()).await.unwrap();
            }));
        }
    }
    for scene in scenes {
        scene.await.unwrap();
    }
    client.close().await.unwrap();
}

/// One hundred connections of idle leaders are killed, each after another time without a request. No leader loses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_costs_no_leadership() {
    const LEADERS: u32 = 50;
    let server = Server::start();
    let mut leaders = Vec::new();
    for n in 0..LEADERS {
        let client = Client::connect(&server.url()).await.unwrap();
        let name = format!("e{n}");
        leaders.push((client.election(&name).campaign().await.unwrap(), client, name));
    }
    for _ in 0..2 {
        // Idle for up to three seconds.
        for (leadership, _, name) in &leaders {
            tokio::time::sleep(Duration::from_secs(3) / LEADERS).await;
            assert_eq!(leadership.lost_now(), None, "{name}");
            let before = leader_connection(&server, name);
            kill_leader(&server, name);
            let bound = || ![0, before].contains(&leader_connection(&server, name));
            until("the leader to be bound again", bound).await;
        }
    }
    tokio::time::sleep(BIND).await;
    for (leadership, client, name) in leaders {
        assert_eq!(leadership.lost_now(), None, "{name}");
        leadership.resign().await.unwrap();
        client.close().await.unwrap();
    }
    server.left_over_check();
}

/// Environment of a child process that leads: the server's URL, and the first and the last number of its elections.
const CHILD: [&str; 3] = ["DLOCK_LEADER_URL", "DLOCK_LEADER_FIRST", "DLOCK_LEADER_LAST"];

/// A process that leads elections, and says so when it is asked on its standard input.
struct Process {
    child: Guarded,
    /// Closed while the process is stopped: an answer from before would count as one from after.
    asks: Arc<std::sync::Mutex<()>>,
    sampler: Option<Sampler>,
}

impl Process {
    fn start(url: &str, first: usize, last: usize) -> Self {
        let (asked, questions) = std::io::pipe().unwrap();
        let (answers, answered) = std::io::pipe().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "leaders::the_process_that_leads", "--nocapture"])
            .env(CHILD[0], url)
            .env(CHILD[1], first.to_string())
            .env(CHILD[2], last.to_string())
            .stdin(Stdio::from(asked))
            .stdout(Stdio::from(answered));
        let child = Guarded::spawn(command).unwrap();
        let asks = Arc::new(std::sync::Mutex::new(()));
        let turn = asks.clone();
        let (mut questions, mut answers) = (questions, BufReader::new(answers).lines());
        let sampler = Sampler::new(move || {
            let _turn = turn.lock().unwrap();
            // A process that is gone says nothing.
            if questions.write_all(b"?\n").is_err() {
                return false;
            }
            let mut answer = answers.by_ref().map_while(Result::ok);
            answer.find(|line| ["yes", "no"].contains(&line.as_str())).is_some_and(|a| a == "yes")
        });
        Self { child, asks, sampler: Some(sampler) }
    }

    fn signal(&self, signal: &str) {
        // The kill of the shell: small systems have no program of that name.
        let kill = format!("kill {signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

/// Run by tests, in a separate process; otherwise it does nothing.
#[test]
fn the_process_that_leads() {
    let [Ok(url), Ok(first), Ok(last)] = CHILD.map(std::env::var) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let leaderships: Vec<Leadership> = runtime.block_on(async {
        let client = Client::connect(&url).await.unwrap();
        let mut leaderships = Vec::new();
        for n in first.parse::<usize>().unwrap()..=last.parse().unwrap() {
            let election = client.election(format!("e{n}")).lease(LEASE);
            leaderships.push(election.campaign().await.unwrap());
        }
        leaderships
    });
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        let leads = leaderships.iter().any(|one| one.lost_now().is_none());
        // On a line of its own, whatever the test harness says.
        println!("\n{}", if leads { "yes" } else { "no" });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_or_stops_is_followed_by_one_leader() {
    let (server, client) = start().await;
    for (n, signal) in ["-KILL", "-TERM", "-STOP"].into_iter().enumerate() {
        let name = format!("e{n}");
        let mut process = Process::start(&server.url(), n, n);
        until("it to lead", || leader_connection(&server, &name) != 0).await;
        let next = followed_by(&server, &client.election(&name), &name).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let asks = process.asks.clone();
        let turn = (signal == "-STOP").then(|| asks.lock().unwrap());
        process.signal(signal);
        let (next, latter, _) = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(within("the next leader", next)).unwrap()
        });
        if signal == "-STOP" {
            process.child.thaw();
        }
        drop(turn);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let between = check_order(signal, process.sampler.take().unwrap(), latter);
        println!("{signal}: {between:?} between the leaders");
        next.resign().await.unwrap();
        process.child.kill();
    }
    client.close().await.unwrap();
    server.left_over_check();
}

/// p50 and p99 of the time without a leader, for each cause. benches/README.md has the figures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_there_is_no_leader() {
    const ELECTIONS: usize = 40;
    let (server, client) = start().await;
    for cause in ["the process dies", "the connection is cut", "the machine vanishes"] {
        let proxy = Proxy::to(&server);
        let mut process = None;
        let mut cut_off = Vec::new();
        if cause == "the process dies" {
            process = Some(Process::start(&proxy.url(), 0, ELECTIONS - 1));
        } else {
            let former = Client::connect(&proxy.url()).await.unwrap();
            for n in 0..ELECTIONS {
                let election = former.election(format!("e{n}")).lease(LEASE);
                cut_off.push(election.campaign().await.unwrap());
            }
        }
        let mut next = Vec::new();
        for n in 0..ELECTIONS {
            let name = format!("e{n}");
            until("it to lead", || leader_connection(&server, &name) != 0).await;
            next.push(followed_by(&server, &client.election(&name), &name).await);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let start = Instant::now();
        match &mut process {
            Some(process) => process.child.kill(),
            None if cause == "the connection is cut" => {
                proxy.refuse();
                proxy.cut(Cut::Reset);
            }
            None => proxy.stall_all(),
        }
        let mut times = Vec::new();
        for next in next {
            let (leadership, sampler, since) = within("the next leader", next).await.unwrap();
            times.push(since - start);
            sampler.end();
            leadership.resign().await.unwrap();
        }
        times.sort_unstable();
        let (p50, p99) = (times[ELECTIONS / 2], times[ELECTIONS * 99 / 100]);
        println!("{cause}: p50 {p50:?}, p99 {p99:?} of {ELECTIONS}");
        assert!(p99 < LEASE + BIND, "{cause}: {p99:?}");
        if let Some(mut process) = process {
            process.sampler.take().unwrap().end();
        }
    }
    client.close().await.unwrap();
}
