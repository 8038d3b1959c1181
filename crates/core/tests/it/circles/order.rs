//! Changes of the order of waiting owners: a call that violates it is fitted in without a search, and no cycle is
//! missed.

use super::scene::{Ask, At, Came, NOW, Scene};
use dlock_core::kind::Kind;
use dlock_wire::request::Mode;

/// Holds keys, and waits for nothing.
const REST: usize = 9_999;

fn lock(number: usize) -> Ask {
    Ask::One(At(Kind::Lock, number))
}

fn rw(mode: Mode) -> Ask {
    Ask::Rw(At(Kind::Rw, 0), mode)
}

fn scene() -> Scene {
    Scene::new(Vec::new())
}

fn holds(scene: &mut Scene, owner: usize, keys: impl IntoIterator<Item = usize>) {
    for key in keys {
        assert_eq!(scene.ask(owner, &lock(key), false), Came::Granted);
    }
}

fn waits(scene: &mut Scene, owner: usize, key: usize) {
    assert_eq!(scene.ask(owner, &lock(key), false), Came::Waits, "o{owner} for {key}");
}

/// Number of waiters inspected for the owner to wait for the key.
fn cost(scene: &mut Scene, owner: usize, key: usize) -> u64 {
    let before = scene.machine.searched();
    waits(scene, owner, key);
    is_sound(scene);
    scene.machine.searched() - before
}

fn is_refused(scene: &mut Scene, owner: usize, ask: &Ask) {
    let came = scene.ask(owner, ask, false);
    assert!(matches!(came, Came::Deadlock(_)), "o{owner} for {ask:?}: {came:?}");
}

fn is_sound(scene: &mut Scene) {
    assert_eq!(scene.machine.broken_invariant(&mut scene.keys, NOW), None);
}

/// Each owner holds its own key, and waits for that of the next; the last waits for that of `REST`. The farthest come
/// first, so that each respects the order.
fn chain(scene: &mut Scene, owners: std::ops::Range<usize>) {
    holds(scene, REST, [owners.end]);
    for owner in owners.rev() {
        holds(scene, owner, [owner]);
        waits(scene, owner, owner + 1);
    }
}

#[test]
fn a_cycle_is_found_if_too_many_wait_for_the_caller_to_lift_them() {
    for is_holder in [true, false] {
        let mut scene = scene();
        holds(&mut scene, 0, [0]);
        holds(&mut scene, if is_holder { 1 } else { REST }, [1]);
        for owner in 1..=100 {
            waits(&mut scene, owner, 0);
        }
        if !is_holder {
            waits(&mut scene, 1, 1);
        }
        is_refused(&mut scene, 0, &lock(1));
        is_sound(&mut scene);
    }
}

#[test]
fn all_readers_count_however_many_they_are() {
    for waiting in (0..3_000).step_by(250) {
        let mut scene = scene();
        holds(&mut scene, REST, [0]);
        for reader in 0..3_000 {
            assert_eq!(scene.ask(reader, &rw(Mode::Read), false), Came::Granted);
        }
        waits(&mut scene, waiting, 0);
        is_refused(&mut scene, REST, &rw(Mode::Write));
    }
}

#[test]
fn an_owner_that_must_rank_higher_is_lifted_with_its_waiters() {
    let mut scene = scene();
    holds(&mut scene, REST, [9_000]);
    holds(&mut scene, 1, [9_001]);
    holds(&mut scene, 2, [9_002]);
    waits(&mut scene, 1, 9_000);
    waits(&mut scene, 2, 9_001);
    waits(&mut scene, 3, 9_002);
    chain(&mut scene, 100..400);
    // Owner 1, for which 2 and 3 wait, must rank above the whole chain.
    let looked_at = cost(&mut scene, 1, 100);
    assert!((4..20).contains(&looked_at), "{looked_at}");
    is_refused(&mut scene, 399, &lock(9_002));
}

