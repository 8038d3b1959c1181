//! What it costs to see that there is no circle: places looked at, whatever the clock says.

use super::scene::{Ask, At, Came, Scene};
use dlock_core::resource::Kind;

const OWNERS: usize = 50;
const LOCKS: usize = 500;

/// The first of those who hold the locks that others wait for.
const HOLDERS: usize = 1_000;

fn lock(number: usize) -> Ask {
    Ask::One(At(Kind::Lock, number))
}

/// Locks that somebody holds.
fn held(count: usize) -> Scene {
    let mut scene = Scene::new(Vec::new());
    for number in 0..count {
        assert_eq!(scene.ask(HOLDERS + number, &lock(number), false), Came::Granted);
    }
    scene
}

#[test]
fn owners_who_wait_in_many_queues_in_one_order_are_not_searched_for() {
    let by_owner = (0..OWNERS).flat_map(|owner| (0..LOCKS).map(move |number| (owner, number)));
    let by_lock = (0..LOCKS).flat_map(|number| (0..OWNERS).map(move |owner| (owner, number)));
    for pairs in [by_owner.collect::<Vec<_>>(), by_lock.collect()] {
        let mut scene = held(LOCKS);
        for (owner, number) in pairs {
            assert_eq!(scene.ask(owner, &lock(number), false), Came::Waits);
        }
        assert_eq!(scene.machine.searched(), 0);
        // The first has its turn at each, holds them all, and waits for one more at last.
        for number in 0..LOCKS {
            scene.release(At(Kind::Lock, number), (HOLDERS + number, None));
        }
        assert_eq!(scene.ask(HOLDERS, &lock(LOCKS), false), Came::Granted);
        assert_eq!(scene.ask(0, &lock(LOCKS), false), Came::Waits);
        let looked_at = scene.machine.searched();
        assert!(looked_at <= LOCKS as u64, "{looked_at} places for a call of who holds {LOCKS}");
    }
}

#[test]
fn who_waits_in_two_queues_goes_to_the_end_of_one_without_a_search() {
    const WAITERS: usize = 1_000;
    let mut scene = held(WAITERS + 1);
    for owner in 0..WAITERS {
        assert_eq!(scene.ask(owner, &lock(owner + 1), false), Came::Waits);
        assert_eq!(scene.ask(owner, &lock(0), true), Came::Waits);
    }
    scene.release(At(Kind::Lock, 0), (HOLDERS, None));
    for round in 0..3 {
        for owner in 0..WAITERS {
            let before = scene.machine.searched();
            scene.release(At(Kind::Lock, 0), (owner, None));
            assert_eq!(scene.ask(owner, &lock(0), true), Came::Waits);
            let looked_at = scene.machine.searched() - before;
            assert!(looked_at <= 4, "{looked_at} places, o{owner} in round {round}");
        }
    }
}

#[test]
fn one_call_looks_at_a_bounded_number_of_places_also_where_circles_are_refused() {
    let mut scene = held(LOCKS);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = move |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).expect("small")
    };
    let (mut refused, mut worst) = (0, 0);
    for _ in 0..OWNERS * LOCKS {
        let (owner, number) = (below(OWNERS), below(LOCKS));
        let before = scene.machine.searched();
        let came = scene.ask(owner, &lock(number), false);
        refused += usize::from(matches!(came, Came::Deadlock(_)));
        worst = worst.max(scene.machine.searched() - before);
    }
    assert!(refused > OWNERS * LOCKS / 2, "{refused} refused");
    let mean = scene.machine.searched() / (OWNERS * LOCKS) as u64;
    assert!(mean < 1_000 && worst < 10_000, "{mean} places for each call, {worst} at most");
}
