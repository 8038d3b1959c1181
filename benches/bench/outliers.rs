//! Commands whose cost is out of line, in any state.
//!
//! `SWEEP=lock` measures only states and calls with that text in their names, `SWEEP=test` what a test measures.

use std::{collections::BTreeMap, env};

use crate::{
    report::Table,
    stats::digits,
    support::Server,
    sweep::{Scale, rows},
};

const SCALE: Scale = Scale {
    // A key has room for those and for a probe.
    sizes: [990, 9_900],
    repeats: 50,
    rounds: 5,
    exponent: 0.25,
    noise: 4.0,
    ratio: 6.0,
};

pub fn run() -> Table {
    let only = env::var("SWEEP").unwrap_or_default();
    let rows = rows(
        SCALE,
        || Server::with(&[]).release(),
        |state, probe| match only.as_str() {
            "test" => probe.is_checked,
            only => state.name.contains(only) || probe.calls.contains(only),
        },
    );
    let mut table = Table::new(
        "Commands whose cost is out of line",
        format!(
            "{} measurements: server CPU for short lists of calls, {} in one write, the least of {} rounds, in states \
             of {} and {} units (a tenth where each unit is a connection or a user). Shown is what grows faster than \
             the power {} of the size, or takes more than {} times the plain server's nearest operation for each call.",
            rows.len(),
            SCALE.repeats,
            SCALE.rounds,
            SCALE.sizes[0],
            SCALE.sizes[1],
            SCALE.exponent,
            SCALE.ratio,
        ),
        ["CPU at both sizes", "exponent; times the plain operation"],
    );
    let mut found = BTreeMap::new();
    for row in &rows {
        if let Some(why) = row.is_out_of_line(SCALE) {
            *found.entry(why).or_insert(0) += 1;
            table.row(
                &format!("{}: {}", row.state.name, row.probe.calls),
                format!("{} → {} µs", digits(row.costs[0]), digits(row.costs[1])),
                format!("{}; × {}", digits(row.exponent), digits(row.ratio)),
                why.to_owned(),
            );
        }
    }
    println!("{} rows, out of line: {found:?}", rows.len());
    table
}
