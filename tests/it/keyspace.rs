//! Other commands on the key of a lock, with a holder and with waiters, blocked and queued: commands that end its
//! hold. `moves.rs` tests those that move it.

use std::{thread, time::Duration};

use crate::{
    args,
    scene::{Scene, in_db},
    support::{Family, Reply, SOON, wait_until},
    test_both_families,
};

test_both_families! {
    the_first_waiter_gets_a_lock_after_its_key_was_removed
    no_request_comes_between_a_removal_and_the_first_waiter
    a_key_that_ran_out_unnoticed_is_noticed_by_the_next_call
    a_flush_is_announced_once_for_each_database_that_had_holds
    another_value_on_the_key_ends_hold_and_waits
    a_lock_cannot_be_copied
    a_grant_to_another_owner_takes_the_time_to_live_off_the_key
    a_hand_on_is_a_change_of_the_key
    an_evicted_lock_goes_to_the_next
    a_full_server_grants_to_waiters_but_takes_no_more
}

/// Commands that remove the key of a lock, and the first word of the holder's message.
pub const REMOVALS: [(&[&str], &str); 11] = [
    (&["DEL", "k"], "deleted"),
    (&["UNLINK", "k"], "deleted"),
    (&["PEXPIRE", "k", "20"], "deleted"),
    (&["EXPIREAT", "k", "1"], "deleted"),
    (&["EVAL", "return redis.call('DEL', KEYS[1])", "1", "k"], "deleted"),
    (&["FLUSHDB"], "flushed"),
    (&["FLUSHDB", "ASYNC"], "flushed"),
    (&["FLUSHDB", "SYNC"], "flushed"),
    (&["FLUSHALL"], "flushed"),
    (&["FLUSHALL", "ASYNC"], "flushed"),
    (&["FLUSHALL", "SYNC"], "flushed"),
];

#[track_caller]
fn assert_told(scene: &mut Scene<'_>, told: &str) {
    let message = scene.messages.next_text();
    let wanted = if told == "flushed" { "flushed 0".to_owned() } else { scene.message(told) };
    assert_eq!(message, wanted);
}

fn the_first_waiter_gets_a_lock_after_its_key_was_removed(family: Family) {
    let server = family.start();
    for (removal, told) in REMOVALS {
        println!("{removal:?}");
        let mut scene = Scene::set(&server, "k");
        server.cmd(removal).ok();
        let token = scene.first_is_granted_after_removal();
        assert_told(&mut scene, told);
        assert!(scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).error().starts_with("NOTHELD "));
        scene.play_out(token);
    }
}

fn no_request_comes_between_a_removal_and_the_first_waiter(family: Family) {
    let server = family.start();
    for (removal, told) in REMOVALS {
        // These two take effect with a delay.
        if removal[0].contains("EXPIRE") {
            continue;
        }
        println!("{removal:?}");
        let mut scene = Scene::set(&server, "k");
        let replies = server.client().pipeline(&[
            args!["MULTI"],
            args![removal],
            args!["DLOCK.ACQUIRE", "k", "barger"],
            args!["DLOCK.POSITION", "k", "first"],
            args!["EXEC"],
        ]);
        let replies = replies[4].items();
        assert!(replies[1].is_null(), "{}", replies[1].show());
        assert_eq!(replies[2].int(), 0);
        let token = scene.first_is_granted_after_removal();
        assert_told(&mut scene, told);
        scene.play_out(token);
    }
}

fn a_key_that_ran_out_unnoticed_is_noticed_by_the_next_call(family: Family) {
    let server = family.start();
    server.cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).ok();
    for call in [args!["DLOCK.ACQUIRE", "k", "barger"], args!["DLOCK.INFO", "k"]] {
        let mut scene = Scene::set(&server, "k");
        let mut client = server.client();
        server.cmd(&["PEXPIRE", "k", "1"]).ok();
        // No command could read its expiry without removing it; the test uses the same clock.
        thread::sleep(Duration::from_millis(5));
        let reply = client.cmd(&call);
        let owner = if reply.is_null() { String::new() } else { reply.field("owner").text() };
        assert!(owner.is_empty() || owner == "first", "{owner}");
        let token = scene.first_is_granted_after_removal();
        assert_told(&mut scene, "deleted");
        scene.play_out(token);
    }
}

fn a_flush_is_announced_once_for_each_database_that_had_holds(family: Family) {
    let server = family.start();
    let mut messages = server.subscribe(&["dlock:notify", "about"]);
    let holders = [(0, "k"), (0, "l"), (5, "k"), (6, "k")].map(|(db, key)| {
        let mut holder = in_db(&server, db);
        holder.cmd(&args!["DLOCK.ACQUIRE", key, "h", "NOTIFY", "about", "BIND", 0]).int();
        holder
    });
    in_db(&server, 5).cmd(&["FLUSHDB"]).ok();
    assert_eq!(messages.next_text(), "flushed 5");
    server.cmd(&["FLUSHALL"]).ok();
    assert_eq!([messages.next_text(), messages.next_text()], ["flushed 0", "flushed 6"]);
    server.cmd(&["FLUSHALL"]).ok();
    // The bindings were removed with the data: these disconnects change nothing.
    drop(holders);
    server.left_over_check();
    messages.assert_none();
}

