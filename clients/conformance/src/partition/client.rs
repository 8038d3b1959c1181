//! A client process with its proxy, and what its tasks do.

mod fault;

use std::{
    io::{PipeWriter, Write as _},
    process::{Command, Stdio},
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use dlock_testing::{Dice, Guarded, Proxy};

use self::fault::{KINDS, Kind};
use super::{At, Belief, CLIENTS, Session, lock};
use crate::driver::{read, start};

const TASKS: usize = 6;
/// Turns between two looks for holds that nobody has.
const ROUND: usize = 24;
const TICK: Duration = Duration::from_millis(4);
const CHECK: Duration = Duration::from_millis(15);
/// A call that takes longer hangs. Times in which the harness itself does not run do not count.
const HANGS: Duration = Duration::from_mins(2);
const RUNS: Duration = Duration::from_millis(50);

/// What tasks ask for: the mode, the keys, and how many parties may have a key at once.
type Wanted = (&'static str, &'static str, usize);
const WANTED: [Wanted; 8] = [
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Asked,
    Held,
    Releasing,
}

#[derive(Debug, Default)]
struct Task {
    name: String,
    wanted: Wanted,
    party: String,
    state: State,
    /// Since when it is in this state, when that is too long, and when the next thing is to be done.
    since: At,
    hangs: At,
    until: At,
    /// The belief, to the last yes.
    begin: At,
    yes: At,
    /// When `check` was asked, and is not answered.
    asked: Option<At>,
    /// When its loss was heard.
    lost: Option<At>,
}

impl Task {
    fn turn(&mut self, state: State, now: At, lasts: Duration) {
        (self.state, self.since, self.hangs, self.until) = (state, now, now + HANGS, now + lasts);
    }

    /// Ends the belief.
    fn settle(&mut self, session: &Session<'_>, end: At) {
        let (begin, party, task) = (self.begin, self.party.clone(), self.name.clone());
        if end > begin {
            session.believe(self.wanted.1, self.wanted.2, &Belief { begin, end, party, task });
        }
        self.turn(State::Idle, end, Duration::ZERO);
    }

    /// What it gets if granted is held for `work`.
    fn hear(&mut self, session: &Session<'_>, at: At, words: &str, work: Duration) {
        match (self.state, words.split(' ').next().unwrap_or_default()) {
            (State::Asked, "granted") => {
                session.tally.grants.fetch_add(1, Ordering::Relaxed);
                self.turn(State::Held, at, work);
                (self.begin, self.yes, self.asked, self.lost) = (at, at, None, None);
            }
            (State::Asked, _) => self.turn(State::Idle, at, CHECK),
            (State::Held | State::Releasing, "is") => match self.asked.take() {
                Some(asked) if words == "is held" => self.yes = asked,
                _ => self.lost = self.lost.or(Some(at)),
            },
            (State::Held | State::Releasing, "lost") => self.lost = self.lost.or(Some(at)),
            (State::Releasing, "released") if self.lost.is_some_and(|lost| lost < self.since) => {
                session.find(at, &format!("{} released after its loss", self.name));
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
    said: Receiver<(At, String)>,
}

impl Process {
    fn start(session: &Session<'_>) -> Option<Process> {
        let begin = session.tally.begin;
        let quiet = |process: &mut Command| _ = process.stderr(Stdio::null());
        let started = start(&session.plan.command, quiet);
        let (child, input, output, ()) =
            started.map_err(|error| session.find(begin.elapsed(), &error)).ok()?;
        let (sender, said) = channel();
        read(output, move |line| {
            let line = line.map(|line| sender.send((begin.elapsed(), line.to_owned())));
            line.unwrap_or(Ok(())).unwrap_or_default();
        });
        Some(Process { child, input, said })
    }

    fn tell(&mut self, line: &str) {
        // Its end is noticed when nothing more can be heard.
        let _ = writeln!(self.input, "{line}");
    }
}

pub(super) struct Client<'a> {
    session: &'a Session<'a>,
    n: usize,
    process: Option<Process>,
    is_open: bool,
    /// When that takes too long.
    opens: At,
    /// When it was at work.
    worked: At,
    /// Numbers of clients and tasks.
    serial: [usize; 2],
    tasks: [Task; TASKS],
    lease: u64,
    dice: Dice,
    /// How many turns it had, and the kind of this one.
    turns: usize,
    kind: Kind,
}

impl<'a> Client<'a> {
    pub(super) fn start(session: &'a Session<'a>, n: usize) -> Client<'a> {
        let part = session.n * CLIENTS + n;
        let dice = Dice::part(session.plan.seed, part as u64);
        let (process, tasks) = (Process::start(session), Default::default());
        let (is_open, opens, worked) = (false, At::ZERO, session.now());
        let (serial, lease) = ([0; 2], 0);
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
    pub(super) fn round(&mut self) {
        if self.is_open {
            self.tell(&format!("close {}", self.name()));
        }
        self.lease = self.dice.pick(&[600, 1000, 2000]);
        self.open();
        let (end, mut fault) = (self.turns + ROUND, None);
        while !self.session.has_found() {
            let goes_on = self.turns < end && !self.session.is_over();
            self.listen();
            fault = self.strike(fault, goes_on);
            self.work(goes_on);
            let is_idle = self.tasks.iter().all(|task| task.state == State::Idle);
            if !goes_on && fault.is_none() && is_idle && self.is_open {
                break;
            }
        }
    }

    fn name(&self) -> String {
        format!("C{}.{}", self.n, self.serial[0])
    }

    fn tell(&mut self, line: &str) {
        if let Some(process) = &mut self.process {
            process.tell(line);
        }
    }

    fn open(&mut self) {
        self.serial[0] += 1;
        (self.is_open, self.opens) = (false, self.session.now() + HANGS);
        let (name, url, lease) = (self.name(), self.proxy().url(), self.lease);
        let queue = self.dice.pick(&[500, 2000]);
        self.tell(&format!(
            "open {name} {url} lease={lease} queue={queue} response-timeout=500 retry-for=3000"
        ));
    }

    fn listen(&mut self) {
        let Some(process) = &self.process else {
            thread::park_timeout(TICK);
            return;
        };
        let mut heard = Vec::new();
        match process.said.recv_timeout(TICK) {
            Ok(line) => heard.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.session.find(self.session.now(), "a driver has ended");
                thread::park_timeout(TICK);
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
                let most = if self.dice.one_in(2) { 60 } else { self.lease * 5 / 2 };
                task.hear(self.session, at, words, self.dice.millis(most));
            }
        }
    }

    fn work(&mut self, goes_on: bool) {
        let (session, now) = (self.session, self.session.now());
        let late = now.saturating_sub(self.worked + RUNS);
        self.worked = now;
        let client = self.name();
        let Some(process) = &mut self.process else { return };
        for task in &mut self.tasks {
            let dice = &mut self.dice;
            task.hangs += late;
            match task.state {
                State::Idle if goes_on && self.is_open && now >= task.until => {
                    self.serial[1] += 1;
                    task.name = format!("t{}.{}", self.n, self.serial[1]);
                    task.wanted = dice.pick(&WANTED);
                    let (mode, keys, limit) = task.wanted;
                    let wait = dice.pick(&[0, 200, 1500, 5000]);
                    let owner = format!("o{}", dice.below(2));
                    task.party = match (mode, keys) {
                        ("read", _) => mode.to_owned(),
                        (_, "shared") => owner.clone(),
                        _ => task.name.clone(),
                    };
                    let options = match (mode, keys) {
                        ("semaphore", _) => format!(" limit={limit}"),
                        (_, "shared") => format!(" owner={owner}"),
                        _ => String::new(),
                    };
                    let line = format!(
                        "acquire {} {client} {mode} {keys} wait={wait}{options}",
                        task.name
                    );
                    session.note(format!("{} > {line}", self.n));
                    task.turn(State::Asked, now, Duration::ZERO);
                    process.tell(&line);
                }
                State::Held if task.lost.is_some() || now >= task.until || !goes_on => {
                    session.note(format!("{} > release {}", self.n, task.name));
                    task.turn(State::Releasing, now, Duration::ZERO);
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
            session.find(now.saturating_sub(HANGS), &format!("{client} does not open"));
        }
    }
}
