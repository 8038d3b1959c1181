//! An owner that waits for several locks and repeats its request.

use super::{ask, clear, one_of, picture, tokens, wait};
use crate::support::{Blocked, Reply, SOON, Server};

#[track_caller]
fn assert_replaced(waiter: &mut Blocked) {
    let answer = waiter.expect_reply(SOON).error();
    assert!(answer.starts_with("REPLACED "), "{answer}");
}

/// The first request of `a`, its next request, and the queues afterwards. `h` holds `k1`; `b` waits for all locks
/// behind the first call.
#[test]
fn the_later_call_counts_and_keeps_the_places_if_the_earlier_covered_its_keys() {
    let server = Server::start();
    for (first, second, then) in [
        // The same again, in any order, or part of it.
        ("MACQUIRE 3 k1 k2 k3", "MACQUIRE 3 k1 k2 k3", "k1:h<a<b k2:-<a<b k3:-<a<b k4:-"),
        ("MACQUIRE 3 k1 k2 k3", "MACQUIRE 3 k3 k1 k2", "k1:h<a<b k2:-<a<b k3:-<a<b k4:-"),
        ("MACQUIRE 3 k1 k2 k3", "MACQUIRE 2 k2 k1", "k1:h<a<b k2:-<a<b k3:-<b k4:-"),
        ("MACQUIRE 3 k1 k2 k3", "ACQUIRE k1", "k1:h<a<b k2:-<b k3:-<b k4:-"),
        // An additional lock.
        ("MACQUIRE 2 k1 k2", "MACQUIRE 3 k1 k2 k4", "k1:h<b<a k2:-<b<a k3:-<b k4:-<a"),
        ("MACQUIRE 2 k1 k2", "MACQUIRE 2 k1 k4", "k1:h<b<a k2:-<b k3:-<b k4:-<a"),
        ("ACQUIRE k1", "MACQUIRE 2 k1 k2", "k1:h<b<a k2:-<b<a k3:-<b k4:-"),
        ("ACQUIRE k1", "MACQUIRE 2 k4 k1", "k1:h<b<a k2:-<b k3:-<b k4:-<a"),
    ] {
        println!("{first}, then {second}");
        ask(&server, "DLOCK.ACQUIRE k1 h").int();
        let mut earlier = wait(&server, &format!("DLOCK.{first} a BLOCK 0"));
        let mut b = wait(&server, "DLOCK.MACQUIRE 3 k1 k2 k3 b BLOCK 0");
        let mut later = wait(&server, &format!("DLOCK.{second} a BLOCK 0 LABEL later PX 90000"));
        assert_replaced(&mut earlier);
        assert_eq!(earlier.client().cmd(&["ECHO", "once"]).text(), "once");
        assert_eq!(picture(&server, "k1 k2 k3 k4"), then, "{first}, then {second}");
        let keeps = then.starts_with("k1:h<a");
        ask(&server, "DLOCK.RELEASE k1 h").int();
        let (ahead, behind) = if keeps { (&mut later, &mut b) } else { (&mut b, &mut later) };
        ahead.expect_reply(SOON).ok();
        behind.assert_no_reply();
        let info = ask(&server, "DLOCK.INFO k1");
        assert_eq!(info.field("owner").text(), if keeps { "a" } else { "b" });
        if keeps {
            assert_eq!(info.field("label").text(), "later", "its options count");
            assert!(info.field("ttl-ms").int() > 80_000, "{}", info.show());
        }
        ask(&server, &format!("DLOCK.MRELEASE 4 k1 k2 k3 k4 {}", if keeps { "a" } else { "b" }))
            .int();
        behind.expect_reply(SOON).ok();
        clear(&server);
    }
}

