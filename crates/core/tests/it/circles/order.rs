//! The order of those who wait, where it has to be changed: a call that does not fit in is made to fit
//! without a search, and no circle is lost by that.

use super::scene::{Ask, At, Came, NOW, Scene};
use dlock_core::resource::Kind;
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

/// How many places are looked at so that the owner may wait for the key.
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

/// Each holds its own key, and waits for that of the one after it; the last one's waits for `REST`.
/// The farthest come first, so that each fits in.
fn chain(scene: &mut Scene, owners: std::ops::Range<usize>) {
    holds(scene, REST, [owners.end]);
    for owner in owners.rev() {
        holds(scene, owner, [owner]);
        waits(scene, owner, owner + 1);
    }
}

#[test]
fn a_circle_is_seen_where_too_many_wait_for_the_caller_to_lift_them() {
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
fn who_has_to_stand_higher_is_lifted_with_those_who_wait_for_it() {
    let mut scene = scene();
    holds(&mut scene, REST, [9_000]);
    holds(&mut scene, 1, [9_001]);
    holds(&mut scene, 2, [9_002]);
    waits(&mut scene, 1, 9_000);
    waits(&mut scene, 2, 9_001);
    waits(&mut scene, 3, 9_002);
    chain(&mut scene, 100..400);
    // 1, for which 2 and 3 wait, has to stand above the whole chain.
    let looked_at = cost(&mut scene, 1, 100);
    assert!((4..20).contains(&looked_at), "{looked_at}");
    is_refused(&mut scene, 399, &lock(9_002));
}

#[test]
fn those_who_have_to_stand_lower_are_lowered_where_that_is_less_work() {
    let mut scene = scene();
    holds(&mut scene, REST, [9_000]);
    holds(&mut scene, 1, [9_001]);
    waits(&mut scene, 1, 9_000);
    for owner in 1_000..2_000 {
        waits(&mut scene, owner, 9_001);
    }
    chain(&mut scene, 100..110);
    // 1 has to stand above the chain, and a thousand wait for it.
    let looked_at = cost(&mut scene, 1, 100);
    assert!((64..160).contains(&looked_at), "{looked_at}");
    is_refused(&mut scene, 109, &lock(9_001));
}
