//! Random rows: what one step leaves to the tick meets the commands that come next. The simulator lets a tick come to its
//! end after each command; here a tick does one piece of work at a time, in portions of two.

use super::{BASE_US, Table};
use crate::support::{MS, World};
use dlock_core::machine::{Gate, Progress, Settings};
use dlock_core::store::Key;

/// Histories; each has another seed.
const HISTORIES: u64 = 40_000;

const ROWS: usize = 60;

/// xorshift: the same rows for the same seed on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.roll(words.len() as u64)).unwrap()]
    }
}

/// A call that may wait. `family`: 0 latches, 1 fair locks, 2 read-write locks, 3 semaphores, 4 locks, also several.
fn asks(dice: &mut Dice, family: u64, (key, owner): (&str, &str)) -> String {
    let waits = ["", "BLOCK 0", "BLOCK 0", "BLOCK 6", "QUEUE 20", "QUEUE 5", "BLOCK 4 QUEUE 9"];
    let (wait, bind) = (dice.pick(&waits), dice.pick(&["", "", "BIND 0", "BIND 5"]));
    let rest = format!("{wait} {bind} {}", dice.pick(&["", "", "PX 5"]));
    match family {
        0 => match dice.roll(5) {
            0 => format!("DLATCH.INIT {key} 1"),
            1 => format!("DLATCH.COUNTDOWN {key}"),
            2 => format!("DLATCH.INIT {key} 1 PX 5"),
            _ => format!("DLATCH.AWAIT {key} BLOCK {}", dice.roll(2) * 5),
        },
        1 => format!("DFAIR.ACQUIRE {key} {owner} {rest}"),
        2 => {
            let mode = dice.pick(&["READ", "READ", "READ", "WRITE"]);
            let id = dice.pick(&["", "", "", "REQID 1", "REQID 2"]);
            format!("DRW.ACQUIRE {key} {owner} {mode} {id} {rest}")
        }
        3 => {
            let limit = dice.pick(&["", "LIMIT 4"]);
            format!("DSEM.ACQUIRE {key} {owner} COUNT {} {limit} {rest}", 1 + dice.roll(3))
        }
        _ => match dice.roll(9) {
            0..3 => format!("DLOCK.MACQUIRE 5 k l m n o {owner} BLOCK {}", dice.roll(2) * 6),
            3 | 4 => format!("DLOCK.ANYACQUIRE 5 k l m n o {owner} BLOCK 0"),
            _ => format!("DLOCK.ACQUIRE {key} {owner} {rest}"),
        },
    }
}

/// A call that ends something.
fn ends(dice: &mut Dice, family: u64, (key, owner): (&str, &str)) -> String {
    match family {
        0 => format!("DLATCH.COUNTDOWN {key}"),
        1 => format!("DFAIR.{} {key} {owner}", dice.pick(&["RELEASE", "CANCEL"])),
        2 if dice.roll(3) == 0 => format!("DRW.BREAK {key}"),
        2 => format!("DRW.RELEASE {key} {owner} {}", dice.pick(&["READ", "WRITE"])),
        3 => format!("DSEM.RESIZE {key} {}", 1 + dice.roll(6)),
        _ => format!("DLOCK.RELEASE {key} {owner}"),
    }
}

fn row(dice: &mut Dice, mode: u64) -> String {
    let caller = 1 + dice.roll(9);
    let keys: &[&str] = if mode == 4 { &["k", "l", "m", "n", "o"] } else { &["k", "l"] };
    let key = dice.pick(keys);
    let owner = dice.pick(&["A", "B", "C", "D", "E", "F", "G", "H"]);
    let family = if mode == 4 { dice.roll(5) } else { mode };
    match dice.roll(20) {
        0..9 => format!("c{caller} {}", asks(dice, family, (key, owner))),
        9..12 => format!("c{caller} {}", ends(dice, family, (key, owner))),
        12 => format!("c{caller} DLOCK.UNBLOCK {}", 1 + dice.roll(9)),
        13 if dice.roll(4) == 0 => format!("abandoned c{caller}"),
        13 => format!("gone c{caller}"),
        14 => format!("del {key}"),
        15 => match dice.roll(9) {
            0 => "flushall".to_owned(),
            1 => format!("flushdb {}", dice.roll(2)),
            2 => format!("slot-lost {key}"),
            3 => format!("over {key}"),
            4 if key != "l" => format!("rename {key} l"),
            5 | 6 => "swapdb 0 1".to_owned(),
            7 => "demote".to_owned(),
            _ => "tick".to_owned(),
        },
        16 => format!("c{caller} DLOCK.ACQUIRE {key} {owner} {}", dice.pick(&["", "BLOCK 0"])),
        17 => "tick".to_owned(),
        _ => "piece".to_owned(),
    }
}

