//! Random histories, checked by a simple model: the server replies `DEADLOCK` if and only if a waiter would wait for
//! itself.
//!
//! The model knows no lock rules. It reads holders and queues, and derives the edges of the wait graph.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redis::Value;

use super::{Wait, one};
use crate::{
    args,
    support::{Client, Dice, Heard, LIMIT, Reply, Server},
};

const LOCKS: [&str; 4] = ["l0", "l1", "l2", "l3"];
const FAIR: [&str; 2] = ["f0", "f1"];
const RW: [&str; 3] = ["r0", "r1", "r2"];
const OWNERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain(Wait),
    Any,
}

fn family(key: &str) -> &'static str {
    match &key[..1] {
        "l" => "DLOCK",
        "f" => "DFAIR",
        _ => "DRW",
    }
}

/// State of a key.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Owner and mode of each hold.
    holds: Vec<(String, &'static str)>,
    /// Waiting owners, in the order of the queue.
    queue: Vec<String>,
}

impl Seen {
    fn is_held_by(&self, owner: &str) -> bool {
        self.holds.iter().any(|(holder, _)| holder == owner)
    }
}

/// A blocked call.
struct Call {
    client: Client,
    owner: &'static str,
}

struct History {
    server: Server,
    dice: Dice,
    calls: Vec<Call>,
    /// A connection for calls that do not block: QUEUE waiters last as long as it does.
    steady: Client,
    /// The last request of each owner for each key.
    asked: BTreeMap<(&'static str, String), Kind>,
    permits: Vec<String>,
    waits: usize,
    refusals: usize,
}

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Whether `start` can be reached from itself.
fn is_in_cycle(arrows: &Arrows, start: &str) -> bool {
    let (mut open, mut known) = (vec![start], BTreeSet::new());
    while let Some(at) = open.pop() {
        for next in arrows.get(at).into_iter().flatten() {
            if next == start {
                return true;
            }
            if known.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

impl History {
    fn new(seed: u64) -> History {
        let server = Server::start();
        server.ask("DSEM.INIT s 1").int();
        let steady = server.client();
        History {
            server,
            steady,
            dice: Dice::new(seed),
            calls: Vec::new(),
            asked: BTreeMap::new(),
            permits: Vec::new(),
            waits: 0,
            refusals: 0,
        }
    }

    /// State of all keys.
    fn look(&self) -> BTreeMap<&'static str, Seen> {
        let keys: Vec<&str> = LOCKS.into_iter().chain(FAIR).chain(RW).collect();
        let mut calls = vec![args!["MULTI"]];
        for key in &keys {
            calls.push(args![format!("{}.INFO", family(key)), key]);
            calls.push(args![format!("{}.WAITERS", family(key)), key]);
        }
        calls.push(args!["EXEC"]);
        let mut replies = Vec::new();
        for call in &calls {
            replies.push(self.server.cmd(call));
        }
        let replies = replies.pop().expect("EXEC").items();
        let mut seen = BTreeMap::new();
        for (key, pair) in keys.into_iter().zip(replies.chunks_exact(2)) {
            let queue = pair[1].items().iter().map(|row| row.field("owner").text()).collect();
            seen.insert(key, Seen { holds: holds(&pair[0]), queue });
        }
        seen
    }

    /// The edges of the wait graph. `all` includes debatable edges: a reader behind a reader, and any waiter behind a
    /// waiter for any of several keys.
    fn arrows(&self, seen: &BTreeMap<&'static str, Seen>, all: bool) -> Arrows {
        let mut arrows = Arrows::new();
        for (&key, Seen { holds, queue }) in seen {
            for (n, owner) in queue.iter().enumerate() {
                let kind = self.kind(key, owner);
                // A call for several keys does not wait for a key that its owner holds.
                let has_it = kind == Kind::Plain(Wait::Several) && seen[key].is_held_by(owner);
                if kind == Kind::Any || has_it {
                    continue;
                }
                let ahead = queue[..n].iter().filter(|other| {
                    let theirs = self.kind(key, other);
                    let read = Kind::Plain(Wait::Read);
                    all || !(theirs == Kind::Any || kind == read && theirs == read)
                });
                let waits_for = holds.iter().map(|(holder, _)| holder).chain(ahead);
                let waits_for = waits_for.filter(|other| *other != owner).cloned();
                arrows.entry(owner.clone()).or_default().extend(waits_for);
            }
        }
        arrows
    }

    fn kind(&self, key: &'static str, owner: &str) -> Kind {
        *self.asked.get(&(key, owner.to_owned())).unwrap_or_else(|| panic!("{owner} at {key}?"))
    }

    fn wants_any(&self, seen: &BTreeMap<&str, Seen>, key: &'static str, owner: &str) -> bool {
        let is_there = seen[key].queue.iter().any(|other| other == owner);
        is_there && self.kind(key, owner) == Kind::Any
    }

    /// Forgets the answered calls.
    fn collect(&mut self) {
        let listed = self.server.ask("CLIENT LIST").text();
        let id = |line: &str| line.split(' ').next()?.strip_prefix("id=")?.parse().ok();
        let is_blocked = |line: &&str| {
            let flags = line.split(' ').find_map(|word| word.strip_prefix("flags="));
            flags.is_some_and(|flags| flags.contains('b'))
        };
        let blocked: BTreeSet<u64> = listed.lines().filter(is_blocked).filter_map(id).collect();
        self.calls.retain_mut(|call| {
            if blocked.contains(&call.client.id()) {
                return true;
            }
            if let reply @ Value::ServerError(_) = call.client.reply(LIMIT) {
                assert!(reply.error().starts_with("REPLACED "), "{}", reply.show());
            }
            false
        });
    }

    /// Requests `keys`, which are of one family. The call must get DEADLOCK if and only if it closes a cycle.
    fn ask_for(&mut self, owner: &'static str, keys: &[&'static str], how: Wait, option: &str) {
        let mut seen = self.look();
        let is_there = |key: &&'static str| seen[*key].queue.iter().any(|other| other == owner);
        let several = how == Wait::Several;
        // A waiting owner may only repeat its request here; other requests have other rules.
        let again = keys.iter().any(is_there);
        // A wait for any key does not count in the search. But when it is granted, the waiters behind it wait for its
        // owner, and no call is left to refuse. So an owner that waits for any key waits for nothing else here.
        if LOCKS.iter().any(|key| self.wants_any(&seen, key, owner)) {
            return;
        }
        if again && (several || self.kind(keys[0], owner) != Kind::Plain(how)) {
            return;
        }
        let call = match how {
            Wait::Several => format!("DLOCK.MACQUIRE {} {} {owner}", keys.len(), keys.join(" ")),
            _ => how.call(keys[0], owner),
        };
        let whole = format!("{call}{option}");
        let words: Vec<&str> = whole.split(' ').collect();
        let mut client = None;
        let reply = if option.contains("BLOCK") {
            let client = client.insert(self.server.client());
            client.send(&words);
            self.outcome(client)
        } else {
            Some(self.steady.cmd(&words))
        };
        if let Some(Value::ServerError(_)) = &reply {
            let error = reply.expect("an error").error();
            assert!(error.starts_with("DEADLOCK "), "{call}{option}: {error}");
            self.refusals += 1;
            assert!(!again, "{call}{option} keeps a place that it had: {error}");
            assert!(self.server.ask(&call).is_null(), "{call} could have been granted: {error}");
            for key in keys {
                let seen = seen.get_mut(key).expect("a key");
                let is_upgrade = how == Wait::Write && seen.is_held_by(owner);
                seen.queue.insert(if is_upgrade { 0 } else { seen.queue.len() }, owner.to_owned());
                self.asked.insert((key, owner.to_owned()), Kind::Plain(how));
            }
            let arrows = self.arrows(&seen, true);
            assert!(is_in_cycle(&arrows, owner), "false alarm: {call}{option}: {error}: {seen:?}");
            return;
        }
        for key in keys {
            self.asked.insert((key, owner.to_owned()), Kind::Plain(how));
        }
        self.judge_wait(&call, option);
        if let (None, Some(client)) = (reply, client) {
            self.calls.push(Call { client, owner });
        }
    }

    /// The reply to a call, or `None` if it blocks.
    fn outcome(&self, client: &mut Client) -> Option<Value> {
        loop {
            if self.server.is_blocked(client.id()) {
                return None;
            }
            match client.hear(Duration::from_millis(1)) {
                Heard::Reply(reply) => return Some(reply),
                Heard::Nothing => {}
                Heard::Closed => panic!("client {} was closed", client.id()),
            }
        }
    }

    /// No admitted wait closes a cycle.
    fn judge_wait(&mut self, call: &str, option: &str) {
        let seen = self.look();
        let arrows = self.arrows(&seen, false);
        self.waits += usize::from(!option.is_empty());
        for owner in arrows.keys() {
            assert!(!is_in_cycle(&arrows, owner), "a cycle was admitted: {call}{option}: {seen:?}");
        }
    }

    fn step(&mut self) {
        self.collect();
        let owner = one(&mut self.dice, &OWNERS);
        let busy = self.calls.iter().filter(|call| call.owner == owner).count() > 6;
        let option = match self.dice.below(5) {
            _ if busy => "",
            0 => "",
            1 | 2 => " QUEUE 600000",
            _ => " BLOCK 0",
        };
        match self.dice.below(100) {
            0..=14 => {
                let key = one(&mut self.dice, &LOCKS);
                self.ask_for(owner, &[key], Wait::Lock, option);
            }
            15..=27 => {
                let key = one(&mut self.dice, &FAIR);
                self.ask_for(owner, &[key], Wait::Fair, option);
            }
            28..=47 => {
                let key = one(&mut self.dice, &RW);
                let how = one(&mut self.dice, &[Wait::Read, Wait::Write]);
                self.ask_for(owner, &[key], how, option);
            }
            48..=59 if !busy => {
                let from = usize::try_from(self.dice.below(4)).expect("a small number");
                let count = usize::try_from(self.dice.below(2)).expect("a small number") + 2;
                let keys: Vec<&str> = (from..from + count).map(|n| LOCKS[n % 4]).collect();
                self.ask_for(owner, &keys, Wait::Several, " BLOCK 0");
            }
            60..=64 if !busy => self.ask_for_any(owner),
            65..=69 => self.use_semaphore(owner),
            70..=73 => {
                let key = one(&mut self.dice, &[&LOCKS[..], &FAIR, &RW].concat());
                self.server.ask(&format!("{}.CANCEL {key} {owner}", family(key))).int();
            }
            74..=76 => {
                if let Some(call) = self.calls.pop() {
                    self.server.ask(&format!("CLIENT KILL ID {}", call.client.id())).ok();
                }
            }
            _ => self.give_back(owner),
        }
    }

    fn ask_for_any(&mut self, owner: &'static str) {
        let seen = self.look();
        let keys = &LOCKS[..3];
        if seen.values().any(|seen| seen.queue.iter().any(|other| other == owner)) {
            return;
        }
        let mut client = self.server.client();
        client.send(
            &format!("DLOCK.ANYACQUIRE 3 {} {owner} BLOCK 0", keys.join(" "))
                .split(' ')
                .collect::<Vec<_>>(),
        );
        if let Some(reply) = self.outcome(&mut client) {
            assert_eq!(reply.items().len(), 2);
        } else {
            for key in keys {
                self.asked.insert((key, owner.to_owned()), Kind::Any);
            }
            self.calls.push(Call { client, owner });
        }
    }

    /// Its waits block no lock: the model ignores it.
    fn use_semaphore(&mut self, owner: &'static str) {
        if let Some(permit) = self.permits.pop() {
            self.server.ask(&format!("DSEM.RELEASE s {permit}"));
            return;
        }
        let mut client = self.server.client();
        client.send(&["DSEM.ACQUIRE", "s", owner, "BLOCK", "0"]);
        match self.outcome(&mut client) {
            Some(reply) => self.permits.push(reply.text()),
            None => self.calls.push(Call { client, owner }),
        }
    }

    /// Releases one of its locks, or several. Not a lock that its own MACQUIRE relies on: after the release that call
    /// would wait for it, and no call would be left to refuse.
    fn give_back(&mut self, owner: &str) {
        let seen = self.look();
        let mine: Vec<(&str, &str)> = seen
            .iter()
            .flat_map(|(&key, seen)| {
                seen.holds.iter().map(move |(holder, mode)| (key, holder, *mode))
            })
            .filter(|(key, holder, _)| *holder == owner && !seen[key].queue.contains(holder))
            .map(|(key, _, mode)| (key, mode))
            .collect();
        if mine.is_empty() {
            return;
        }
        if self.dice.below(4) == 0
            && !LOCKS.iter().any(|key| seen[key].queue.iter().any(|one| one == owner))
        {
            self.server.ask(&format!("DLOCK.MRELEASE 4 {} {owner}", LOCKS.join(" "))).int();
            return;
        }
        let (key, mode) = one(&mut self.dice, &mine);
        let mode = if mode.is_empty() { String::new() } else { format!(" {mode}") };
        self.server.ask(&format!("{}.RELEASE {key} {owner}{mode} ALL", family(key))).int();
    }

    fn end(mut self) {
        self.calls.clear();
        self.server.wait_blocked(0);
        for (key, seen) in self.look() {
            for owner in seen.queue {
                self.server.ask(&format!("{}.CANCEL {key} {owner}", family(key))).int();
            }
        }
        self.server.ask("FLUSHALL").ok();
        self.server.left_over_check();
    }
}

fn holds(info: &Value) -> Vec<(String, &'static str)> {
    if info.is_null() {
        return Vec::new();
    }
    if info.field("kind").text() != "drw" {
        let owner = info.field("owner").text();
        return if owner.is_empty() { Vec::new() } else { vec![(owner, "")] };
    }
    let readers = info.field("readers").items();
    let mut holds: Vec<_> =
        readers.iter().map(|hold| (hold.field("owner").text(), "READ")).collect();
    if !info.field("writer").is_null() {
        holds.push((info.field("writer").field("owner").text(), "WRITE"));
    }
    holds
}

fn live(seed: u64, steps: usize) {
    println!("seed {seed}");
    let mut history = History::new(seed);
    for _ in 0..steps {
        history.step();
    }
    println!("{} waits, {} refusals", history.waits, history.refusals);
    assert!(history.waits > steps / 20, "only {} waits", history.waits);
    assert!(history.refusals > steps / 100, "only {} refusals", history.refusals);
    history.end();
}

#[test]
fn histories_are_judged_as_a_plain_model_judges_them() {
    live(1, 500);
    live(2, 500);
}

#[test]
#[ignore = "soak"]
fn soak_histories_of_deadlocks() {
    for seed in 100..130 {
        live(seed, 3_000);
    }
}
