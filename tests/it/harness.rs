//! Tests of the test support itself, on a plain server: all other tests rely on it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};

use redis::Value;

use crate::{
    args,
    support::{Heard, Kind, Nodes, ReplicaTap, Reply, SOON, Server, Setup, wait_until},
};

fn plain(settings: &[&str]) -> Setup {
    Server::with(settings).without_module()
}

/// The message of a failing part of a test.
fn failure(test: impl FnOnce()) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(test)) else {
        return "nothing: it passed".to_owned();
    };
    panic.downcast::<String>().map_or_else(|_| "something strange".to_owned(), |text| *text)
}

#[test]
fn replies_show_the_exact_bytes() {
    let server = plain(&[]).start();
    assert_eq!(server.cmd(&["ECHO", "a\r\nb"]).text(), "a\r\nb");
    assert_eq!(server.cmd(&args!["SET", b"\xff\0", 12]), Value::Okay);
    assert_eq!(server.cmd(&args!["INCR", b"\xff\0"]).int(), 13);
    assert!(server.cmd(&["GET", "nothing"]).is_null());
    assert_eq!(server.cmd(&["GET"]).error(), "ERR wrong number of arguments for 'get' command");
    let mut client = server.client3();
    assert_eq!(client.cmd(&["HELLO"]).field("proto").int(), 3);
    let replies = client.pipeline(&[args!["PING"], args!["ECHO", "x"]]);
    assert_eq!(replies.iter().map(Reply::show).collect::<Vec<_>>(), ["PONG", "\"x\""]);
    assert_eq!(redis::cmd("PING").query::<String>(&mut server.conn()).as_deref(), Ok("PONG"));
    assert_eq!(redis::cmd("PING").query::<String>(&mut server.conn3()).as_deref(), Ok("PONG"));
    assert_eq!(redis::cmd("PING").query::<String>(&mut server.conn_tcp()).as_deref(), Ok("PONG"));
}

#[test]
fn a_blocked_call_is_seen_blocked_and_answered_once() {
    let server = plain(&[]).start();
    let mut first = server.block(&["BLPOP", "list", "0"]);
    let mut second = server.block(&["BLPOP", "list", "0"]);
    server.wait_blocked(2);
    first.assert_no_reply();
    server.cmd(&["RPUSH", "list", "a"]).ok();
    assert_eq!(first.expect_reply(SOON).items()[1].text(), "a");
    second.assert_no_reply();
    assert!(server.is_blocked(second.id()));
    assert_eq!(
        failure(|| server.left_over_check_now()),
        "left over on the server: blocked_clients 1"
    );
    server.cmd(&args!["CLIENT", "KILL", "ID", second.id()]).ok();
    second.expect_closed_without_reply();
    let refused = failure(|| drop(server.block(&["PING"])));
    assert_eq!(refused, "the call was answered instead of blocked: PONG");
    server.left_over_check();
}

#[test]
fn messages_arrive() {
    let server = plain(&[]).start();
    let mut exact = server.subscribe(&["one", "two"]);
    let mut pattern = server.psubscribe(&["t*"]);
    server.cmd(&["PUBLISH", "two", "hello"]).ok();
    assert_eq!(exact.next(), ("two".to_owned(), b"hello".to_vec()));
    assert_eq!(pattern.next_text(), "hello");
    server.cmd(&["PING"]);
    exact.assert_none();
}

#[test]
fn a_server_comes_back_with_its_data() {
    let mut server = plain(&["appendonly", "yes", "appendfsync", "always"]).start();
    let mut client = server.client();
    client.cmd(&["SET", "k", "v"]).ok();
    let digest = server.digest();
    server.kill9();
    client.expect_closed();
    server.start_again();
    assert_eq!(server.digest(), digest);
    server.restart();
    assert_eq!(server.cmd(&["GET", "k"]).text(), "v");
    assert_eq!(server.keys(), 1);
    assert_eq!(failure(|| server.left_over_check_now()), "left over on the server: keys 1");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let log = plain(&["maxmemory-policy", "no-such-policy"]).try_start().expect_err("a bad value");
    assert!(log.contains("maxmemory-policy"), "{log}");
}

#[test]
fn a_crash_fails_the_test() {
    let server = plain(&[]).start();
    server.client().send(&["DEBUG", "SEGFAULT"]);
    wait_until("the crash", || server.crashed().is_some());
    let said = failure(move || drop(server));
    assert!(said.starts_with("the server died: "), "{said}");
    assert!(said.contains("BUG REPORT START"), "{said}");

    let server = plain(&[]).start();
    server.cmd(&["DEBUG", "LOG", "a thread panicked"]).ok();
    server.tolerate_in_log("a thread panicked");
    drop(server);
    let server = plain(&[]).start();
    server.cmd(&["DEBUG", "LOG", "a thread panicked"]).ok();
    let said = failure(move || drop(server));
    assert!(said.starts_with("the server's log speaks of a crash: "), "{said}");
}

#[test]
fn a_server_started_on_a_short_lived_thread_stays() {
    let server = thread::spawn(|| plain(&[]).start()).join().expect("a server");
    assert_eq!(server.cmd(&["PING"]).show(), "PONG");
    assert_eq!(server.crashed(), None);
}

