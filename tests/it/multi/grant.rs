//! Immediate replies of MACQUIRE.

use std::time::Instant;

use super::{ask, clear, lines, picture, tokens};
use crate::{
    args,
    support::{Reply, Server, wait_until},
};

#[test]
fn all_are_taken_in_one_step_or_none_is() {
    let server = Server::start();
    let before = ask(&server, "DLOCK.ACQUIRE other x").int();
    let granted =
        tokens(&ask(&server, "DLOCK.MACQUIRE 3 k3 k1 k2 a PX 60000 LABEL why NOTIFY news"));
    assert!(granted[0] > before, "{granted:?} after {before}");
    assert!(granted.is_sorted_by(|one, next| one < next), "one after the other: {granted:?}");
    for (key, token) in ["k3", "k1", "k2"].into_iter().zip(granted) {
        let info = server.cmd(&["DLOCK.INFO", key]);
        assert_eq!((info.field("token").int(), info.field("holds").int()), (token, 1), "{key}");
        assert_eq!(
            (info.field("owner").text(), info.field("label").text().as_str()),
            ("a".to_owned(), "why")
        );
        assert_eq!(info.field("lease-ms").int(), 60_000);
        assert!((1..=60_000).contains(&info.field("ttl-ms").int()), "{}", info.show());
        assert_eq!(server.cmd(&args!["DLOCK.CHECK", key, token]).int(), 1);
    }
    // With the busy key at any position nothing is taken, and a call that does not wait leaves no place.
    for call in [
        "DLOCK.MACQUIRE 3 k1 f1 f2 b",
        "DLOCK.MACQUIRE 3 f1 k1 f2 b REQID r",
        "DLOCK.MACQUIRE 3 f1 f2 k1 b",
        "DLOCK.MACQUIRE 2 k1 k2 b",
        "DLOCK.MACQUIRE 1 k1 b",
        "DLOCK.MACQUIRE 2 f1 k1 b BLOCK 10",
    ] {
        assert!(ask(&server, call).is_null(), "{call}");
        assert_eq!(picture(&server, "k1 k2 k3 f1 f2"), "k1:a k2:a k3:a f1:- f2:-", "{call}");
    }
    // A lock that the caller holds is not re-entered either.
    ask(&server, "DLOCK.ACQUIRE f1 b").int();
    assert!(ask(&server, "DLOCK.MACQUIRE 3 f1 f2 k1 b").is_null());
    assert_eq!(picture(&server, "f1 f2 k1"), "f1:b f2:- k1:a");
    assert_eq!(tokens(&ask(&server, "DLOCK.MACQUIRE 1 f2 b")).len(), 1);
    let lease = server.cmd(&["DLOCK.INFO", "f2"]).field("lease-ms");
    assert_eq!(lease.int(), 30_000, "the default");
    assert_eq!(server.info_number("dlock", "held_locks"), 6);
    clear(&server);
}

#[test]
fn locks_that_the_owner_holds_are_re_entered() {
    let server = Server::start();
    let long = ask(&server, "DLOCK.ACQUIRE k1 a PX 90000").int();
    let short = ask(&server, "DLOCK.ACQUIRE k2 a PX 5000").int();
    let granted = tokens(&ask(&server, "DLOCK.MACQUIRE 3 k3 k2 k1 a PX 60000"));
    assert_eq!(granted[1..], [short, long], "the tokens of the holds");
    assert!(granted[0] > short);
    assert_eq!(picture(&server, "k1 k2 k3"), "k1:a*2 k2:a*2 k3:a");
    // The lease is extended if the new one ends later, never shortened.
    let ttl = |key: &str| server.cmd(&["DLOCK.INFO", key]).field("ttl-ms").int();
    assert!((60_001..=90_000).contains(&ttl("k1")), "{}", ttl("k1"));
    assert!((5_001..=60_000).contains(&ttl("k2")), "{}", ttl("k2"));
    // A re-entry passes a waiter for one of them.
    ask(&server, "DLOCK.ACQUIRE k1 b QUEUE 60000");
    assert_eq!(tokens(&ask(&server, "DLOCK.MACQUIRE 2 k1 k2 a")), [long, short]);
    assert_eq!(picture(&server, "k1 k2 k3"), "k1:a*3<b k2:a*3 k3:a");
    ask(&server, "DLOCK.CANCEL k1 b");
    clear(&server);
}

