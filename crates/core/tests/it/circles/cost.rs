//! The cost of showing that there is no cycle, as the number of inspected waiters; the clock does not matter.

use super::scene::{Ask, At, Came, Scene};
use dlock_core::base::kind::Kind;
use dlock_testing::Dice;
use dlock_wire::request::Mode;

const OWNERS: usize = 50;
const LOCKS: usize = 500;

/// The first of the holders of contended locks.
const HOLDERS: usize = 1_000;

fn lock(number: usize) -> Ask {
    Ask::One(At(Kind::Lock, number))
}

/// Locks that are held.
fn held(count: usize) -> Scene {
    let mut scene = Scene::new(Vec::new());
    for number in 0..count {
        assert_eq!(scene.ask(HOLDERS + number, &lock(number), false), Came::Granted);
    }
    scene
}

#[test]
fn owners_that_wait_in_many_queues_in_one_order_are_checked_within_the_budget() {
    let by_owner = (0..OWNERS).flat_map(|owner| (0..LOCKS).map(move |number| (owner, number)));
    let by_lock = (0..LOCKS).flat_map(|number| (0..OWNERS).map(move |owner| (owner, number)));
    for pairs in [by_owner.collect::<Vec<_>>(), by_lock.collect()] {
        let mut scene = held(LOCKS);
        let mut worst = 0;
        for (owner, number) in pairs {
            let before = scene.machine.tables().searched;
            assert_eq!(scene.ask(owner, &lock(number), false), Came::WaitQueues);
            worst = worst.max(scene.machine.tables().searched - before);
        }
        assert!(worst <= LOOKS_MOST, "{worst} looks in one call");
        // The first owner is granted each lock, holds them all, and waits for one more at last.
        for number in 0..LOCKS {
            scene.release(At(Kind::Lock, number), (HOLDERS + number, None));
        }
        assert_eq!(scene.ask(HOLDERS, &lock(LOCKS), false), Came::Granted);
        let before = scene.machine.tables().searched;
        assert_eq!(scene.ask(0, &lock(LOCKS), false), Came::WaitQueues);
        let looked_at = scene.machine.tables().searched - before;
        assert!(looked_at < 20, "{looked_at} looks for a call of an owner that holds {LOCKS}");
    }
}

#[test]
fn an_owner_in_two_queues_goes_to_the_end_of_one_without_a_long_search() {
    const WAITERS: usize = 1_000;
    let mut scene = held(WAITERS + 1);
    for owner in 0..WAITERS {
        assert_eq!(scene.ask(owner, &lock(owner + 1), false), Came::WaitQueues);
        assert_eq!(scene.ask(owner, &lock(0), true), Came::WaitQueues);
    }
    scene.release(At(Kind::Lock, 0), (HOLDERS, None));
    for round in 0..3 {
        for owner in 0..WAITERS {
            let before = scene.machine.tables().searched;
            scene.release(At(Kind::Lock, 0), (owner, None));
            assert_eq!(scene.ask(owner, &lock(0), true), Came::WaitQueues);
            let looked_at = scene.machine.tables().searched - before;
            assert!(looked_at <= 4, "{looked_at} places, o{owner} in round {round}");
        }
    }
}

#[test]
fn one_call_inspects_a_bounded_number_of_waiters_even_if_cycles_are_refused() {
    let mut scene = held(LOCKS);
    let mut dice = Dice::new(1);
    let mut below = move |bound| dice.index(bound);
    let (mut refused, mut worst) = (0, 0);
    for _ in 0..OWNERS * LOCKS {
        let (owner, number) = (below(OWNERS), below(LOCKS));
        let before = scene.machine.tables().searched;
        let came = scene.ask(owner, &lock(number), false);
        refused += usize::from(matches!(came, Came::Deadlock(_)));
        worst = worst.max(scene.machine.tables().searched - before);
    }
    assert!(refused > OWNERS * LOCKS / 2, "{refused} refused");
    let mean = scene.machine.tables().searched / (OWNERS * LOCKS) as u64;
    assert!(mean < 1_000 && worst <= LOOKS_MOST, "{mean} places for each call, {worst} at most");
}

/// Budget of a call.
const LOOKS_MOST: u64 = 1_000;

/// Chains that merge in an irregular order until all owners wait in one, and then in a cycle.
#[test]
fn a_call_that_joins_two_long_chains_looks_at_no_more_than_any_other() {
    const LINKS: usize = 20_000;
    let mut scene = Scene::new(Vec::new());
    for owner in 0..LINKS {
        assert_eq!(scene.ask(owner, &lock(owner), false), Came::Granted);
    }
    let mut worst = 0;
    for owner in (0..LINKS).map(|n| n * 7_919 % LINKS) {
        let before = scene.machine.tables().searched;
        let came = scene.ask(owner, &lock((owner + 1) % LINKS), false);
        assert_eq!(came, Came::WaitQueues, "too far to see");
        worst = worst.max(scene.machine.tables().searched - before);
    }
    assert!(worst <= LOOKS_MOST, "{worst} looks in one call");
    assert!(scene.machine.tables().counters.deadlock_searches_cut > 0);
}

/// Owners wait for very many locks, whose holders then ask for each other's.
#[test]
fn a_call_looks_at_no_more_where_others_wait_for_all_that_its_owner_could() {
    const CROWD: usize = 20;
    const HELD: usize = 1_000;
    let mut scene = held(HELD);
    for number in 0..HELD {
        for owner in 0..CROWD {
            assert_eq!(scene.ask(owner, &lock(number), false), Came::WaitQueues);
        }
    }
    let mut worst = 0;
    for number in 0..HELD {
        let before = scene.machine.tables().searched;
        scene.ask(HOLDERS + number, &lock((number * 7 + 1) % HELD), false);
        worst = worst.max(scene.machine.tables().searched - before);
    }
    assert!(worst <= LOOKS_MOST, "{worst} looks in one call");
}

/// The readers of one key can use up all the budget that a call has left.
#[test]
fn a_call_looks_at_no_more_readers_than_at_anything_else() {
    const READERS: usize = 20_000;
    let mut scene = held(1);
    let rw = |mode| Ask::Rw(At(Kind::Rw, 0), mode);
    for reader in 0..READERS {
        assert_eq!(scene.ask(reader, &rw(Mode::Read), false), Came::Granted);
    }
    // The check is needed: an owner waits for the writer.
    assert_eq!(scene.ask(READERS, &lock(0), false), Came::WaitQueues);
    let before = scene.machine.tables().searched;
    assert_eq!(scene.ask(HOLDERS, &rw(Mode::Write), false), Came::WaitQueues);
    let looked_at = scene.machine.tables().searched - before;
    assert!(looked_at <= LOOKS_MOST, "{looked_at} looks in one call");
}
