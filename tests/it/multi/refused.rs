//! Calls for several locks that are refused because of the state of the server or of the caller.

use super::{ask, clear, picture, tokens, wait, words};
use crate::support::{Client, Reply, SOON, Server, wait_until};

#[test]
fn a_full_queue_refuses_the_whole_call() {
    let server = Server::with(&["dlock.max-waiters-per-key", "2"]).start();
    ask(&server, "DLOCK.MACQUIRE 2 b1 b2 h").ok();
    let full = ["x", "y"].map(|owner| wait(&server, &format!("DLOCK.ACQUIRE b2 {owner} BLOCK 0")));
    for call in [
        "DLOCK.MACQUIRE 3 f b1 b2 m BLOCK 0",
        "DLOCK.MACQUIRE 2 b2 b1 m BLOCK 0",
        "DLOCK.MACQUIRE 1 b2 m BLOCK 10",
        "DLOCK.ANYACQUIRE 1 b2 m BLOCK 0",
    ] {
        let refusal = ask(&server, call).error();
        assert!(refusal.starts_with("LIMIT "), "{call}: {refusal}");
        assert_eq!(picture(&server, "f b1 b2"), "f:- b1:h b2:h<x<y", "{call}");
    }
    // A call that need not wait is not refused.
    assert!(ask(&server, "DLOCK.MACQUIRE 2 b1 b2 m").is_null());
    tokens(&ask(&server, "DLOCK.MACQUIRE 3 f b1 b2 h BLOCK 0"));
    let mut m = wait(&server, "DLOCK.MACQUIRE 2 b1 f m BLOCK 0");
    for _ in 0..2 {
        ask(&server, "DLOCK.MRELEASE 2 b1 f h").int();
    }
    tokens(&m.expect_reply(SOON));
    drop(full);
    wait_until("the others to be gone", || picture(&server, "b2") == "b2:h*2");
    clear(&server);
}

#[test]
fn a_server_that_isfull_of_waiters_refuses_the_call() {
    let server = Server::with(&["dlock.max-waiters", "2"]).start();
    ask(&server, "DLOCK.MACQUIRE 3 b1 b2 b3 h").ok();
    let one = wait(&server, "DLOCK.ACQUIRE b1 x BLOCK 0");
    let two = wait(&server, "DLOCK.ACQUIRE b2 y BLOCK 0");
    for call in ["DLOCK.MACQUIRE 2 b3 f m BLOCK 0", "DLOCK.ANYACQUIRE 1 b3 m BLOCK 0"] {
        let refusal = ask(&server, call).error();
        assert!(refusal.starts_with("LIMIT "), "{call}: {refusal}");
        assert_eq!(picture(&server, "b3 f"), "b3:h f:-");
    }
    drop((one, two));
    server.wait_blocked(0);
    let mut m = wait(&server, "DLOCK.MACQUIRE 2 b3 f m BLOCK 0");
    ask(&server, "DLOCK.RELEASE b3 h").int();
    tokens(&m.expect_reply(SOON));
    clear(&server);
}

