//! Slots that operators move under load, in a cluster of three: `--cluster reshard`, a repair by hand, SETSLOT by
//! force, `--cluster fix`, FORGET. Waiters of each family wait in the slot. After each episode the program checks:
//!
//! - Every call is answered, and with a code that fits. If the keys move along, no hold is lost.
//! - No key has two holders. If keys stay behind, the hold of the former owner may still be believed.
//! - The former owner grants and announces nothing from the moment it lost the slot.
//! - All servers run, none caught a panic, and nothing is left over.
//!
//! It needs `redis-cli` on the PATH.
//!
//! ```text
//! make reshard EPISODES=100 SEED=7 KIND=repair,forget
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a run that cannot go on stops here and says why"
)]

mod fault;
mod load;

use std::{
    collections::BTreeMap,
    env, thread,
    time::{Duration, Instant},
};

use dlock_testing::{Binary, Dice, Nodes, Reply as _, Server, Subscription};

use fault::{Fault, Kind, Loss, MARKS};
use load::{Hold, Load};

/// The key `{06S}` is in slot 0. `redis-cli --cluster reshard` takes the lowest slot of a node.
const TAG: &str = "{06S}";
const SLOT: &str = "0";

/// The node that has no slot but this one.
const THIRD: usize = 2;

/// How long the load goes on after the loss: a check of all waiting keys takes place every second.
const AFTER: Duration = Duration::from_millis(1_300);

/// Number of violations that an episode prints.
const SHOWN: usize = 10;

/// Counts of calls and answers, by kind of episode.
type Counts = BTreeMap<(&'static str, String), u64>;

#[test]
fn slots_move_under_load() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (episodes, seed) = (number("EPISODES").unwrap_or(100), number("SEED").unwrap_or(1));
    let names = env::var("KIND").unwrap_or_default();
    let mut kinds = Kind::ALL.to_vec();
    kinds.retain(|kind| names.is_empty() || names.split(',').any(|name| name == kind.name()));
    assert!(!kinds.is_empty(), "KIND={names}: there is no such kind");
    println!("reshard: {:?}, {episodes} episodes, seed {seed}", Binary::default().kind());

    let settings = ["cluster-allow-replica-migration", "no", "notify-keyspace-events", "Ed"];
    let mut nodes = Nodes::with(THIRD, &settings);
    nodes.add_empty(Server::with(&settings));
    assert_eq!(nodes.all()[0].slot(TAG).to_string(), SLOT);
    let (mut counts, mut violations) = (Counts::new(), Vec::new());
    for n in 0..episodes {
        let kind = kinds[usize::try_from(n).expect("a small number") % kinds.len()];
        let start = Instant::now();
        let found = episode(&nodes, kind, n, Dice::part(seed, n), &mut counts);
        println!(
            "{n:3} {:8} {:4} ms, violations: {}",
            kind.name(),
            start.elapsed().as_millis(),
            found.len()
        );
        for text in found.iter().take(SHOWN) {
            println!("    {text}");
        }
        violations.extend(found);
    }
    for ((kind, what), count) in &counts {
        println!("{kind:8} {what:24} {count}");
    }
    assert!(violations.is_empty(), "{} violations", violations.len());
}

/// Ends the load, also if the fault fails.
struct Stop<'a>(&'a Load<'a>);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Moves the slot once under load; returns what must not happen.
fn episode(nodes: &Nodes, kind: Kind, n: u64, mut dice: Dice, counts: &mut Counts) -> Vec<String> {
    let mut source = nodes.owner_of(0).expect("an owner that all agree on");
    if kind == Kind::Forget && source != THIRD {
        nodes.move_slot(0, source, THIRD);
        source = THIRD;
    }
    let target = (source + 1 + dice.index(2)) % 3;
    let coverage = dice.pick(&["yes", "no"]);
    for node in nodes.all() {
        node.cmd(&["CONFIG", "SET", "cluster-require-full-coverage", coverage]).ok();
    }
    let mut fault = Fault { nodes, kind, source, target, dice };
    let mut heard = nodes.all()[source].psubscribe(&["dlock:notify:*", "__keyevent@*", MARKS]);
    let load = Load::new(nodes, source, n);
    let loss = thread::scope(|scope| {
        load.start(scope);
        let _stop = Stop(&load);
        thread::sleep(Duration::from_millis(150) + fault.dice.millis(200));
        let loss = fault.strike();
        thread::sleep(AFTER);
        loss
    });
    nodes.all()[source].cmd(&["PUBLISH", MARKS, "end"]).int();

    let mut violations = load.violations();
    if loss.loses_keys {
        violations.extend(load.answers().keys().filter(|code| *code == "BROKEN").cloned());
    } else {
        let of_lost = |code: &&String| ["LOST", "UNKNOWN", "NOTHELD", "BROKEN"].contains(&&***code);
        violations.extend(load.answers().keys().filter(of_lost).cloned());
    }
    violations.extend(overlaps(&load.holds(), source, &loss));
    violations.extend(announced(&mut heard, &fault, &loss));
    for (what, count) in load.answers() {
        *counts.entry((kind.name(), what)).or_default() += count;
    }
    *counts.entry((kind.name(), "episodes".to_owned())).or_default() += 1;
    fault.tidy_up();
    for node in nodes.all() {
        node.cmd(&["FLUSHALL"]).ok();
        assert_eq!(node.info_number("dlock", "panics_caught"), 0, "{}", node.log_tail());
        assert_eq!(node.crashed(), None, "{}", node.log_tail());
    }
    drop(heard);
    nodes.left_over_check();
    violations
}

/// Grants of the former owner after its loss, and pairs of holds of one key at the same time.
fn overlaps(holds: &[Hold], source: usize, loss: &Loss) -> Vec<String> {
    let is_late =
        |hold: &&Hold| hold.node == source && hold.token.is_some_and(|token| loss.covers(token));
    let late = holds.iter().filter(is_late);
    let mut found: Vec<String> =
        late.map(|hold| format!("granted late: {hold:?}, {loss:?}")).collect();
    let mut holds: Vec<&Hold> = holds.iter().collect();
    holds.sort_by_key(|hold| (&hold.key, hold.from));
    for (n, first) in holds.iter().enumerate() {
        let is_beside = |hold: &&&Hold| hold.key == first.key && hold.from < first.to;
        for second in holds[n + 1..].iter().take_while(is_beside) {
            // The operator took the slot away and left the first hold behind.
            let is_stale = loss.loses_keys && first.node == source && second.node != source;
            if !is_stale {
                found.push(format!("two holders: {first:?} {second:?}"));
            }
        }
    }
    found
}

/// Events of the slot's keys that the former owner announced after its loss. Keyspace events stay on their node.
/// Messages go to all nodes, so the load names the node that it asks in the channel. A migrated value brings the
/// channel along, so channels count only if keys stay.
fn announced(heard: &mut Subscription, fault: &Fault, loss: &Loss) -> Vec<String> {
    let keys_stay = loss.loses_keys && fault.kind != Kind::Fix;
    let channel_here = format!("dlock:notify:{}", fault.source);
    let (mut is_lost, mut found) = (false, Vec::new());
    loop {
        let (channel, text) = heard.next();
        let text = String::from_utf8_lossy(&text).into_owned();
        if channel == MARKS {
            if text == "end" {
                return found;
            }
            is_lost = (is_lost || text == loss.mark) && text != "served";
        } else if is_lost && text.contains(TAG) {
            let is_event = channel.contains(":dlock.");
            let is_message = channel == channel_here && keys_stay;
            if is_event || is_message {
                found.push(format!("announced late: {channel} {text}"));
            }
        }
    }
}
