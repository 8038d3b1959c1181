//! Deadlock detection: the call that would close a cycle of waiting owners is refused at once.

use crate::{
    args,
    support::{Blocked, Client, Reply, SOON, Server, wait_until},
};

/// `owner` takes `key`, which is free.
fn hold(client: &mut Client, key: &str, owner: &str) {
    client.cmd(&["DLOCK.ACQUIRE", key, owner]).int();
}

fn wait(server: &Server, key: &str, owner: &str) -> Blocked {
    server.block(&["DLOCK.ACQUIRE", key, owner, "BLOCK", "0"])
}

fn refusal(cycle: &str) -> String {
    format!("DEADLOCK this call would wait forever: {cycle}")
}

#[test]
fn two_owners_cannot_wait_for_each_other() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k1", "a");
    hold(&mut client, "k2", "b");
    let mut b = wait(&server, "k1", "b");
    let cycle = refusal(r#""a" waits for "k2", "b" waits for "k1""#);
    for options in [&["BLOCK", "0"][..], &["QUEUE", "60000"], &["BLOCK", "5", "QUEUE", "5"]] {
        let call = [&["DLOCK.ACQUIRE", "k2", "a"], options].concat();
        assert_eq!(client.cmd(&call).error(), cycle, "{options:?}");
    }
    assert_eq!(server.info_number("dlock", "deadlocks_refused"), 3);
    // The call had no effect: it left no place and disturbed no other owner. A call that does not wait only gets
    // Null.
    assert!(client.cmd(&["DLOCK.POSITION", "k2", "a"]).is_null());
    assert!(client.cmd(&["DLOCK.ACQUIRE", "k2", "a"]).is_null());
    b.assert_no_reply();
    client.cmd(&["DLOCK.RELEASE", "k1", "a"]).ok();
    b.expect_reply(SOON).int();
    // Without its hold `a` blocks no owner.
    let mut a = wait(&server, "k2", "a");
    client.cmd(&["DLOCK.RELEASE", "k2", "b"]).ok();
    a.expect_reply(SOON).int();
    for (key, owner) in [("k1", "b"), ("k2", "a")] {
        client.cmd(&["DLOCK.RELEASE", key, owner]).ok();
    }
    server.left_over_check();
}

#[test]
fn it_can_be_turned_off() {
    let server = Server::with(&["dlock.deadlock-detection", "no"]).start();
    let mut client = server.client();
    hold(&mut client, "k1", "a");
    hold(&mut client, "k2", "b");
    let mut b = wait(&server, "k1", "b");
    assert!(client.cmd(&["DLOCK.ACQUIRE", "k2", "a", "BLOCK", "20"]).is_null());
    client.cmd(&["CONFIG", "SET", "dlock.deadlock-detection", "yes"]).ok();
    let error = client.cmd(&["DLOCK.ACQUIRE", "k2", "a", "BLOCK", "20"]).error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    assert_eq!(server.info_number("dlock", "deadlocks_refused"), 1);
    b.assert_no_reply();
    client.cmd(&["DLOCK.BREAK", "k1"]).ok();
    b.expect_reply(SOON).int();
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

#[test]
fn names_in_a_cycle_are_quoted_and_cut() {
    let server = Server::start();
    let mut client = server.client();
    let (key, owner) = (b"\xff%s\n".repeat(30), b"\0\"x".repeat(30));
    client.cmd(&args!["DLOCK.ACQUIRE", &key, &owner]).int();
    hold(&mut client, "k", "b");
    client.cmd(&args!["DLOCK.ACQUIRE", &key, "b", "QUEUE", 60_000]).ok();
    let error = client.cmd(&args!["DLOCK.ACQUIRE", "k", &owner, "BLOCK", 0]).error();
    let key = r"\xff%s\n".repeat(16);
    let owner = r#"\x00\"x"#.repeat(21);
    assert_eq!(
        error,
        refusal(&format!(r#""{owner}\x00"... waits for "k", "b" waits for "{key}"..."#))
    );
    client.cmd(&["FLUSHALL"]).ok();
    client.cmd(&args!["DLOCK.RELEASE", b"\xff%s\n".repeat(30), "b"]).ok();
    server.left_over_check();
}

/// Wound: a cycle that a call could not see lasted forever.
#[test]
fn a_cycle_beyond_the_budget_of_a_call_is_found_from_the_tick() {
    const OWNERS: usize = 1_000;
    let server = Server::start();
    let mut client = server.client();
    let names = |n: usize| (format!("k{}", n % OWNERS), format!("o{n}"));
    for n in 0..OWNERS {
        let (key, owner) = names(n);
        hold(&mut client, &key, &owner);
    }
    for n in 0..OWNERS - 1 {
        client.cmd(&["DLOCK.ACQUIRE", &names(n + 1).0, &names(n).1, "QUEUE", "60000"]).ok();
    }
    // The tick may answer it before INFO shows it as blocked.
    let mut last = server.post(&["DLOCK.ACQUIRE", "k0", &names(OWNERS - 1).1, "BLOCK", "0"]);
    let error = last.expect_reply(SOON).error();
    let cycle =
        r#""o999" waits for "k0", through 19 keys that this answer may not name and 980 more"#;
    assert_eq!(error, refusal(cycle));
    let log = server.ask("DLOCK.LOG GET 1").items()[0].field("text").text();
    assert!(log.contains(r#""o999" waits for "k0", "o0" waits for "k1""#), "{log}");
    assert_eq!(server.info_number("dlock", "deadlock_searches_cut"), 1);
    wait_until("all waits are searched", || server.info_number("dlock", "deadlock_unchecked") == 0);
    assert_eq!(server.info_number("dlock", "deadlock_lag_ms"), 0);
    client.cmd(&["FLUSHALL"]).ok();
    for n in 0..OWNERS - 1 {
        client.cmd(&["DLOCK.RELEASE", &names(n + 1).0, &names(n).1]).ok();
    }
    server.left_over_check();
}

#[test]
fn a_place_in_a_cycle_ends_with_a_message_and_its_request_with_the_error() {
    let server = Server::with(&["dlock.deadlock-detection", "no"]).start();
    let mut client = server.client();
    let mut listener = server.subscribe(&["dlock:notify:b"]);
    for (key, owner) in [("k1", "a"), ("k2", "b")] {
        client.cmd(&["DFAIR.ACQUIRE", key, owner]).int();
    }
    client.cmd(&["DFAIR.ACQUIRE", "k2", "a", "QUEUE", "60000"]).ok();
    let request = ["DFAIR.ACQUIRE", "k1", "b", "QUEUE", "60000", "REQID", "r1"];
    assert!(client.cmd(&request).is_null());
    client.cmd(&["CONFIG", "SET", "dlock.deadlock-detection", "yes"]).ok();
    assert_eq!(listener.next_text(), "deadlock 0 0 1 b 2 r1 k1");
    let error = client.cmd(&request).error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    assert!(client.cmd(&["DFAIR.POSITION", "k1", "b"]).is_null());
    assert_eq!(client.cmd(&["DFAIR.POSITION", "k2", "a"]).int(), 1);
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// One name in two databases means two locks; a cycle may span both.
#[test]
fn databases_are_apart() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    other.cmd(&["SELECT", "5"]).ok();
    hold(&mut client, "x", "a");
    hold(&mut other, "y", "b");
    let b = wait(&server, "x", "b");
    hold(&mut client, "y", "z");
    let a = wait(&server, "y", "a");
    let error = other.cmd(&["DLOCK.ACQUIRE", "y", "a", "BLOCK", "0"]).error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    drop((a, b));
    server.wait_blocked(0);
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}
