//! Late copies of the requests of all families. At any later time, a copy changes nothing and gets the answer of the
//! first one, or `SPENT`.

use super::with_op;
use crate::support::{Digest, MS, World};
use dlock_core::base::key::Key;
use dlock_core::ports::effects::Outcome;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_testing::Dice;
use dlock_wire::reply::ErrorCode;
use std::collections::BTreeMap;

const HISTORIES: u64 = 2_000;
const STEPS: usize = 60;

/// Number of request ids that a hold remembers.
const IDS_OF_ONE: u32 = 8;

struct History {
    random: Dice,
    world: World,
    now_ms: u64,
    /// The requests that were carried out, with their answers.
    done: Vec<(String, Outcome)>,
    /// The requests for holds: their keys, their owner, the mode and the id.
    asked: Vec<(&'static [&'static str], &'static str, &'static str, u64)>,
    /// Number of ids that an owner has used for a key.
    used: BTreeMap<(&'static str, &'static str), u32>,
    last: u64,
}

#[test]
fn a_late_copy_of_any_request_changes_nothing() {
    for seed in 1..=HISTORIES {
        let history = History {
            random: Dice::new(seed),
            world: World::new(Settings::default(), 1_000_000 * MS),
            now_ms: 1_000_000,
            done: Vec::new(),
            asked: Vec::new(),
            used: BTreeMap::new(),
            last: 0,
        };
        history.run(seed);
    }
}

impl History {
    fn run(mut self, seed: u64) {
        self.send("DSEM.INIT s 5");
        for _ in 0..STEPS {
            match self.random.below(12) {
                0..6 => self.send_new(),
                6 => self.interfere(),
                7 => {
                    self.now_ms += self.random.pick(&[0, 1, 20, 300]);
                    self.world.at(self.now_ms * MS);
                }
                _ => self.send_late(seed),
            }
            // Expired holds end now, and not when a copy opens the key.
            self.world.tick(Gate::Open);
            self.world.all_delivered();
        }
    }

    fn send(&mut self, words: &str) -> Outcome {
        let caller = Caller { client: 1 + self.random.below(4), db: 0, may_block: false };
        with_op(words, |op| self.world.call(caller, op)).reply.expect("an answer")
    }

    fn send_new(&mut self) {
        let owner = self.random.pick(&["A", "B"]);
        let key = self.random.pick(&["k", "l", "f", "r", "s"]);
        let used = self.used.entry((key, owner)).or_default();
        *used += 1;
        if *used > IDS_OF_ONE / 2 {
            return;
        }
        let px = self.random.pick(&["", " PX 10", " PX 200"]);
        let all = self.random.pick(&["", " ALL"]);
        let mode = self.random.pick(&["READ", "WRITE"]);
        let n = 1 + self.random.below(3);
        let call = match (key, self.random.below(8)) {
            ("f", 0..4) => format!("DFAIR.ACQUIRE f {owner}{px}"),
            ("f", _) => format!("DFAIR.RELEASE f {owner}"),
            ("r", 0..4) => format!("DRW.ACQUIRE r {owner} {mode}{px}"),
            ("r", _) => format!("DRW.RELEASE r {owner} {mode}"),
            ("s", 0 | 1) => format!("DSEM.ACQUIRE s {owner} COUNT {n}{px}"),
            ("s", 2) => format!("DSEM.RELEASE s {owner}"),
            ("s", 3) => format!("DSEM.TAKE s {n}"),
            ("s", 4) => format!("DSEM.GIVE s {n}"),
            ("s", 5) => "DSEM.DRAIN s".to_owned(),
            ("s", 6) => format!("DSEM.RESIZE s {}", 3 + n),
            ("s", _) => format!("DSEM.RESIZE s BY {n}"),
            (key, 0 | 1) => format!("DLOCK.ACQUIRE {key} {owner}{px}"),
            (key, 2 | 3 | 7) => format!("DLOCK.RELEASE {key} {owner}"),
            (_, 4) => format!("DLOCK.MACQUIRE 2 k l {owner}{px}"),
            (_, 5) => format!("DLOCK.MRELEASE 2 k l {owner}"),
            _ => format!("DLOCK.ANYACQUIRE 2 k l {owner}{px}"),
        };
        let keys: &'static [&'static str] = match key {
            _ if call.starts_with("DLOCK.M") || call.starts_with("DLOCK.ANY") => &["k", "l"],
            "k" => &["k"],
            "l" => &["l"],
            "f" => &["f"],
            "r" => &["r"],
            _ => &["s"],
        };
        let mode = if key == "r" { mode } else { "" };
        self.last += 1;
        if call.contains("ACQUIRE") {
            self.asked.push((keys, owner, mode, self.last));
        }
        if !call.contains("RELEASE") {
            let call = format!("{call} REQID {}", self.last);
            let outcome = self.send(&call);
            if !matches!(outcome, Outcome::Null | Outcome::Fault(_)) {
                self.done.push((call, outcome));
            }
            return;
        }
        if self.random.one_in(8) {
            // Of this no copy may be sent.
            let all = if key == "s" { " ALL" } else { all };
            let all = if call.starts_with("DLOCK.M") { "" } else { all };
            self.send(&format!("{call}{all}"));
            return;
        }
        // It names an ACQUIRE, if there was one.
        let is_its = |asked: &&(&'static [&'static str], &str, &str, u64)| {
            let meets = asked.0.iter().any(|name| keys.contains(name));
            meets && (asked.1, asked.2) == (owner, mode)
        };
        let ids: Vec<u64> = self.asked.iter().filter(is_its).map(|asked| asked.3).collect();
        let id = if ids.is_empty() { self.last } else { self.random.pick(&ids) };
        let call = format!("{call} REQID {id}");
        let outcome = self.send(&call);
        self.done.push((call, outcome));
    }

    /// Other clients end holds, and servers take over.
    fn interfere(&mut self) {
        let key = self.random.pick(&["k", "l", "f", "r", "s"]);
        match (self.random.below(4), key) {
            (0, _) => {
                let name = Key { db: 0, name: key.as_bytes() };
                if self.world.has_key(name) {
                    self.world.unlink(name, false);
                }
            }
            (1, _) => drop(self.world.fail_over()),
            (_, "k" | "l") => drop(self.send(&format!("DLOCK.BREAK {key}"))),
            (_, "f") => drop(self.send("DFAIR.BREAK f")),
            (_, "r") => drop(self.send("DRW.BREAK r")),
            _ => drop(self.send("DSEM.INIT s 4")),
        }
    }

    fn send_late(&mut self, seed: u64) {
        if self.done.is_empty() {
            return;
        }
        let (call, first) = self.done[self.random.index(self.done.len())].clone();
        let before = self.digest();
        let answer = self.send(&call);
        assert_eq!(self.digest(), before, "{call} changed something, seed {seed}");
        let is_right = match (&answer, &first) {
            (Outcome::Fault(fault), _) if call.contains("ACQUIRE") => {
                fault.code == ErrorCode::Spent
            }
            // A copy gets the present number of free permits.
            (Outcome::Available(_), Outcome::Available(_)) => true,
            _ => answer == first,
        };
        assert!(is_right, "{call}: first {first:?}, now {answer:?}, seed {seed}");
    }

    /// All keys, in their order.
    fn digest(&self) -> Vec<(Vec<u8>, Option<Digest>)> {
        self.world.keys.digest().map(|(id, digest)| (id.1.clone(), digest)).collect()
    }
}
