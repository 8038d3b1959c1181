//! Signals reach the command. During the wait for the lock they end the wait.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use dlock_testing::{Reply as _, Server, wait_until};
use nix::sys::signal::Signal;

use crate::command::{Running, for_server, lives, output, state, with_signals};

#[test]
fn signals_are_passed_on() {
    let server = Server::start();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGWINCH,
    ] {
        let name = signal.as_str().trim_start_matches("SIG");
        let script =
            format!("trap 'echo {name}; exit 5' {name}; echo ready; while :; do sleep 0.02; done");
        let mut running = Running::run(&server, &["k", "--", "sh", "-c", &script]);
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        assert_eq!(running.line(), name);
        assert_eq!(running.output().code, 5, "{signal}");
        server.left_over_check();
    }
}

#[test]
fn a_command_that_a_signal_ends_gives_128_and_its_number() {
    let server = Server::start();
    let mut running = Running::run(&server, &["k", "--", "sh", "-c", "echo ready; exec sleep 60"]);
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGTERM);
    let status = running.status();
    // An exit code, not a signal: the signal did not end this program.
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    server.left_over_check();
}

#[test]
fn a_killed_waiter_leaves_the_queue() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder", "PX", "600000"]).ok();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let mut waiter = Running::run(&server, &["k", "--", "echo", "ran"]);
        let waiters = || server.cmd(&["DLOCK.INFO", "k"]).field("waiters").int();
        wait_until("it to wait", || waiters() == 1);
        waiter.signal(signal);
        assert_eq!(waiter.status().signal(), Some(signal as i32));
        wait_until("it to leave the queue", || waiters() == 0);
        assert_eq!(waiter.output().stdout, "");
    }
    server.cmd(&["DLOCK.RELEASE", "k", "holder"]).ok();
    server.left_over_check();
}

#[test]
fn ignored_signals_stay_ignored() {
    let server = Server::start();
    // As nohup(1) does.
    let words = ["run", "k", "--", "sh", "-c", "echo ready; read line"];
    let mut command = for_server(&server, with_signals("--ignore-signal=HUP", &words));
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGHUP);
    running.type_line("end");
    assert_eq!(running.output().code, 0);
    server.left_over_check();
}

#[test]
fn a_command_is_stopped_and_goes_on_under_its_lock() {
    let server = Server::start();
    // One process without children. A shell that has just called vfork(2) is not stopped before its child has
    // executed its program, and a child that is stopped earlier never does.
    let mut running = Running::run(&server, &["k", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    let child = running.line();
    running.signal(Signal::SIGTSTP);
    wait_until("the command to be stopped", || state(&child) == Some('T'));
    // Without a terminal no shell watches the job, and the lock must be renewed.
    assert_ne!(state(&running.pid().to_string()), Some('T'));
    assert_eq!(output(&server, &["run", "-n", "k", "--", "true"]).code, 1);
    running.signal(Signal::SIGCONT);
    wait_until("the command to go on", || state(&child) != Some('T'));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.output().code, 143);
    wait_until("the command to be gone", || !lives(&child));
    server.left_over_check();
}
