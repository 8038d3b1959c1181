//! The partition harness: clients that contend for a few locks, while the reply of each of their requests in turn is
//! lost, by a cut, a hole, a stopped server, a dead process. A *turn* is one fault. It begins with the `k`-th request
//! since the turn before; all faults meet request 1, then all meet request 2, and so on.
//!
//! All times are of one monotonic clock, each on the side that favours the client: a belief begins when the harness has
//! heard `granted`, and ends before it asked the `check` that was answered with `held`, or the release that was answered
//! with `released`.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io::{PipeWriter, Write as _},
    process::Stdio,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use dlock_testing::{Binary, Cut, Dice, Fault, Guarded, Proxy, Server, Trigger, Way};

use crate::driver::{read, start};

/// Client processes of a session, and tasks of each.
const CLIENTS: usize = 3;
const TASKS: usize = 6;
/// Turns of each client between two looks for holds that nobody has.
const ROUND: usize = 24;
/// Requests of a walk: the last `k`.
const REQUESTS: usize = 30;
const TICK: Duration = Duration::from_millis(4);
const CHECK: Duration = Duration::from_millis(15);
/// A call that takes longer hangs. Times in which the harness itself does not run do not count.
const HANGS: Duration = Duration::from_secs(30);
const RUNS: Duration = Duration::from_millis(50);
/// Nothing is held, and nobody waits, after so many looks once all have ended: dead places of a fair lock take time.
const LOOKS: usize = 800;

/// What tasks ask for: the mode, the keys, and how many parties may have a key at once.
const WANTED: [(&str, &str, usize); 8] = [
    ("lock", "a", 1),
    ("lock", "b", 1),
    // Two owners, each of many tasks of all clients.
    ("lock", "shared", 1),
    ("multi", "a,b", 1),
    ("fair", "fair", 1),
    ("read", "rw", 1),
    ("write", "rw", 1),
    ("semaphore", "permits", 2),
];

/// What happens when the reply of the chosen request is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    LoseReply,
    LoseRequest,
    HalfOpen,
    /// The replies of this connection are late.
    Stall,
    /// They are late, and then requests vanish for longer than a lease.
    StallThenHole,
    CutAll,
    /// Requests vanish.
    Hole,
    /// Replies vanish.
    Mute,
    DropMessages,
    StopServer,
    KillServer,
    StopClient,
    KillClient,
}

const KINDS: [Kind; 13] = [
    Kind::LoseReply,
    Kind::LoseRequest,
    Kind::HalfOpen,
    Kind::Stall,
    Kind::StallThenHole,
    Kind::CutAll,
    Kind::Hole,
    Kind::Mute,
    Kind::DropMessages,
    Kind::StopServer,
    Kind::KillServer,
    Kind::StopClient,
    Kind::KillClient,
];

/// What to run.
#[derive(Clone, Debug)]
pub struct Partition {
    /// How many faults.
    pub turns: usize,
    /// The seed of faults and tasks.
    pub seed: u64,
    /// Sessions at a time: each has a server and three client processes.
    pub sessions: usize,
    /// The driver.
    pub command: Vec<String>,
}

#[derive(Debug)]
struct Tally {
    begin: Instant,
    turns: AtomicUsize,
    grants: AtomicUsize,
    findings: AtomicUsize,
    words: Mutex<BTreeMap<String, usize>>,
}

/// Runs it until the first finding, and prints what was found; true if that is nothing.
pub fn partition(plan: &Partition, binary: &Binary) -> bool {
    let [turns, grants, findings] = Default::default();
    let tally = Tally { begin: Instant::now(), turns, grants, findings, words: Mutex::default() };
    let is_complete = thread::scope(|scope| {
        let (plan, tally) = (plan, &tally);
        let run = |n| scope.spawn(move || Session::start(plan, tally, binary, n).run());
        let sessions: Vec<_> = (0..plan.sessions).map(run).collect();
        // Not `all`: each thread is waited for.
        sessions.into_iter().fold(true, |is_fine, session| session.join().is_ok() && is_fine)
    });
    println!("{:?}", lock(&tally.words));
    let [turns, grants, findings] =
        [tally.turns, tally.grants, tally.findings].map(AtomicUsize::into_inner);
    let seconds = tally.begin.elapsed().as_secs();
    println!(
        "{turns} turns, {grants} grants, {findings} findings, seed {}, {seconds} s",
        plan.seed
    );
    is_complete && findings == 0
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug)]
struct Belief {
    begin: Instant,
    end: Instant,
    /// Tasks that may share a key are one party.
    party: String,
    task: String,
}