#[test]
fn a_replica_follows() {
    let primary = plain(&[]).start();
    primary.cmd(&["SET", "before", "1"]).ok();
    let replica = plain(&[]).replica_of(&primary).start();
    primary.cmd(&["SET", "after", "2"]).ok();
    primary.wait_replica_synced(&replica);
    assert_eq!(replica.digest(), primary.digest());
    assert_eq!(replica.keys(), 2);
}

#[test]
fn the_tap_shows_the_exact_stream() {
    let primary = plain(&[]).start();
    primary.cmd(&["SET", "before", "1"]).ok();
    let mut tap = ReplicaTap::attach(&primary);
    assert!(tap.rdb().starts_with(b"REDIS") || tap.rdb().starts_with(b"VALKEY"));
    assert!(tap.commands(&primary).is_empty());
    primary.cmd(&args!["SET", "k", b"\xff"]).ok();
    primary.cmd(&["DEL", "k", "missing"]).ok();
    primary.cmd(&["DEL", "missing"]).ok();
    assert_eq!(tap.lines(&primary), ["SET k \\xff", "DEL k missing"]);
    primary.client().pipeline(&[
        args!["MULTI"],
        args!["INCR", "n"],
        args!["INCR", "n"],
        args!["EXEC"],
    ]);
    let all = tap.all_commands(&primary);
    assert_eq!(all.concat().concat(), b"MULTIINCRnINCRnEXEC");
    assert!(tap.lines(&primary).is_empty());
    assert_eq!(primary.cmd(&["WAIT", "1", "20000"]).int(), 1);
}

#[test]
fn slots_move_between_nodes() {
    let one = plain(&[]).cluster().start();
    let two = one.join(plain(&[]));
    let slot = one.slot("k");
    one.cmd(&["SET", "k", "v"]).ok();
    one.begin_slot_move(slot, &two);
    assert_eq!(one.migrate_slot_keys(slot, &two), 1);
    assert!(one.cmd(&["GET", "k"]).error().starts_with("ASK "));
    one.end_slot_move(slot, &two);
    assert!(one.cmd(&["GET", "k"]).error().starts_with("MOVED "));
    assert_eq!(two.cmd(&["GET", "k"]).text(), "v");
}

#[test]
fn the_wall_clock_moves_and_nothing_else_does() {
    const YEAR: i64 = 365 * 86_400;
    let server = plain(&[]).preload_wallclock().start();
    let wall = || server.cmd(&["TIME"]).items()[0].text().parse::<i64>().expect("seconds");
    let start = wall();
    let mut waiting = server.block(&["BLPOP", "list", "30"]);
    for shift in [3_600, -3_600, 10 * YEAR, -10 * YEAR, 0] {
        server.shift_wall_clock(shift);
        // Some servers read the wall clock ten times a second, not for every command.
        wait_until(&format!("a wall clock shifted by {shift} s"), || {
            (shift..shift + 300).contains(&(wall() - start))
        });
        // The server's event loop still runs.
        let turns = || server.info_number("stats", "total_commands_processed");
        assert!(turns() < turns());
        if shift == 3_600 {
            // Its own waits use the wall clock: this one is over.
            assert!(waiting.expect_reply(SOON).is_null());
        }
    }
    // No thread of it spins: in 300 ms of rest it uses little processor time.
    for shift in [-3_600, 3_600] {
        server.shift_wall_clock(shift);
        let used = || {
            let info = server.info("cpu");
            let seconds = |field: &str| info[field].parse::<f64>().expect("seconds");
            seconds("used_cpu_user") + seconds("used_cpu_sys")
        };
        let before = used();
        thread::sleep(Duration::from_millis(300));
        let spent = used() - before;
        assert!(spent < 0.15, "{spent} s of processor time in 0.3 s with the clock at {shift}");
    }
}

#[test]
fn a_test_can_name_the_version_of_its_servers() {
    for (name, valkey, version) in [("redis-8.2", false, (8, 2)), ("valkey-9.1", true, (9, 1))] {
        let server = Server::of(name).without_module().start();
        let kind = server.kind();
        assert_eq!((kind.valkey, (kind.version.0, kind.version.1)), (valkey, version));
        let info = server.info("server");
        let shown = info.get("valkey_version").or_else(|| info.get("redis_version")).unwrap();
        assert!(shown.starts_with(&format!("{}.{}.", version.0, version.1)), "{name}: {shown}");
    }
    let mut nodes = Nodes::of((0..2).map(|_| Server::of("redis-8.2")));
    nodes.add_replica(0);
    assert!(nodes.all().iter().all(|node| node.binary() == nodes.all()[0].binary()));
    let refusal = failure(|| drop(Server::of("redis-0.1")));
    assert!(refusal.contains("no server redis-0.1"), "{refusal}");
}

#[test]
fn waiting_in_vain_says_for_what() {
    let server = plain(&[]).start();
    let mut client = server.client();
    assert_eq!(client.hear(Duration::from_millis(1)), Heard::Nothing);
    client.send(&["QUIT"]);
    client.expect_closed();
    assert!(Kind::of_binary().at_least((7, 0), (7, 2)), "older servers are not supported");
}
