//! Immediate replies of MACQUIRE.

use std::time::Instant;

use super::{clear, lines, picture, tokens};
use crate::{
    args,
    support::{Reply, Server, wait_until},
};

#[test]
fn transactions_do_not_wait() {
    let server = Server::start();
    let mut client = server.client();
    server.ask("DLOCK.ACQUIRE busy h").int();
    let replies = client.pipeline(&[
        args!["MULTI"],
        args!["DLOCK.MACQUIRE", 2, "k1", "busy", "a", "BLOCK", 0],
        args!["DLOCK.POSITION", "k1", "a"],
        args!["DLOCK.MACQUIRE", 2, "k1", "k2", "a", "BLOCK", 0, "BIND", 0],
        args!["DLOCK.MACQUIRE", 2, "k2", "k3", "a", "BIND", 0],
        args!["DLOCK.MRENEW", 3, "k1", "k2", "k3", "a", "PX", 90_000, "BIND", 0],
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
    server.ask("DLOCK.ACQUIRE busy h").int();
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
fn as_many_free_locks_as_a_call_may_name_are_taken_at_once() {
    const LOCKS: usize = 4_096;
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
    assert_eq!(server.info_number("dlock", "held_locks"), 4_096);
    assert_eq!(lines(&server, &call("DLOCK.MACQUIRE", "b"), 1), ["$-1"]);
    assert_eq!(lines(&server, &call("DLOCK.MRENEW", "a"), 1), [":4096"]);
    let mut release = call("DLOCK.MRELEASE", "a");
    release.truncate(LOCKS + 3);
    assert_eq!(lines(&server, &release, 1), [":4096"]);
    server.left_over_check();
}
