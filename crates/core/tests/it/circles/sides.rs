//! The search on both sides of the caller: the shorter side decides, and no cycle is missed.

use super::scene::{Ask, At, Came, NOW, Scene};
use dlock_core::base::kind::Kind;
use dlock_core::invariants::broken_invariant;
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
    assert_eq!(scene.ask(owner, &lock(key), false), Came::WaitQueues, "o{owner} for {key}");
}

/// Number of waiters inspected for the owner to wait for the key.
fn cost(scene: &mut Scene, owner: usize, key: usize) -> u64 {
    let before = scene.machine.tables().searched;
    waits(scene, owner, key);
    is_sound(scene);
    scene.machine.tables().searched - before
}

fn is_refused(scene: &mut Scene, owner: usize, ask: &Ask) {
    let came = scene.ask(owner, ask, false);
    assert!(matches!(came, Came::Deadlock(_)), "o{owner} for {ask:?}: {came:?}");
}

fn is_sound(scene: &mut Scene) {
    assert_eq!(broken_invariant(scene.machine.tables(), &mut scene.keys, NOW), None);
}

/// Each owner holds its own key, and waits for that of the next; the last waits for that of `REST`.
fn chain(scene: &mut Scene, owners: std::ops::Range<usize>) {
    holds(scene, REST, [owners.end]);
    for owner in owners.rev() {
        holds(scene, owner, [owner]);
        waits(scene, owner, owner + 1);
    }
}

