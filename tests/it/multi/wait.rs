//! Events that grant a blocked MACQUIRE, and changes of its keys meanwhile.

use std::time::Instant;

use super::{ask, clear, picture, tokens, wait};
use crate::{
    args,
    scene::assert_lasted,
    support::{Blocked, Reply, SOON, Server, wait_until},
};

/// Holds `busy` as `h` with a lease of a minute; `m` waits for that one and two free ones.
fn scene(server: &Server) -> Blocked {
    ask(server, "DLOCK.ACQUIRE busy h PX 60000").int();
    wait(server, "DLOCK.MACQUIRE 3 f1 busy f2 m PX 50000 BLOCK 0")
}

fn end(server: &Server, mut m: Blocked) {
    let granted = tokens(&m.expect_reply(SOON));
    assert!(granted.is_sorted_by(|one, next| one < next), "{granted:?}");
    assert_eq!(picture(server, "f1 busy f2"), "f1:m busy:m f2:m");
    for key in ["f1", "busy", "f2"] {
        let ttl = server.cmd(&["DLOCK.INFO", key]).field("ttl-ms").int();
        assert!((40_000..=50_000).contains(&ttl), "the lease begins with the grant: {ttl}");
    }
    assert_eq!(ask(server, "DLOCK.MRELEASE 3 f1 f2 busy m").int(), 3);
    server.left_over_check();
}

#[test]
fn every_end_of_the_holders_hold_brings_the_grant() {
    let server = Server::start();
    for way in [
        "DLOCK.RELEASE busy h",
        "DLOCK.MRELEASE 2 other busy h",
        "DLOCK.BREAK busy",
        "DLOCK.RENEW busy h PX 20",
        "DLOCK.MRENEW 1 busy h PX 20",
        "DEL busy",
        "UNLINK busy",
        "PEXPIRE busy 20",
        "RENAME busy elsewhere",
        "MOVE busy 3",
        "FLUSHDB",
        "FLUSHALL ASYNC",
    ] {
        println!("{way}");
        let m = scene(&server);
        ask(&server, way).ok();
        // The hold lives on under its new name.
        let mut client = server.client();
        client.cmd(&["DEL", "elsewhere"]).ok();
        client.cmd(&["SELECT", "3"]).ok();
        client.cmd(&["DEL", "busy"]).ok();
        end(&server, m);
    }
}

#[test]
fn a_tie_that_is_cut_brings_the_grant() {
    let server = Server::start();
    let mut bound = server.client();
    bound.cmd(&["DLOCK.ACQUIRE", "busy", "h", "BIND", "0"]).int();
    let m = wait(&server, "DLOCK.MACQUIRE 3 f1 busy f2 m PX 50000 BLOCK 0");
    drop(bound);
    end(&server, m);
}

/// All or nothing, for any event on one of several busy locks.
#[test]
fn an_event_on_one_of_several_busy_locks_grants_none() {
    let server = Server::start();
    for way in ["DLOCK.BREAK b1", "DEL b1", "DLOCK.RENEW b1 h PX 1", "PEXPIRE b1 1"] {
        for key in ["b1", "b2"] {
            ask(&server, &format!("DLOCK.ACQUIRE {key} h")).int();
        }
        let mut m = wait(&server, "DLOCK.MACQUIRE 3 b1 f b2 m BLOCK 0");
        let mut behind = wait(&server, "DLOCK.ACQUIRE b1 x BLOCK 0");
        ask(&server, way).ok();
        wait_until("the hold to end", || picture(&server, "b1") == "b1:-<m<x");
        assert_eq!(picture(&server, "f b2"), "f:-<m b2:h<m");
        m.assert_no_reply();
        // The holder that lost it may request it again, and waits at the end.
        assert!(ask(&server, "DLOCK.ACQUIRE b1 h").is_null(), "{way}");
        ask(&server, "DLOCK.RELEASE b2 h").int();
        tokens(&m.expect_reply(SOON));
        assert_eq!(picture(&server, "b1 f b2"), "b1:m<x f:m b2:m");
        assert_eq!(ask(&server, "DLOCK.MRELEASE 3 b1 f b2 m").int(), 3);
        behind.expect_reply(SOON).int();
        ask(&server, "DLOCK.RELEASE b1 x").int();
        server.left_over_check();
    }
}

