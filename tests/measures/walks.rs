//! What a command costs beside many things that it does not need.

use crate::{
    args,
    harm::{cpu_ms, pipeline},
    support::{Family, Reply, SOON, Server},
};

/// Milliseconds of CPU that the server uses for `calls`.
fn cost<A: AsRef<[u8]>>(server: &Server, calls: impl Iterator<Item = Vec<A>>) -> u64 {
    let before = cpu_ms(server);
    pipeline(&mut server.client(), calls);
    // The turn of the loop that reads this processes the notices of the others first.
    server.cmd(&["PING"]).ok();
    cpu_ms(server) - before
}

#[test]
fn moving_a_lock_costs_the_same_with_many_databases() {
    let cost_with = |databases: &str| {
        let server = Family::Lock.with(&["databases", databases]).release().start();
        server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
        let moves = [args!["RENAME", "k", "l"], args!["RENAME", "l", "k"]];
        let renames = cost(&server, (0..500).flat_map(|_| moves.clone()));
        let there = [args!["MOVE", "k", 9], args!["SELECT", 9], args!["MOVE", "k", 0]];
        let back = || (there.iter().cloned()).chain([args!["SELECT", 0]]);
        let moves = cost(&server, (0..500).flat_map(|_| back()));
        println!("{renames} ms of CPU for RENAME, {moves} ms for MOVE, {databases} databases");
        server.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
        server.left_over_check();
        (renames, moves)
    };
    let few = cost_with("16");
    let many = cost_with("20000");
    assert!(many.0 < 3 * few.0 + 20, "RENAME: {many:?} ms, with few databases {few:?} ms");
    assert!(many.1 < 3 * few.1 + 20, "MOVE: {many:?} ms, with few databases {few:?} ms");
}

/// A waiter that would create the semaphore is not there: the others must not be searched for it in each call.
#[test]
fn calls_for_a_missing_semaphore_cost_the_same_beside_many_waiters() {
    let cost_with = |waiters: usize| {
        let server = Family::Lock.with(&[]).release().start();
        let mut client = server.client();
        client.cmd(&["DSEM.INIT", "s", "1"]).int();
        client.cmd(&["DSEM.TAKE", "s"]).int();
        let acquire = |n| args!["DSEM.ACQUIRE", "s", format!("o{n}"), "QUEUE", 600_000];
        pipeline(&mut client, (0..waiters).map(acquire));
        let make = ["DSEM.ACQUIRE", "s", "maker", "LIMIT", "3", "QUEUE", "600000"];
        let mut maker = server.client();
        assert!(maker.cmd(&make).is_null());
        server.cmd(&args!["CLIENT", "KILL", "ID", maker.id()]).int();
        client.cmd(&["DEL", "s"]).int();
        let calls = [args!["DSEM.ACQUIRE", "s", "x"], args!["DSEM.TAKE", "s"]];
        let used = cost(&server, (0..500).flat_map(|_| calls.clone()));
        println!("{used} ms of CPU, {waiters} waiters");
        assert_eq!(client.cmd(&["DSEM.INFO", "s"]).field("capacity").int(), 0);
        client.cmd(&make);
        assert_eq!(client.cmd(&["DSEM.INFO", "s"]).field("capacity").int(), 3);
        used
    };
    let (few, many) = (cost_with(100), cost_with(9_000));
    assert!(many < 3 * few + 20, "{many} ms of CPU with many waiters, {few} ms with few");
}

/// The slots of awaited keys are checked, but a node with nothing else to do stays idle.
#[test]
fn an_idle_cluster_node_with_very_many_awaited_keys_stays_idle() {
    const KEYS: usize = 800_000;
    let server = Family::Lock.with(&[]).cluster().release().start();
    let mut client = server.client();
    let ask = |n| args!["DSEM.ACQUIRE", format!("{n}"), "a", "QUEUE", 600_000];
    let before = cpu_ms(&server);
    pipeline(&mut client, (0..KEYS).map(ask));
    let made = cpu_ms(&server) - before;
    let wait = || server.cmd(&["XREAD", "BLOCK", "2000", "STREAMS", "none", "0"]).is_null();
    let before = cpu_ms(&server);
    assert!(wait());
    let used = cpu_ms(&server) - before;
    println!("{used} ms of CPU in two seconds, {made} ms for the places");
    assert!(used < made / 45, "{used} ms of CPU in two seconds, {made} ms for the places");
}

/// A call for several keys waits elsewhere: the waiters of a removed key need not be searched for it.
#[test]
fn removing_an_awaited_lock_costs_the_same_beside_many_waiters() {
    let cost_with = |waiters: usize| {
        let server = Family::Lock.with(&[]).release().start();
        let mut client = server.client();
        client.cmd(&["DLOCK.ACQUIRE", "other", "a", "PX", "600000"]).int();
        let mut call = server.block(&["DLOCK.MACQUIRE", "2", "other", "more", "b", "BLOCK", "0"]);
        client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
        let acquire = |n| args!["DLOCK.ACQUIRE", "k", format!("o{n}"), "QUEUE", 600_000];
        pipeline(&mut client, (0..waiters).map(acquire));
        let before = cpu_ms(&server);
        (0..200).for_each(|_| assert_eq!(client.cmd(&["DEL", "k"]).int(), 1));
        let used = cpu_ms(&server) - before;
        println!("{used} ms of CPU, {waiters} waiters");
        client.cmd(&["DLOCK.RELEASE", "other", "a"]).int();
        call.expect_reply(SOON).items();
        used
    };
    let (few, many) = (cost_with(400), cost_with(10_000));
    assert!(many < 3 * few + 20, "{many} ms of CPU with many waiters, {few} ms with few");
}

/// The server does not say whether it renames or deletes, so both read all readers.
#[test]
fn renaming_a_lock_with_as_many_readers_as_it_may_have_is_a_short_step() {
    const READERS: usize = 10_000;
    const RENAMES: u64 = 100;
    let server = Family::Lock.with(&[]).release().start();
    let mut client = server.client();
    // With more than 512 keys the module does not check its invariants in each turn of the loop.
    let others = |n| args!["DLOCK.ACQUIRE", format!("{n}"), "a", "PX", 600_000];
    pipeline(&mut client, (0..2_000).map(others));
    let acquire = |n| args!["DRW.ACQUIRE", "k", format!("o{n}"), "READ", "PX", 600_000];
    pipeline(&mut client, (0..READERS).map(acquire));
    let before = cpu_ms(&server);
    for _ in 0..RENAMES / 2 {
        client.cmd(&["RENAME", "k", "l"]).ok();
        client.cmd(&["RENAME", "l", "k"]).ok();
    }
    // The next turn of the loop begins with what the last one has left.
    client.cmd(&["PING"]).ok();
    let used = cpu_ms(&server) - before;
    println!("{used} ms of CPU for {RENAMES} times RENAME");
    assert!(used < 10 * RENAMES, "{used} ms of CPU for {RENAMES} times RENAME");
}
