//! The search from the tick finds what calls have missed.

use super::scene::{Ask, At, Came, NOW, Scene};
use dlock_core::base::kind::Kind;
use dlock_core::base::time::Instant;
use dlock_core::machine::Fact;
use dlock_testing::Dice;

/// Holds keys, and waits for nothing.
const REST: usize = 1_000_000;

fn lock(number: usize) -> Ask {
    Ask::One(At(Kind::Lock, number))
}

/// Each owner holds its own lock, and waits for that of the next.
fn ring(owners: usize, blocks: bool) -> Scene {
    let mut scene = Scene::new(Vec::new());
    scene.machine.configure(|settings| settings.deadlock_recheck_ms = 1_000);
    for owner in 0..owners {
        assert_eq!(scene.ask(owner, &lock(owner), false), Came::Granted);
    }
    scene.machine.configure(|settings| settings.deadlock_detection = false);
    for owner in (0..owners).map(|n| n * 7_919 % owners) {
        let came = scene.ask(owner, &lock((owner + 1) % owners), blocks);
        assert_eq!(came, Came::WaitQueues);
    }
    scene.machine.configure(|settings| settings.deadlock_detection = true);
    scene
}

#[test]
fn rings_beyond_the_budget_of_a_call_are_found_from_the_tick() {
    for owners in [2, 3, 20, 100, 1_000, 20_000] {
        for blocks in [true, false] {
            let mut scene = ring(owners, blocks);
            let before = scene.machine.tables().searched;
            let refused = scene.search_late(|_| ());
            assert_eq!(refused.len(), 1, "{owners} owners: {refused:?}");
            assert_eq!(refused[0].1, blocks);
            let looks = scene.machine.tables().searched - before;
            assert!(looks < 40 * owners as u64 + 100, "{looks} looks for {owners} owners");
        }
    }
}

/// Owners with places on two keys, who hold a lock each.
fn crowd(owners: usize) -> Scene {
    let mut scene = Scene::new(Vec::new());
    scene.machine.configure(|settings| settings.deadlock_detection = false);
    for key in [REST, REST + 1] {
        assert_eq!(scene.ask(REST, &lock(key), false), Came::Granted);
    }
    for owner in 0..owners {
        assert_eq!(scene.ask(owner, &lock(owner), false), Came::Granted);
        for key in [REST, REST + 1] {
            assert_eq!(scene.ask(owner, &lock(key), false), Came::WaitQueues);
        }
    }
    scene.machine.configure(|settings| settings.deadlock_detection = true);
    scene.machine.configure(|settings| settings.deadlock_recheck_ms = 1_000);
    scene
}

/// Wound: each of 90,000 owners with a place on one key paid for up to 8,192 looks to ask for another one.
#[test]
fn in_a_crowd_no_call_pays_more_than_a_thousand_looks_and_the_tick_finds_its_cycles() {
    const CROWD: usize = 90_000;
    let mut scene = crowd(CROWD);
    let (mut worst, mut refused) = (0, 0);
    for owner in (0..CROWD).rev().step_by(900) {
        let before = scene.machine.tables().searched;
        let came = scene.ask(owner, &lock((owner + CROWD / 2) % CROWD), true);
        refused += usize::from(came != Came::WaitQueues);
        worst = worst.max(scene.machine.tables().searched - before);
    }
    assert!(worst <= 1_000, "{worst} looks in one call");
    let (unchecked, lag) = scene.machine.tables().deadlocks_unchecked(Instant(NOW.mono.0 + 7_000));
    assert!(unchecked > 40 && lag == 7, "{unchecked} calls, {lag} ms");
    let before = scene.machine.tables().searched;
    let late = scene.search_late(|_| ());
    // Of the owners that wait for one behind them, each closes a cycle.
    assert_eq!(late.len() + refused, 50, "{refused} at once");
    let looks = scene.machine.tables().searched - before;
    assert!(looks < 8 * CROWD as u64, "{looks} looks, rounds after refusals included");
    assert_eq!(scene.machine.tables().deadlocks_unchecked(NOW.mono), (0, 0));
}

