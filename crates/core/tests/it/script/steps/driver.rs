//! Carries out rows, and says all that clients can see of them. This file is compiled twice: here, and by
//! `scripts/core-of` around an earlier core, with the support of that core's tests.

use crate::script::{BASE_US, Table};
use crate::support::{MS, World};
use dlock_core::tables::settings::Settings;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;

/// A history in progress.
pub struct Driver(pub(super) Table);

impl Driver {
    pub fn new() -> Driver {
        let table = Table::new(World::new(Settings::default(), BASE_US));
        Driver(Table { any_order: true, with_events: true, ..table })
    }

    /// Carries out `MILLISECONDS DB ROW`. Of a row that begins with `whole`, all work is done before the next one, and
    /// the order of what is shown does not count.
    pub fn row(&mut self, line: &str) -> String {
        let row = AssertUnwindSafe(|| self.try_row(line));
        std::panic::catch_unwind(row).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or_default().replace('\n', " "))
        })
    }

    fn try_row(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at: u64 = words[0].parse().unwrap();
        let table = &mut self.0;
        table.world.at(BASE_US + at * MS);
        table.db = words[1].parse().unwrap();
        let known = table.tokens.len();
        let mut shown = match words[2..] {
            ["whole", ref row @ ..] => {
                let shown = [self.perform(row), self.perform(&["tick"])];
                let shown = shown.map(|part| part.replace(" +", "; +")).join("; ");
                let mut parts: Vec<&str> =
                    shown.split("; ").filter(|part| !part.is_empty()).collect();
                parts.sort_unstable();
                parts.join("; ")
            }
            ref row => self.perform(row),
        };
        for token in &self.0.tokens[known..] {
            let _ = write!(shown, " #{token}");
        }
        shown
    }

    fn perform(&mut self, row: &[&str]) -> String {
        let world = &mut self.0.world;
        match *row {
            ["state"] => return self.state(),
            ["requests"] => return world.machine.tables().known_requests(world.now()).to_string(),
            ["arrived"] => world.all_delivered(),
            ["events-late"] => world.after_events = |_, _| (),
            _ => return self.0.perform(row),
        }
        String::new()
    }

    /// Keys and counters.
    fn state(&mut self) -> String {
        let world = &self.0.world;
        let keys: Vec<String> = world.keys.digest().map(|key| format!("{key:?}")).collect();
        let c = &world.machine.tables().counters;
        let counters = [
            [c.grants_at_once, c.grants_after_waiting, c.timeouts, c.expiries, c.releases],
            [c.broken, c.disconnected, c.replaced, c.unclaimed, 0],
        ];
        format!("{counters:?}, {}", keys.join(", "))
    }
}

/// Answers histories: rows, then an empty line.
#[cfg(not(test))]
pub fn serve() {
    use std::io::Write as _;
    std::panic::set_hook(Box::new(|_| ()));
    let (mut driver, mut out) = (Driver::new(), std::io::stdout().lock());
    let mut shown = String::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        if line.is_empty() {
            driver = Driver::new();
            out.write_all(shown.as_bytes()).and_then(|()| out.flush()).unwrap();
            shown.clear();
        } else {
            shown.push_str(&driver.row(&line));
            shown.push('\n');
        }
    }
}
