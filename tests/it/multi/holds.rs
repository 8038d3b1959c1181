//! MRELEASE and MRENEW, and the later fate of the holds of MACQUIRE.

use std::time::Instant;

use super::{ask, clear, picture, tokens, wait};
use crate::support::{Reply, SOON, Server, wait_until};

#[test]
fn mrelease_gives_back_one_hold_of_each_and_passes_over_the_others() {
    let server = Server::start();
    for call in ["ACQUIRE k1 a", "ACQUIRE k1 a", "ACQUIRE k2 a", "ACQUIRE k3 b"] {
        ask(&server, &format!("DLOCK.{call}")).int();
    }
    for (call, released, left) in [
        ("4 k1 k2 k3 nothing c", 0, "k1:a*2 k2:a k3:b"),
        ("4 k1 k2 k3 nothing a", 2, "k1:a k2:- k3:b"),
        ("2 k3 k2 a", 0, "k1:a k2:- k3:b"),
        ("4 nothing k3 k2 k1 a", 1, "k1:- k2:- k3:b"),
        ("1 k3 b", 1, "k1:- k2:- k3:-"),
        ("3 k1 k2 k3 b", 0, "k1:- k2:- k3:-"),
    ] {
        assert_eq!(ask(&server, &format!("DLOCK.MRELEASE {call}")).int(), released, "{call}");
        assert_eq!(picture(&server, "k1 k2 k3"), left, "{call}");
    }
    server.left_over_check();
}

#[test]
fn a_repeated_mrelease_counts_nothing_and_answers_as_before() {
    let server = Server::start();
    for _ in 0..3 {
        tokens(&ask(&server, "DLOCK.MACQUIRE 2 k1 k2 a"));
    }
    ask(&server, "DLOCK.ACQUIRE k3 a").int();
    for (call, released, left) in [
        ("2 k1 k2 a REQID r", 2, "k1:a*2 k2:a*2 k3:a"),
        ("2 k1 k2 a REQID r", 2, "k1:a*2 k2:a*2 k3:a"),
        // Key by key: `k3` does not know the id, and is released.
        ("3 k3 k1 k2 a REQID r", 3, "k1:a*2 k2:a*2 k3:-"),
        ("3 k3 k1 k2 a REQID r", 3, "k1:a*2 k2:a*2 k3:-"),
        ("2 k1 k2 a REQID s", 2, "k1:a k2:a k3:-"),
    ] {
        assert_eq!(ask(&server, &format!("DLOCK.MRELEASE {call}")).int(), released, "{call}");
        assert_eq!(picture(&server, "k1 k2 k3"), left, "{call}");
    }
    // The same kind of request as RELEASE of one lock.
    assert_eq!(ask(&server, "DLOCK.RELEASE k1 a REQID s").int(), 1);
    assert_eq!(ask(&server, "DLOCK.MRELEASE 2 k1 k2 a REQID t").int(), 2);
    server.left_over_check();
}

#[test]
fn mrelease_hands_each_lock_on_in_the_same_step() {
    let server = Server::start();
    let before = tokens(&ask(&server, "DLOCK.MACQUIRE 4 k1 k2 k3 k4 a"));
    let mut both = wait(&server, "DLOCK.MACQUIRE 2 k2 k1 b BLOCK 0");
    let mut one = wait(&server, "DLOCK.ACQUIRE k3 c BLOCK 0");
    let mut behind = wait(&server, "DLOCK.ACQUIRE k1 d BLOCK 0");
    assert_eq!(ask(&server, "DLOCK.MRELEASE 3 k1 k2 k3 a").int(), 3);
    assert_eq!(picture(&server, "k1 k2 k3 k4"), "k1:b<d k2:b k3:c k4:a");
    assert!(tokens(&both.expect_reply(SOON)).iter().all(|token| token > &before[3]));
    one.expect_reply(SOON).int();
    behind.assert_no_reply();
    assert_eq!(ask(&server, "DLOCK.MRELEASE 2 k1 k2 b").int(), 2);
    behind.expect_reply(SOON).int();
    clear(&server);
}