#[test]
fn a_repeated_request_counts_nothing_key_by_key() {
    let server = Server::start();
    let call = "DLOCK.MACQUIRE 3 k1 k2 k3 a REQID r";
    let first = tokens(&ask(&server, call));
    assert_eq!(tokens(&ask(&server, call)), first);
    // In another order, and only some of the keys.
    assert_eq!(tokens(&ask(&server, "DLOCK.MACQUIRE 2 k3 k1 a REQID r")), [first[2], first[0]]);
    assert_eq!(picture(&server, "k1 k2 k3"), "k1:a k2:a k3:a");
    // A key that is new to the request, and one that another request re-entered.
    ask(&server, "DLOCK.ACQUIRE k3 a REQID other").int();
    let second = tokens(&ask(&server, "DLOCK.MACQUIRE 4 k1 k2 k3 k4 a REQID r"));
    assert_eq!(second[..3], first);
    assert!(second[3] > first[2], "{second:?} after {first:?}");
    // A lock that has been released.
    ask(&server, "DLOCK.ACQUIRE k9 a REQID r").int();
    assert_eq!(ask(&server, "DLOCK.RELEASE k9 a").int(), 0);
    assert!(ask(&server, "DLOCK.MACQUIRE 2 k1 k9 a REQID r").error().starts_with("SPENT "));
    assert_eq!(picture(&server, "k1 k2 k3 k4"), "k1:a k2:a k3:a*2 k4:a");
    // ACQUIRE of one lock and MACQUIRE count as the same kind of request.
    assert_eq!(ask(&server, "DLOCK.ACQUIRE k4 a REQID r").int(), second[3]);
    ask(&server, "DLOCK.ACQUIRE k5 a REQID r5").int();
    assert_eq!(tokens(&ask(&server, "DLOCK.MACQUIRE 2 k5 k6 a REQID r5")).len(), 2);
    assert_eq!(picture(&server, "k4 k5 k6"), "k4:a k5:a k6:a");
    // Request ids are separate per owner; another id counts.
    assert!(ask(&server, "DLOCK.MACQUIRE 2 k5 k6 b REQID r5").is_null());
    tokens(&ask(&server, "DLOCK.MACQUIRE 2 k5 k6 a REQID r6"));
    assert_eq!(picture(&server, "k5 k6"), "k5:a*2 k6:a*2");
    clear(&server);
}

#[test]
fn a_grant_that_a_place_got_is_claimed() {
    let server = Server::start();
    let mut waiter = server.client();
    ask(&server, "DLOCK.ACQUIRE k1 h").int();
    assert!(waiter.cmd(&["DLOCK.ACQUIRE", "k1", "a", "QUEUE", "50000"]).is_null());
    ask(&server, "DLOCK.RELEASE k1 h").int();
    let token = server.cmd(&["DLOCK.INFO", "k1"]).field("token").int();
    let granted = tokens(&ask(&server, "DLOCK.MACQUIRE 2 k2 k1 a PX 90000"));
    assert_eq!(granted[1], token);
    assert_eq!(picture(&server, "k1 k2"), "k1:a k2:a", "a claim is not a re-entry");
    assert!(server.cmd(&["DLOCK.INFO", "k1"]).field("ttl-ms").int() > 50_000);
    assert_eq!(server.info_number("dlock", "waiters_queued"), 0);
    // The connection of the place no longer affects it.
    drop(waiter);
    assert_eq!(ask(&server, "DLOCK.MRELEASE 2 k1 k2 a").int(), 2);
    server.left_over_check();
}

