//! A lost lock ends the command.

use std::time::{Duration, Instant};

use dlock_testing::{Reply as _, Server, wait_until};

use crate::command::{Running, lives};

const POLITE: &str = "trap 'echo ending; exit 0' TERM; echo ready; while :; do sleep 0.02; done";

#[test]
fn a_command_with_a_broken_lock_is_asked_to_end() {
    let server = Server::start();
    for (how, said) in [
        (&["DLOCK.BREAK", "k"][..], "an operator broke it"),
        (&["DEL", "k"], "its key was deleted"),
        (&["FLUSHALL"], "the database was flushed"),
    ] {
        let mut running = Running::run(&server, &["k", "--", "sh", "-c", POLITE]);
        assert_eq!(running.line(), "ready");
        server.cmd(how).ok();
        assert_eq!(running.line(), "ending");
        let output = running.output();
        let text = format!("dlock: the lock \"k\" is lost: {said}; ending the command\n");
        // The shell may add a line about the process that it ended.
        assert!(output.code == 75 && output.stderr.contains(&text), "{how:?}: {output:?}");
        server.left_over_check();
    }
}

#[test]
fn a_lease_of_its_own_is_not_renewed() {
    let server = Server::start();
    let start = Instant::now();
    let mut running = Running::run(&server, &["k", "--lease", "3", "--", "sh", "-c", POLITE]);
    assert_eq!(running.line(), "ready");
    assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("lease-ms").int(), 3_000);
    assert_eq!(running.line(), "ending");
    // The client gives up shortly before the server would.
    assert!(start.elapsed() >= Duration::from_millis(2_900), "{:?}", start.elapsed());
    let output = running.output();
    let text = "dlock: the lock \"k\" is lost: its lease ran out; ending the command\n";
    assert!(output.code == 75 && output.stderr.contains(text), "{output:?}");
    server.left_over_check();
}

#[test]
fn a_permit_can_be_lost_too() {
    let server = Server::start();
    let script = format!("echo $DLOCK_PERMIT; {POLITE}");
    let mut running = Running::run(&server, &["s", "--limit", "1", "--", "sh", "-c", &script]);
    let permit = running.line();
    assert_eq!(running.line(), "ready");
    assert_eq!(server.cmd(&["DSEM.BREAK", "s", &permit]).int(), 1);
    assert_eq!(running.line(), "ending");
    assert_eq!(running.output().code, 75);
    server.left_over_check();
}

#[test]
fn a_command_that_does_not_end_is_killed_with_its_children() {
    let server = Server::start();
    let script = "trap '' TERM; sleep 60 & echo $!; echo $$; wait; sleep 60";
    let mut running = Running::run(&server, &["k", "--grace", "300ms", "--", "sh", "-c", script]);
    let (grandchild, child) = (running.line(), running.line());
    let start = Instant::now();
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    assert_eq!(running.output().code, 75);
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    wait_until("all of them to be gone", || !lives(&child) && !lives(&grandchild));
    server.left_over_check();
}

#[test]
fn children_that_outlive_the_command_are_ended_too() {
    let server = Server::start();
    // The command itself ends at once on request; its child does not.
    let script = "(trap '' TERM; exec sleep 60) & echo $!; exec sleep 60";
    let mut running = Running::run(&server, &["k", "--grace", "200ms", "--", "sh", "-c", script]);
    let grandchild = running.line();
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    assert_eq!(running.output().code, 75);
    wait_until("it to be gone", || !lives(&grandchild));
    server.left_over_check();
}

#[test]
fn a_stopped_command_is_ended_as_well() {
    let server = Server::start();
    let mut running =
        Running::run(&server, &["k", "--", "sh", "-c", "echo $$; kill -STOP $$; sleep 60"]);
    let child = running.line();
    wait_until("it to be stopped", || crate::command::state(&child) == Some('T'));
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    assert_eq!(running.output().code, 75);
    assert!(!lives(&child));
    server.left_over_check();
}

#[test]
fn the_next_waiter_runs_undisturbed_by_the_former_holder() {
    let server = Server::start();
    let mut first = Running::run(&server, &["k", "--", "sh", "-c", POLITE]);
    assert_eq!(first.line(), "ready");
    let mut second = Running::run(&server, &["k", "--", "sh", "-c", "echo second; read line"]);
    wait_until("the second to wait", || {
        server.cmd(&["DLOCK.INFO", "k"]).field("waiters").int() == 1
    });
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    assert_eq!(second.line(), "second");
    assert_eq!(first.line(), "ending");
    assert_eq!(first.output().code, 75);
    let holder = server.cmd(&["DLOCK.INFO", "k"]).field("owner").text();
    assert!(holder.contains(&format!(":{}:", second.pid())), "{holder}");
    second.type_line("end");
    assert_eq!(second.output().code, 0);
    server.left_over_check();
}