#[test]
fn a_value_of_another_type_over_one_of_the_keys_ends_the_wait() {
    let server = Server::start();
    for key in ["f1", "busy", "f2"] {
        let mut m = scene(&server);
        let mut behind: Vec<Blocked> = ["f1", "busy", "f2"]
            .into_iter()
            .map(|key| wait(&server, &format!("DLOCK.ACQUIRE {key} x BLOCK 0")))
            .collect();
        server.cmd(&["SET", key, "text"]).ok();
        if key != "busy" {
            // The value removed no lock: it is noticed when the call needs the key.
            ask(&server, "DLOCK.RELEASE busy h").int();
        }
        let refusal = m.expect_reply(SOON).error();
        assert!(refusal.starts_with("WRONGTYPE "), "{key}: {refusal}");
        // It has left every queue: the next waiter is first now, except for a string key.
        for (other, waiter) in ["f1", "busy", "f2"].into_iter().zip(&mut behind) {
            if other == key {
                assert!(waiter.expect_reply(SOON).error().starts_with("WRONGTYPE "), "{key}");
                continue;
            }
            waiter.expect_reply(SOON).int();
            assert_eq!(picture(&server, other), format!("{other}:x"));
        }
        clear(&server);
    }
}

/// A value that appears under a name with only waiters, and is removed again within one turn of the server's loop.
#[test]
fn a_temporary_value_of_another_type_is_noticed_or_harmless() {
    let server = Server::start();
    let mut m = scene(&server);
    let mut client = server.client();
    client.pipeline(&[
        args!["MULTI"],
        args!["SET", "f1", "text"],
        args!["DEL", "f1"],
        args!["EXEC"],
    ]);
    ask(&server, "DLOCK.RELEASE busy h").int();
    let reply = m.expect_reply(SOON);
    if let redis::Value::ServerError(_) = &reply {
        assert!(reply.error().starts_with("WRONGTYPE "), "{}", reply.show());
        assert_eq!(picture(&server, "f1 busy f2"), "f1:- busy:- f2:-");
    } else {
        assert_eq!(tokens(&reply).len(), 3);
        assert_eq!(picture(&server, "f1 busy f2"), "f1:m busy:m f2:m");
    }
    clear(&server);
}

#[test]
fn a_lock_closed_by_lock_delay_is_waited_for() {
    let server = Server::with(&["dlock.lock-delay-ms", "3000"]).start();
    ask(&server, "DLOCK.ACQUIRE busy h").int();
    let mut m = wait(&server, "DLOCK.MACQUIRE 2 free busy m BLOCK 0");
    let broken = Instant::now();
    ask(&server, "DLOCK.BREAK busy").int();
    assert!(ask(&server, "DLOCK.MACQUIRE 1 busy x").is_null());
    assert_eq!(picture(&server, "free busy"), "free:-<m busy:-<m");
    tokens(&m.expect_reply(SOON));
    assert_lasted(broken, 3_000);
    ask(&server, "CONFIG SET dlock.lock-delay-ms 0").ok();
    clear(&server);
}

#[test]
fn nothing_is_granted_while_writes_are_refused() {
    let server = Server::start();
    let mut m = scene(&server);
    ask(&server, "DLOCK.RENEW busy h PX 2000").int();
    ask(&server, "CONFIG SET min-replicas-to-write 1").ok();
    wait_until("the end of the lease", || picture(&server, "busy") == "busy:-<m");
    for call in [
        "DLOCK.MACQUIRE 2 x1 x2 x",
        "DLOCK.MACQUIRE 2 x1 x2 x BLOCK 0",
        "DLOCK.ANYACQUIRE 2 x1 x2 x",
        "DLOCK.MRELEASE 1 busy h",
        "DLOCK.MRENEW 1 busy h",
    ] {
        let refusal = ask(&server, call).error();
        assert!(refusal.starts_with("NOREPLICAS "), "{call}: {refusal}");
    }
    m.assert_no_reply();
    assert_eq!(picture(&server, "f1 busy f2"), "f1:-<m busy:-<m f2:-<m");
    ask(&server, "CONFIG SET min-replicas-to-write 0").ok();
    end(&server, m);
}
