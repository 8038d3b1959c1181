//! Slots that move: only the node that serves a slot, or imports it, decides about its keys.

use crate::{
    args,
    cluster::{CHECK, assert_sent_away},
    scene::block,
    support::{Heard, Kind, Reply, SOON, Server, wait_until},
};

/// Valkey 9 has several databases in a cluster. A fair lock brings its queue along to each.
#[test]
fn a_queue_in_another_database_stays_while_its_slot_is_imported() {
    let databases = ["cluster-databases", "16"];
    let setup = || Server::of("valkey-9.1").and(&databases);
    let one = setup().cluster().start();
    let two = one.join(setup());
    let slot = one.slot("k");
    let in_database = |server: &Server| {
        let mut client = server.client();
        client.cmd(&["SELECT", "3"]).ok();
        client
    };
    let (mut source, mut target, mut waiter) =
        (in_database(&one), in_database(&one), in_database(&two));
    source.cmd(&["DFAIR.ACQUIRE", "k", "h", "PX", "600000"]).int();
    assert!(target.cmd(&["DFAIR.ACQUIRE", "k", "q", "QUEUE", "600000"]).is_null());
    one.begin_slot_move(slot, &two);
    let port = two.port().to_string();
    source.cmd(&["MIGRATE", "127.0.0.1", &port, "k", "3", "20000"]).ok();
    waiter.cmd(&["ASKING"]).ok();
    block(&two, &mut waiter, &args!["DFAIR.ACQUIRE", "k", "w", "BLOCK", 0]);
    assert_eq!(waiter.hear(CHECK), Heard::Nothing);
    assert_eq!(two.info_number("dlock", "waiters_queued"), 1);
    one.end_slot_move(slot, &two);
    let mut client = in_database(&two);
    client.cmd(&["DFAIR.RELEASE", "k", "h"]).int();
    assert_eq!(client.cmd(&["DFAIR.INFO", "k"]).field("owner").text(), "q");
    client.cmd(&["DFAIR.RELEASE", "k", "q"]).int();
    assert!(waiter.reply(SOON).int() > 0);
    client.cmd(&["DFAIR.RELEASE", "k", "w"]).int();
    two.left_over_check();
    one.left_over_check();
}

/// What a repair by hand does: the slot goes to another node, and its keys stay behind. BLPOP gets MOVED.
#[test]
fn nothing_is_granted_in_a_slot_that_another_node_serves() {
    for name in ["redis-7.0", "redis-8.2", "valkey-9.1"] {
        let setup = || Server::of(name).and(&["cluster-require-full-coverage", "no"]);
        let one = setup().cluster().start();
        let two = one.join(setup());
        let keys = ["{t}lock", "{t}fair", "{t}rw", "{t}sem"];
        let mut messages = one.subscribe(&["dlock:notify:h", "dlock:notify:queued"]);
        one.cmd(&["DLOCK.ACQUIRE", keys[0], "h", "PX", "1500", "NOTIFY", "dlock:notify:h"]).int();
        one.cmd(&["DFAIR.ACQUIRE", keys[1], "h", "PX", "1500"]).int();
        one.cmd(&["DRW.ACQUIRE", keys[2], "h", "WRITE", "PX", "1500"]).int();
        one.cmd(&["DSEM.ACQUIRE", keys[3], "h", "LIMIT", "1", "PX", "1500"]).ok();
        let calls = [
            args!["DLOCK.ACQUIRE", keys[0], "w", "BLOCK", 0],
            args!["DFAIR.ACQUIRE", keys[1], "w", "BLOCK", 0],
            args!["DRW.ACQUIRE", keys[2], "w", "READ", "BLOCK", 0],
            args!["DSEM.ACQUIRE", keys[3], "w", "BLOCK", 0],
        ];
        let mut waiters = calls.map(|call| {
            let mut waiter = one.client();
            block(&one, &mut waiter, &call);
            waiter
        });
        let queue = ["DLOCK.ACQUIRE", keys[0], "queued", "QUEUE", "60000"];
        assert!(one.cmd(&queue).is_null(), "{name}");
        let slot = one.slot("{t}").to_string();
        for node in [&one, &two] {
            node.cmd(&["CLUSTER", "DELSLOTS", &slot]).ok();
        }
        two.cmd(&["CLUSTER", "ADDSLOTS", &slot]).ok();
        two.cmd(&["CLUSTER", "BUMPEPOCH"]).text();
        for key in &keys[..3] {
            let family = if *key == keys[1] { "DFAIR.ACQUIRE" } else { "DLOCK.ACQUIRE" };
            two.cmd(&[family, key, "other"]).int();
        }
        let [lock, fair, rw, sem] = &mut waiters;
        assert_sent_away(&mut [lock, fair, rw, sem]);
        assert_eq!(one.info_number("dlock", "waiters_queued"), 0, "{name}");
        assert_eq!(one.info_number("dlock", "grants_after_waiting"), 0, "{name}");
        messages.assert_none();
        drop(waiters);
        two.cmd(&["FLUSHALL"]).ok();
        one.cmd(&["FLUSHALL"]).ok();
    }
}

/// DLATCH.AWAIT of a latch that lives on waits at the other node, and nothing of it is remembered here.
#[test]
fn a_latch_moves_with_its_slot() {
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    one.cmd(&["DLATCH.INIT", "l", "1"]).int();
    let slot = one.slot("l");
    let mut waiter = one.client();
    block(&one, &mut waiter, &args!["DLATCH.AWAIT", "l", "BLOCK", 0]);
    one.begin_slot_move(slot, &two);
    assert_eq!(one.migrate_slot_keys(slot, &two), 1);
    assert_sent_away(&mut [&mut waiter]);
    one.end_slot_move(slot, &two);
    assert_eq!(two.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 0);
    // The new owner first: a primary that gives its last slot away may follow it.
    two.begin_slot_move(slot, &one);
    let owner = one.node_id();
    one.cmd(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &owner]).ok();
    assert_eq!(one.cmd(&["DLATCH.AWAIT", "l"]).int(), 1, "it was opened, not broken");
    one.left_over_check();
    two.left_over_check();
}

/// Redis 8.4 and later import a slot without a word to modules: nothing of its keys ends before, and all of it after.
#[test]
fn a_lease_that_was_imported_as_a_whole_ends_by_itself() {
    if !Kind::of_binary().at_least((8, 4), (99, 0)) {
        return;
    }
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    one.cmd(&["DLOCK.ACQUIRE", "{t}lock", "h", "PX", "3000"]).int();
    one.cmd(&["DFAIR.ACQUIRE", "{t}fair", "h", "PX", "3000"]).int();
    let place = ["DFAIR.ACQUIRE", "{t}fair", "w", "QUEUE", "60000", "PX", "60000"];
    assert!(one.cmd(&place).is_null());
    let slot = one.slot("{t}").to_string();
    two.cmd(&["CLUSTER", "MIGRATION", "IMPORT", &slot, &slot]).text();
    // Nobody touches them.
    wait_until("the ends of the leases, and the grant", || {
        two.keys() == 1 && two.info_number("dlock", "grants_after_waiting") == 1
    });
    assert_eq!(two.cmd(&["DFAIR.INFO", "{t}fair"]).field("owner").text(), "w");
    two.cmd(&["DFAIR.RELEASE", "{t}fair", "w"]).int();
    two.left_over_check();
}
