//! Immediate replies of ANYACQUIRE.

use std::collections::BTreeMap;

use super::{ask, clear, one_of, picture, tokens, wait};
use crate::support::{Reply, SOON, Server};

fn stripes(count: usize) -> String {
    (0..count).map(|n| format!("s{n}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_owner_gets_another_lock_until_none_is_free() {
    const STRIPES: usize = 10;
    let server = Server::start();
    let keys = stripes(STRIPES);
    let mut last = 0;
    let mut got = BTreeMap::new();
    for n in 0..STRIPES {
        let reply = ask(&server, &format!("DLOCK.ANYACQUIRE {STRIPES} {keys} o{n} PX 60000"));
        let (key, token) = one_of(&reply);
        assert!(token > last, "{token} after {last}");
        last = token;
        let info = server.cmd(&["DLOCK.INFO", &key]);
        assert_eq!(info.field("owner").text(), format!("o{n}"));
        assert_eq!((info.field("token").int(), info.field("holds").int()), (token, 1));
        assert_eq!(info.field("lease-ms").int(), 60_000);
        assert_eq!(got.insert(key, n), None, "one lock for two owners: {got:?}");
    }
    assert!(ask(&server, &format!("DLOCK.ANYACQUIRE {STRIPES} {keys} late")).is_null());
    assert!(ask(&server, &format!("DLOCK.ANYACQUIRE {STRIPES} {keys} late BLOCK 10")).is_null());
    assert_eq!(server.info_number("dlock", "waiters_blocked"), 0);
    // The one that becomes free is the one that is found.
    let (key, owner) = got.pop_first().expect("ten");
    assert_eq!(server.cmd(&["DLOCK.RELEASE", &key, &format!("o{owner}")]).int(), 0);
    let reply = ask(&server, &format!("DLOCK.ANYACQUIRE {STRIPES} {keys} late"));
    assert_eq!(one_of(&reply).0, key);
    clear(&server);
}

/// Repeated acquires get different locks, not always the first of the list.
#[test]
fn the_look_starts_at_a_different_key_each_time() {
    const STRIPES: usize = 7;
    let server = Server::start();
    let keys = stripes(STRIPES);
    let mut counts = BTreeMap::new();
    let mut before = String::new();
    for n in 0..STRIPES * 20 {
        let reply = ask(&server, &format!("DLOCK.ANYACQUIRE {STRIPES} {keys} o{n}"));
        let key = one_of(&reply).0;
        assert_ne!(key, before, "the same one twice in a row");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", &key, &format!("o{n}")]).int(), 0);
        *counts.entry(key.clone()).or_insert(0) += 1;
        before = key;
    }
    assert_eq!(counts.len(), STRIPES, "{counts:?}");
    assert!(counts.values().all(|count| (10..=40).contains(count)), "{counts:?}");
    server.left_over_check();
}

#[test]
fn one_that_the_owner_holds_is_entered_again() {
    let server = Server::start();
    let held = ask(&server, "DLOCK.ACQUIRE s3 a PX 5000").int();
    // For any repetition and any start of the search.
    for n in 2..12 {
        let reply = ask(&server, "DLOCK.ANYACQUIRE 5 s1 s2 s3 s4 s5 a PX 60000");
        assert_eq!(one_of(&reply), ("s3".to_owned(), held));
        assert_eq!(server.cmd(&["DLOCK.INFO", "s3"]).field("holds").int(), n);
    }
    assert!(server.cmd(&["DLOCK.INFO", "s3"]).field("ttl-ms").int() > 5_000);
    assert_eq!(picture(&server, "s1 s2 s4 s5"), "s1:- s2:- s4:- s5:-");
    // Of two locks that the owner holds, the first in the list.
    let other = ask(&server, "DLOCK.ACQUIRE s5 a").int();
    assert_eq!(one_of(&ask(&server, "DLOCK.ANYACQUIRE 3 s5 s4 s3 a")), ("s5".to_owned(), other));
    assert_eq!(one_of(&ask(&server, "DLOCK.ANYACQUIRE 3 s1 s3 s5 a")), ("s3".to_owned(), held));
    // Although they have waiters.
    let waiter = wait(&server, "DLOCK.ANYACQUIRE 2 s3 s5 b BLOCK 0");
    assert_eq!(one_of(&ask(&server, "DLOCK.ANYACQUIRE 2 s1 s5 a")).0, "s5");
    drop(waiter);
    clear(&server);
}

#[test]
fn a_repeated_request_gets_the_same_lock_and_counts_nothing() {
    let server = Server::start();
    let call = "DLOCK.ANYACQUIRE 4 s1 s2 s3 s4 a REQID r";
    let first = one_of(&ask(&server, call));
    for _ in 0..6 {
        assert_eq!(one_of(&ask(&server, call)), first);
    }
    assert_eq!(server.cmd(&["DLOCK.INFO", &first.0]).field("holds").int(), 1);
    // Even if another of its locks is earlier in the list.
    let others: Vec<&str> =
        ["s1", "s2", "s3", "s4"].into_iter().filter(|key| *key != first.0).collect();
    ask(&server, &format!("DLOCK.ACQUIRE {} a REQID s", others[0])).int();
    let again = format!("DLOCK.ANYACQUIRE 3 {} {} {} a REQID r", others[0], others[1], first.0);
    assert_eq!(one_of(&ask(&server, &again)), first);
    assert_eq!(server.cmd(&["DLOCK.INFO", &first.0]).field("holds").int(), 1);
    assert_eq!(server.cmd(&["DLOCK.INFO", others[0]]).field("holds").int(), 1);
    // When that hold has ended, a copy of the request gets no other lock.
    ask(&server, &format!("DLOCK.MRELEASE 2 {} {} a", first.0, others[0])).int();
    assert!(ask(&server, call).error().starts_with("SPENT "));
    clear(&server);
}

/// A free lock that is reserved for a waiter is not available to others.
#[test]
fn locks_with_waiters_are_left_to_them() {
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE busy h").int();
    let mut all = wait(&server, "DLOCK.MACQUIRE 3 s1 busy s2 m BLOCK 0");
    for n in 0..6 {
        let (key, _) = one_of(&ask(&server, &format!("DLOCK.ANYACQUIRE 4 s1 s2 s3 busy o{n}")));
        assert_eq!(key, "s3");
        assert_eq!(ask(&server, &format!("DLOCK.RELEASE s3 o{n}")).int(), 0);
    }
    assert!(ask(&server, "DLOCK.ANYACQUIRE 3 s1 s2 busy x").is_null());
    ask(&server, "DLOCK.RELEASE busy h").int();
    tokens(&all.expect_reply(SOON));
    clear(&server);
}

#[test]
fn an_unclaimed_grant_is_claimed() {
    let server = Server::start();
    let mut queued = server.client();
    ask(&server, "DLOCK.ACQUIRE s2 h").int();
    assert!(queued.cmd(&["DLOCK.ACQUIRE", "s2", "a", "QUEUE", "50000"]).is_null());
    ask(&server, "DLOCK.RELEASE s2 h").int();
    let token = server.cmd(&["DLOCK.INFO", "s2"]).field("token").int();
    let reply = ask(&server, "DLOCK.ANYACQUIRE 3 s1 s2 s3 a PX 90000");
    assert_eq!(one_of(&reply), ("s2".to_owned(), token));
    assert_eq!(picture(&server, "s1 s2 s3"), "s1:- s2:a s3:-");
    assert!(server.cmd(&["DLOCK.INFO", "s2"]).field("ttl-ms").int() > 50_000);
    clear(&server);
}
