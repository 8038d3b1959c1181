//! Explores every interleaving.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use super::{BUGS, Bounds, Bug, CONNECTIONS, ENDS, Event, LIMITED, World};

/// What is explored.
#[derive(Debug, Clone, Copy)]
struct Case {
    bounds: Bounds,
    bind: Option<u64>,
    bug: Option<Bug>,
}

/// The first violation within the bounds, with the events that lead to it; and how many states there are.
fn explore(case: Case) -> (Option<(String, Vec<Event>)>, usize) {
    // Hashes take the place of states: two of them would have to collide to hide a violation.
    let hasher = RandomState::new();
    let mut seen = HashSet::new();
    let mut path = vec![];
    let violation =
        dive(&World::new(case.bind, case.bounds.max_hold), case, &mut path, &mut |world| {
            seen.insert(hasher.hash_one(world))
        });
    (violation.map(|violation| (violation, path)), seen.len())
}

/// Depth first; `path` is what led to the violation.
fn dive(
    world: &World,
    case: Case,
    path: &mut Vec<Event>,
    is_new: &mut impl FnMut(&World) -> bool,
) -> Option<String> {
    for event in world.events(case.bounds) {
        let mut next = world.clone();
        path.push(event);
        if let Err(violation) = next.apply(event, case.bind, case.bug) {
            return Some(violation);
        }
        if is_new(&next)
            && let Some(violation) = dive(&next, case, path, is_new)
        {
            return Some(violation);
        }
        path.pop();
    }
    None
}

#[test]
fn no_interleaving_makes_the_client_count_on_an_ended_hold() {
    for bounds in [CONNECTIONS, ENDS, LIMITED] {
        for bind in [None, Some(1), Some(2)] {
            let (violation, states) = explore(Case { bounds, bind, bug: None });
            assert!(violation.is_none(), "{bounds:?}, bind {bind:?}: {violation:#?}");
            println!("{bounds:?}, bind {bind:?}: {states} states");
            assert!(states > 10_000, "the model does not run far: {states}");
        }
    }
}

#[test]
fn a_mistake_in_any_transition_is_found() {
    for &bug in BUGS {
        let cases = [CONNECTIONS, ENDS, LIMITED]
            .into_iter()
            .flat_map(|bounds| [None, Some(1)].map(|bind| Case { bounds, bind, bug: Some(bug) }));
        let found = cases.clone().find_map(|case| explore(case).0);
        match found {
            Some((violation, path)) => println!("{bug:?}: {violation}: {path:?}"),
            None => panic!("{bug:?} is not found"),
        }
    }
}