/// QUEUE waiters without a blocked call are taken over, too; one call replaces several.
#[test]
fn all_earlier_waits_for_any_of_the_keys_are_replaced() {
    let server = Server::start();
    let mut queued = server.client();
    ask(&server, "DLOCK.MACQUIRE 3 k1 k2 k3 h").ok();
    let mut one = wait(&server, "DLOCK.ACQUIRE k1 a BLOCK 0");
    assert!(queued.cmd(&["DLOCK.ACQUIRE", "k2", "a", "QUEUE", "60000"]).is_null());
    let mut other = wait(&server, "DLOCK.MACQUIRE 2 k3 k4 a BLOCK 0");
    // A call for other locks is none of them.
    tokens(&ask(&server, "DLOCK.MACQUIRE 1 k5 a BLOCK 0"));
    let mut all = wait(&server, "DLOCK.MACQUIRE 3 k1 k2 k3 a BLOCK 0");
    assert_replaced(&mut one);
    assert_replaced(&mut other);
    assert_eq!(picture(&server, "k1 k2 k3 k4"), "k1:h<a k2:h<a k3:h<a k4:-");
    assert_eq!(server.info_number("dlock", "waiters_queued"), 0);
    ask(&server, "DLOCK.MRELEASE 3 k1 k2 k3 h").int();
    tokens(&all.expect_reply(SOON));
    assert!(server.info_number("dlock", "replaced") >= 2);
    drop(queued);
    clear(&server);
}

#[test]
fn a_call_that_does_not_wait_replaces_no_call() {
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE k1 h").int();
    let mut a = wait(&server, "DLOCK.MACQUIRE 2 k1 k2 a BLOCK 0");
    for call in [
        "DLOCK.MACQUIRE 2 k1 k2 a",
        "DLOCK.MACQUIRE 2 k1 k3 a",
        "DLOCK.ACQUIRE k1 a",
        "DLOCK.ANYACQUIRE 1 k1 a",
    ] {
        assert!(ask(&server, call).is_null(), "{call}");
        a.assert_no_reply();
        assert_eq!(picture(&server, "k1 k2 k3"), "k1:h<a k2:-<a k3:-", "{call}");
    }
    // Locks outside its own waits are independent.
    tokens(&ask(&server, "DLOCK.MACQUIRE 2 k4 k5 a BLOCK 0"));
    a.assert_no_reply();
    ask(&server, "DLOCK.RELEASE k1 h").int();
    tokens(&a.expect_reply(SOON));
    clear(&server);
}

/// The later call may find all locks free: the earlier one is still answered.
#[test]
fn a_grant_at_once_replaces_as_well() {
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE k1 h").int();
    let mut earlier = wait(&server, "DLOCK.MACQUIRE 3 k1 k2 k3 a BLOCK 0");
    let mut behind = wait(&server, "DLOCK.ACQUIRE k3 b BLOCK 0");
    let mut at_k1 = wait(&server, "DLOCK.ACQUIRE k1 c BLOCK 0");
    // Only its own place reserves `k2`.
    tokens(&ask(&server, "DLOCK.MACQUIRE 1 k2 a BLOCK 0"));
    assert_replaced(&mut earlier);
    behind.expect_reply(SOON).int();
    assert_eq!(picture(&server, "k1 k2 k3"), "k1:h<c k2:a k3:b");
    ask(&server, "DLOCK.RELEASE k1 h").int();
    at_k1.expect_reply(SOON).int();
    clear(&server);
}

#[test]
fn any_replaces_any() {
    let server = Server::start();
    ask(&server, "DLOCK.MACQUIRE 3 k1 k2 k3 h").ok();
    let mut earlier = wait(&server, "DLOCK.ANYACQUIRE 3 k1 k2 k3 a BLOCK 0");
    let mut behind = wait(&server, "DLOCK.ANYACQUIRE 3 k1 k2 k3 b BLOCK 0");
    let mut later = wait(&server, "DLOCK.ANYACQUIRE 3 k3 k2 k1 a BLOCK 0");
    assert_replaced(&mut earlier);
    assert_eq!(picture(&server, "k1 k2 k3"), "k1:h<a<b k2:h<a<b k3:h<a<b");
    ask(&server, "DLOCK.RELEASE k2 h").int();
    assert_eq!(one_of(&later.expect_reply(SOON)).0, "k2");
    assert_eq!(picture(&server, "k1 k2 k3"), "k1:h<b k2:a<b k3:h<b");
    ask(&server, "DLOCK.RELEASE k3 h").int();
    assert_eq!(one_of(&behind.expect_reply(SOON)).0, "k3");
    clear(&server);
}
