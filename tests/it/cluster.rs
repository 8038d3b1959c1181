//! Locks in a cluster: a missing key may be on another node, so its waiters are told to retry.

use std::time::{Duration, Instant};

use crate::{
    args,
    scene::{Scene, block},
    support::{Client, Family, Heard, Kind, Nodes, Reply, SOON, Server, wait_until},
    test_both_families_at_once,
};

test_both_families_at_once! {
    waiters_for_a_key_that_was_removed_are_told_to_ask_again
}

/// Longer than the interval in which the module checks its slots: a second.
pub const CHECK: Duration = Duration::from_millis(1_500);
/// Maximum delay of that check on a busy machine.
const NOTICED: Duration = Duration::from_secs(15);

#[track_caller]
pub fn assert_sent_away(waiters: &mut [&mut Client]) {
    for waiter in waiters {
        let answer = waiter.reply(SOON).error();
        assert!(answer.starts_with("MOVING "), "{answer}");
    }
}

fn waiters_for_a_key_that_was_removed_are_told_to_ask_again(family: Family) {
    let server = family.with(&[]).cluster().start();
    for removal in ["DEL k", "UNLINK k", "PEXPIRE k 20", "FLUSHALL", "FLUSHALL ASYNC"] {
        println!("{removal}");
        let mut scene = Scene::set(&server, "k");
        server.ask(removal).ok();
        assert_sent_away(&mut [&mut scene.first, &mut scene.last]);
        let told = scene.messages.next_text();
        let wanted = if removal.starts_with("FLUSH") {
            "flushed 0".to_owned()
        } else {
            scene.message("deleted")
        };
        assert_eq!(told, wanted);
        assert!(server.cmd(&["DLOCK.INFO", "k"]).is_null());
        assert!(server.cmd(&["DLOCK.ACQUIRE", "k", "last"]).int() > scene.token);
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "last"]).int(), 0);
        scene.messages.assert_none();
        server.left_over_check();
    }
    // Any other end hands the lock off as without a cluster.
    let mut scene = Scene::set_with_lease(&server, "k", 2_000);
    let token = scene.first_is_granted();
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    scene.play_out(token);
}

/// Valkey 9.1.2 keeps the verdict on a command for several slots with the client that it lends to modules. It then
/// refuses all their questions, even those without a key. Leases still end, and waiters get the lock.
#[test]
fn leases_end_where_the_server_takes_every_call_for_one_across_slots() {
    let server = Server::with(&[]).cluster().start();
    let across = "redis.pcall('MSET', 'a', '1', 'b', '2')";
    for _ in 0..2 {
        let alone = format!("return {across}");
        server.cmd(&["EVAL", &alone, "1", "a"]).error();
        let with_lock = format!("{across} return redis.pcall('DLOCK.ACQUIRE', 'l', 'o')");
        server.cmd(&["EVAL", &with_lock, "1", "a"]);
    }
    server.cmd(&["DLOCK.BREAK", "l"]).ok();
    server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "2000"]).int();
    let mut waiter = server.client();
    block(&server, &mut waiter, &args!["DLOCK.ACQUIRE", "k", "w", "BLOCK", "0", "PX", "100"]);
    waiter.reply(SOON).int();
    wait_until("the lease of the second to end", || server.keys() == 0);
    // Several locks are served, too.
    let both = server.cmd(&["DLOCK.MACQUIRE", "2", "{t}a", "{t}b", "o"]);
    assert_eq!(both.items().len(), 2, "{}", both.show());
    assert_eq!(server.cmd(&["DLOCK.MRELEASE", "2", "{t}a", "{t}b", "o"]).int(), 2);
    server.left_over_check();
}

