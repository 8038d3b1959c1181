//! The failover profile against every order of events: see [`world`] for what can happen.

mod search;
mod text;
mod world;

use self::{
    search::search,
    world::{Rule, Rules, Stream},
};

const LAGS: Rules = Rules {
    servers: 3,
    confirm: 1,
    lease: 2,
    quarantine: 2,
    stream: Stream::Lags,
    chains: false,
    without: &[],
};

const ANY_DATA: Rules = Rules { stream: Stream::AnyData, ..LAGS };

fn holds(rules: &Rules) {
    let seen = search(rules);
    println!("{rules:?}: {} states, depth {}, {:.1?}", seen.states, seen.depth, seen.took);
    if let Some((_, history)) = seen.found {
        panic!("{rules:?}: it must not come to this:\n{history}");
    }
}

fn breaks(rules: &Rules) {
    let seen = search(rules);
    let Some((events, history)) = seen.found else {
        panic!("{rules:?}: nothing found in {} states: the model is blind", seen.states)
    };
    println!("{rules:?}: {events} events ({} states, {:.1?}):\n{history}", seen.states, seen.took);
}

#[test]
fn any_data() {
    for (n, servers) in [(1, 2), (1, 3), (2, 3), (2, 4), (2, 5)] {
        for lease in [1, 2] {
            holds(&Rules { servers, confirm: n, lease, quarantine: lease, ..ANY_DATA });
        }
    }
}

#[test]
fn any_data_breaks() {
    breaks(&Rules { servers: 4, ..ANY_DATA });
    breaks(&Rules { servers: 6, confirm: 2, lease: 1, quarantine: 1, ..ANY_DATA });
}

#[test]
fn lags() {
    holds(&Rules { servers: 2, ..LAGS });
    holds(&Rules { lease: 1, quarantine: 1, ..LAGS });
    holds(&LAGS);
}

#[test]
fn left_out() {
    breaks(&Rules { servers: 4, ..LAGS });
    breaks(&Rules { quarantine: 1, ..LAGS });
}

#[test]
fn left_out_each() {
    use Rule::*;
    for rule in [MinReplicas, StandStill, QuarantineOfPrimary, QuarantineOfReplica, GrantConfirmed, GrantOutsideQuarantine, ReentryOutsideQuarantine, ReentryAskedOutsideQuarantine, RenewalConfirmed, NoQuarantineSince] {
        let without: &'static [Rule] = Box::leak(Box::new([rule]));
        let rules = Rules { without, ..ANY_DATA };
        let seen = search(&rules);
        println!("{without:?}: {:?} {} states", seen.found.is_some(), seen.states);
        if seen.found.is_some() { breaks(&Rules {stream: Stream::Lags, ..rules}); }
    }
}
