//! `dlock run --once`

use dlock_testing::{Reply as _, Server, wait_until};
use nix::sys::signal::Signal;

use crate::command::{Running, lives, output};

/// A run that announces itself, and ends with the code that it reads.
const RUN: [&str; 4] = ["--", "sh", "-c", "echo ran; read code; exit $code"];

fn once(server: &Server, options: &[&str]) -> Running {
    Running::run(server, &[&["--once", "k"], options, &RUN[..]].concat())
}

fn ran(server: &Server) -> Running {
    let mut running = once(server, &[]);
    assert_eq!(running.line(), "ran");
    running
}

/// Another call that waits for the end of the run.
fn waiting(server: &Server) -> Running {
    let running = once(server, &[]);
    wait_until("it to wait for the end", || {
        server.cmd(&["DLOCK.INFO", "k"]).field("observers").int() == 1
    });
    running
}

#[test]
fn the_second_waits_for_the_first_and_does_not_run() {
    let server = Server::start();
    let mut first = ran(&server);
    let second = waiting(&server);
    first.type_line("0");
    assert_eq!(first.output().code, 0);
    let second = second.output();
    assert_eq!((second.code, second.stdout.as_str(), second.stderr.as_str()), (0, "", ""));
    // Later, it runs again.
    let mut third = ran(&server);
    third.type_line("0");
    assert_eq!(third.output().code, 0);
    server.left_over_check();
}

#[test]
fn after_a_failed_run_the_next_runs_its_own() {
    let server = Server::start();
    for how in ["fails", "is killed", "loses the lock"] {
        let mut first = ran(&server);
        let mut second = waiting(&server);
        match how {
            "fails" => first.type_line("7"),
            "is killed" => {
                let holder = server.cmd(&["DLOCK.INFO", "k"]).field("owner").text();
                assert!(holder.contains(&format!(":{}:", first.pid())), "{holder}");
                first.signal(Signal::SIGTERM);
            }
            _ => drop(server.cmd(&["DLOCK.BREAK", "k"]).ok()),
        }
        assert_eq!(second.line(), "ran", "{how}");
        let code = first.output().code;
        assert_eq!(
            code,
            [("fails", 7), ("is killed", 143)]
                .into_iter()
                .find(|(of, _)| *of == how)
                .map_or(75, |(_, code)| code)
        );
        second.type_line("0");
        assert_eq!(second.output().code, 0);
        server.left_over_check();
    }
}

#[test]
fn it_need_not_wait() {
    let server = Server::start();
    let mut first = ran(&server);
    for (options, code) in
        [(&["-n"][..], 1), (&["-n", "-E", "0"], 0), (&["-w", "0.2", "-E", "9"], 9)]
    {
        let second = once(&server, options).output();
        assert_eq!(
            (second.code, second.stdout.as_str(), second.stderr.as_str()),
            (code, "", ""),
            "{options:?}"
        );
    }
    first.type_line("0");
    assert_eq!(first.output().code, 0);
    let mut alone = once(&server, &["-n"]);
    assert_eq!(alone.line(), "ran");
    alone.type_line("0");
    assert_eq!(alone.output().code, 0);
    server.left_over_check();
}

#[test]
fn a_lost_lock_ends_the_command() {
    let server = Server::start();
    let script = "echo $$; trap '' TERM; while :; do sleep 0.02; done";
    let mut running =
        Running::run(&server, &["--once", "k", "--grace", "0.1", "--", "sh", "-c", script]);
    let child = running.line();
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    let output = running.output();
    let text = "dlock: the lock \"k\" is lost: an operator broke it; ending the command\n";
    assert!(output.code == 75 && output.stderr.contains(text), "{output:?}");
    assert!(!lives(&child));
    server.left_over_check();
}

#[test]
fn what_cannot_be_run_frees_the_lock() {
    let server = Server::start();
    let none = output(&server, &["run", "--once", "k", "--", "no-such-command"]);
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (127, "dlock: no-such-command: no such command\n")
    );
    server.left_over_check();
    server.cmd(&["SET", "text", "1"]).ok();
    let wrong = output(&server, &["run", "--once", "text", "--", "true"]);
    assert!(wrong.code == 69 && wrong.stderr.contains("WRONGTYPE"), "{wrong:?}");
}

#[test]
fn a_wait_can_be_interrupted() {
    let server = Server::start();
    let mut first = ran(&server);
    let second = waiting(&server);
    second.signal(Signal::SIGTERM);
    assert_eq!(second.output().code, 143);
    first.type_line("0");
    assert_eq!(first.output().code, 0);
    server.left_over_check();
}
