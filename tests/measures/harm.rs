//! What one client's large value or mass removal costs others.

use std::{fs, time::Duration};

use crate::{
    args,
    support::{Client, Family, Reply, Server, wait_until},
};

pub fn pipeline<A: AsRef<[u8]>>(client: &mut Client, calls: impl Iterator<Item = Vec<A>>) {
    let calls: Vec<Vec<A>> = calls.collect();
    for calls in calls.chunks(1_000) {
        for reply in client.pipeline(calls) {
            reply.ok();
        }
    }
}

/// The server evicts until its memory is below the limit. A module that keeps the memory of an evicted value makes it
/// evict on and on.
#[test]
fn evicting_one_large_semaphore_evicts_few_other_keys() {
    const PERMITS: i64 = 10_000;
    const OTHERS: i64 = 2_000;
    let policy = ["maxmemory-policy", "volatile-ttl", "maxmemory-samples", "64"];
    let server = Family::Lock.with(&policy).release().start();
    let mut client = server.client();
    let set = |n: i64| args!["SET", format!("other:{n}"), "x", "EX", 100_000];
    pipeline(&mut client, (0..OTHERS).map(set));
    client.cmd(&args!["DSEM.INIT", "s", PERMITS]).int();
    let acquire = |n: i64| {
        let owner = format!("o{n}");
        args!["DSEM.ACQUIRE", "s", owner, "PX", 600_000, "BIND", 0, "NOTIFY", "c", "REQID", n]
    };
    pipeline(&mut client, (0..PERMITS).map(acquire));
    // It is evicted as soon as it is in the sample: it has the shortest time to live.
    client.cmd(&["EXPIRE", "s", "1000"]).int();
    let limit = server.info_number("memory", "used_memory") - 2_000_000;
    client.cmd(&args!["CONFIG", "SET", "maxmemory", limit]).ok();
    wait_until("the server to be below its limit", || {
        client.cmd(&["SET", "new", "x"]).is_null()
            || server.info_number("memory", "used_memory") < limit
    });
    assert_eq!(client.cmd(&["EXISTS", "s"]).int(), 0);
    let evicted = server.info_number("stats", "evicted_keys");
    println!("{evicted} of {OTHERS} evicted");
    assert!(evicted < OTHERS / 2, "{evicted} keys were evicted");
    let owner_asks = client.cmd(&["DSEM.ACQUIRE", "s", "o7", "LIMIT", "5", "REQID", "7"]);
    assert!(owner_asks.error().starts_with("SPENT "), "{owner_asks:?}");
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// Microseconds that the server spends in one `DLOCK.RENEW`, as it counts them, when 16 connections send a hundred
/// each in the turn of the loop in which all keys `{a}1` to `{a}<count>` are removed.
fn renewals_beside_removal(server: &Server, count: i64) -> f64 {
    let script = "for n = 1, ARGV[1] do redis.call('UNLINK', '{a}' .. n) end return 1";
    let mut remover = server.client();
    let mut clients: Vec<Client> = (0..16).map(|_| server.client()).collect();
    server.cmd(&["CONFIG", "RESETSTAT"]).ok();
    server.freeze();
    remover.send(&args!["EVAL", script, 1, "{a}1", count]);
    for client in &mut clients {
        (0..100).for_each(|_| client.send(&["DLOCK.RENEW", "{b}k", "a", "PX", "60000"]));
    }
    server.thaw();
    assert_eq!(remover.reply(LONG).int(), 1);
    for client in &mut clients {
        (0..100).for_each(|_| drop(client.reply(LONG).ok()));
    }
    usec_per_call(server, "dlock.renew")
}

/// Microseconds that the server has spent in a call of this command since CONFIG RESETSTAT, as it counts them.
fn usec_per_call(server: &Server, command: &str) -> f64 {
    let stats = server.info("commandstats");
    let is_it = |name: &&String| name.to_lowercase().ends_with(command);
    let name = stats.keys().find(is_it).unwrap_or_else(|| panic!("{stats:?}"));
    let (_, per_call) = stats[name].split_once("usec_per_call=").unwrap();
    per_call.split(',').next().unwrap().parse().unwrap()
}

/// Microseconds of a call that repeats a request, beside this number of grants that are on their way.
fn repeats_beside_grants(server: &Server, count: usize) -> f64 {
    let mut client = server.client();
    let hold = |n| args!["DLOCK.ACQUIRE", format!("k{n}"), "h", "PX", 600_000];
    pipeline(&mut client, (0..count).map(hold));
    let ask = |n| args!["DLOCK.ACQUIRE", format!("k{n}"), format!("w{n}"), "REQID", n];
    let mut waiters: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[ask(n), args!["BLOCK", 0]].concat());
    }
    server.wait_blocked(count);
    server.cmd(&["CONFIG", "RESETSTAT"]).ok();
    let release = |n| args!["DLOCK.RELEASE", format!("k{n}"), "h"];
    let calls = (0..count).map(release).chain((0..count).map(ask));
    let calls = [args!["MULTI"]].into_iter().chain(calls).chain([args!["EXEC"]]);
    client.pipeline(&calls.collect::<Vec<_>>());
    let cost = usec_per_call(server, "dlock.acquire");
    server.cmd(&["FLUSHALL"]).ok();
    cost
}