#[test]
fn owners_that_must_rank_lower_are_lowered_if_that_is_less_work() {
    let mut scene = scene();
    holds(&mut scene, REST, [9_000]);
    holds(&mut scene, 1, [9_001]);
    waits(&mut scene, 1, 9_000);
    for owner in 1_000..2_000 {
        waits(&mut scene, owner, 9_001);
    }
    chain(&mut scene, 100..110);
    // Owner 1 must rank above the chain, and a thousand owners wait for it.
    let looked_at = cost(&mut scene, 1, 100);
    assert!((64..160).contains(&looked_at), "{looked_at}");
    is_refused(&mut scene, 109, &lock(9_001));
}

#[test]
fn owners_ranked_below_all_waiters_for_the_caller_are_not_searched() {
    for keys in [[100, 3], [3, 100]] {
        let mut scene = scene();
        // Owner 1 waits for a long chain, which ranks below 2, and for 2, which waits for the caller.
        chain(&mut scene, 100..400);
        holds(&mut scene, 0, [0]);
        holds(&mut scene, 1, [1]);
        waits(&mut scene, 2, 0);
        holds(&mut scene, 2, [3]);
        for key in keys {
            waits(&mut scene, 1, key);
        }
        let before = scene.machine.searched();
        is_refused(&mut scene, 0, &lock(1));
        let looked_at = scene.machine.searched() - before;
        assert!((3..30).contains(&looked_at), "{looked_at} for {keys:?}");
    }
}

#[test]
fn a_level_is_found_where_no_room_is_left_between_two() {
    let mut scene = scene();
    // All hold what 1 waits for, and get ranks below it, each below the one before.
    holds(&mut scene, REST, [0]);
    for owner in 100..150 {
        holds(&mut scene, owner, [owner]);
        waits(&mut scene, 1, owner);
    }
    for owner in 100..150 {
        let looked_at = cost(&mut scene, owner, 0);
        assert!(looked_at < 200, "{looked_at}");
    }
    holds(&mut scene, 1, [1]);
    is_refused(&mut scene, 100, &lock(1));
}

#[test]
fn a_call_for_several_keys_that_holds_one_makes_no_owner_unordered() {
    let mut scene = scene();
    holds(&mut scene, REST, [1]);
    holds(&mut scene, 0, [0]);
    waits(&mut scene, 10, 0);
    chain(&mut scene, 100..400);
    let both = Ask::All([0, 1].map(|key| At(Kind::Lock, key)).into());
    assert_eq!(scene.ask(0, &both, true), Came::Waits);
    is_sound(&mut scene);
    holds(&mut scene, 11, [11]);
    waits(&mut scene, 12, 11);
    let looked_at = cost(&mut scene, 11, 100);
    assert!(looked_at < 10, "{looked_at}");
}

/// Renames turn waiting owners into holders that rank above the owners that wait for them from now on.
fn renamed(above: usize, below: usize) -> Scene {
    let mut scene = scene();
    chain(&mut scene, 100..400);
    holds(&mut scene, REST, [0, 1, 2]);
    // `above` owners wait for key 0; 1 and 2 wait behind `below` others.
    for owner in 1_000..1_000 + above {
        waits(&mut scene, owner, 0);
    }
    for owner in 2_000..2_000 + below {
        waits(&mut scene, owner, 2);
    }
    holds(&mut scene, 1, [10]);
    holds(&mut scene, 2, [20]);
    waits(&mut scene, 2, 2);
    waits(&mut scene, 1, 1);
    scene.rename(At(Kind::Lock, 10), At(Kind::Lock, 0));
    is_sound(&mut scene);
    scene.rename(At(Kind::Lock, 20), At(Kind::Lock, 1));
    is_sound(&mut scene);
    scene
}

/// A call that a search would follow through a long chain.
fn far(scene: &mut Scene, number: usize) -> u64 {
    let (owner, waiter) = (5_000 + number, 6_000 + number);
    holds(scene, owner, [owner]);
    waits(scene, waiter, owner);
    cost(scene, owner, 100)
}

