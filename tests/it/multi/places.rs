//! Positions of a blocked MACQUIRE, and their effect on other waiters.

use super::{ask, clear, picture, tokens, wait};
use crate::support::{Reply, SOON, Server};

#[test]
fn a_blocked_call_stands_in_every_queue_and_keeps_free_keys_closed() {
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE k2 h").int();
    let mut m = wait(&server, "DLOCK.MACQUIRE 3 k1 k2 k3 m BLOCK 0 LABEL why");
    let id = i64::try_from(m.id()).expect("a small number");
    for key in ["k1", "k2", "k3"] {
        let rows = server.cmd(&["DLOCK.WAITERS", key]).items();
        assert_eq!(rows.len(), 1, "{key}");
        assert_eq!(rows[0].field("owner").text(), "m");
        assert_eq!(rows[0].field("client-id").int(), id);
        assert_eq!(rows[0].field("label").text(), "why");
        assert_eq!(server.cmd(&["DLOCK.POSITION", key, "m"]).int(), 1);
        let info = server.cmd(&["DLOCK.INFO", key]);
        assert_eq!(info.field("waiters").int(), 1);
        assert_eq!(info.field("holds").int(), i64::from(key == "k2"), "{}", info.show());
    }
    assert_eq!(server.blocked_clients(), 1);
    assert_eq!(server.keys(), 1, "a queue is no key");
    // No call gets a free lock past it; waiters queue behind it.
    for call in [
        "DLOCK.ACQUIRE k1 x",
        "DLOCK.ACQUIRE k3 x BLOCK 10",
        "DLOCK.MACQUIRE 2 k1 free x",
        "DLOCK.MACQUIRE 2 free k3 x BLOCK 10",
        "DLOCK.ANYACQUIRE 2 k1 k3 x",
    ] {
        assert!(ask(&server, call).is_null(), "{call}");
        assert_eq!(picture(&server, "k1 k2 k3 free"), "k1:-<m k2:h<m k3:-<m free:-", "{call}");
    }
    let mut behind = wait(&server, "DLOCK.ACQUIRE k3 y BLOCK 0");
    assert_eq!(picture(&server, "k3"), "k3:-<m<y");
    m.assert_no_reply();
    let last = server.info_number("dlock", "last_token");
    ask(&server, "DLOCK.RELEASE k2 h").int();
    let granted = tokens(&m.expect_reply(SOON));
    assert!(granted[0] > last && granted.is_sorted_by(|one, next| one < next), "{granted:?}");
    assert_eq!(picture(&server, "k1 k2 k3"), "k1:m k2:m k3:m<y");
    behind.assert_no_reply();
    assert_eq!(ask(&server, "DLOCK.MRELEASE 3 k1 k2 k3 m").int(), 3);
    behind.expect_reply(SOON).int();
    clear(&server);
}

/// For any order of keys in the calls, the earlier call is served first, and calls never block each other mutually.
#[test]
fn calls_in_opposite_order_are_served_in_the_order_in_which_they_came() {
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE k2 h").int();
    let mut one = wait(&server, "DLOCK.MACQUIRE 3 k1 k2 k3 one BLOCK 0");
    let mut two = wait(&server, "DLOCK.MACQUIRE 3 k3 k2 k1 two BLOCK 0");
    let mut three = wait(&server, "DLOCK.MACQUIRE 2 k4 k3 three BLOCK 0");
    let mut four = wait(&server, "DLOCK.MACQUIRE 2 k1 k4 four BLOCK 0");
    assert_eq!(
        picture(&server, "k1 k2 k3 k4"),
        "k1:-<one<two<four k2:h<one<two k3:-<one<two<three k4:-<three<four"
    );
    ask(&server, "DLOCK.RELEASE k2 h").int();
    tokens(&one.expect_reply(SOON));
    // Lock by lock: the next call is granted when it is first in all queues.
    for (key, left) in [
        ("k1", "k1:-<two<four k2:one<two k3:one<two<three k4:-<three<four"),
        ("k3", "k1:-<two<four k2:one<two k3:-<two<three k4:-<three<four"),
        ("k2", "k1:two<four k2:two k3:two<three k4:-<three<four"),
    ] {
        ask(&server, &format!("DLOCK.RELEASE {key} one")).int();
        assert_eq!(picture(&server, "k1 k2 k3 k4"), left, "{key}");
    }
    tokens(&two.expect_reply(SOON));
    three.assert_no_reply();
    ask(&server, "DLOCK.MRELEASE 3 k1 k2 k3 two").int();
    tokens(&three.expect_reply(SOON));
    four.assert_no_reply();
    ask(&server, "DLOCK.MRELEASE 2 k3 k4 three").int();
    tokens(&four.expect_reply(SOON));
    assert_eq!(picture(&server, "k1 k2 k3 k4"), "k1:four k2:- k3:- k4:four");
    clear(&server);
}

/// A lock that the caller holds is not waited for, in spite of other waiters.
#[test]
fn a_lock_that_is_held_already_holds_nothing_up() {
    let server = Server::start();
    let held = ask(&server, "DLOCK.ACQUIRE k1 m PX 60000").int();
    let mut other = wait(&server, "DLOCK.ACQUIRE k1 x BLOCK 0");
    ask(&server, "DLOCK.ACQUIRE k2 h").int();
    let mut m = wait(&server, "DLOCK.MACQUIRE 2 k1 k2 m BLOCK 0 PX 90000");
    assert_eq!(server.cmd(&["DLOCK.INFO", "k1"]).field("holds").int(), 1, "not before all are");
    ask(&server, "DLOCK.RELEASE k2 h").int();
    let granted = tokens(&m.expect_reply(SOON));
    assert_eq!(granted[0], held);
    assert_eq!(picture(&server, "k1 k2"), "k1:m*2<x k2:m");
    assert!(server.cmd(&["DLOCK.INFO", "k1"]).field("ttl-ms").int() > 60_000);
    other.assert_no_reply();
    ask(&server, "DLOCK.RELEASE k1 m ALL").int();
    other.expect_reply(SOON).int();
    clear(&server);
}

