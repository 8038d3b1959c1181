//! Random copies of few requests, in any order, over connections that die. Some wait and some do not, and a hold may
//! end before its RELEASE. `DLOCK_SEED` sets the first seed, and `DLOCK_RUNS` the number of runs.

use super::random::{Rows, State};
use super::{BASE_US, Table};
use crate::simulator::number_in;
use crate::support::{MS, World};
use dlock_core::tables::settings::Settings;
use dlock_testing::Dice;

const HISTORIES: u64 = 4_000;
const ROWS: usize = 30;

/// The requests: their owners, and their ids. The last two are those of a MACQUIRE and an ANYACQUIRE.
const REQUESTS: [(&str, &str); 5] =
    [("A", "1"), ("A", "2"), ("B", "1"), ("A", "all"), ("B", "any")];

/// The calls of one family.
struct Family(&'static str);

impl Family {
    fn keys(&self) -> &'static [&'static str] {
        if self.0 == "DLOCK" { &["k", "l"] } else { &["k"] }
    }

    fn modes(&self) -> &'static [&'static str] {
        if self.0 == "DRW" { &["READ", "WRITE"] } else { &[""] }
    }

    fn acquire(&self, dice: &mut Dice, (owner, id): (&str, &str)) -> String {
        let waits = ["", "QUEUE 90", "QUEUE 90", "BLOCK 0", "BLOCK 6 QUEUE 90"];
        let (wait, lease) = (dice.pick(&waits), dice.pick(&["", "PX 9"]));
        let block = if wait.is_empty() { "" } else { "BLOCK 0" };
        let (key, mode) = (dice.pick(self.keys()), dice.pick(self.modes()));
        match (self.0, id) {
            (_, "all") => format!("DLOCK.MACQUIRE 2 k l {owner} REQID {id} {block} {lease}"),
            (_, "any") => format!("DLOCK.ANYACQUIRE 2 k l {owner} REQID {id} {block} {lease}"),
            ("DSEM", _) => format!("DSEM.ACQUIRE k {owner} LIMIT 1 REQID {id} {wait} {lease}"),
            (family, _) => {
                format!("{family}.ACQUIRE {key} {owner} {mode} REQID {id} {wait} {lease}")
            }
        }
    }

    /// All RELEASE calls of a request.
    fn releases(&self, (owner, id): (&str, &str)) -> Vec<String> {
        if id == "all" {
            return vec![format!("DLOCK.MRELEASE 2 k l {owner} REQID {id}")];
        }
        let places = self.keys().iter().flat_map(|key| self.modes().iter().map(move |m| (key, m)));
        let family = self.0;
        places.map(|(key, m)| format!("{family}.RELEASE {key} {owner} {m} REQID {id}")).collect()
    }

    fn row(&self, dice: &mut Dice) -> String {
        let number = if self.0 == "DLOCK" { REQUESTS.len() } else { 3 };
        let request = REQUESTS[dice.index(number)];
        let (caller, key) = (1 + dice.below(4), dice.pick(self.keys()));
        match dice.below(16) {
            0..7 => format!("c{caller} {}", self.acquire(dice, request)),
            7 => {
                let releases = self.releases(request);
                format!("c{caller} {}", releases[dice.index(releases.len())])
            }
            8..11 => format!("gone c{caller}"),
            11 => format!("undelivered c{caller}"),
            12 if self.0 == "DSEM" => format!("c{caller} DSEM.RELEASE k A ALL"),
            12 => format!("c{caller} {}.BREAK {key}", self.0),
            13 => format!("del {key}"),
            14 => "failover".to_owned(),
            _ => "tick".to_owned(),
        }
    }
}

fn history(seed: u64) {
    let mut rows = Rows(seed, Vec::new());
    let mut dice = Dice::new(seed);
    let mut table =
        Table { any_order: true, ..Table::new(World::new(Settings::default(), BASE_US)) };
    let family = Family(dice.pick(&["DLOCK", "DFAIR", "DRW", "DSEM"]));
    let is_sent_late = dice.below(2) == 0;
    let (mut at, mut state) = (0, State::default());
    for _ in 0..ROWS {
        at += dice.pick(&[0, 0, 0, 3, 9]);
        table.world.at(BASE_US + at * MS);
        let row = family.row(&mut dice);
        let words: Vec<&str> = row.split_whitespace().collect();
        if state.can_take(&mut table, &words) {
            let shown = table.perform(&words);
            rows.1.push(format!("{at:4}  {row}  => {shown}"));
        }
        if !is_sent_late || dice.below(4) == 0 {
            table.world.all_delivered();
        }
    }
    table.world.all_delivered();
    let mut perform = |call: &str| {
        let words: Vec<&str> = call.split_whitespace().collect();
        let shown = table.perform(&words);
        rows.1.push(format!("{at:4}  {call}  => {shown}"));
        shown
    };
    for release in REQUESTS.iter().flat_map(|&request| family.releases(request)) {
        perform(&format!("c9 {release}"));
    }
    for (key, family) in family.keys().iter().map(|key| (key, family.0)) {
        let left = perform(&format!("c9 {family}.WAITERS {key}"));
        assert_eq!(left, "nobody", "seed {seed}: who waits for {key}");
    }
    table.world.finish();
}

/// A request waits, or holds, or is over. So after its RELEASE it has nothing, whatever became of its hold.
#[test]
fn the_release_of_each_request_leaves_nothing() {
    let first = number_in("DLOCK_SEED").unwrap_or(1);
    for seed in first..first + number_in("DLOCK_RUNS").unwrap_or(HISTORIES) {
        history(seed);
    }
}
