//! The rows of a history: those of the other random tables, and those that they do not have. Since the earlier core the
//! rules changed for leases, places, bindings and the ids of acquires. The rows keep to what those rules leave alone.

use super::driver::Driver;
use crate::script::random::{self, Mode, State};
use dlock_testing::Dice;

const ROWS: usize = 40;

/// Draws a history. Returns its rows, and what this core shows.
pub fn history(seed: u64) -> Vec<(String, String)> {
    let mut dice = Dice::new(seed);
    let mut driver = Driver::new();
    let mut done: Vec<(String, String)> = Vec::new();
    let mut perform = |driver: &mut Driver, line: String| {
        let shown = driver.row(&line);
        done.push((line, shown));
    };
    // Some work is cut into portions. What is left in between is up to the core.
    let is_whole = seed.is_multiple_of(4);
    for row in settings(&mut dice, is_whole) {
        perform(&mut driver, format!("0 0 {row}"));
    }
    let terms = Terms::draw(&mut dice);
    for row in terms.settings() {
        perform(&mut driver, format!("0 0 {row}"));
    }
    let (is_sent_late, has_ids) = (dice.one_in(4), !dice.one_in(3));
    let (families, is_stormy) = (dice.below(6), dice.one_in(2));
    let mode = Mode { families, is_stormy, may_diverge: false };
    let (mut at, mut state) = (0, State::default());
    let whole = if is_whole { "whole " } else { "" };
    for _ in 0..ROWS {
        let db = u32::from(dice.one_in(4));
        at += match dice.below(64) {
            0 => 60_000,
            1..16 => dice.below(4) * 3,
            _ => 0,
        };
        let mut row = match dice.below(4) {
            0 => more(&mut dice, families, driver.0.tokens.len()),
            _ => random::row(&mut dice, mode),
        };
        if row == "piece" {
            "tick".clone_into(&mut row);
        }
        let Some(mut row) = terms.left_alone(&row) else { continue };
        for id in [" REQID 1", " REQID 2", " REQID 3"].iter().filter(|_| !has_ids) {
            row = row.replace(id, "");
        }
        driver.0.db = db;
        let words: Vec<&str> = row.split_whitespace().collect();
        for row in state.rows_before(&words, &mut dice) {
            perform(&mut driver, format!("{at} {db} {whole}{row}"));
        }
        if !state.can_take(&mut driver.0, &words) {
            continue;
        }
        if row.starts_with('c') && dice.one_in(12) {
            row.replace_range(..1, "m");
        }
        perform(&mut driver, format!("{at} {db} {whole}{row}"));
        if dice.one_in(40) {
            // The tests of that core restart servers without the requests that they remember.
            let restart = dice.pick(&["restart", "restart rdb"]);
            let can_restart = !has_ids && !state.is_demoted && state.unheard == 0;
            let rows = match dice.below(3) {
                0 => ["wall 5", "tick"],
                1 if can_restart => ["tick", restart],
                _ => ["pause", "resume"],
            };
            for row in rows {
                perform(&mut driver, format!("{at} {db} {row}"));
                at += dice.below(4) * 3;
            }
        }
        if !is_sent_late || dice.one_in(4) {
            perform(&mut driver, format!("{at} {db} arrived"));
        }
    }
    perform(&mut driver, format!("{at} 0 c10 DLOCK.LOG GET"));
    perform(&mut driver, format!("{at} 0 requests"));
    perform(&mut driver, format!("{at} 0 state"));
    done
}

/// What all calls of a history have in common.
struct Terms {
    /// Every lease, and the longest time of an offer: a time that is shorter than another one shortens nothing now.
    lease_ms: u64,
    grace_ms: u64,
    /// An offer that nobody took closes the lock now, so either there are no delays, or no offers.
    lock_delay_ms: u64,
    /// A re-entry does not change the channel now.
    channel: &'static str,
}

impl Terms {
    fn draw(dice: &mut Dice) -> Terms {
        let lease_ms = dice.pick(&[5, 5, 20, 60_000]);
        Terms {
            lease_ms,
            grace_ms: dice.pick(&[lease_ms, 60_000]),
            lock_delay_ms: dice.pick(&[0, 0, 0, 4]),
            channel: dice.pick(&["", " NOTIFY ch", " SNOTIFY sh"]),
        }
    }

    fn settings(&self) -> [String; 4] {
        [
            format!("set default-lease {}", self.lease_ms),
            format!("set claim {}", self.lease_ms),
            format!("set grace {}", self.grace_ms),
            format!("set lock-delay {}", self.lock_delay_ms),
        ]
    }

