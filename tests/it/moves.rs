//! Commands that move a lock to another name or database: the hold keeps its lease and its binding, the waiters stay
//! with the requested name.

use crate::{
    args,
    scene::{Scene, in_db},
    support::{Family, Reply},
    test_both_families,
};

test_both_families! {
    the_hold_goes_and_the_waiters_stay
    a_lock_that_comes_over_another_takes_its_waiters
    a_lock_renamed_to_its_own_name_stays
    moves_in_one_step_add_up
}

/// Commands that move key `k` of database 0, and the target.
const MOVES: [(&[&str], u32, &str); 4] = [
    (&["RENAME", "k", "l"], 0, "l"),
    (&["RENAMENX", "k", "l"], 0, "l"),
    (&["MOVE", "k", "3"], 3, "k"),
    (&["SWAPDB", "0", "3"], 3, "k"),
];

fn the_hold_goes_and_the_waiters_stay(family: Family) {
    let server = family.start();
    for (by, db, name) in MOVES {
        println!("{by:?}");
        let mut scene = Scene::set(&server, "k");
        server.cmd(by).ok();
        let token = scene.first_is_granted();
        scene.messages.assert_none();
        let mut there = in_db(&server, db);
        assert_eq!(there.cmd(&args!["DLOCK.CHECK", name, scene.token]).int(), 1);
        assert_eq!(there.cmd(&["DLOCK.RELEASE", name, "h"]).int(), 0);
        scene.play_out(token);
    }
}

/// The target name has a holder and waiters: the holder loses the lock, the waiters continue to wait.
fn a_lock_that_comes_over_another_takes_its_waiters(family: Family) {
    let server = family.start();
    let mut scene = Scene::set(&server, "l");
    let moved = server.cmd(&["DLOCK.ACQUIRE", "k", "mover"]).int();
    assert_eq!(server.cmd(&["RENAMENX", "k", "l"]).int(), 0);
    scene.assert_all_wait();
    server.cmd(&["RENAME", "k", "l"]).ok();
    assert_eq!(scene.messages.next_text(), scene.message("deleted"));
    scene.removed = true;
    scene.assert_all_wait();
    assert_eq!(server.cmd(&["DLOCK.INFO", "l"]).field("token").int(), moved);
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "l", "mover"]).int(), 0);
    let token = scene.first_is_granted();
    scene.play_out(token);
}

fn a_lock_renamed_to_its_own_name_stays(family: Family) {
    let server = family.start();
    let mut scene = Scene::set(&server, "k");
    server.cmd(&["RENAME", "k", "k"]).ok();
    server.cmd(&["SWAPDB", "0", "0"]).ok();
    server.cmd(&["MOVE", "k", "0"]).error();
    scene.assert_all_wait();
    assert_eq!(scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    let token = scene.first_is_granted();
    scene.play_out(token);
}

/// Moved twice before the module could process it, and back again.
fn moves_in_one_step_add_up(family: Family) {
    const LEASE: u64 = 800;
    let server = family.start();
    for (last, db) in [(args!["PING"], 3), (args!["SWAPDB", 3, 4], 4), (args!["SWAPDB", 4, 3], 4)] {
        let mut scene = Scene::set_with_lease(&server, "k", LEASE);
        let transaction = [
            args!["MULTI"],
            args!["SWAPDB", 3, 4],
            args!["RENAME", "k", "l"],
            args!["MOVE", "l", 3],
            last,
            args!["EXEC"],
        ];
        server.client().pipeline(&transaction)[5].items();
        let token = scene.first_is_granted();
        scene.messages.assert_none();
        // Its lease expires at the target, without a command.
        let mut there = in_db(&server, db);
        assert_eq!(there.cmd(&["DLOCK.RENEW", "l", "h"]).int(), scene.token);
        assert_eq!(scene.messages.next_text(), format!("expired {db} {} 1 h 0  l", scene.token));
        scene.play_out(token);
    }

    let mut scene = Scene::set_with_lease(&server, "k", LEASE);
    let there_and_back =
        [args!["MULTI"], args!["RENAME", "k", "l"], args!["RENAME", "l", "k"], args!["EXEC"]];
    server.client().pipeline(&there_and_back)[3].items();
    scene.assert_all_wait();
    assert_eq!(scene.holder.cmd(&["DLOCK.RENEW", "k", "h"]).int(), scene.token);
    let token = scene.first_is_granted();
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    scene.play_out(token);
}
