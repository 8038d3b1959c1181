//! No command costs more because of what is elsewhere: a part of `cargo bench -- sweep`, with generous limits.

use crate::{
    support::{Server, Setup},
    sweep::{Row, Scale, rows},
};

#[test]
fn no_cost_grows_with_what_is_elsewhere() {
    let scale = Scale {
        sizes: [400, 6_400],
        repeats: 20,
        rounds: 7,
        exponent: 0.5,
        noise: 20.0,
        ratio: f64::INFINITY,
    };
    let all = rows(scale, setup, |_, probe| probe.is_checked);
    assert!(all.len() > 150, "{} measurements", all.len());
    let mut found = outliers(&all, scale);
    // The machine has other things to do: what is out of line is so each time.
    for _ in 0..4 {
        let again = rows(scale, setup, |state, probe| found.contains(&(state.name, probe.calls)));
        println!("{:?}", again.iter().map(|row| row.costs).collect::<Vec<_>>());
        found = outliers(&again, scale);
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The release build: the checked one walks what a key has in each turn of the loop. The search from the tick may use a
/// part of a core, whatever calls cost.
fn setup() -> Setup {
    Server::with(&["dlock.deadlock-recheck-ms", "0"]).release()
}

fn outliers(rows: &[Row], scale: Scale) -> Vec<(&'static str, &'static str)> {
    let outliers = rows.iter().filter(|row| row.is_out_of_line(scale).is_some());
    outliers.map(|row| (row.state.name, row.probe.calls)).collect()
}
