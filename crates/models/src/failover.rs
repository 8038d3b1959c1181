//! The failover profile (docs/failover.md) against every order of events: see [`world`] for what can happen.
//!
//! A test that expects the profile to hold looks at all states within its bounds. One that leaves a rule out looks for
//! a shortest history that ends with two clients that believe, and prints it: `-- --nocapture`. The searches that are
//! ignored take minutes: `make models`.

mod search;
mod world;

use self::{
    search::{Seen, search},
    world::{Rule, Rules, Stream},
};

/// Three servers, of which one replica confirms.
const THREE: Rules = Rules {
    servers: 3,
    confirm: 1,
    lease: 2,
    quarantine: 2,
    stream: Stream::Lags,
    chains: false,
    without: &[],
};

const FOUR: Rules = Rules { servers: 4, confirm: 2, stream: Stream::AnyData, ..THREE };
const FIVE: Rules = Rules { servers: 5, ..FOUR };

fn searched(rules: &Rules) -> Seen {
    let seen = search(rules);
    println!("{rules:?}: {} states, {} events deep, {:.1?}", seen.states, seen.depth, seen.took);
    seen
}

fn holds(rules: &Rules) {
    if let Some((_, history)) = searched(rules).found {
        panic!("{rules:?}: it must not come to this:\n{history}");
    }
}

/// `events`: of a shortest history.
fn breaks(events: usize, rules: &Rules) {
    let Some((found, history)) = searched(rules).found else {
        panic!("{rules:?}: nothing is found: the model is blind")
    };
    println!("{found} events:\n{history}");
    assert_eq!(found, events, "{rules:?}");
}

#[test]
fn holds_with_all_rules() {
    holds(&Rules { servers: 2, ..THREE });
    holds(&THREE);
    holds(&Rules { quarantine: 3, ..THREE });
    holds(&Rules { lease: 3, quarantine: 3, ..THREE });
    holds(&Rules { confirm: 2, ..THREE });
    holds(&Rules { stream: Stream::AnyData, ..THREE });
    holds(&Rules { servers: 3, ..FOUR });
    holds(&FOUR);
    holds(&Rules { confirm: 3, ..FOUR });
}

#[test]
#[ignore = "takes minutes"]
fn holds_with_more_servers() {
    holds(&Rules { stream: Stream::Lags, ..FOUR });
    holds(&FIVE);
    holds(&Rules { confirm: 3, ..FIVE });
    holds(&Rules { lease: 3, quarantine: 3, ..FOUR });
}

#[test]
fn breaks_without_a_majority() {
    breaks(9, &Rules { servers: 4, ..THREE });
    breaks(7, &Rules { servers: 6, ..FOUR });
}

#[test]
fn breaks_when_the_quarantine_is_shorter_than_the_lease() {
    breaks(8, &Rules { quarantine: 1, ..THREE });
}

#[test]
fn breaks_without_each_rule() {
    for (events, without) in [
        (10, &[Rule::QuarantineOfReplica][..]),
        (7, &[Rule::GrantConfirmed]),
        (10, &[Rule::GrantOutsideQuarantine]),
        (11, &[Rule::ReentryOutsideQuarantine, Rule::ReentrySentOutsideQuarantine]),
        (17, &[Rule::ReentrySentOutsideQuarantine]),
        (10, &[Rule::RenewalConfirmed]),
    ] {
        breaks(events, &Rules { without, ..THREE });
    }
}

/// WAIT counts a replica twice that came online again. With one replica to confirm that changes nothing.
#[test]
fn breaks_with_two_replicas_when_one_counts_twice() {
    let without = &[Rule::NoQuarantineSince];
    breaks(9, &Rules { without, ..FIVE });
    holds(&Rules { without, ..FOUR });
    holds(&Rules { without, ..THREE });
}

/// What these rules withhold does not count before a replica comes online.
const COVERED: &[Rule] = &[Rule::MinReplicas, Rule::StandStill, Rule::QuarantineOfPrimary];

#[test]
fn rules_1_and_2_are_covered_by_rule_3() {
    for rules in [THREE, Rules { confirm: 2, ..THREE }] {
        holds(&Rules { without: COVERED, ..rules });
        COVERED.chunks(1).for_each(|without| holds(&Rules { without, ..rules }));
    }
}

#[test]
#[ignore = "takes minutes"]
fn the_same_with_more_servers() {
    let without = &[Rule::NoQuarantineSince];
    breaks(17, &Rules { without, stream: Stream::Lags, ..FIVE });
    holds(&Rules { without: COVERED, ..FOUR });
}

/// The replicas of a replica stay online when it is promoted.
#[test]
fn replicas_of_replicas_need_rule_2() {
    let chains = Rules { chains: true, ..THREE };
    holds(&chains);
    breaks(7, &Rules { without: &[Rule::QuarantineOfPrimary], ..chains });
    // They are not counted in `r`.
    breaks(9, &Rules { servers: 4, ..chains });
}