#[test]
fn during_a_quarantine_only_held_locks_are_re_entered() {
    let mut server =
        Server::with(&["dlock.restart-quarantine-ms", "5000", "save", "3600 1"]).start();
    wait_until("the end of the first quarantine", || {
        server.info_number("dlock", "quarantine_left_ms") == 0
    });
    let granted = tokens(&ask(&server, "DLOCK.MACQUIRE 2 k1 k2 a PX 600000 REQID r"));
    server.shutdown(&["SAVE"]);
    server.start_again();
    for call in
        ["DLOCK.MACQUIRE 2 f1 f2 b", "DLOCK.MACQUIRE 2 k1 f2 a", "DLOCK.ANYACQUIRE 2 f1 f2 b"]
    {
        let refusal = ask(&server, call).error();
        assert!(refusal.starts_with("QUARANTINE "), "{call}: {refusal}");
    }
    assert_eq!(tokens(&ask(&server, "DLOCK.MACQUIRE 2 k1 k2 a REQID r")), granted);
    assert_eq!(tokens(&ask(&server, "DLOCK.MACQUIRE 2 k1 k2 a")), granted);
    let any = ask(&server, "DLOCK.ANYACQUIRE 2 f1 k2 a").items();
    assert_eq!((any[0].text().as_str(), any[1].int()), ("k2", granted[1]));
    assert_eq!(ask(&server, "DLOCK.MRENEW 2 k1 k2 a").int(), 2);
    let mut waiter = wait(&server, "DLOCK.MACQUIRE 2 f1 f2 b BLOCK 0");
    let mut any = wait(&server, "DLOCK.ANYACQUIRE 2 f3 f4 c BLOCK 0");
    assert_eq!(ask(&server, "DLOCK.MRELEASE 2 k1 k2 a").int(), 2);
    assert!(server.info_number("dlock", "quarantine_left_ms") > 0, "too slow to tell anything");
    waiter.assert_no_reply();
    tokens(&waiter.expect_reply(SOON));
    any.expect_reply(SOON).ok();
    assert_eq!(server.info_number("dlock", "quarantine_left_ms"), 0);
    clear(&server);
}

/// A connection of a user with all commands on keys that begin with `mine:`.
fn user(server: &Server, pattern: &str) -> Client {
    server.cmd(&["ACL", "SETUSER", "u", "reset", "on", "nopass", "+@all", "&*", pattern]).ok();
    let mut client = server.client();
    client.cmd(&["AUTH", "u", "x"]).ok();
    client
}

#[test]
fn the_right_to_each_key_is_needed() {
    let server = Server::start();
    ask(&server, "DLOCK.MACQUIRE 2 mine:1 theirs:1 u").ok();
    let mut client = user(&server, "~mine:*");
    for name in ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE", "DLOCK.MRELEASE", "DLOCK.MRENEW"] {
        for keys in ["mine:1 theirs:1", "theirs:1 mine:1", "mine:1 mine:2 mine:3 theirs:2"] {
            let call = format!("{name} {} {keys} u", keys.split(' ').count());
            let refusal = client.cmd(&words(&call)).error();
            assert!(refusal.starts_with("NOPERM "), "{call}: {refusal}");
        }
    }
    assert_eq!(
        picture(&server, "mine:1 mine:2 theirs:1"),
        "mine:1:u mine:2:- theirs:1:u",
        "nothing was done"
    );
    assert_eq!(client.cmd(&words("DLOCK.MACQUIRE 2 mine:1 mine:2 u")).items().len(), 2);
    assert_eq!(client.cmd(&words("DLOCK.MRENEW 2 mine:1 mine:2 u")).int(), 2);
    assert_eq!(client.cmd(&words("DLOCK.MRELEASE 2 mine:1 mine:2 u")).int(), 2);
    // Only reading, or only writing, is not enough.
    for pattern in ["%R~mine:*", "%W~mine:*"] {
        let mut client = user(&server, pattern);
        let refusal = client.cmd(&words("DLOCK.MACQUIRE 2 mine:1 mine:2 u")).error();
        assert!(refusal.starts_with("NOPERM "), "{pattern}: {refusal}");
    }
    // NOTIFY requires the right to publish.
    server.cmd(&["ACL", "SETUSER", "u", "resetchannels", "&mine:*", "~*"]).ok();
    let mut client = server.client();
    client.cmd(&["AUTH", "u", "x"]).ok();
    for name in ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE"] {
        let call = format!("{name} 2 new:1 new:2 u NOTIFY other");
        let refusal = client.cmd(&words(&call)).error();
        assert!(refusal.starts_with("NOPERM "), "{refusal}");
        assert_eq!(picture(&server, "new:1 new:2"), "new:1:- new:2:-");
    }
    clear(&server);
}