#[test]
fn the_work_of_a_round_grows_as_the_number_of_waits() {
    let looks = |owners: usize| {
        let mut scene = crowd(owners);
        let before = scene.machine.tables().searched;
        assert_eq!(scene.search_late(|_| ()), []);
        scene.machine.tables().searched - before
    };
    let (few, many) = (looks(1_000), looks(16_000));
    assert!(many < few * 20, "{few} looks for 1,000 and {many} for 16,000");
}

#[test]
fn a_search_that_is_interrupted_finds_a_cycle_that_lasts_however_the_others_change() {
    const RING: usize = 60;
    for seed in 1..=40 {
        let mut dice = Dice::new(seed);
        let mut scene = ring(RING, seed % 2 == 0);
        // Each piece looks at eight things, and others come and go in between.
        scene.machine.learn(Fact::Portion(2));
        let mut pieces = 0;
        while (0..RING).all(|n| scene.is_waiting(At(Kind::Lock, (n + 1) % RING), n)) {
            for _ in 0..3 {
                let (owner, at) = (2_000 + dice.index(20), At(Kind::Lock, dice.index(RING)));
                if dice.index(3) > 0 {
                    scene.ask(owner, &Ask::One(at), dice.index(2) == 0);
                } else if scene.is_waiting(at, owner) {
                    scene.give_up(at, owner);
                }
            }
            scene.search_a_piece();
            pieces += 1;
            assert!(pieces < 1_000, "two rounds have ended long ago");
        }
    }
}

#[test]
fn a_wait_that_ended_after_it_was_found_is_not_told() {
    let mut scene = ring(3, true);
    scene.search_shut();
    assert_eq!(scene.machine.tables().counters.deadlocks_refused, 0, "behind a shut gate");
    scene.release(At(Kind::Lock, 0), (0, None));
    assert_eq!(scene.search_late(|_| ()), []);
}

#[test]
fn the_youngest_wait_of_the_cycle_is_refused_and_no_owner_beside_it() {
    for youngest in 0..5 {
        let mut scene = Scene::new(Vec::new());
        for owner in 0..5 {
            assert_eq!(scene.ask(owner, &lock(owner), false), Came::Granted);
        }
        scene.machine.configure(|settings| settings.deadlock_detection = false);
        // Owners 100 to 199 wait for those in the cycle, and are younger or older.
        for owner in (100..150).chain((1..=5).map(|n| (youngest + n) % 5)).chain(150..200) {
            let key = if owner < 5 { (owner + 1) % 5 } else { owner % 5 };
            scene.ask(owner, &lock(key), true);
            scene.pass(1);
        }
        scene.machine.configure(|settings| settings.deadlock_detection = true);
        let refused = scene.search_late(|_| ());
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].0.contains(&format!(": \"o{youngest}\" waits")), "{refused:?}");
    }
}

#[test]
fn nothing_is_searched_while_nothing_changes() {
    let mut scene = crowd(100);
    assert_eq!(scene.search_late(|_| ()), []);
    let before = scene.machine.tables().searched;
    scene.pass(10_000);
    assert_eq!(scene.search_late(|_| ()), []);
    assert_eq!(scene.machine.tables().searched, before);
}

#[test]
fn a_search_uses_five_percent_of_the_time() {
    let mut scene = crowd(20_000);
    let (before, begun) = (scene.machine.tables().searched, scene.time());
    assert_eq!(scene.search_late(|_| ()), []);
    let looks = scene.machine.tables().searched - before;
    let took_us = scene.time().0 - begun.0;
    // Half a microsecond each, at most.
    assert!(looks > 20_000 && took_us * 5 / 100 * 2 >= looks * 9 / 10, "{looks} in {took_us} us");
}