fn another_value_on_the_key_ends_hold_and_waits(family: Family) {
    let server = family.start();
    server.cmd(&["SET", "text", "v"]).ok();
    let dump = server.cmd(&["DUMP", "text"]).bytes();
    for overwrite in [
        args!["SET", "k", "v"],
        args!["SET", "k", "v", "XX", "PX", 60_000],
        args!["COPY", "text", "k", "REPLACE"],
        args!["RESTORE", "k", 0, dump, "REPLACE"],
        args!["RENAME", "text", "k"],
    ] {
        println!("{}", overwrite[0].escape_ascii());
        let mut scene = Scene::set(&server, "k");
        server.cmd(&overwrite).ok();
        for waiter in [&mut scene.first, &mut scene.last] {
            assert!(waiter.reply(SOON).error().starts_with("WRONGTYPE "));
        }
        assert_told(&mut scene, "deleted");
        for call in [
            args!["DLOCK.ACQUIRE", "k", "queued", "QUEUE", 1_000],
            args!["DLOCK.ACQUIRE", "k", "queued", "BLOCK", 0],
            args!["DLOCK.RELEASE", "k", "h"],
            args!["DLOCK.INFO", "k"],
            args!["DLOCK.WAITERS", "k"],
        ] {
            assert!(scene.queued.cmd(&call).error().starts_with("WRONGTYPE "));
        }
        assert_eq!(server.cmd(&["GET", "k"]).text(), "v");
        server.cmd(&["DEL", "k"]).ok();
        scene.messages.assert_none();
    }
    server.left_over_check();
}

fn a_lock_cannot_be_copied(family: Family) {
    let server = family.start();
    let mut scene = Scene::set(&server, "k");
    server.cmd(&["SET", "l", "v"]).ok();
    for copy in ["COPY k l REPLACE", "COPY k m", "COPY k k DB 1"] {
        let refusal = server.ask(copy).error();
        assert!(refusal.contains("not supported for this module key"), "{copy}: {refusal}");
    }
    assert_eq!(server.cmd(&["GET", "l"]).text(), "v");
    server.cmd(&["DEL", "l"]).ok();
    assert_eq!(server.keys(), 1);
    scene.assert_all_wait();
    scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int();
    let token = scene.first_is_granted();
    scene.play_out(token);
}

fn a_grant_to_another_owner_takes_the_time_to_live_off_the_key(family: Family) {
    let primary = family.start();
    let replica = family.with(&[]).replica_of(&primary).start();
    let mut scene = Scene::set(&primary, "k");
    primary.cmd(&["EXPIRE", "k", "100"]).ok();
    scene.holder.cmd(&["DLOCK.ACQUIRE", "k", "h"]).int();
    scene.holder.cmd(&["DLOCK.RENEW", "k", "h"]).int();
    assert_eq!(primary.cmd(&["TTL", "k"]).int(), 100);
    scene.holder.cmd(&["DLOCK.RELEASE", "k", "h", "ALL"]).int();
    let token = scene.first_is_granted();
    primary.wait_replica_synced(&replica);
    for server in [&primary, &replica] {
        assert_eq!(server.cmd(&["TTL", "k"]).int(), -1);
    }
    assert_eq!(primary.digest(), replica.digest());
    scene.play_out(token);
}

fn a_hand_on_is_a_change_of_the_key(family: Family) {
    let server = family.start();
    let mut scene = Scene::set_with_lease(&server, "k", 2_000);
    let mut watcher = server.client();
    watcher.cmd(&["WATCH", "k"]).ok();
    let token = scene.first_is_granted();
    watcher.cmd(&["MULTI"]).ok();
    watcher.cmd(&["PING"]).ok();
    assert!(watcher.cmd(&["EXEC"]).is_null());
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    scene.play_out(token);
}

/// Each granted lock is evicted by the next command, until there are no waiters. Tokens only grow.
fn an_evicted_lock_goes_to_the_next(family: Family) {
    let server = family.with(&["maxmemory-policy", "allkeys-random"]).start();
    let mut scene = Scene::set(&server, "k");
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    wait_until("the last one's grant to be evicted too", || {
        server.keys() == 0 && server.blocked_clients() == 0
    });
    let first = scene.first.reply(SOON).int();
    let last = scene.last.reply(SOON).int();
    assert!(scene.token < first && first < last, "{} {first} {last}", scene.token);
    assert_eq!(scene.messages.next_text(), scene.message("deleted"));
    if family == Family::Lock {
        let heard = [scene.messages.next_text(), scene.messages.next_text()];
        let token = heard[0].split(' ').nth(2).and_then(|token| token.parse::<i64>().ok());
        let queued = token.unwrap_or(0);
        assert!(first < queued && queued < last, "{heard:?}");
        let of_queued = |event: &str| format!("{event} 0 {queued} 6 queued 0  k");
        assert_eq!(heard, [of_queued("granted"), of_queued("deleted")]);
    }
    let full = scene.last.cmd(&["DLOCK.ACQUIRE", "k", "last", "BLOCK", "0"]).error();
    assert!(full.starts_with("OOM "), "{full}");
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    assert!(scene.last.cmd(&["DLOCK.ACQUIRE", "k", "last"]).int() > last);
    scene.last.cmd(&["DLOCK.RELEASE", "k", "last"]).int();
    server.left_over_check();
}

/// Without eviction, a full server still releases locks and hands them off.
fn a_full_server_grants_to_waiters_but_takes_no_more(family: Family) {
    let server = family.start();
    let mut scene = Scene::set_with_lease(&server, "k", 3_000);
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    for call in ["DLOCK.ACQUIRE k x", "DLOCK.ACQUIRE k x BLOCK 0", "DLOCK.ACQUIRE l x QUEUE 100"] {
        let refusal = server.ask(call).error();
        assert!(refusal.starts_with("OOM "), "{call}: {refusal}");
    }
    scene.assert_all_wait();
    let token = scene.first_is_granted();
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    scene.play_out(token);
}
