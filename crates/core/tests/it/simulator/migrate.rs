//! Keys of all families move between two nodes of a cluster, at random. The ledger says whether each hold lasts at the
//! new node for as long as the old one promised, and each node must keep its invariants.
//!
//! `DLOCK_SEED=<seed> cargo test -p dlock-core migrate` replays a history and prints its steps.

use super::{number_in, with_op};
use crate::support::{MS, Saved, Seen, World};
use dlock_core::base::key::Key;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_testing::Dice;
use dlock_wire::permit;
use std::collections::BTreeMap;

const HISTORIES: u64 = 2_000;
const STEPS: usize = 60;

/// A slot is the first byte of a name.
const KEYS: [&str; 5] = ["k1", "k2", "f", "r", "s"];
const OWNERS: [&str; 4] = ["A", "B", "C", "D"];
const CONNECTIONS: u64 = 4;

/// An owner, a mode and REQID.
type Whose = (&'static str, &'static str, String);

/// A node of the cluster, and the ids of its connections that live.
struct Node {
    world: Box<World>,
    connections: Vec<u64>,
    last: u64,
}

impl Node {
    /// All connections are new.
    fn connect(&mut self) {
        self.connections = (self.last + 1..=self.last + CONNECTIONS).collect();
        self.last += CONNECTIONS;
    }
}

struct History {
    random: Dice,
    traced: bool,
    nodes: [Node; 2],
    /// The node that serves each key.
    served_by: [usize; KEYS.len()],
    begun_ms: [u64; 2],
    passed_ms: u64,
    last_request: u64,
    /// The requests for holds: their keys, their owner, the mode and the id.
    asked: Vec<([&'static str; 2], &'static str, &'static str, u64)>,
    /// The last blocked call of each connection.
    blocked: BTreeMap<u64, String>,
    moves: u64,
}

#[test]
fn promises_are_kept_when_a_slot_moves() {
    if let Some(seed) = number_in("DLOCK_SEED") {
        History::new(seed, true).run();
        return;
    }
    let mut moved = 0;
    let first = number_in("DLOCK_FIRST").unwrap_or(1);
    for seed in first..first + number_in("DLOCK_RUNS").unwrap_or(HISTORIES) {
        let run = std::panic::AssertUnwindSafe(|| History::new(seed, false).run());
        moved += std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!("\nDLOCK_SEED={seed} replays this history\n");
            std::panic::resume_unwind(panic)
        });
    }
    assert!(moved > 0, "promises moved");
}

impl History {
    fn new(seed: u64, traced: bool) -> Self {
        let mut random = Dice::new(seed);
        let settings = Settings {
            fair_grace_ms: random.pick(&[10, 100, 5_000]),
            lock_delay_ms: random.pick(&[0, 0, 50]),
            claim_ms: random.pick(&[20, 200, 30_000]),
            restart_quarantine_ms: random.pick(&[0, 0, 100]),
            max_waiters: random.pick(&[4, 1_000_000]),
            request_memory_ms: random.pick(&[0, 200, 60_000]),
            cluster: true,
            ..Settings::default()
        };
        let mut one = World::new(settings.clone(), 1_000_000 * MS);
        one.is_cluster = true;
        let other = one.other_node(settings);
        let begun_ms = [&one, &other].map(|world| world.now().mono.0 / MS);
        // No two connections have the same id.
        let nodes = [(Box::new(one), 0), (Box::new(other), 10_000)].map(|(world, last)| {
            let mut node = Node { world, connections: Vec::new(), last };
            node.connect();
            node
        });
        Self {
            random,
            traced,
            nodes,
            served_by: [0; KEYS.len()],
            begun_ms,
            passed_ms: 0,
            last_request: 0,
            asked: Vec::new(),
            blocked: BTreeMap::new(),
            moves: 0,
        }
    }

