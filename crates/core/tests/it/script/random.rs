//! Random rows: work that one step leaves to the tick meets the next commands. The simulator completes a tick after
//! each command; here a tick does one piece of work at a time, in portions of two to four. The replica can be behind,
//! too. `DLOCK_SEED` sets the first seed, and `DLOCK_RUNS` the number of runs.

use super::{BASE_US, Table};
use crate::support::{MS, World};
use dlock_core::base::key::Key;
use dlock_core::events::tick::Progress;
use dlock_core::ports::store::{Lookup, Store};
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_testing::Dice;
use dlock_wire::permit;

/// Histories; each has another seed.
const HISTORIES: u64 = 40_000;

const ROWS: usize = 60;

/// A call that may wait. `family`: 0 latches, 1 fair locks, 2 read-write locks, 3 semaphores, 4 locks, also several.
fn asks(dice: &mut Dice, family: u64, (key, owner): (&str, &str)) -> String {
    let waits = ["", "BLOCK 0", "BLOCK 0", "BLOCK 6", "QUEUE 20", "QUEUE 5", "BLOCK 4 QUEUE 9"];
    let (wait, bind) = (dice.pick(&waits), dice.pick(&["", "", "BIND 0", "BIND 5"]));
    let rest = format!("{wait} {bind} {}", dice.pick(&["", "", "PX 5"]));
    let id = dice.pick(&["", "", "", "REQID 1", "REQID 2"]);
    match family {
        0 => match dice.below(5) {
            0 => format!("DLATCH.INIT {key} 1"),
            1 => format!("DLATCH.COUNTDOWN {key}"),
            2 => format!("DLATCH.INIT {key} 1 PX 5"),
            _ => format!("DLATCH.AWAIT {key} BLOCK {}", dice.below(2) * 5),
        },
        1 if dice.below(6) == 0 => observes(dice, "DFAIR", key),
        1 => format!("DFAIR.ACQUIRE {key} {owner} {id} {rest}"),
        2 => {
            let mode = dice.pick(&["READ", "READ", "READ", "READ", "WRITE"]);
            format!("DRW.ACQUIRE {key} {owner} {mode} {id} {rest}")
        }
        3 => {
            let limit = dice.pick(&["", "LIMIT 4"]);
            format!("DSEM.ACQUIRE {key} {owner} COUNT {} {limit} {id} {rest}", 1 + dice.below(3))
        }
        _ => match dice.below(9) {
            0..3 => {
                let keys = dice.pick(&["5 k l m n o", "2 k l", "3 l k m"]);
                format!("DLOCK.MACQUIRE {keys} {owner} {id} BLOCK {}", dice.below(2) * 6)
            }
            3 if dice.below(2) == 0 => observes(dice, "DLOCK", key),
            3 | 4 => format!("DLOCK.ANYACQUIRE 5 k l m n o {owner} {id} BLOCK 0"),
            _ => format!("DLOCK.ACQUIRE {key} {owner} {id} {rest}"),
        },
    }
}

/// A call that waits for the end of a hold.
fn observes(dice: &mut Dice, family: &str, key: &str) -> String {
    let reason = dice.pick(&["", "REASON"]);
    format!("{family}.AWAIT {key} BLOCK {} {reason}", dice.below(2) * 6)
}

/// A call that extends a lease.
fn extends(dice: &mut Dice, family: u64, (key, owner): (&str, &str)) -> String {
    let rest = format!("{} {}", dice.pick(&["PX 5", "PX 20", ""]), dice.pick(&["", "BIND 3"]));
    match family {
        1 => format!("DFAIR.RENEW {key} {owner} {rest}"),
        2 => format!("DRW.RENEW {key} {owner} {} {rest}", dice.pick(&["READ", "WRITE"])),
        3 => {
            let id = permit::text(&u128::from(1 + dice.below(9)).to_be_bytes());
            format!("DSEM.RENEW {key} {} {rest}", String::from_utf8_lossy(&id))
        }
        _ if dice.below(3) == 0 => format!("DLOCK.MRENEW 2 k l {owner} {rest}"),
        _ => format!("DLOCK.RENEW {key} {owner} {rest}"),
    }
}