#[test]
fn mrenew_renews_all_or_none() {
    let server = Server::start();
    let lease = |key: &str| {
        let info = server.cmd(&["DLOCK.INFO", key]);
        assert!(info.field("ttl-ms").int() <= info.field("lease-ms").int(), "{}", info.show());
        info.field("lease-ms").int()
    };
    tokens(&ask(&server, "DLOCK.MACQUIRE 2 k1 k2 a PX 60000"));
    ask(&server, "DLOCK.ACQUIRE k3 a PX 40000").int();
    ask(&server, "DLOCK.ACQUIRE k4 b PX 60000").int();
    // Later and earlier than before.
    for ms in [90_000, 50_000] {
        assert_eq!(ask(&server, &format!("DLOCK.MRENEW 3 k3 k1 k2 a PX {ms}")).int(), 3);
        assert_eq!(["k1", "k2", "k3", "k4"].map(lease), [ms, ms, ms, 60_000]);
    }
    assert_eq!(ask(&server, "DLOCK.MRENEW 1 k3 a EX 40").int(), 1);
    // The text names the first key that the owner does not hold, and nothing changes.
    for (call, named) in [
        ("4 k1 k2 k3 k4 a PX 70000", "\"k4\""),
        ("4 k4 k1 k2 k3 a PX 70000", "\"k4\""),
        ("4 k1 nothing k4 k2 a PX 70000", "\"nothing\""),
        ("2 k1 k2 c PX 70000", "\"k1\""),
    ] {
        let refusal = ask(&server, &format!("DLOCK.MRENEW {call}")).error();
        assert!(refusal.starts_with("NOTHELD ") && refusal.contains(named), "{call}: {refusal}");
        assert_eq!(["k1", "k2", "k3", "k4"].map(lease), [50_000, 50_000, 40_000, 60_000]);
    }
    assert!(ask(&server, "DLOCK.INFO nothing").is_null());
    // Without PX each lease restarts with its current length.
    let ttl = |key: &str| server.cmd(&["DLOCK.INFO", key]).field("ttl-ms").int();
    wait_until("some of the leases to pass", || ttl("k1") < 49_900 && ttl("k3") < 39_900);
    let sent = Instant::now();
    assert_eq!(ask(&server, "DLOCK.MRENEW 2 k3 k1 a").int(), 2);
    let left = [ttl("k1"), ttl("k3")];
    let passed = i64::try_from(sent.elapsed().as_millis()).expect("a short time") + 2;
    assert!(left[0] >= 50_000 - passed && left[1] >= 40_000 - passed, "{left:?} after {passed} ms");
    clear(&server);
}

/// A lease ends separately: each key is an independent hold.
#[test]
fn each_key_is_a_hold_of_its_own() {
    let server = Server::start();
    let mut messages = server.subscribe(&["news"]);
    let mut next = || messages.next_text();
    let granted = tokens(&ask(&server, "DLOCK.MACQUIRE 4 k1 k2 k3 k4 a PX 60000 NOTIFY news"));
    let about = |event: &str, n: usize| format!("{event} 0 {} 1 a 0  k{}", granted[n], n + 1);
    ask(&server, "DLOCK.BREAK k1").int();
    assert_eq!(next(), about("broken", 0));
    ask(&server, "DLOCK.RENEW k2 a PX 1").int();
    assert_eq!(next(), about("expired", 1));
    ask(&server, "DEL k3").int();
    assert_eq!(next(), about("deleted", 2));
    assert_eq!(picture(&server, "k1 k2 k3 k4"), "k1:- k2:- k3:- k4:a");
    assert_eq!(ask(&server, "DLOCK.MRELEASE 4 k1 k2 k3 k4 a").int(), 1);
    messages.assert_none();
    server.left_over_check();
}

#[test]
fn bind_ties_all_of_them() {
    let server = Server::start();
    let mut messages = server.subscribe(&["news"]);
    let mut holder = server.client();
    let call = ["DLOCK.MACQUIRE", "3", "k1", "k2", "k3", "a", "BIND", "0", "NOTIFY", "news"];
    tokens(&holder.cmd(&call));
    let id = i64::try_from(holder.id()).expect("a small number");
    for key in ["k1", "k2", "k3"] {
        assert_eq!(server.cmd(&["DLOCK.INFO", key]).field("bound-client").int(), id);
    }
    // After a wait, the hold is bound to the connection that waited.
    let mut waiter = wait(&server, "DLOCK.MACQUIRE 2 k2 k4 b BLOCK 0 BIND 0");
    let mut last = wait(&server, "DLOCK.MACQUIRE 2 k4 k1 c BLOCK 0");
    drop(holder);
    tokens(&waiter.expect_reply(SOON));
    let told: Vec<String> = (0..3)
        .map(|_| messages.next_text())
        .map(|text| text.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(told, ["disconnected"; 3]);
    wait_until("the third to be free", || ask(&server, "EXISTS k3").int() == 0);
    last.assert_no_reply();
    waiter.hang_up();
    tokens(&last.expect_reply(SOON));
    assert_eq!(picture(&server, "k1 k2 k3 k4"), "k1:c k2:- k3:- k4:c");
    assert_eq!(server.info_number("dlock", "disconnected"), 5);
    assert_eq!(ask(&server, "DLOCK.MRELEASE 2 k1 k4 c").int(), 2);
    server.left_over_check();
}

/// A repeat moves the binding to the connection that repeats, key by key.
#[test]
fn the_binding_moves_to_the_repeating_connection() {
    let server = Server::start();
    let call = ["DLOCK.MACQUIRE", "2", "k1", "k2", "a", "BIND", "0", "REQID", "r"];
    let (mut first, mut second) = (server.client(), server.client());
    let granted = tokens(&first.cmd(&call));
    assert_eq!(tokens(&second.cmd(&call)), granted);
    let id = i64::try_from(second.id()).expect("a small number");
    for key in ["k1", "k2"] {
        assert_eq!(server.cmd(&["DLOCK.INFO", key]).field("bound-client").int(), id);
    }
    let gone = first.id();
    drop(first);
    wait_until("the first connection to be gone", || {
        !ask(&server, "CLIENT LIST").text().contains(&format!("id={gone} "))
    });
    assert_eq!(picture(&server, "k1 k2"), "k1:a k2:a");
    drop(second);
    wait_until("the ties to be cut", || server.keys() == 0);
    server.left_over_check();
}
