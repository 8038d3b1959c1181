//! `dlock watch`

use std::process::Stdio;

use dlock_testing::{Reply as _, Server};
use serde_json::Value;

use crate::command::{Running, dlock, output};

fn watch(server: &Server, options: &[&str]) -> Running {
    let mut command = dlock(server, &["watch"]);
    command.args(options).stdin(Stdio::null());
    Running::start(command)
}

/// The next line without its time.
#[track_caller]
fn event(running: &mut Running) -> String {
    let line = running.line();
    let (time, event) = line.split_once(' ').expect("a time");
    assert!(time.len() == 24 && time.ends_with('Z'), "{line}");
    event.to_owned()
}

#[test]
fn holders_of_a_lock() {
    let server = Server::start();
    for family in ["DLOCK", "DFAIR"] {
        let acquire = format!("{family}.ACQUIRE");
        let mut running = watch(&server, &["k"]);
        assert_eq!(event(&mut running), "free");
        let token = server.cmd(&[&acquire, "k", "alice", "PX", "600000", "LABEL", "a b"]).int();
        assert_eq!(event(&mut running), format!("held alice, token {token}, label \"a b\""));
        let mut bob = server.block(&[&acquire, "k", "bob", "BLOCK", "0"]);
        server.cmd(&[&format!("{family}.BREAK"), "k"]).ok();
        let next = bob.expect_reply(dlock_testing::SOON).int();
        assert_eq!(
            event(&mut running),
            format!("ended alice, token {token}, label \"a b\": broken")
        );
        assert_eq!(event(&mut running), format!("held bob, token {next}"));
        server.cmd(&[&format!("{family}.RELEASE"), "k", "bob"]);
        assert_eq!(event(&mut running), format!("ended bob, token {next}: released"));
        assert_eq!(event(&mut running), "free");
        drop(running);
        server.left_over_check();
    }
}

#[test]
fn the_other_families() {
    let server = Server::start();
    let mut running = watch(&server, &["page"]);
    assert_eq!(event(&mut running), "free");
    let token = server.cmd(&["DRW.ACQUIRE", "page", "alice", "READ", "PX", "600000"]).int();
    assert_eq!(event(&mut running), format!("held alice, read, token {token}"));
    server.cmd(&["DEL", "page"]).ok();
    assert_eq!(event(&mut running), format!("ended alice, read, token {token}"));
    assert_eq!(event(&mut running), "free");

    let acquire = ["DSEM.ACQUIRE", "sem", "alice", "LIMIT", "5", "COUNT", "2", "PX", "600000"];
    let permit = server.cmd(&acquire).text();
    let mut running = watch(&server, &["sem"]);
    assert_eq!(event(&mut running), format!("held alice, permit {permit} (counts 2)"));
    server.cmd(&["DSEM.RELEASE", "sem", &permit]);
    assert_eq!(event(&mut running), format!("ended alice, permit {permit} (counts 2)"));

    server.cmd(&["DLATCH.INIT", "latch", "2"]).ok();
    let mut running = watch(&server, &["latch"]);
    assert_eq!(event(&mut running), "count 2 of 2 to go");
    server.cmd(&["DLATCH.COUNTDOWN", "latch"]);
    assert_eq!(event(&mut running), "count 1 of 2 to go");
    server.cmd(&["DLATCH.COUNTDOWN", "latch"]);
    assert_eq!(event(&mut running), "gone");
}

#[test]
fn lines_for_programs_and_a_last_one() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "alice", "PX", "600000"]).ok();
    let mut running = watch(&server, &["--json", "--count", "2", "k"]);
    let held: Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!((&held["event"], &held["owner"]), (&"held".into(), &"alice".into()));
    server.cmd(&["DLOCK.RELEASE", "k", "alice"]);
    let ended: Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!(
        (&ended["event"], &ended["how"], &ended["token"]),
        (&"ended".into(), &"released".into(), &held["token"])
    );
    let end = running.output();
    assert_eq!((end.code, end.stdout.as_str(), end.stderr.as_str()), (0, "", ""));
}

#[test]
fn a_server_that_goes_away_is_waited_for() {
    let mut server = Server::start();
    let mut running = watch(&server, &["k"]);
    assert_eq!(event(&mut running), "free");
    server.kill9();
    assert!(event(&mut running).starts_with("unreachable, trying again: "));
    server.start_again();
    assert_eq!(event(&mut running), "reachable");
    let token = server.cmd(&["DLOCK.ACQUIRE", "k", "alice", "PX", "600000"]).int();
    assert_eq!(event(&mut running), format!("held alice, token {token}"));
    server.cmd(&["DEL", "k"]).ok();
}

#[test]
fn no_lock_is_an_error_at_once() {
    let server = Server::start();
    server.cmd(&["SET", "text", "1"]).ok();
    let wrong = output(&server, &["watch", "text"]);
    assert!(wrong.code == 69 && wrong.stderr.contains("\"text\": WRONGTYPE"), "{wrong:?}");
}
