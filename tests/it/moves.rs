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
    lease_and_tie_go_with_the_hold
    a_lock_that_comes_over_another_takes_its_waiters
    a_lock_renamed_to_its_own_name_stays
    moves_in_one_step_add_up
    swapped_databases_swap_holders_under_their_waiters
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

fn lease_and_tie_go_with_the_hold(family: Family) {
    let server = family.start();
    // Ends of the hold at the target.
    let ends: [(&[&str], &str); 2] =
        [(&["PX", "1000"], "expired"), (&["BIND", "0"], "disconnected")];
    for (by, db, name) in MOVES {
        for (options, event) in ends {
            println!("{by:?} {event}");
            let mut messages = server.subscribe(&["about"]);
            let mut holder = server.client();
            let mut call = vec!["DLOCK.ACQUIRE", "k", "h", "NOTIFY", "about"];
            call.extend(options);
            let token = holder.cmd(&call).int();
            server.cmd(by).ok();
            let mut there = in_db(&server, db);
            if event == "disconnected" {
                let bound = there.cmd(&["DLOCK.INFO", name]).field("bound-client").int();
                assert_eq!(u64::try_from(bound), Ok(holder.id()));
                drop(holder);
            }
            assert_eq!(messages.next_text(), format!("{event} {db} {token} 1 h 0  {name}"));
            server.left_over_check();
        }
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
    let server = family.start();
    for (last, db) in [(args!["PING"], 3), (args!["SWAPDB", 3, 4], 4), (args!["SWAPDB", 4, 3], 4)] {
        let mut scene = Scene::set(&server, "k");
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
        assert_eq!(there.cmd(&["DLOCK.RENEW", "l", "h", "PX", "50"]).int(), scene.token);
        assert_eq!(scene.messages.next_text(), format!("expired {db} {} 1 h 0  l", scene.token));
        scene.play_out(token);
    }

    let mut scene = Scene::set(&server, "k");
    let there_and_back =
        [args!["MULTI"], args!["RENAME", "k", "l"], args!["RENAME", "l", "k"], args!["EXEC"]];
    server.client().pipeline(&there_and_back)[3].items();
    scene.assert_all_wait();
    assert_eq!(scene.holder.cmd(&["DLOCK.RENEW", "k", "h", "PX", "50"]).int(), scene.token);
    let token = scene.first_is_granted();
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    scene.play_out(token);
}

/// Both databases have the key, with holders and waiters: the data are exchanged, and each waiter waits for the other
/// holder.
fn swapped_databases_swap_holders_under_their_waiters(family: Family) {
    let server = family.start();
    let mut low = Scene::set_in(&server, 0, "k");
    let mut high = Scene::set_in(&server, 7, "k");
    server.cmd(&["SWAPDB", "0", "7"]).ok();
    low.assert_all_wait();
    high.assert_all_wait();
    // The connections still have the number that they had.
    assert_eq!(low.holder.cmd(&args!["DLOCK.CHECK", "k", high.token]).int(), 1);
    assert_eq!(low.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    let token = low.first_is_granted();
    high.assert_all_wait();
    assert_eq!(high.holder.cmd(&["DLOCK.BREAK", "k"]).int(), 1);
    // Messages of the holder `low` go to its channel, with its new database.
    assert_eq!(low.messages.next_text(), format!("broken 7 {} 1 h 0  k", low.token));
    let other = high.first_is_granted();
    assert!(other > token);
    low.take_turns(token);
    high.play_out(other);
}