/// A hold of the caller may end during its wait: then the call waits for that lock, too.
#[test]
fn a_lock_lost_during_the_wait_is_granted_again() {
    let server = Server::start();
    for (loss, alone) in [
        ("DLOCK.BREAK k1", true),
        ("DLOCK.BREAK k1", false),
        ("DEL k1", true),
        ("DLOCK.RELEASE k1 m", false),
    ] {
        let held = ask(&server, "DLOCK.ACQUIRE k1 m").int();
        ask(&server, "DLOCK.ACQUIRE k2 h").int();
        let mut m = wait(&server, "DLOCK.MACQUIRE 2 k1 k2 m BLOCK 0");
        let mut x = (!alone).then(|| wait(&server, "DLOCK.ACQUIRE k1 x BLOCK 0"));
        ask(&server, loss).int();
        m.assert_no_reply();
        ask(&server, "DLOCK.RELEASE k2 h").int();
        let granted = tokens(&m.expect_reply(SOON));
        assert!(granted[0] > held && granted[1] > held, "{loss}: {granted:?} after {held}");
        assert_eq!(ask(&server, "DLOCK.MRELEASE 2 k1 k2 m").int(), 2);
        if let Some(x) = &mut x {
            x.expect_reply(SOON).int();
        }
        clear(&server);
    }
}

/// QUEUE waiters and calls for one lock are served in order of arrival among calls for several.
#[test]
fn places_of_all_kinds_stand_in_one_queue() {
    let server = Server::start();
    let mut queued = server.client();
    ask(&server, "DLOCK.ACQUIRE k1 h").int();
    let mut a = wait(&server, "DLOCK.ACQUIRE k1 a BLOCK 0");
    let mut m = wait(&server, "DLOCK.MACQUIRE 2 k1 k2 m BLOCK 0");
    for key in ["k1", "k2"] {
        assert!(queued.cmd(&["DLOCK.ACQUIRE", key, "q", "QUEUE", "60000"]).is_null());
    }
    let mut n = wait(&server, "DLOCK.MACQUIRE 2 k2 k1 n BLOCK 0");
    assert_eq!(picture(&server, "k1 k2"), "k1:h<a<m<q<n k2:-<m<q<n");
    let mut messages = server.subscribe(&["dlock:notify:q"]);
    ask(&server, "DLOCK.RELEASE k1 h").int();
    a.expect_reply(SOON).int();
    assert_eq!(picture(&server, "k1 k2"), "k1:a<m<q<n k2:-<m<q<n");
    ask(&server, "DLOCK.RELEASE k1 a").int();
    tokens(&m.expect_reply(SOON));
    messages.assert_none();
    assert_eq!(ask(&server, "DLOCK.MRELEASE 2 k1 k2 m").int(), 2);
    let mut granted = [messages.next_text(), messages.next_text()];
    granted.sort_by_key(|text| text.chars().last());
    for (text, key) in granted.iter().zip(["k1", "k2"]) {
        let token = queued.cmd(&["DLOCK.ACQUIRE", key, "q"]).int();
        assert_eq!(*text, format!("granted 0 {token} 1 q 0  {key}"));
    }
    n.assert_no_reply();
    assert_eq!(ask(&server, "DLOCK.MRELEASE 2 k1 k2 q").int(), 2);
    tokens(&n.expect_reply(SOON));
    clear(&server);
}

/// Fifty calls over the same locks, each list rotated: served in order of arrival.
#[test]
fn the_order_of_arrival_is_the_order_of_service() {
    const CALLS: usize = 50;
    let server = Server::start();
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    ask(&server, "DLOCK.ACQUIRE k7 h").int();
    let mut calls: Vec<_> = (0..CALLS)
        .map(|n| {
            let mut rotated = keys.clone();
            rotated.rotate_left(n % 10);
            // Subsets: but each has `k7`, and two adjacent calls have several in common.
            rotated.retain(|key| key == "k7" || !key.ends_with(&(n % 5).to_string()));
            let (count, names) = (rotated.len(), rotated.join(" "));
            let call = format!("DLOCK.MACQUIRE {count} {names} o{n} BLOCK 0");
            (wait(&server, &call), format!("{count} {names} o{n}"))
        })
        .collect();
    assert_eq!(ask(&server, "DLOCK.POSITION k7 o49").int(), 50);
    let mut last = ask(&server, "DLOCK.INFO k7").field("token").int();
    ask(&server, "DLOCK.RELEASE k7 h").int();
    for (n, call) in calls.iter_mut().enumerate() {
        let granted = tokens(&call.0.expect_reply(SOON));
        assert!(granted[0] > last, "{granted:?} after {last}");
        last = granted[granted.len() - 1];
        let blocked = usize::try_from(server.info_number("clients", "blocked_clients"));
        assert_eq!(blocked, Ok(CALLS - 1 - n));
        let count = i64::try_from(granted.len()).expect("a few");
        assert_eq!(ask(&server, &format!("DLOCK.MRELEASE {}", call.1)).int(), count);
    }
    server.left_over_check();
}