/// A call that ends what one request has.
fn ends_one(dice: &mut Dice, family: u64, (key, owner): (&str, &str)) -> String {
    let id = dice.pick(&["REQID 1", "REQID 2"]);
    let delay = dice.pick(&["", "", "", "DELAY 4"]);
    match family {
        1 => format!("DFAIR.RELEASE {key} {owner} {id} {delay}"),
        2 if dice.below(2) == 0 => format!("DRW.RELEASE {key} {owner} WRITE {id} {delay}"),
        2 => format!("DRW.RELEASE {key} {owner} READ {id}"),
        3 => format!("DSEM.RELEASE {key} {owner} {}", dice.pick(&[id, id, "ALL"])),
        _ if dice.below(3) == 0 => {
            let keys = dice.pick(&["5 k l m n o", "2 k l", "3 l k m"]);
            format!("DLOCK.MRELEASE {keys} {owner} {id}")
        }
        _ => format!("DLOCK.RELEASE {key} {owner} {id} {delay}"),
    }
}

/// A call that ends something.
fn ends(dice: &mut Dice, family: u64, (key, owner): (&str, &str)) -> String {
    match family {
        1..5 if dice.below(4) == 0 => extends(dice, family, (key, owner)),
        1..5 if dice.below(2) == 0 => ends_one(dice, family, (key, owner)),
        0 => format!("DLATCH.COUNTDOWN {key}"),
        1 if dice.below(5) == 0 => format!("DFAIR.BREAK {key}"),
        1 => format!("DFAIR.RELEASE {key} {owner}"),
        2 => match dice.below(8) {
            0 | 1 => format!("DRW.BREAK {key}"),
            2 => format!("DRW.BREAK {key} {owner}"),
            3 => format!("DRW.RELEASE {key} {owner} WRITE ALL"),
            4 => format!("DRW.RELEASE {key} {owner} READ ALL"),
            _ => format!("DRW.RELEASE {key} {owner} {}", dice.pick(&["READ", "WRITE"])),
        },
        3 => match dice.below(4) {
            0 => format!("DSEM.TAKE {key} {} BLOCK 6", 1 + dice.below(2)),
            1 => format!("DSEM.RELEASE {key} {owner} ALL"),
            _ => format!("DSEM.RESIZE {key} {}", 1 + dice.below(6)),
        },
        _ => match dice.below(6) {
            0 => format!("DLOCK.MRELEASE 5 k l m n o {owner}"),
            1 => format!("DLOCK.BREAK {key}"),
            2 => format!("DLOCK.RELEASE {key} {owner} ALL"),
            _ => format!("DLOCK.RELEASE {key} {owner}"),
        },
    }
}

/// Something that happens to the server or to its keys.
fn happens(dice: &mut Dice, key: &str) -> String {
    match dice.below(17) {
        0 => "flushall".to_owned(),
        1 | 2 => format!("flushdb {}", dice.below(2)),
        3 => format!("slot-lost {key}"),
        4 => format!("over {key}"),
        5 | 6 if key != "l" => format!("rename {key} l"),
        7 if key == "l" => "rename l k".to_owned(),
        8 => format!("move {key} {}", dice.below(2)),
        9 if key != "l" => format!("restore {key} l"),
        10..13 => "swapdb 0 1".to_owned(),
        13 => "swapdb 0 1 unheard".to_owned(),
        14 => "demote".to_owned(),
        15 => "failover".to_owned(),
        _ => "tick".to_owned(),
    }
}

/// Something that makes a server diverged, or ends that.
fn diverges(dice: &mut Dice, caller: u64) -> String {
    match dice.below(8) {
        0 => "unread".to_owned(),
        1 => "unread replica".to_owned(),
        2 => "failover".to_owned(),
        3 => "flushall".to_owned(),
        4 => format!("set record-level {}", 1 + dice.below(2)),
        _ => format!("c{caller} DLOCK.TRUST"),
    }
}

/// What the rows of a history are like.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    pub(super) families: u64,
    pub(super) is_stormy: bool,
    pub(super) may_diverge: bool,
}

