//! Calls for several locks that are refused because of the state of the server or of the caller.

use super::{clear, picture};
use crate::{
    commands::user,
    scene::assert_sent_away,
    support::{Reply, SOON, Server, words},
};

#[test]
fn the_right_to_each_key_is_needed() {
    let server = Server::start();
    server.ask("DLOCK.MACQUIRE 2 mine:1 theirs:1 u").ok();
    let mut client = user(&server, &["+@all", "&*", "~mine:*"]);
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
        let mut client = user(&server, &["+@all", "&*", pattern]);
        let refusal = client.cmd(&words("DLOCK.MACQUIRE 2 mine:1 mine:2 u")).error();
        assert!(refusal.starts_with("NOPERM "), "{pattern}: {refusal}");
    }
    // NOTIFY requires the right to publish.
    let mut client = user(&server, &["+@all", "&mine:*", "~*"]);
    for name in ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE"] {
        let call = format!("{name} 2 new:1 new:2 u NOTIFY other");
        let refusal = client.cmd(&words(&call)).error();
        assert!(refusal.starts_with("NOPERM "), "{refusal}");
        assert_eq!(picture(&server, "new:1 new:2"), "new:1:- new:2:-");
    }
    clear(&server);
}

#[test]
fn a_server_that_becomes_a_replica_sends_them_away() {
    let other = Server::start();
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE busy h").int();
    let mut m = server.wait("DLOCK.MACQUIRE 3 f1 busy f2 m BLOCK 0");
    let mut any = server.wait("DLOCK.ANYACQUIRE 2 busy f1 a BLOCK 0");
    server.cmd(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).ok();
    for waiter in [&mut m, &mut any] {
        assert_sent_away(&waiter.expect_reply(SOON));
    }
    for call in [
        "DLOCK.MACQUIRE 2 f1 f2 m BLOCK 0",
        "DLOCK.ANYACQUIRE 2 f1 f2 m",
        "DLOCK.MRELEASE 2 f1 f2 m",
        "DLOCK.MRENEW 2 f1 f2 m",
    ] {
        let refusal = server.ask(call).error();
        assert!(refusal.starts_with("READONLY "), "{call}: {refusal}");
    }
    server.wait_linked();
    assert_eq!(picture(&server, "f1 busy f2"), "f1:- busy:- f2:-");
    server.ask("REPLICAOF NO ONE").ok();
    server.left_over_check();
}