    /// Returns the number of promises that moved.
    fn run(mut self) -> u64 {
        for _ in 0..STEPS {
            let node = self.random.index(2);
            match self.random.below(40) {
                0..20 => self.call(),
                20..26 => self.migrate(),
                26..33 => self.pass_time(),
                33 | 34 => self.deliver(node),
                35 | 36 => self.close(node),
                37 => self.pause(node),
                38 => self.fail_over(node),
                _ => self.restart(node),
            }
        }
        for Node { world, .. } in self.nodes {
            world.finish();
        }
        self.moves
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>6}  {}", self.passed_ms, what());
        }
    }

    fn told(&self, node: usize, seen: &Seen) {
        self.say(|| format!("    n{node} {:?} {:?}", seen.reply, seen.wakes));
    }

    fn call(&mut self) {
        let words = self.words();
        self.send(words);
    }

    fn send(&mut self, words: String) {
        let random = &mut self.random;
        let k = match words.split(' ').nth(1) {
            // The node has all keys of a call, or asks to try again.
            Some("2") if self.served_by[0] != self.served_by[1] => return,
            Some("2") => 0,
            name => KEYS.iter().position(|key| Some(*key) == name).expect("a key"),
        };
        let node = self.served_by[k];
        let Node { world, connections, .. } = &mut self.nodes[node];
        let is_idle = |client: &u64| {
            !world.blocked.values().any(|other| other == client)
                && !world.sent.iter().any(|(_, other)| other == client)
        };
        let idle: Vec<u64> = connections.iter().copied().filter(is_idle).collect();
        if idle.is_empty() {
            return self.close(node);
        }
        let client = random.pick(&idle);
        self.say(|| format!("n{node} c{client} {words}"));
        let caller = Caller { client, db: 0, may_block: true };
        let seen = with_op(&words, |op| self.nodes[node].world.call(caller, op));
        self.told(node, &seen);
        if seen.parked.is_some() {
            self.blocked.insert(client, words);
        }
    }

    /// A request.
    fn words(&mut self) -> String {
        let random = &mut self.random;
        let (key, owner) = (random.pick(&KEYS), random.pick(&OWNERS));
        let both = key.starts_with('k') && random.one_in(3);
        let px = random.pick(&["", " PX 30", " PX 200", " PX 5000"]);
        let bind = random.pick(&["", "", "", " BIND 0", " BIND 60"]);
        let waits = random.pick(&["", "", " BLOCK 0", " BLOCK 100", " QUEUE 50", " QUEUE 500"]);
        let mode = match key {
            "r" => random.pick(&[" READ", " READ", " WRITE"]),
            _ => "",
        };
        // Some were sent before.
        self.last_request += 1;
        let id = self.last_request - random.below(6).min(self.last_request - 1);
        let reqid = if random.one_in(3) { String::new() } else { format!(" REQID {id}") };
        let verb = random.below(16);
        if both {
            let blocks = if waits.starts_with(" BLOCK") { waits } else { "" };
            return match verb {
                0..5 => {
                    self.asked.push((["k1", "k2"], owner, mode, id));
                    format!("DLOCK.MACQUIRE 2 k1 k2 {owner}{px}{bind}{blocks}{reqid}")
                }
                5..8 => format!("DLOCK.ANYACQUIRE 2 k1 k2 {owner}{px}{bind}{blocks}{reqid}"),
                8..14 => {
                    let (owner, _, reqid) = self.release("k1", (owner, mode, reqid));
                    format!("DLOCK.MRELEASE 2 k1 k2 {owner}{reqid}")
                }
                _ => format!("DLOCK.MRENEW 2 k1 k2 {owner}{px}{bind}"),
            };
        }
        let family = match key {
            "f" => "DFAIR",
            "r" => "DRW",
            "s" => "DSEM",
            _ => "DLOCK",
        };
        let count = 1 + random.below(3);
        let size = if key == "s" { format!(" LIMIT 3 COUNT {count}") } else { String::new() };
        match verb {
            0..9 => {
                self.asked.push(([key; 2], owner, mode, id));
                format!("{family}.ACQUIRE {key} {owner}{mode}{size}{px}{bind}{waits}{reqid}")
            }
            9..12 => {
                let (owner, mode, reqid) = self.release(key, (owner, mode, reqid));
                format!("{family}.RELEASE {key} {owner}{mode}{reqid}")
            }
            12..15 => {
                let whose = self.permit_or_owner(key, owner);
                format!("{family}.RENEW {key} {whose}{mode}{px}{bind}")
            }
            _ => match key {
                "s" => format!("DSEM.BREAK s {}", self.permit_or_owner(key, owner)),
                _ => format!("{family}.BREAK {key}"),
            },
        }
    }

    /// Whose RELEASE it is: most name one of the last requests for the key.
    fn release(&mut self, key: &str, else_of: Whose) -> Whose {
        let of_key = self.asked.iter().rev().filter(|asked| asked.0.contains(&key));
        let last: Vec<_> = of_key.take(6).copied().collect();
        if last.is_empty() || self.random.one_in(4) {
            return else_of;
        }
        let (_, owner, mode, id) = self.random.pick(&last);
        (owner, mode, format!(" REQID {id}"))
    }

    /// RENEW names a permit, or else an owner.
    fn permit_or_owner(&mut self, key: &str, owner: &str) -> String {
        if key != "s" {
            return owner.to_owned();
        }
        let permits = self.nodes.each_ref().map(|node| node.world.last_permit());
        let last = self.random.pick(&permits).saturating_sub(u128::from(self.random.below(3)));
        let text = permit::text(&last.to_be_bytes());
        String::from_utf8(text.to_vec()).expect("hexadecimal digits")
    }

    /// A key moves, or a slot with both of its keys.
    fn migrate(&mut self) {
        let k = self.random.index(KEYS.len());
        let from = self.served_by[k];
        let both = k < 2 && self.random.one_in(2);
        let keys = if both { 0..2 } else { k..k + 1 };
        let [one, other] = &mut self.nodes;
        let (here, there) = if from == 0 { (one, other) } else { (other, one) };
        for k in keys {
            if self.served_by[k] != from {
                continue;
            }
            if self.traced {
                println!("{:>6}  MIGRATE {} from n{from}", self.passed_ms, KEYS[k]);
            }
            let key = Key { db: 0, name: KEYS[k].as_bytes() };
            let Some(both) = here.world.migrate(key, &mut there.world) else { return };
            assert_eq!(here.world.ledger.promises_at(key), 0);
            self.moves += there.world.ledger.promises_at(key) as u64;
            if self.traced {
                println!("        {both:?}");
            }
            self.served_by[k] = 1 - from;
        }
    }

    fn pass_time(&mut self) {
        self.passed_ms += self.random.pick(&[1, 10, 30, 100, 1_000, 6_000]);
        let is_late = self.random.one_in(4);
        for (node, begun_ms) in self.nodes.iter_mut().zip(self.begun_ms) {
            node.world.at((begun_ms + self.passed_ms) * MS);
            if !is_late {
                node.world.tick(Gate::Open);
            }
        }
    }

    /// An answer arrives, or it does not.
    fn deliver(&mut self, node: usize) {
        let Some(&(_, client)) = self.nodes[node].world.sent.first() else { return };
        let arrives = self.random.one_in(2);
        if self.random.one_in(2)
            && let Some(words) = self.blocked.get(&client).cloned()
        {
            // A copy of the request may be answered first.
            self.send(words);
        }
        let world = &mut self.nodes[node].world;
        if world.sent.iter().all(|(_, other)| *other != client) {
            return;
        }
        if arrives {
            world.delivered(client);
        } else {
            world.undelivered(client);
        }
        // A hold that is there now is not taken back from here.
        self.nodes[1 - node].world.ledger.delivered(client);
        self.say(|| format!("n{node} the answer to c{client} arrives: {arrives}"));
    }

    fn close(&mut self, node: usize) {
        let at = self.random.index(self.nodes[node].connections.len());
        let Node { world, connections, last } = &mut self.nodes[node];
        *last += 1;
        let client = std::mem::replace(&mut connections[at], *last);
        if self.traced {
            println!("{:>6}  n{node} c{client} is gone", self.passed_ms);
        }
        // The server may wake a call that is not there any more; a world may not.
        world.tick(Gate::Open);
        world.gone(client);
        self.nodes[1 - node].world.ledger.delivered(client);
    }

    /// A pause, in which only time passes.
    fn pause(&mut self, node: usize) {
        self.nodes[node].world.pause(true);
        self.say(|| format!("n{node} is paused for a while"));
        self.passed_ms += self.random.pick(&[1, 100]);
        for (node, begun_ms) in self.nodes.iter_mut().zip(self.begun_ms) {
            node.world.at((begun_ms + self.passed_ms) * MS);
        }
        self.nodes[node].world.pause(false);
    }

    fn fail_over(&mut self, node: usize) {
        self.say(|| format!("n{node} fails over"));
        self.nodes[node].world.fail_over();
    }

    fn restart(&mut self, node: usize) {
        let world = &mut self.nodes[node].world;
        // The saved state of a server that just took over is that of its primary.
        world.tick(Gate::Open);
        let saved = self.random.pick(&[Saved::Aof, Saved::Rdb]);
        world.restart(saved);
        self.nodes[node].connect();
        self.say(|| format!("n{node} restarts from {saved:?}"));
    }
}