pub(super) fn row(
    dice: &mut Dice,
    Mode { families: mode, is_stormy, may_diverge }: Mode,
) -> String {
    let caller = 1 + dice.below(9);
    let keys: &[&str] = if mode == 4 { &["k", "l", "m", "n", "o"] } else { &["k", "l"] };
    let key = dice.pick(keys);
    let owner = dice.pick(&["A", "B", "C", "D", "E", "F", "G", "H"]);
    let family = match mode {
        4 => dice.below(5),
        // Mostly readers, and calls for several of the keys that they may have left.
        5 => dice.pick(&[2, 2, 2, 4]),
        _ => mode,
    };
    match dice.below(20) {
        0..9 => format!("c{caller} {}", asks(dice, family, (key, owner))),
        9..12 => format!("c{caller} {}", ends(dice, family, (key, owner))),
        12 => format!("c{caller} DLOCK.UNBLOCK {}", 1 + dice.below(9)),
        13 => match dice.below(5) {
            0 => format!("abandoned c{caller}"),
            1 => format!("undelivered c{caller}"),
            _ => format!("gone c{caller}"),
        },
        14 if may_diverge && dice.below(2) == 0 => diverges(dice, caller),
        14 => format!("del {key}"),
        15 => happens(dice, key),
        18 if is_stormy => happens(dice, key),
        16 => format!("c{caller} DLOCK.ACQUIRE {key} {owner} {}", dice.pick(&["", "BLOCK 0"])),
        17 if dice.below(4) == 0 => "tick".to_owned(),
        _ => "piece".to_owned(),
    }
}

/// The rows so far, shown when one of them fails.
pub(super) struct Rows(pub(super) u64, pub(super) Vec<String>);

impl Drop for Rows {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.0, self.1.join("\n"));
        }
    }
}

fn new_table(dice: &mut Dice) -> Table {
    let mut world = World::new(Settings::default(), BASE_US);
    world.set_portion(dice.pick(&[2, 2, 3, 4]));
    // Keys that are missing may have moved to another node.
    let cluster = dice.below(4) == 0;
    let lock_delay_ms = if dice.below(6) == 0 { 4 } else { 0 };
    world.set(|settings| {
        settings.cluster = cluster;
        settings.lock_delay_ms = lock_delay_ms;
    });
    world.is_replica_slow = dice.below(3) == 0;
    if dice.below(3) == 0 {
        world.after_events = |_, _| ();
    }
    Table { any_order: true, ..Table::new(world) }
}

fn history(seed: u64) {
    let mut rows = Rows(seed, Vec::new());
    let mut dice = Dice::new(seed);
    let mut table = new_table(&mut dice);
    let is_sent_late = dice.below(4) == 0;
    let (families, is_stormy) = (dice.below(6), dice.below(2) == 0);
    let mode = Mode { families, is_stormy, may_diverge: seed.is_multiple_of(4) };
    let (mut at, mut state) = (0, State::default());
    for _ in 0..ROWS {
        table.db = u32::from(dice.below(4) == 0);
        if dice.below(4) == 0 {
            at += dice.below(4) * 3;
            table.world.at(BASE_US + at * MS);
        }
        let row = row(&mut dice, mode);
        let words: Vec<&str> = row.split_whitespace().collect();
        for row in state.rows_before(&words, &mut dice) {
            rows.1.push(format!("{at:4}  db {}  {row}", table.db));
            let _ = table.perform(&row.split_whitespace().collect::<Vec<_>>());
        }
        if !state.can_take(&mut table, &words) {
            continue;
        }
        rows.1.push(format!("{at:4}  db {}  {row}", table.db));
        if words[0] == "piece" {
            let _ = table.world.step(|machine, turn| {
                let _ = machine.tick(turn, Gate::Open, 1);
            });
            if state.unheard == 0 {
                table.world.piece_of_replica();
            }
        } else {
            let _ = table.perform(&words);
        }
        if !is_sent_late || dice.below(4) == 0 {
            table.world.all_delivered();
        }
    }
    if state.unheard > 0 {
        let _ = table.perform(&["swaps-heard"]);
    }
    wind_up(table, &mut rows, state.is_demoted, seed);
}