/// The rows so far, shown when one of them fails.
struct Rows(u64, Vec<String>);

impl Drop for Rows {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.0, self.1.join("\n"));
        }
    }
}

fn history(seed: u64) {
    let mut rows = Rows(seed, Vec::new());
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let world = World::new(Settings::default(), BASE_US);
    let mut table = Table {
        world,
        family: "DLOCK",
        db: 0,
        tokens: Vec::new(),
        with_events: false,
        held_back: false,
        any_order: true,
    };
    table.world.set_portion(if dice.roll(4) == 0 { 4 } else { 2 });
    // Keys that are missing may have moved to another node.
    table.world.machine.settings.cluster = dice.roll(4) == 0;
    let (mode, mut at, mut is_demoted) = (dice.roll(5), 0, false);
    for _ in 0..ROWS {
        table.db = u32::from(dice.roll(4) == 0);
        if dice.roll(4) == 0 {
            at += dice.roll(4) * 3;
            table.world.at(BASE_US + at * MS);
        }
        let row = row(&mut dice, mode);
        let words: Vec<&str> = row.split_whitespace().collect();
        let caller = words[0].strip_prefix('c').and_then(|number| number.parse().ok());
        if caller.is_some_and(|caller| table.world.blocked_on(caller).is_some()) {
            continue;
        }
        // A replica takes no calls, but that one.
        if is_demoted && caller.is_some() && words[1] != "DLOCK.UNBLOCK" {
            if dice.roll(6) == 0 {
                let _ = table.perform(&["promote"]);
                is_demoted = false;
            }
            continue;
        }
        let is_blocked = |who: &str| table.world.blocked_on(who[1..].parse().unwrap());
        match words[0] {
            "rename" => {
                let key = Key { db: table.db, name: words[1].as_bytes() };
                if !table.world.has_key(key) {
                    continue;
                }
            }
            "abandoned" if is_blocked(words[1]).is_none() => continue,
            _ => {}
        }
        rows.1.push(format!("{at:4}  db {}  {row}", table.db));
        is_demoted |= words[0] == "demote";
        if words[0] == "piece" {
            let _ = table.world.step(|machine, keys, now, fx| {
                let _ = machine.tick(keys, now, Gate::Open, 1, fx);
            });
        } else {
            let _ = table.perform(&words);
        }
        table.world.all_delivered();
    }
    if is_demoted {
        let _ = table.perform(&["promote"]);
    }
    let mut left = 1_000;
    let mut progress = Progress::More;
    while progress == Progress::More {
        let _ = table.world.step(|machine, keys, now, fx| {
            progress = machine.tick(keys, now, Gate::Open, 64, fx);
        });
        left -= 1;
        assert!(left > 0, "seed {seed}: the tick comes to an end");
    }
    let now = table.world.now();
    let alarm = table.world.machine.next_alarm(now, Gate::Open);
    assert!(alarm.is_none_or(|alarm| alarm > now.mono), "seed {seed}: nothing is due any more");
    let called =
        table.world.blocked.keys().filter(|id| table.world.machine.waits().by_id(**id).is_none());
    assert_eq!(called.count(), 0, "seed {seed}: who is blocked waits");
}

/// The invariants hold after each row, the replica has what the primary has, and the tick comes to an end.
#[test]
fn what_is_left_to_the_tick_meets_the_next_commands() {
    for seed in 1..=HISTORIES {
        history(seed);
    }
}