#[test]
fn transactions_do_not_wait() {
    let server = Server::start();
    let mut client = server.client();
    ask(&server, "DLOCK.ACQUIRE busy h").int();
    let replies = client.pipeline(&[
        args!["MULTI"],
        args!["DLOCK.MACQUIRE", 2, "k1", "busy", "a", "BLOCK", 0],
        args!["DLOCK.POSITION", "k1", "a"],
        args!["DLOCK.MACQUIRE", 2, "k1", "k2", "a", "BLOCK", 0, "BIND", 0],
        args!["DLOCK.MACQUIRE", 2, "k2", "k3", "a"],
        args!["DLOCK.MRENEW", 3, "k1", "k2", "k3", "a", "PX", 90_000],
        args!["DLOCK.MRELEASE", 2, "k2", "k3", "a"],
        args!["DLOCK.ANYACQUIRE", 1, "busy", "a", "BLOCK", 0],
        args!["EXEC"],
    ]);
    let replies = replies[8].items();
    assert!(replies[0].is_null() && replies[1].is_null() && replies[6].is_null());
    assert_eq!((tokens(&replies[2]).len(), tokens(&replies[3]).len()), (2, 2));
    assert_eq!((replies[4].int(), replies[5].int()), (3, 2));
    assert_eq!(picture(&server, "busy k1 k2 k3"), "busy:h k1:a k2:a k3:-");
    // It has a connection, and loses its holds with it.
    drop(client);
    wait_until("the ties to be cut", || server.keys() == 1);
    clear(&server);
}

#[test]
fn scripts_do_not_wait_and_have_no_connection() {
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE busy h").int();
    let run = |call: &str| {
        let mut all = vec!["EVAL", "return redis.call(unpack(ARGV))", "3", "busy", "k1", "k2"];
        all.extend(call.split(' '));
        server.cmd(&all)
    };
    assert!(run("DLOCK.MACQUIRE 2 k1 busy a BLOCK 0").is_null());
    assert!(run("DLOCK.ANYACQUIRE 1 busy a BLOCK 1000").is_null());
    for call in ["DLOCK.MACQUIRE 2 k1 k2 a BIND 0", "DLOCK.ANYACQUIRE 2 k1 k2 a BIND 0"] {
        let refusal = run(call).error();
        assert!(refusal.starts_with("ERR BIND cannot be used in a script"), "{refusal}");
    }
    assert_eq!(picture(&server, "busy k1 k2"), "busy:h k1:- k2:-");
    let granted = tokens(&run("DLOCK.MACQUIRE 2 k1 k2 a BLOCK 0 REQID r"));
    assert_eq!(tokens(&run("DLOCK.MACQUIRE 2 k1 k2 a REQID r")), granted);
    assert_eq!(run("DLOCK.MRENEW 2 k1 k2 a PX 90000").int(), 2);
    let any = run("DLOCK.ANYACQUIRE 2 k2 busy a").items();
    assert_eq!((any[0].text().as_str(), any[1].int()), ("k2", granted[1]));
    assert_eq!(picture(&server, "k1 k2"), "k1:a k2:a*2");
    assert_eq!(run("DLOCK.MRELEASE 3 k1 k2 busy a").int(), 2);
    clear(&server);
}

#[test]
fn two_hundred_thousand_free_locks_are_taken_in_one_call() {
    const LOCKS: usize = 200_000;
    let server = Server::start();
    let call = |name: &str, owner: &str| {
        let mut all = args![name, LOCKS];
        all.extend((0..LOCKS).map(|n| format!("lock:{n}").into_bytes()));
        all.extend(args![owner, "PX", 600_000]);
        all
    };
    let start = Instant::now();
    let reply = lines(&server, &call("DLOCK.MACQUIRE", "a"), LOCKS + 1);
    println!("{LOCKS} free locks taken in {:.0?}, with all checks of the core", start.elapsed());
    assert_eq!(reply[0], format!("*{LOCKS}"));
    let granted: Vec<i64> =
        reply[1..].iter().map(|line| line[1..].parse().expect("a token")).collect();
    assert!(granted.is_sorted_by(|one, next| one < next));
    assert_eq!(server.info_number("dlock", "held_locks"), 200_000);
    assert_eq!(lines(&server, &call("DLOCK.MACQUIRE", "b"), 1), ["$-1"]);
    assert_eq!(lines(&server, &call("DLOCK.MRENEW", "a"), 1), [":200000"]);
    let mut release = call("DLOCK.MRELEASE", "a");
    release.truncate(LOCKS + 3);
    assert_eq!(lines(&server, &release, 1), [":200000"]);
    server.left_over_check();
}
