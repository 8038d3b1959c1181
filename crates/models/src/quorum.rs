//! The quorum lock's algorithm against every order of events: see [`world`] for what can happen.
//!
//! A test that expects the algorithm to hold looks at all states within its bounds; one that expects it to break
//! looks for the shortest history that ends where it must not, and prints it. `DLOCK_LATE=1` lets one request more be
//! late or lost in the former, which takes five to ten times as long; `-- --nocapture` shows states and histories.

mod rows;
mod search;
mod world;

use self::{
    search::search,
    world::{Broken, Crash, Mistake, Rules},
};

/// Two clients, each with one try; nobody crashes. The third server's clock is ahead by more than a lease.
const PLAIN: Rules = Rules {
    tries: &[0, 1],
    lease: 2,
    ahead: [0, 1, 3],
    late: 2,
    repeats: 0,
    cuts: 0,
    renewals: 0,
    crashes: 0,
    crash: Crash::DataKept,
    quarantine: 0,
    mistake: None,
};

const LOST: Rules = Rules { crashes: 1, crash: Crash::DataLost, late: 1, ..PLAIN };

fn holds(what: &str, rules: &Rules) {
    let more = std::env::var("DLOCK_LATE").map_or(0, |more| more.parse().unwrap());
    let rules = Rules { late: rules.late + more, ..*rules };
    let seen = search(&rules, &[Broken::TwoHolders, Broken::TokenNotLarger]);
    println!("{what}: {} states, {} steps, {:.1?}", seen.states, seen.steps, seen.took);
    if let Some(history) = seen.found {
        panic!("{what}: it must not come to this:\n{history}");
    }
}

fn breaks(what: &str, broken: Broken, rules: &Rules) {
    let seen = search(rules, &[broken]);
    let Some(history) = seen.found else {
        panic!("{what}: nothing found in {} states: the model is blind", seen.states)
    };
    println!("{what} ({} states, {:.1?}):\n{history}", seen.states, seen.took);
}

#[test]
fn holds_without_crashes() {
    holds("no crashes", &PLAIN);
}

#[test]
fn holds_while_it_is_renewed() {
    holds("renewals", &Rules { renewals: 1, late: 0, ..PLAIN });
}

#[test]
fn holds_when_connections_are_lost_and_requests_come_twice() {
    holds("cuts and repeats", &Rules { cuts: 1, repeats: 1, late: 0, ..PLAIN });
}

#[test]
fn holds_when_a_client_tries_again() {
    holds("a second try", &Rules { tries: &[0, 1, 0], late: 0, ..PLAIN });
}

#[test]
fn holds_when_a_server_comes_back_with_its_data() {
    holds("a crash, data kept", &Rules { crashes: 1, late: 0, ..PLAIN });
}

#[test]
fn holds_when_a_server_comes_back_without_its_data_and_waits() {
    holds("a crash, data lost, quarantine", &Rules { quarantine: 3, late: 0, ..LOST });
}

#[test]
fn breaks_without_quarantine() {
    breaks("data lost, no quarantine", Broken::TwoHolders, &LOST);
    breaks("data lost, no quarantine", Broken::TokenNotLarger, &LOST);
}

#[test]
fn breaks_when_the_quarantine_is_shorter_than_the_lease() {
    let rules = Rules { lease: 3, ahead: [0, 0, 1], quarantine: 1, late: 0, ..LOST };
    breaks("quarantine shorter than the lease", Broken::TwoHolders, &rules);
}

#[test]
fn breaks_when_the_quarantine_is_shorter_than_the_clocks_differ() {
    let rules = Rules { quarantine: 2, ahead: [0, 1, 4], late: 0, ..LOST };
    breaks("quarantine shorter than the clocks differ", Broken::TokenNotLarger, &rules);
}

#[test]
fn breaks_with_each_mistake() {
    let rules = |mistake| Rules { mistake: Some(mistake), ..PLAIN };
    for mistake in [Mistake::NoWriteBack, Mistake::TrustsUnacknowledged] {
        breaks(&format!("{mistake:?}"), Broken::TokenNotLarger, &rules(mistake));
    }
    for mistake in [Mistake::OldValidity, Mistake::LeaseFromFirstAnswer] {
        breaks(&format!("{mistake:?}"), Broken::TwoHolders, &rules(mistake));
    }
    let rules = Rules { lease: 3, renewals: 1, late: 0, ..rules(Mistake::LeaseFromRenewed) };
    breaks("LeaseFromRenewed", Broken::TwoHolders, &rules);
}
