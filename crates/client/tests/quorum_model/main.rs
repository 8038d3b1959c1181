//! The quorum lock's algorithm against every order of events: see [`world`] for what can happen.
// A test may stop where it cannot go on.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../src/quorum/attempt.rs"]
mod attempt;
mod search;
mod world;

use self::{
    search::search,
    world::{Broken, Crash, Mistake, Rules},
};

const PLAIN: Rules = Rules {
    tries: &[0, 1],
    lease: 3,
    ahead: [0, 1, 4],
    repeats: 0,
    renewals: 0,
    crashes: 0,
    crash: Crash::DataKept,
    quarantine: 0,
    mistake: None,
    cuts: 0,
    late: 2,
    run: 1,
};

fn report(what: &str, rules: &Rules) {
    let seen = search(rules, &[Broken::TwoHolders, Broken::TokenNotLarger]);
    println!("{what}: {} states, {} steps, {:?}", seen.states, seen.steps, seen.took);
    if let Some(h) = seen.found {
        println!("{h}");
    }
}

#[test]
fn plain() {
    report("plain", &PLAIN);
}
#[test]
fn plain2() {
    report("plain", &Rules { lease: 2, ..PLAIN });
}
#[test]
fn plainf() {
    report("plain", &Rules { run: 0, ..PLAIN });
}
#[test]
fn plain2f() {
    report("plain", &Rules { lease: 2, run: 0, ..PLAIN });
}
#[test]
fn crash() {
    report("kept", &Rules { crashes: 1, ..PLAIN });
}
#[test]
fn lost() {
    report("lost", &Rules { crashes: 1, crash: Crash::DataLost, ..PLAIN });
}
#[test]
fn mistakes() {
    for mistake in [
        Mistake::NoWriteBack,
        Mistake::TrustsUnacknowledged,
        Mistake::OldValidity,
        Mistake::LeaseFromFirstAnswer,
        Mistake::LeaseFromRenewed,
    ] {
        report(
            &format!("{mistake:?}"),
            &Rules {
                mistake: Some(mistake),
                renewals: u8::from(mistake == Mistake::LeaseFromRenewed),
                ..PLAIN
            },
        );
    }
}