/// Drains all remaining work; then all clients leave.
fn wind_up(mut table: Table, rows: &mut Rows, is_demoted: bool, seed: u64) {
    if is_demoted {
        let _ = table.perform(&["promote"]);
    }
    // In every second of these histories the waiters are served again.
    if seed.is_multiple_of(8) {
        let _ = table.perform(&["c10", "DLOCK.TRUST"]);
    }
    table.world.all_delivered();
    let mut left = 1_000;
    let mut progress = Progress::More;
    while progress == Progress::More {
        let _ = table.world.step(|machine, turn| {
            progress = machine.tick(turn, Gate::Open, 64);
        });
        left -= 1;
        assert!(left > 0, "seed {seed}: the tick comes to an end");
    }
    let now = table.world.now();
    let alarm = table.world.machine.next_alarm(now, Gate::Open);
    assert!(alarm.is_none_or(|alarm| alarm > now.mono), "seed {seed}: nothing is due any more");
    let called = table
        .world
        .blocked
        .keys()
        .filter(|id| table.world.machine.tables().waits.by_id(**id).is_none());
    assert_eq!(called.count(), 0, "seed {seed}: who is blocked waits");
    rows.1.push("finish".to_owned());
    table.world.is_replica_slow = false;
    table.world.finish();
}

/// The state that decides which rows are possible.
#[derive(Default)]
pub(super) struct State {
    pub(super) is_demoted: bool,
    /// Swaps of databases of which the replica has not learnt.
    pub(super) unheard: usize,
    /// There was such a swap.
    was_late: bool,
}

impl State {
    /// Rows that have to come before this one.
    pub(super) fn rows_before(&mut self, words: &[&str], dice: &mut Dice) -> Vec<String> {
        let mut before = Vec::new();
        let is_call = words[0].starts_with('c');
        if self.unheard > 0 && !is_call && words[0] != "piece" && words.last() != Some(&"unheard") {
            self.unheard = 0;
            before.push("swaps-heard".to_owned());
        }
        if self.is_demoted && is_call && dice.below(6) == 0 {
            self.is_demoted = false;
            before.push("promote".to_owned());
        }
        before
    }

    /// Whether this row is possible.
    pub(super) fn can_take(&mut self, table: &mut Table, words: &[&str]) -> bool {
        let client = |word: &str| word[1..].parse::<u64>().unwrap();
        if words[0].starts_with('c') {
            let is_free = table.world.blocked_on(client(words[0])).is_none();
            // A replica takes no calls, but that one.
            return is_free && (!self.is_demoted || words[1] == "DLOCK.UNBLOCK");
        }
        let db = table.db;
        let has_key =
            |world: &mut World, db, name: &str| world.has_key(Key { db, name: name.as_bytes() });
        match *words {
            // Later rows go on with the same servers.
            ["unread", ..] => self.unheard == 0,
            ["rename", from, _] => has_key(&mut table.world, db, from),
            ["move", from, to] => {
                let to: u32 = to.parse().unwrap();
                to != db
                    && has_key(&mut table.world, db, from)
                    && !has_key(&mut table.world, to, from)
            }
            ["restore", from, _] => {
                let key = Key { db, name: from.as_bytes() };
                matches!(table.world.keys.get(key), Lookup::Here(_))
            }
            ["abandoned", who] => table.world.blocked_on(client(who)).is_some(),
            ["undelivered", who] => table.world.sent.iter().any(|&(_, other)| other == client(who)),
            // A promotion before such a swap is drained can leave an entry until the next one.
            ["failover"] => !(self.is_demoted || self.was_late && table.world.is_replica_slow),
            ["demote"] => {
                self.is_demoted = true;
                true
            }
            ["swapdb", _, _, "unheard"] => {
                self.unheard += usize::from(!self.is_demoted);
                self.was_late |= !self.is_demoted;
                !self.is_demoted
            }
            _ => true,
        }
    }
}

/// The invariants hold after each row, the replica equals the primary, and the tick ends.
#[test]
fn what_is_left_to_the_tick_meets_the_next_commands() {
    let number = |name| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    let first: u64 = number("DLOCK_SEED").unwrap_or(1);
    let runs = number("DLOCK_RUNS").unwrap_or(HISTORIES);
    for seed in first..first + runs {
        history(seed);
    }
}