#[test]
fn a_cycle_is_found_if_many_wait_for_the_caller() {
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

/// Owners 2 and 3 wait for owner 1, one after the other.
fn with_two_waiters() -> Scene {
    let mut scene = scene();
    holds(&mut scene, 1, [9_001]);
    holds(&mut scene, 2, [9_002]);
    waits(&mut scene, 2, 9_001);
    waits(&mut scene, 3, 9_002);
    scene
}

#[test]
fn a_caller_with_few_waiters_needs_no_search_ahead() {
    let mut scene = with_two_waiters();
    chain(&mut scene, 100..180);
    let looked_at = cost(&mut scene, 1, 100);
    assert!((4..20).contains(&looked_at), "{looked_at}");
    is_refused(&mut scene, 179, &lock(9_002));
}

#[test]
fn a_caller_that_waits_for_few_needs_no_search_back() {
    let mut scene = scene();
    holds(&mut scene, 1, [9_001]);
    for owner in 1_000..2_000 {
        waits(&mut scene, owner, 9_001);
    }
    chain(&mut scene, 100..105);
    let looked_at = cost(&mut scene, 1, 100);
    assert!((20..80).contains(&looked_at), "{looked_at}");
    is_refused(&mut scene, 104, &lock(9_001));
}

#[test]
fn a_caller_between_two_long_chains_is_checked_to_the_end() {
    let mut scene = scene();
    chain(&mut scene, 100..130);
    chain(&mut scene, 1_000..1_030);
    holds(&mut scene, 1, [1_031]);
    // The first chain ends at owner 1, which waits for the second one: neither side is short.
    scene.give_up(At(Kind::Lock, 130), 129);
    waits(&mut scene, 129, 1_031);
    let looked_at = cost(&mut scene, 1, 1_000);
    assert!((90..400).contains(&looked_at), "{looked_at}");
    assert_eq!(scene.machine.tables().counters.deadlock_searches_cut, 0);
    is_refused(&mut scene, 1_029, &lock(100));
}

#[test]
fn owners_that_do_not_wait_for_the_caller_are_not_searched() {
    for keys in [[100, 3], [3, 100]] {
        let mut scene = scene();
        // Owner 1 waits for a long chain, and for 2, which waits for the caller.
        chain(&mut scene, 100..400);
        holds(&mut scene, 0, [0]);
        holds(&mut scene, 1, [1]);
        waits(&mut scene, 2, 0);
        holds(&mut scene, 2, [3]);
        for key in keys {
            waits(&mut scene, 1, key);
        }
        let before = scene.machine.tables().searched;
        is_refused(&mut scene, 0, &lock(1));
        let looked_at = scene.machine.tables().searched - before;
        assert!((3..80).contains(&looked_at), "{looked_at} for {keys:?}");
    }
}

#[test]
fn a_call_for_several_keys_waits_for_no_waiter_of_a_key_that_it_holds() {
    let mut scene = with_two_waiters();
    holds(&mut scene, REST, [9_003]);
    // Owner 2 waits for owner 1 at a key of the call, and nowhere else.
    let both = Ask::All([9_001, 9_003].map(|key| At(Kind::Lock, key)).into());
    let before = scene.machine.tables().searched;
    assert_eq!(scene.ask(1, &both, true), Came::WaitQueues);
    let looked_at = scene.machine.tables().searched - before;
    assert!(looked_at < 20, "{looked_at}");
    is_sound(&mut scene);
    is_refused(&mut scene, REST, &lock(9_002));
}

#[test]
fn all_readers_count_however_many_they_are() {
    for waiting in (0..300).step_by(25) {
        let mut scene = scene();
        holds(&mut scene, REST, [0]);
        for reader in 0..300 {
            assert_eq!(scene.ask(reader, &rw(Mode::Read), false), Came::Granted);
        }
        waits(&mut scene, waiting, 0);
        is_refused(&mut scene, REST, &rw(Mode::Write));
    }
}

/// The first waiter of a key lists some of its readers, and the tick the others: also those that come, leave and wait
/// meanwhile.
#[test]
fn the_tick_finds_a_cycle_through_a_reader_among_very_many() {
    const READERS: usize = 2_000;
    for waiting in [700, READERS - 1] {
        let mut scene = scene();
        holds(&mut scene, REST, [1]);
        for reader in 0..READERS {
            assert_eq!(scene.ask(reader, &rw(Mode::Read), false), Came::Granted);
        }
        let writer = scene.ask(REST, &rw(Mode::Write), false);
        assert_eq!(writer, Came::WaitQueues);
        let cut = |scene: &Scene| scene.machine.tables().counters.deadlock_searches_cut;
        let before = cut(&scene);
        assert_eq!(scene.ask(waiting, &lock(1), true), Came::WaitQueues, "{waiting}");
        assert_eq!(cut(&scene) - before, 1, "the search of the call is not whole");
        let refused = scene.search_late(|_| ());
        assert_eq!(refused.len(), 1, "{waiting}: {refused:?}");
        is_sound(&mut scene);
    }
}

#[test]
fn all_that_a_search_looks_at_is_counted() {
    let refused = |scene: &mut Scene, ask: &Ask| {
        let before = scene.machine.tables().searched;
        is_refused(scene, REST, ask);
        scene.machine.tables().searched - before
    };
    // A few for each link: where a count is left out, it is less than seven.
    let mut links = scene();
    chain(&mut links, 100..170);
    let looked_at = refused(&mut links, &lock(100));
    assert!((540..600).contains(&looked_at), "{looked_at}");
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

#[test]
fn the_search_back_leaves_enough_of_the_budget_for_the_search_forward() {
    let mut scene = scene();
    holds(&mut scene, 1, [9_001]);
    for owner in 10_000..20_000 {
        waits(&mut scene, owner, 9_001);
    }
    chain(&mut scene, 100..200);
    waits(&mut scene, 199, 9_001);
    is_refused(&mut scene, 1, &lock(100));
}

#[test]
fn the_check_of_all_keys_against_all_waiters_leaves_enough_of_the_budget_for_the_search_forward() {
    let mut scene = scene();
    holds(&mut scene, 1, [9_001]);
    for owner in 1_000..1_700 {
        waits(&mut scene, owner, 9_001);
    }
    chain(&mut scene, 100..150);
    waits(&mut scene, 149, 9_001);
    // Only the last key leads back, and only through the first owner of the chain.
    let keys = (9_100..9_112).chain([100]);
    is_refused(&mut scene, 1, &Ask::All(keys.map(|key| At(Kind::Lock, key)).collect()));
}

#[test]
fn a_check_that_needs_more_than_its_budget_at_once_ends_there() {
    let mut scene = scene();
    for reader in 10_000..20_000 {
        assert_eq!(scene.ask(reader, &rw(Mode::Read), false), Came::Granted);
    }
    holds(&mut scene, 1, [9_001]);
    holds(&mut scene, 2, [9_002]);
    assert_eq!(scene.ask(2, &rw(Mode::Write), false), Came::WaitQueues);
    waits(&mut scene, 2, 9_001);
    // Lists all readers.
    scene.search_late(|_| ());
    // Owner 2 waits for owner 1, but first of all for more readers than one call inspects.
    let before = scene.machine.tables().counters.deadlock_searches_cut;
    waits(&mut scene, 1, 9_002);
    assert_eq!(scene.machine.tables().counters.deadlock_searches_cut - before, 1);
}

#[test]
fn the_tick_checks_a_call_for_very_many_keys_that_looked_at_some_of_them() {
    const KEYS: usize = 8_000;
    let mut scene = scene();
    holds(&mut scene, 1, [KEYS + 1]);
    holds(&mut scene, 2, [KEYS]);
    waits(&mut scene, 2, KEYS + 1);
    // Only the last key leads back.
    let all = Ask::All((0..=KEYS).map(|key| At(Kind::Lock, key)).collect());
    assert_eq!(scene.ask(1, &all, true), Came::WaitQueues);
    assert_eq!(scene.machine.tables().counters.deadlock_searches_cut, 1);
    let refused = scene.search_late(|_| ());
    assert_eq!(refused.len(), 1, "{refused:?}");
    is_sound(&mut scene);
}

/// A caller with more waiters than the search back lists.
fn with_too_many_waiters() -> Scene {
    let mut scene = scene();
    holds(&mut scene, 1, [9_001]);
    for owner in 10_000..13_000 {
        waits(&mut scene, owner, 9_001);
    }
    scene
}

/// The owner waits after a complete check.
fn waits_after_a_check(scene: &mut Scene, owner: usize, ask: &Ask) {
    let before = scene.machine.tables().counters.deadlock_searches_cut;
    assert_eq!(scene.ask(owner, ask, true), Came::WaitQueues);
    assert_eq!(scene.machine.tables().counters.deadlock_searches_cut, before, "within the budget");
}

#[test]
fn a_search_passes_the_readers_of_a_key_once_however_many_writers_wait() {
    let mut scene = with_too_many_waiters();
    for reader in 2_000..2_100 {
        assert_eq!(scene.ask(reader, &rw(Mode::Read), false), Came::Granted);
    }
    for writer in 2..22 {
        holds(&mut scene, writer, [writer]);
        assert_eq!(scene.ask(writer, &rw(Mode::Write), false), Came::WaitQueues);
    }
    let all = Ask::All((2..22).map(|key| At(Kind::Lock, key)).collect());
    waits_after_a_check(&mut scene, 1, &all);
}

#[test]
fn a_search_passes_a_queue_once_however_many_of_its_owners_wait_elsewhere_too() {
    let mut scene = with_too_many_waiters();
    holds(&mut scene, REST, [0, 1]);
    for key in [0, 1] {
        for owner in 2_000..2_050 {
            waits(&mut scene, owner, key);
        }
    }
    waits_after_a_check(&mut scene, 1, &lock(0));
}

#[test]
fn owners_behind_the_caller_in_a_queue_for_permits_do_not_wait_for_it() {
    let mut scene = scene();
    let permit = Ask::Permit(At(Kind::Semaphore, 0));
    assert_eq!(scene.ask(REST, &permit, false), Came::Granted);
    for owner in [1].into_iter().chain(1_000..1_050) {
        assert_eq!(scene.ask(owner, &permit, false), Came::WaitQueues);
    }
    // The search forward is long, but no owner waits for the caller.
    chain(&mut scene, 100..400);
    holds(&mut scene, 1_000, [9_001]);
    waits(&mut scene, 1_000, 100);
    let looked_at = cost(&mut scene, 1, 9_001);
    assert!((100..200).contains(&looked_at), "{looked_at}");
}