/// A server, and clients with a proxy each.
struct Session<'a> {
    plan: &'a Partition,
    tally: &'a Tally,
    n: usize,
    server: Mutex<Server>,
    proxies: Vec<Proxy>,
    beliefs: Mutex<HashMap<String, Vec<Belief>>>,
    log: Mutex<VecDeque<(Instant, String)>>,
}

impl<'a> Session<'a> {
    fn start(plan: &'a Partition, tally: &'a Tally, binary: &Binary, n: usize) -> Session<'a> {
        let settings = ["appendonly", "yes", "dlock.fair-grace-ms", "500"];
        let server = Server::with(&settings).binary(binary).start();
        let proxies: Vec<_> = (0..CLIENTS).map(|_| Proxy::to(&server)).collect();
        proxies.iter().for_each(Proxy::remember);
        let (server, beliefs, log) = (Mutex::new(server), Mutex::default(), Mutex::default());
        Session { plan, tally, n, server, proxies, beliefs, log }
    }

    fn run(&self) {
        let mut clients: Vec<_> = (0..CLIENTS).map(|n| Client::start(self, n)).collect();
        while !self.is_over() {
            thread::scope(|scope| {
                for client in &mut clients {
                    scope.spawn(move || client.round());
                }
            });
            if self.has_found() {
                return;
            }
            let (server, ended) = (lock(&self.server), Instant::now());
            let left = || {
                let info = server.info("dlock");
                let fields = ["held_locks", "leased_permits", "waiters_blocked", "waiters_queued"];
                let left = fields.map(|field| info.get(field).cloned().unwrap_or_default());
                left.iter().any(|number| number != "0").then_some(left)
            };
            let mut looks = (0..LOOKS).map(|_| left()).take_while(Option::is_some);
            looks.by_ref().take(LOOKS - 1).for_each(|_| thread::sleep(CHECK));
            if let Some(left) = looks.next().flatten() {
                self.find(ended, &format!("held, permits, blocked, queued at the end: {left:?}"));
            }
        }
    }

    fn is_over(&self) -> bool {
        let turns = self.tally.turns.load(Ordering::SeqCst);
        turns >= self.plan.turns || self.has_found()
    }

    fn has_found(&self) -> bool {
        self.tally.findings.load(Ordering::SeqCst) > 0
    }

    fn note(&self, text: String) {
        let mut log = lock(&self.log);
        if log.len() == 5_000 {
            log.drain(..1_000);
        }
        log.push_back((Instant::now(), text));
    }

    /// Shows what happened since shortly before `from`.
    fn find(&self, from: Instant, what: &str) {
        if self.tally.findings.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let from = from.checked_sub(Duration::from_secs(3)).unwrap_or(from);
        let mut lines: Vec<_> = lock(&self.log).iter().cloned().collect();
        for (n, proxy) in self.proxies.iter().enumerate() {
            let mark = |way| if way == Way::ToServer { '→' } else { '←' };
            let frames = proxy.wire().into_iter();
            lines
                .extend(frames.map(|frame| (frame.at, format!("{n} {} {frame}", mark(frame.way)))));
        }
        lines.retain(|(at, _)| *at >= from);
        lines.sort_by_key(|(at, _)| *at);
        for (at, line) in lines {
            println!("  {:7.3} {line}", (at - from).as_secs_f64());
        }
        let (n, seed, after) = (self.n, self.plan.seed, self.tally.begin.elapsed().as_secs());
        println!("FOUND after {after} s, in session {n} of seed {seed}: {what}");
    }

    /// Adds the belief in some keys of which each admits `limit` parties.
    fn believe(&self, keys: &str, limit: usize, belief: &Belief) {
        for key in keys.split(',') {
            let mut all = lock(&self.beliefs);
            let all = all.entry(key.to_owned()).or_default();
            if all.len() == 4_000 {
                all.drain(..2_000);
            }
            all.push(belief.clone());
            let meets = |one: &&Belief| one.begin < belief.end && belief.begin < one.end;
            let met: Vec<&Belief> = all.iter().filter(meets).collect();
            for at in met.iter().map(|one| one.begin.max(belief.begin)) {
                let at_once = met.iter().filter(|one| one.begin <= at && at < one.end);
                let mut by_party: Vec<&Belief> = at_once.copied().collect();
                by_party.sort_by(|one, other| one.party.cmp(&other.party));
                by_party.dedup_by(|one, other| one.party == other.party);
                if by_party.len() > limit {
                    let end = by_party.iter().map(|one| one.end).min().unwrap_or(at);
                    let tasks: Vec<_> = by_party.iter().map(|one| &one.task).collect();
                    self.find(at, &format!("{key} of {tasks:?} for {:?}", end - at));
                    return;
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Asked,
    Held,
    Releasing,
}

#[derive(Debug)]
struct Task {
    name: String,
    wanted: (&'static str, &'static str, usize),
    party: String,
    state: State,
    /// Since when it is in this state, and when that is too long.
    since: Instant,
    hangs: Instant,
    /// When the next thing is to be done.
    until: Instant,
    /// The belief: of the last yes.
    begin: Instant,
    yes: Instant,
    /// When `check` was asked, and is not answered.
    asked: Option<Instant>,
    is_lost: bool,
}

impl Task {
    fn new(now: Instant) -> Task {
        let (name, party) = Default::default();
        let (wanted, state) = (WANTED[0], State::Idle);
        Task {
            name,
            wanted,
            party,
            state,
            since: now,
            hangs: now,
            until: now,
            begin: now,
            yes: now,
            asked: None,
            is_lost: false,
        }
    }

    fn turn(&mut self, state: State, until: Instant) {
        (self.state, self.since, self.until) = (state, Instant::now(), until);
        self.hangs = self.since + HANGS;
    }

    /// Ends the belief.
    fn settle(&mut self, session: &Session<'_>, end: Instant) {
        let (begin, party, task) = (self.begin, self.party.clone(), self.name.clone());
        if end > begin {
            session.believe(self.wanted.1, self.wanted.2, &Belief { begin, end, party, task });
        }
        self.turn(State::Idle, Instant::now());
    }

    fn hear(
        &mut self,
        session: &Session<'_>,
        at: Instant,
        words: &str,
        dice: &mut Dice,
        lease: u64,
    ) {
        match (self.state, words.split(' ').next().unwrap_or_default()) {
            (State::Asked, "granted") => {
                session.tally.grants.fetch_add(1, Ordering::Relaxed);
                let most = if dice.one_in(2) { 60 } else { lease * 5 / 2 };
                self.turn(State::Held, Instant::now() + dice.millis(most));
                (self.begin, self.yes, self.asked, self.is_lost) = (at, at, None, false);
            }
            (State::Asked, _) => self.turn(State::Idle, Instant::now() + dice.millis(30)),
            (State::Held | State::Releasing, "is") => {
                let asked = self.asked.take();
                match asked.filter(|_| words == "is held") {
                    Some(_) if self.is_lost => {
                        session.find(at, &format!("{} held after lost", self.name))
                    }
                    Some(asked) => self.yes = self.yes.max(asked),
                    None => self.is_lost = true,
                }
            }
            (State::Held | State::Releasing, "lost") => self.is_lost = true,
            (State::Releasing, "released") if self.is_lost && self.since > at => {
                session.find(at, &format!("{} released after lost", self.name));
            }
            (State::Releasing, "released") => self.settle(session, self.since),
            (State::Releasing, _) => self.settle(session, self.yes),
            _ => {}
        }
    }
}

struct Process {
    child: Guarded,
    input: PipeWriter,
    said: Receiver<(Instant, String)>,
}

impl Process {
    fn start(command: &[String]) -> Process {
        let (child, input, output, ()) =
            start(command, |process| _ = process.stderr(Stdio::null()))
                .unwrap_or_else(|error| panic!("{error}"));
        let (sender, said) = channel();
        read(output, move |line| {
            let line = line.map(|line| sender.send((Instant::now(), line.to_owned())));
            line.unwrap_or(Ok(())).unwrap_or_default();
        });
        Process { child, input, said }
    }

    fn tell(&mut self, line: &str) {
        // Its end is noticed when nothing more can be heard.
        let _ = writeln!(self.input, "{line}");
    }
}

/// The fault of a client.
enum Turn<'a> {
    /// It begins with a request.
    Armed(Trigger, Instant),
    /// It lasts until then; of a server others cannot have.
    Struck(Instant, Option<MutexGuard<'a, Server>>),
}

struct Client<'a> {
    session: &'a Session<'a>,
    n: usize,
    process: Option<Process>,
    is_open: bool,
    /// When that takes too long.
    opens: Instant,
    /// When it was at work.
    worked: Instant,
    /// Numbers of clients and tasks.
    serial: usize,
    serial_of_tasks: usize,
    tasks: Vec<Task>,
    lease: u64,
    dice: Dice,
    /// How many turns it had, and the kind of this one.
    turns: usize,
    kind: Kind,
}

impl<'a> Client<'a> {
    fn start(session: &'a Session<'a>, n: usize) -> Client<'a> {
        let part = session.n * CLIENTS + n;
        let dice = Dice::part(session.plan.seed, part as u64);
        let process = Some(Process::start(&session.plan.command));
        let tasks = (0..TASKS).map(|_| Task::new(Instant::now())).collect();
        let (is_open, opens, worked, lease) = (false, Instant::now(), Instant::now(), 0);
        let (serial, serial_of_tasks) = (0, 0);
        // The sessions together walk through all requests.
        let (turns, kind) = (part * 101, KINDS[0]);
        Client {
            session,
            n,
            process,
            is_open,
            opens,
            worked,
            serial,
            serial_of_tasks,
            tasks,
            lease,
            dice,
            turns,
            kind,
        }
    }

    fn proxy(&self) -> &'a Proxy {
        &self.session.proxies[self.n]
    }

    /// Some turns; ends when all tasks have ended.
    fn round(&mut self) {
        if self.is_open {
            self.tell(&format!("close {}", self.name()));
        }
        self.lease = self.dice.pick(&[600, 1000, 2000]);
        self.open();
        let (end, mut fault) = (self.turns + ROUND, None);
        loop {
            let goes_on = self.turns < end && !self.session.is_over();
            self.listen();
            fault = self.strike(fault, goes_on);
            self.work(goes_on);
            let is_idle = self.tasks.iter().all(|task| task.state == State::Idle);
            if !goes_on && fault.is_none() && is_idle && self.is_open {
                break;
            }
            if self.session.has_found() {
                break;
            }
        }
    }

    fn name(&self) -> String {
        format!("C{}.{}", self.n, self.serial)
    }

    fn tell(&mut self, line: &str) {
        if let Some(process) = &mut self.process {
            process.tell(line);
        }
    }

    fn open(&mut self) {
        self.serial += 1;
        (self.is_open, self.opens) = (false, Instant::now() + HANGS);
        let (name, url, lease) = (self.name(), self.proxy().url(), self.lease);
        let queue = self.dice.pick(&[500, 2000]);
        self.tell(&format!(
            "open {name} {url} lease={lease} queue={queue} response-timeout=500 retry-for=3000"
        ));
    }

    fn listen(&mut self) {
        let Some(process) = &self.process else {
            thread::sleep(TICK);
            return;
        };
        let mut heard: Vec<(Instant, String)> = Vec::new();
        match process.said.recv_timeout(TICK) {
            Ok(line) => heard.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.session.find(Instant::now(), "a driver has ended");
                thread::sleep(TICK);
            }
        }
        heard.extend(process.said.try_iter());
        for (at, line) in heard {
            let (subject, words) = line.split_once(' ').unwrap_or((&line, ""));
            if !words.starts_with("is ") {
                self.session.note(format!("{} {line}", self.n));
                let word = words.strip_prefix("failed ").or(words.split(' ').next());
                let word = format!("{} {}", &subject[..1], word.unwrap_or_default());
                *lock(&self.session.tally.words).entry(word).or_default() += 1;
            }
            if subject == "driver" || words.starts_with("unsupported") {
                self.session.find(at, &line);
            } else if subject == self.name() {
                match words {
                    "opened" => self.is_open = true,
                    _ => self.open(),
                }
            } else if let Some(task) = self.tasks.iter_mut().find(|task| task.name == subject) {
                task.hear(self.session, at, words, &mut self.dice, self.lease);
            }
        }
    }

    fn work(&mut self, goes_on: bool) {
        let (session, now) = (self.session, Instant::now());
        let late = (now - self.worked).saturating_sub(RUNS);
        self.worked = now;
        let client = self.name();
        let Some(process) = &mut self.process else { return };
        for task in &mut self.tasks {
            let dice = &mut self.dice;
            task.hangs += late;
            match task.state {
                State::Idle if goes_on && self.is_open && now >= task.until => {
                    self.serial_of_tasks += 1;
                    task.name = format!("t{}.{}", self.n, self.serial_of_tasks);
                    task.wanted = dice.pick(&WANTED);
                    let (mode, keys, limit) = task.wanted;
                    let wait = dice.pick(&[0, 200, 1500, 5000]);
                    let owner = format!("o{}", dice.below(2));
                    task.party = match (mode, keys) {
                        ("read", _) => mode.to_owned(),
                        (_, "shared") => owner.clone(),
                        _ => task.name.clone(),
                    };
                    let more = match (mode, keys) {
                        ("semaphore", _) => format!(" limit={limit}"),
                        (_, "shared") => format!(" owner={owner}"),
                        _ => String::new(),
                    };
                    let line =
                        format!("acquire {} {client} {mode} {keys} wait={wait}{more}", task.name);
                    session.note(format!("{} > {line}", self.n));
                    task.turn(State::Asked, now);
                    process.tell(&line);
                }
                State::Held if task.is_lost || now >= task.until || !goes_on => {
                    session.note(format!("{} > release {}", self.n, task.name));
                    task.turn(State::Releasing, now);
                    process.tell(&format!("release {}", task.name));
                }
                State::Held if task.asked.is_none() && now > task.yes + CHECK => {
                    (task.asked, task.hangs) = (Some(now), now + HANGS);
                    process.tell(&format!("check {}", task.name));
                }
                State::Held if task.asked.is_none() => {}
                State::Asked | State::Releasing | State::Held if now > task.hangs => {
                    let (name, state) = (&task.name, task.state);
                    session.find(task.since, &format!("{name} hangs: {state:?} {:?}", task.wanted));
                }
                _ => {}
            }
        }
        self.opens += late;
        if !self.is_open && now > self.opens {
            session.find(now - HANGS, &format!("{client} does not open"));
        }
    }

    /// Begins, goes on with or ends a fault.
    fn strike(&mut self, turn: Option<Turn<'a>>, goes_on: bool) -> Option<Turn<'a>> {
        let (proxy, now) = (self.proxy(), Instant::now());
        match turn {
            None if !goes_on => None,
            None => {
                self.kind = KINDS[self.turns % KINDS.len()];
                let chosen = self.turns / KINDS.len() % REQUESTS;
                let fault = match self.kind {
                    Kind::LoseRequest => Fault::LoseRequest,
                    Kind::HalfOpen => Fault::HalfOpen,
                    Kind::LoseReply => Fault::LoseReply,
                    _ => Fault::StallReply,
                };
                let seen = AtomicUsize::new(0);
                let is_chosen = move |_: &[Vec<u8>]| seen.fetch_add(1, Ordering::SeqCst) == chosen;
                drop(proxy.seen());
                Some(Turn::Armed(proxy.on(1, fault, is_chosen), now))
            }
            Some(Turn::Armed(trigger, _)) if trigger.fired() > 0 => Some(self.begin()),
            // The request has no reply (a SUBSCRIBE), or there are not so many.
            Some(Turn::Armed(_, since)) if now > since + Duration::from_secs(3) => {
                proxy.heal();
                self.turns += 1;
                None
            }
            Some(Turn::Struck(until, _)) if now >= until && self.kind == Kind::StallThenHole => {
                proxy.heal();
                proxy.stall(Way::ToServer);
                self.kind = Kind::Hole;
                Some(Turn::Struck(now + Duration::from_millis(self.lease * 3 / 2), None))
            }
            Some(Turn::Struck(until, server)) if now >= until => {
                self.end(server);
                self.turns += 1;
                let turns = self.session.tally.turns.fetch_add(1, Ordering::SeqCst) + 1;
                if turns % 1_000 == 0 {
                    println!("{turns} turns");
                }
                None
            }
            other => other,
        }
    }

    fn begin(&mut self) -> Turn<'a> {
        let (proxy, session) = (self.proxy(), self.session);
        let mut server = match session.server.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Ok(server) => Some(server),
            Err(TryLockError::Poisoned(_)) => panic!("the server has failed"),
        };
        let most = if self.dice.one_in(4) { self.lease * 3 / 2 } else { 400 };
        let mut lasts = self.dice.millis(most);
        match (self.kind, &mut server) {
            (Kind::LoseReply | Kind::LoseRequest | Kind::HalfOpen, _) => lasts = Duration::ZERO,
            (Kind::Stall | Kind::StallThenHole, _) => {}
            (Kind::CutAll, _) => proxy.cut(Cut::Fin),
            (Kind::Hole, _) => proxy.stall(Way::ToServer),
            // If others have the server.
            (Kind::Mute, _) | (Kind::StopServer | Kind::KillServer, None) => {
                proxy.stall(Way::ToClient);
            }
            (Kind::DropMessages, _) => {
                proxy.heal();
                proxy.swallow_messages();
            }
            (Kind::StopServer, Some(server)) => server.freeze(),
            (Kind::KillServer, Some(server)) => server.kill9(),
            (Kind::StopClient, _) => drop(self.process.as_mut().map(|one| one.child.freeze())),
            (Kind::KillClient, _) => {
                self.process = None;
                for task in &mut self.tasks {
                    if matches!(task.state, State::Held | State::Releasing) {
                        task.settle(session, task.yes);
                    }
                    task.turn(State::Idle, Instant::now());
                }
            }
        }
        session.note(format!("{} * {:?} for {lasts:?}", self.n, self.kind));
        if !matches!(self.kind, Kind::StopServer | Kind::KillServer) {
            server = None;
        }
        Turn::Struck(Instant::now() + lasts, server)
    }

    fn end(&mut self, server: Option<MutexGuard<'a, Server>>) {
        match (self.kind, server) {
            (Kind::StopServer, Some(server)) => server.thaw(),
            (Kind::KillServer, Some(mut server)) => server.start_again(),
            (Kind::StopClient, _) => drop(self.process.as_mut().map(|one| one.child.thaw())),
            _ => {}
        }
        // What is late arrives, or never does.
        if self.dice.one_in(2) && !matches!(self.kind, Kind::DropMessages) {
            self.proxy().cut(Cut::Reset);
        }
        self.proxy().heal();
        self.session.note(format!("{} * healed", self.n));
        if self.process.is_none() {
            self.process = Some(Process::start(&self.session.plan.command));
            self.open();
        }
    }
}