#[test]
fn a_lock_moves_with_its_slot_and_its_waiters_are_told_to_ask_there() {
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    let slot = one.slot("k");
    let mut scene = Scene::set(&one, "k");
    let bystander_key = "other";
    assert_ne!(one.slot(bystander_key), slot);
    one.cmd(&["DLOCK.ACQUIRE", bystander_key, "h"]).int();
    let mut bystander = one.client();
    block(&one, &mut bystander, &args!["DLOCK.ACQUIRE", bystander_key, "w", "BLOCK", 0]);

    one.begin_slot_move(slot, &two);
    // The key is here: this node serves it, for longer than two checks of the module.
    assert_eq!(scene.first.hear(CHECK), Heard::Nothing);
    scene.assert_all_wait();
    assert_eq!(one.migrate_slot_keys(slot, &two), 1);
    assert_sent_away(&mut [&mut scene.first, &mut scene.last]);
    one.end_slot_move(slot, &two);

    assert!(one.cmd(&["DLOCK.ACQUIRE", "k", "first", "BLOCK", "0"]).error().starts_with("MOVED "));
    assert_eq!(two.cmd(&args!["DLOCK.CHECK", "k", scene.token]).int(), 1);
    assert!(two.cmd(&["DLOCK.INFO", "k"]).field("ttl-ms").int() > 50_000);
    let mut first = two.client();
    block(&two, &mut first, &args!["DLOCK.ACQUIRE", "k", "first", "BLOCK", 0]);
    assert_eq!(two.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    assert!(first.reply(SOON).int() > scene.token);
    assert_eq!(two.cmd(&["DLOCK.RELEASE", "k", "first"]).int(), 0);
    two.left_over_check();

    assert_eq!(bystander.hear(CHECK), Heard::Nothing);
    one.cmd(&["DLOCK.RELEASE", bystander_key, "h"]).int();
    bystander.reply(SOON).int();
    bystander.cmd(&["DLOCK.RELEASE", bystander_key, "w"]).int();
    one.left_over_check();
}

/// The ids of a hold go with it. Those of a hold that has ended stay: its key may be gone, and only values move.
#[test]
fn a_moved_slot_leaves_the_ids_of_ended_holds_behind() {
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    let (held, ended) = ("{t}held", "{t}ended");
    let slot = one.slot(held);
    let acquire = |node: &Server, key| node.cmd(&["DLOCK.ACQUIRE", key, "h", "REQID", "a"]);
    let release = |node: &Server, key| node.cmd(&["DLOCK.RELEASE", key, "h", "REQID", "a"]);
    let token = acquire(&one, held).int();
    acquire(&one, ended).int();
    assert_eq!(release(&one, ended).int(), 0);
    assert!(acquire(&one, ended).error().starts_with("SPENT "));

    one.begin_slot_move(slot, &two);
    while one.migrate_slot_keys(slot, &two) > 0 {}
    one.end_slot_move(slot, &two);

    assert_eq!(acquire(&two, held).int(), token);
    assert_eq!(release(&two, held).int(), 0);
    assert!(release(&two, ended).error().starts_with("UNKNOWN "));
    // It is over there, too.
    assert!(acquire(&two, ended).error().starts_with("SPENT "));
}

/// During a quarantine there are waiters for keys that do not exist: no key event tells that their slot has moved.
#[test]
fn waiters_for_keys_that_are_not_there_notice_that_their_slot_has_gone() {
    let one = Server::with(&["dlock.restart-quarantine-ms", "60000"]).cluster().start();
    let two = one.join(Server::with(&[]));
    let slot = one.slot("k");
    let (mut blocked, mut queued, mut stays) = (one.client(), one.client(), one.client());
    block(&one, &mut blocked, &args!["DLOCK.ACQUIRE", "k", "blocked", "BLOCK", 0]);
    assert!(queued.cmd(&["DLOCK.ACQUIRE", "k", "queued", "QUEUE", "60000"]).is_null());
    block(&one, &mut stays, &args!["DLOCK.ACQUIRE", "other", "stays", "BLOCK", 0]);
    one.end_slot_move(slot, &two);
    let moved = Instant::now();
    assert_sent_away(&mut [&mut blocked]);
    assert!(moved.elapsed() < NOTICED, "{:?}", moved.elapsed());
    assert_eq!(one.info_number("dlock", "waiters_queued"), 0);
    assert_eq!(stays.hear(CHECK), Heard::Nothing);
    assert!(blocked.cmd(&["DLOCK.ACQUIRE", "k", "blocked"]).error().starts_with("MOVED "));
    drop(stays);
    one.left_over_check();
}

#[track_caller]
fn wait_state(server: &Server, state: &str) {
    let state = format!("cluster_state:{state}");
    wait_until(&state, || server.cmd(&["CLUSTER", "INFO"]).text().contains(&state));
}

/// The server refuses writes while its cluster is down. Some servers also end blocked calls then.
#[test]
fn nothing_is_handed_on_while_the_cluster_is_down() {
    let server = Server::with(&[]).cluster().start();
    // The second slot is that of the word in the module's question to the server.
    for slot in [server.slot("nobody's"), server.slot("dlock")] {
        println!("without slot {slot}");
        let mut scene = Scene::set_with_lease(&server, "k", 4_000);
        let slot = slot.to_string();
        server.cmd(&["CLUSTER", "DELSLOTS", &slot]).ok();
        wait_state(&server, "fail");
        let refusal = server.cmd(&["DLOCK.RELEASE", "k", "h"]).error();
        assert!(refusal.starts_with("CLUSTERDOWN "), "{refusal}");
        let sent_away = |waiter: &mut Client| match waiter.hear(CHECK) {
            Heard::Nothing => false,
            Heard::Reply(answer) => answer.error().starts_with("CLUSTERDOWN "),
            Heard::Closed => panic!("closed"),
        };
        let first_has_left = sent_away(&mut scene.first);
        assert_eq!(sent_away(&mut scene.last), first_has_left);
        // By now the lease is over. It cannot be read: the server refuses reads, too.
        assert_eq!(scene.queued.hear(Duration::from_secs(3)), Heard::Nothing);
        scene.messages.assert_none();

        server.cmd(&["CLUSTER", "ADDSLOTS", &slot]).ok();
        server.wait_cluster_ok();
        assert_eq!(scene.messages.next_text(), scene.message("expired"));
        if first_has_left {
            assert!(scene.messages.next_text().starts_with("granted 0 "));
            assert_eq!(scene.queued.cmd(&["DLOCK.RELEASE", "k", "queued"]).int(), 0);
            server.left_over_check();
        } else {
            let token = scene.first_is_granted();
            scene.play_out(token);
        }
    }
}

/// From version 9 on, Valkey moves whole slots, but not slots with keys of modules that do not support it: an
/// operator moves them key by key, as above. A refused attempt loses nothing.
#[test]
fn a_slot_with_locks_is_not_moved_as_a_whole() {
    if !Kind::of_binary().at_least((99, 0), (9, 0)) {
        return;
    }
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    let slot = one.slot("k").to_string();
    let mut scene = Scene::set(&one, "k");
    let to_two = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", &two.node_id()];
    let refusal = one.cmd(&to_two).error();
    assert!(refusal.contains("dlock does not support atomic slot migration"), "{refusal}");
    scene.assert_all_wait();
    assert_eq!(scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    let token = scene.first_is_granted();
    scene.play_out(token);
}

/// From version 8.4 on, Redis moves whole slots and asks no module.
#[test]
fn a_slot_that_redis_moves_as_a_whole_takes_its_locks_along() {
    if !Kind::of_binary().at_least((8, 4), (99, 0)) {
        return;
    }
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    let slot = one.slot("k").to_string();
    let mut scene = Scene::set(&one, "k");
    let task = two.cmd(&["CLUSTER", "MIGRATION", "IMPORT", &slot, &slot]).text();
    let status = ["CLUSTER", "MIGRATION", "STATUS", "ID", &task];
    wait_until("the end of the move", || two.cmd(&status).show().contains("completed"));
    assert_sent_away(&mut [&mut scene.first, &mut scene.last]);
    assert!(scene.first.cmd(&["DLOCK.ACQUIRE", "k", "first"]).error().starts_with("MOVED "));
    assert_eq!(two.cmd(&args!["DLOCK.CHECK", "k", scene.token]).int(), 1);
    assert!(two.cmd(&["DLOCK.INFO", "k"]).field("ttl-ms").int() > 50_000);
    assert_eq!(two.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    two.left_over_check();
}

/// While a slot moves, the new node grants the keys that the old node does not have. So the old node does not hand
/// off a missing key, although it has a waiter.
#[test]
fn a_missing_key_of_a_slot_that_moves_is_not_handed_off() {
    let nodes = Nodes::start(2);
    let [source, target] = nodes.all() else { panic!("two nodes") };
    let (source, target) =
        if source.slot("{t}") < 8192 { (source, target) } else { (target, source) };
    for cause in ["the head is unblocked", "the head may have all"] {
        source.cmd(&["DLOCK.ACQUIRE", "{t}busy", "o9"]).int();
        let head = ["DLOCK.MACQUIRE", "2", "{t}hot", "{t}busy", "batch", "BLOCK", "0"];
        let mut head = source.block(&head);
        let mut waiter = source.block(&["DLOCK.ACQUIRE", "{t}hot", "y", "BLOCK", "0"]);
        source.begin_slot_move(source.slot("{t}"), target);
        let mut client = target.client();
        client.cmd(&["ASKING"]).ok();
        let token = client.cmd(&["DLOCK.ACQUIRE", "{t}hot", "x"]).int();
        if cause == "the head is unblocked" {
            assert_eq!(source.cmd(&["DLOCK.UNBLOCK", &head.id().to_string()]).int(), 1);
            assert!(head.expect_reply(SOON).is_null());
        } else {
            assert_eq!(source.cmd(&["DLOCK.RELEASE", "{t}busy", "o9"]).int(), 0);
            let told = head.expect_reply(SOON).error();
            assert!(told.starts_with("MOVING "), "{cause}: {told}");
        }
        let told = waiter.expect_reply(SOON).error();
        assert!(told.starts_with("MOVING "), "{cause}: {told}");
        client.cmd(&["ASKING"]).ok();
        assert_eq!(client.cmd(&["DLOCK.CHECK", "{t}hot", &token.to_string()]).int(), 1);
        client.cmd(&["ASKING"]).ok();
        assert_eq!(client.cmd(&["DLOCK.RELEASE", "{t}hot", "x"]).int(), 0);
        for node in [source, target] {
            node.cmd(&["CLUSTER", "SETSLOT", &source.slot("{t}").to_string(), "STABLE"]).ok();
        }
        if source.cmd(&["EXISTS", "{t}busy"]).int() == 1 {
            assert_eq!(source.cmd(&["DLOCK.RELEASE", "{t}busy", "o9"]).int(), 0);
        }
    }
}

/// Grants `n` waiters; checks with `heard` that each gets exactly one message.
fn grant(node: &Server, key: &str, options: &[&str], n: usize, mut heard: impl FnMut() -> String) {
    let mut client = node.client();
    for _ in 0..n {
        client.cmd(&["DLOCK.ACQUIRE", key, "a"]).int();
        let place = [&["DLOCK.ACQUIRE", key, "b", "QUEUE", "60000"][..], options].concat();
        assert!(client.cmd(&place).is_null());
        client.cmd(&["DLOCK.RELEASE", key, "a"]).int();
        assert!(heard().starts_with("granted 0 "));
        client.cmd(&["DLOCK.ACQUIRE", key, "b"]).int();
        client.cmd(&["DLOCK.RELEASE", key, "b"]).int();
    }
}

/// Three primaries, each with a replica.
fn sharded_messages_stay_in_the_shard(version: Option<&str>) {
    const GRANTS: usize = 200;
    let setup = |_| version.map_or_else(|| Server::with(&[]), Server::of);
    let mut nodes = Nodes::of((0..3).map(setup));
    for n in 0..3 {
        nodes.add_replica(n);
    }
    nodes.wait_whole();
    let node = &nodes.all()[0];
    let key =
        (0..10_000).map(|n| format!("k{n}")).find(|key| nodes.owner_of(node.slot(key)) == Some(0));
    let key = key.expect("some key is here");
    let channel = format!("dlock:notify:{{{key}}}:me");

    let is_counted = nodes.counts_bus_messages();
    // For comparison: NOTIFY sends each message to the five other nodes.
    let mut plain = node.subscribe(&["plain"]);
    let before = node.bus_messages();
    grant(node, &key, &["NOTIFY", "plain"], GRANTS, || plain.next_text());
    let sent = |before: (i64, i64)| {
        let after = node.bus_messages();
        (after.0 - before.0, after.1 - before.1)
    };
    let grants = GRANTS.cast_signed() as i64;
    assert_eq!(sent(before), if is_counted { (5 * grants, 0) } else { (0, 0) });

    let mut sharded = node.client();
    sharded.cmd(&["SSUBSCRIBE", &channel]).ok();
    let before = node.bus_messages();
    grant(node, &key, &["SNOTIFY", &channel], GRANTS, || sharded.reply(SOON).items()[2].text());
    // Nothing but the shard's own replica.
    assert_eq!(sent(before), (0, if is_counted { grants } else { 0 }));
    let pong = sharded.cmd(&["PING"]).show();
    assert!(pong.to_lowercase().contains("pong"), "one message too many: {pong}");

    // The slot moves with the channel: the server ends the subscription, which continues on the new node.
    nodes.move_slot(node.slot(&key), 0, 1);
    let end = sharded.reply(SOON).items();
    assert_eq!((end[0].text(), end[1].text()), ("sunsubscribe".into(), channel.clone()));
    let node = &nodes.all()[1];
    let mut sharded = node.client();
    sharded.cmd(&["SSUBSCRIBE", &channel]).ok();
    grant(node, &key, &["SNOTIFY", &channel], 20, || sharded.reply(SOON).items()[2].text());

    // Its replica takes over.
    let replica = &nodes.all()[4];
    node.wait_replica_synced(replica);
    nodes.fail_over(4);
    let slot = replica.slot(&key);
    wait_until("the failover", || nodes.owner_of(slot) == Some(4));
    let mut sharded = replica.client();
    sharded.cmd(&["SSUBSCRIBE", &channel]).ok();
    grant(replica, &key, &["SNOTIFY", &channel], 20, || sharded.reply(SOON).items()[2].text());
    nodes.left_over_check();
}

#[test]
fn sharded_messages_stay_in_the_shard_of_redis_7() {
    sharded_messages_stay_in_the_shard(None);
}

#[test]
fn sharded_messages_stay_in_the_shard_of_redis_8() {
    sharded_messages_stay_in_the_shard(Some("redis-8.2"));
}

#[test]
fn sharded_messages_stay_in_the_shard_of_valkey_9() {
    sharded_messages_stay_in_the_shard(Some("valkey-9.1"));
}
