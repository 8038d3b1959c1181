//! `dlock break` and `dlock unblock`.

use dlock_testing::{Reply as _, SOON, Server};

use crate::command::{Output, output, stdout};

/// Checks that nothing was done, and the reason in the message.
#[track_caller]
fn refused(server: &Server, args: &[&str], code: i32, text: &str) {
    let expected = Output { code, stdout: String::new(), stderr: format!("dlock: {text}\n") };
    assert_eq!(output(server, args), expected, "{args:?}");
}

#[test]
fn a_broken_lock_goes_to_the_next() {
    let server = Server::start();
    for family in ["DLOCK", "DFAIR"] {
        let acquire = format!("{family}.ACQUIRE");
        server.cmd(&[&acquire, "k", "alice"]).ok();
        let mut bob = server.block(&[&acquire, "k", "bob", "BLOCK", "0"]);
        refused(
            &server,
            &["break", "k", "alice"],
            64,
            "\"k\" has one holder at most: leave OWNER out to break its hold",
        );
        assert_eq!(stdout(&server, &["break", "k"]), "broken: 1 hold of k\n");
        assert!(bob.expect_reply(SOON).int() > 0);
        assert_eq!(stdout(&server, &["break", "--json", "k"]), "{\n  \"broken\": 1\n}\n");
        refused(&server, &["break", "k"], 1, "there is no lock \"k\"");
        server.left_over_check();
    }
}

#[test]
fn holds_of_a_read_write_lock() {
    let server = Server::start();
    for owner in ["a", "b", "c"] {
        server.cmd(&["DRW.ACQUIRE", "k", owner, "READ"]).ok();
    }
    refused(&server, &["break", "k", "zoe"], 1, "\"zoe\" does not hold \"k\"");
    assert_eq!(stdout(&server, &["break", "k", "a"]), "broken: 1 hold of k\n");
    assert_eq!(stdout(&server, &["break", "k"]), "broken: 2 holds of k\n");
    server.left_over_check();
}

#[test]
fn permits_of_a_semaphore() {
    let server = Server::start();
    let id = server.cmd(&["DSEM.ACQUIRE", "s", "alice", "LIMIT", "2"]).text();
    refused(
        &server,
        &["break", "s"],
        64,
        "\"s\" is a semaphore: name a permit (`dlock info` shows their ids)",
    );
    refused(&server, &["break", "s", "x"], 64, "cannot break \"s\": \"x\" is not a permit id");
    let other = "4a3cbb2d-76ae-416a-80b4-d11edb1a7273";
    refused(&server, &["break", "s", other], 1, &format!("\"s\" has no permit {other}"));
    assert_eq!(stdout(&server, &["break", "s", &id]), "broken: 1 permit of s\n");
    server.left_over_check();
}

#[test]
fn a_latch_cannot_be_broken() {
    let server = Server::start();
    server.cmd(&["DLATCH.INIT", "l", "2"]).ok();
    refused(
        &server,
        &["break", "l"],
        64,
        "\"l\" is a latch: nobody holds it, so there is nothing to break",
    );
    server.cmd(&["DEL", "l"]).ok();
}

#[test]
fn blocked_calls_are_ended() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "alice"]).ok();
    let mut bob = server.block(&["DLOCK.ACQUIRE", "k", "bob", "BLOCK", "0"]);
    let id = bob.id().to_string();
    assert_eq!(stdout(&server, &["unblock", &id]), format!("unblocked: client {id}\n"));
    assert!(bob.expect_reply(SOON).is_null());
    let mut carol = server.block(&["DLOCK.ACQUIRE", "k", "carol", "BLOCK", "0"]);
    let id = carol.id().to_string();
    assert_eq!(
        stdout(&server, &["unblock", &id, "--error", "--json"]),
        "{\n  \"unblocked\": true\n}\n"
    );
    assert!(carol.expect_reply(SOON).error().starts_with("STOPPED "));
    let text =
        format!("client {id} has no blocked call (its number may be that of another server)");
    refused(&server, &["unblock", &id], 1, &text);
    server.cmd(&["DEL", "k"]).ok();
    server.left_over_check();
}