/// A repeat, a FENCE, a RENAME or a closed connection finds the grants that it is about.
#[test]
fn a_repeat_costs_the_same_beside_many_grants_on_their_way() {
    let server = Family::Lock.with(&["maxclients", "9000"]).release().start();
    let (few, many) = (repeats_beside_grants(&server, 100), repeats_beside_grants(&server, 3_000));
    println!("{few} us beside 100 grants, {many} us beside 3,000");
    assert!(many < few * 4.0, "{few} us beside 100 grants, {many} us beside 3,000");
    server.left_over_check();
}

const LONG: Duration = Duration::from_mins(1);

/// A command must not look at what waits for the tick because it is of other slots.
#[test]
fn removing_many_locks_of_one_slot_costs_commands_of_other_slots_nothing() {
    const KEYS: i64 = 5_000;
    let server = Family::Lock.with(&[]).cluster().release().start();
    let mut client = server.client();
    client.cmd(&["DLOCK.ACQUIRE", "{b}k", "a", "PX", "60000"]).int();
    let names: Vec<String> = (1..=KEYS).map(|n| format!("{{a}}{n}")).collect();
    pipeline(&mut client, names.iter().map(|name| args!["SET", name, "x"]));
    let strings = renewals_beside_removal(&server, KEYS);
    pipeline(&mut client, names.iter().map(|name| args!["DLOCK.ACQUIRE", name, "a", "PX", 60_000]));
    let locks = renewals_beside_removal(&server, KEYS);
    println!("{strings} us beside strings, {locks} us beside locks");
    assert!(locks < strings * 50.0, "{locks} us beside locks, {strings} us beside strings");
    client.cmd(&["DLOCK.RELEASE", "{b}k", "a"]).int();
    server.left_over_check();
}

/// Milliseconds of CPU that a process has used.
pub fn cpu_ms(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/schedstat", server.pid())).unwrap();
    stat.split(' ').next().unwrap().parse::<u64>().unwrap() / 1_000_000
}

/// What was removed cannot be processed before the end of the pause, so nobody need look at it.
#[test]
fn what_was_removed_costs_nothing_during_a_pause() {
    const KEYS: i64 = 50_000;
    let server = Family::Lock.with(&[]).release().start();
    let mut client = server.client();
    let names: Vec<String> = (0..KEYS).map(|n| n.to_string()).collect();
    pipeline(
        &mut client,
        names.iter().map(|name| args!["DLOCK.ACQUIRE", name, "a", "PX", 600_000]),
    );
    let removal: Vec<String> = std::iter::once("UNLINK".to_owned()).chain(names).collect();
    let pause = args!["CLIENT", "PAUSE", 60_000, "WRITE"];
    client.cmd(&["MULTI"]).ok();
    client.cmd(&removal).ok();
    client.cmd(&pause).ok();
    client.cmd(&["EXEC"]).ok();
    // The first turn of the loop looks at all of them.
    let wait = |server: &Server, ms: &str| {
        server.cmd(&["XREAD", "BLOCK", ms, "STREAMS", "none", "0"]).is_null()
    };
    assert!(wait(&server, "200"));
    let before = cpu_ms(&server);
    assert!(wait(&server, "1000"));
    let used = cpu_ms(&server) - before;
    println!("{used} ms of CPU in a second of a pause");
    assert!(used < 100, "{used} ms of CPU in a second of a pause");
    client.cmd(&["CLIENT", "UNPAUSE"]).ok();
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// Waits of a millisecond, which a user who may only read can make, without end: a due lease is handed over all the
/// same.
#[test]
fn a_hand_over_does_not_wait_for_the_end_of_short_waits() {
    const CONNECTIONS: usize = 400;
    const WAITS: usize = 2_000;
    const ALL: i64 = (CONNECTIONS * WAITS) as i64;
    let server = Family::Lock.with(&[]).release().start();
    server.cmd(&["DLOCK.ACQUIRE", "held", "h"]).int();
    let wait = "*4\r\n$11\r\nDLOCK.AWAIT\r\n$4\r\nheld\r\n$5\r\nBLOCK\r\n$1\r\n1\r\n";
    let waits = wait.repeat(WAITS);
    let mut crowd: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
    crowd.iter_mut().for_each(|client| client.send_bytes(waits.as_bytes()));
    let mut client = server.client();
    client.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "100"]).int();
    let token = client.cmd(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]).int();
    let done = server.info_number("dlock", "timeouts");
    println!("handed over after {done} of {ALL} waits");
    assert!(done < ALL / 2, "the hand-over waited for {done} waits");
    assert_eq!(client.cmd(&args!["DLOCK.CHECK", "k", token]).int(), 1);
    drop(crowd);
    server.cmd(&["DEL", "held", "k"]).int();
    server.left_over_check();
}