    /// A row without what has other rules now; `None` if nothing is left.
    fn left_alone(&self, row: &str) -> Option<String> {
        let mut row = row.to_owned();
        if self.lock_delay_ms > 0 {
            row = row.replace("DFAIR", "DLOCK");
        }
        if !row.contains("BLOCK") {
            row = row.replace("QUEUE", "BLOCK");
        }
        let words: Vec<&str> = row.split_whitespace().collect();
        let command = words.get(1).copied().unwrap_or_default();
        // That core took only permit ids there.
        if command == "DSEM.RELEASE" && !words[3].starts_with('$') {
            return None;
        }
        let is_acquire = command.ends_with("ACQUIRE");
        let mut options = vec!["BIND", "QUEUE", "DELAY", "NOTIFY", "SNOTIFY"];
        if command != "DLATCH.INIT" {
            options.push("PX");
        }
        if is_acquire || command.ends_with("RELEASE") {
            options.push("REQID");
        }
        let mut kept: Vec<&str> = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if options.contains(&word) {
                words.next();
            } else {
                kept.push(word);
            }
        }
        let channel = if is_acquire { self.channel } else { "" };
        Some(format!("{}{channel}", kept.join(" ")))
    }
}

fn settings(dice: &mut Dice, is_whole: bool) -> Vec<String> {
    let mut rows = vec![
        format!("set quarantine {}", dice.pick(&[0, 0, 5])),
        format!("set max-waiters-per-key {}", dice.pick(&[2, 100_000, 100_000])),
        format!("set request-memory-ms {}", dice.pick(&[9, 3_600_000])),
        format!("set deadlock-detection {}", dice.below(2)),
    ];
    if is_whole {
        rows.push(format!("set portion {}", dice.pick(&[2, 2, 3, 4])));
        // Keys that are missing may have moved to another node.
        rows.push(format!("set cluster {}", u64::from(dice.one_in(2))));
        if dice.one_in(3) {
            rows.push("events-late".to_owned());
        }
    }
    rows
}

/// What names a hold by its token or id, what has a REQID, and what reads.
fn more(dice: &mut Dice, families: u64, tokens: usize) -> String {
    let family = match families {
        4 | 5 => dice.below(5),
        family => family,
    };
    let (key, owner) = (dice.pick(&["k", "l"]), dice.pick(&["A", "B", "C", "D"]));
    let token = match tokens {
        0 => "7".to_owned(),
        // Some seconds ahead of the clock.
        _ if dice.one_in(16) => "1700000070000000".to_owned(),
        tokens => format!("$t{}", 1 + dice.index(tokens)),
    };
    let id = dice.pick(&["", "REQID 1", "REQID 2", "REQID 3"]);
    let (lease, bind) = (dice.pick(&["", "PX 5", "PX 50"]), dice.pick(&["", "BIND 0", "BIND 5"]));
    let at = if dice.one_in(2) { format!("TOKEN {token}") } else { String::new() };
    let channel = dice.pick(&["NOTIFY ch", "SNOTIFY sh", "LABEL x"]);
    let name = ["DLATCH", "DFAIR", "DRW", "DSEM", "DLOCK"][usize::try_from(family).unwrap()];
    let permit = format!("$p{}", 1 + dice.below(6));
    let mode = if family == 2 { dice.pick(&["READ", "READ", "WRITE"]) } else { "" };
    let call = match (dice.below(8), family) {
        (0, _) => format!("{name}.INFO {key}"),
        (1, _) => format!("{name}.WAITERS {key}"),
        (_, 0) => format!("DLATCH.COUNTDOWN {key} {id}"),
        (2, _) => format!("{name}.POSITION {key} {owner}"),
        (3, 3) => format!("DSEM.RELEASE {key} {permit}"),
        (4, 3) => format!("DSEM.RENEW {key} {permit} {lease} {bind}"),
        (5, 3) => format!("DSEM.GIVE {key} {id}"),
        (6, 3) => match dice.below(4) {
            0 => format!("DSEM.DRAIN {key} {id}"),
            1 => format!("DSEM.BREAK {key} {permit}"),
            2 => format!("DSEM.PERMITS {key}"),
            _ => format!("DSEM.RESIZE {key} BY 1 {id}"),
        },
        (_, 3) => format!("DSEM.ACQUIRE {key} {owner} QUEUE 20 {channel} {id}"),
        (3, _) => format!("{name}.RENEW {key} {owner} {mode} {lease} {at} {bind}"),
        (4, _) => {
            format!("{name}.RELEASE {key} {owner} {mode} {at} {id} {}", dice.pick(&["", "ALL"]))
        }
        (5, _) => format!("{name}.CHECK {key} {token}"),
        (6, 4) => match dice.below(6) {
            0 => format!("DLOCK.MRENEW 2 k l {owner} {lease}"),
            1 => format!("DLOCK.MRELEASE 2 k l {owner} {id}"),
            2 => format!("DLOCK.FENCE {key} {owner} {token}"),
            3 => format!("DLOCK.UNBLOCK {} ERROR", 1 + dice.below(9)),
            4 => format!("DLOCK.MACQUIRE 2 k l {owner} BLOCK 0"),
            _ => format!("DLOCK.AWAIT {key} {at} BLOCK 6 REASON"),
        },
        (6, 1) => format!("DFAIR.FENCE {key} {owner} {token}"),
        _ => format!("{name}.ACQUIRE {key} {owner} {mode} QUEUE 20 {channel} {id}"),
    };
    format!("c{} {call}", 1 + dice.below(9))
}