#[test]
fn a_holder_by_rename_is_lowered_at_once_if_that_is_little_work() {
    let mut scene = renamed(200, 3);
    for number in 0..5 {
        let looked_at = far(&mut scene, number);
        assert!(looked_at < 10, "{looked_at} in call {number}");
    }
}

#[test]
fn a_holder_by_rename_is_unordered_only_until_there_is_time() {
    let mut scene = renamed(200, 200);
    let costs: Vec<u64> = (0..20).map(|number| far(&mut scene, number)).collect();
    assert!(costs.iter().any(|looked_at| *looked_at > 100), "{costs:?}");
    assert!(costs[10..].iter().all(|looked_at| *looked_at < 10), "{costs:?}");
}

#[test]
fn attempts_to_rank_an_owner_in_a_cycle_become_rare_and_succeed_in_the_end() {
    let mut scene = scene();
    holds(&mut scene, 1, [1]);
    holds(&mut scene, 2, [2]);
    holds(&mut scene, REST, [3]);
    scene.machine.settings.deadlock_detection = false;
    waits(&mut scene, 1, 2);
    waits(&mut scene, 2, 1);
    scene.machine.settings.deadlock_detection = true;
    // Other owners wait for each, so the check is needed.
    holds(&mut scene, 10, 10..12);
    waits(&mut scene, 11, 10);
    waits(&mut scene, 12, 11);
    let mut costs = Vec::new();
    for _ in 0..600 {
        costs.push(cost(&mut scene, 10, 3));
        scene.cancel(At(Kind::Lock, 3), 10);
    }
    let usual = *costs.iter().min().expect("many");
    let attempts = costs.iter().filter(|looked_at| **looked_at > usual).count();
    assert!((5..20).contains(&attempts), "{attempts} attempts: {costs:?}");
    scene.cancel(At(Kind::Lock, 1), 2);
    chain(&mut scene, 100..400);
    let costs: Vec<u64> = (0..300).map(|number| far(&mut scene, number)).collect();
    assert!(costs[280..].iter().all(|looked_at| *looked_at < 10), "{costs:?}");
}

#[test]
fn several_are_lifted_only_where_there_is_room_for_each() {
    for crowd in 0..30 {
        let mut scene = scene();
        holds(&mut scene, REST, [0, 5]);
        holds(&mut scene, 2, [2]);
        waits(&mut scene, 2, 5);
        waits(&mut scene, 3, 2);
        waits(&mut scene, 1, 2);
        for owner in 100..100 + crowd {
            holds(&mut scene, owner, [owner]);
            waits(&mut scene, 1, owner);
        }
        // Each gets a rank halfway between the one before and 1.
        for owner in 100..100 + crowd {
            waits(&mut scene, owner, 0);
        }
        // Owners 2 and 3 need ranks between the last of them and 1.
        waits(&mut scene, 2, 0);
        is_sound(&mut scene);
    }
}

#[test]
fn all_that_a_search_looks_at_is_counted() {
    let refused = |scene: &mut Scene, ask: &Ask| {
        let before = scene.machine.searched();
        is_refused(scene, REST, ask);
        scene.machine.searched() - before
    };
    // A few for each link: where a count is left out, it is less than seven.
    let mut links = scene();
    chain(&mut links, 100..200);
    let looked_at = refused(&mut links, &lock(100));
    assert!((700..800).contains(&looked_at), "{looked_at}");
    // The readers, and the waiters for READ.
    for (holds_it, wants) in [(Mode::Read, Mode::Write), (Mode::Write, Mode::Read)] {
        let mut crowd = scene();
        holds(&mut crowd, REST, [0]);
        assert_eq!(crowd.ask(1, &rw(holds_it), false), Came::Granted);
        for reader in 2..200 {
            crowd.ask(reader, &rw(Mode::Read), false);
        }
        waits(&mut crowd, 1, 0);
        let looked_at = refused(&mut crowd, &rw(wants));
        assert!((198..800).contains(&looked_at), "{looked_at} to {wants:?}");
    }
}
