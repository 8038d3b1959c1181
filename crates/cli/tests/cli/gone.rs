//! `dlock run` when a server or a process is gone, or hangs.

use std::time::{Duration, Instant};

use dlock_testing::{Reply as _, SOON, Server, wait_until};
use nix::sys::signal::Signal;

use crate::command::{Running, output};

/// `dlock run` ends within this time after its command, if the server is gone.
const PROMPT: Duration = Duration::from_secs(5);

fn ready(server: &Server, args: &[&str]) -> Running {
    let words = ["--", "sh", "-c", "echo ready; read line; exit 3"];
    let mut running = Running::run(server, &[args, &words[..]].concat());
    assert_eq!(running.line(), "ready");
    running
}

#[test]
fn a_release_is_not_tried_for_long() {
    for once in [false, true] {
        let mut server = Server::start();
        let options: &[&str] = if once { &["k", "--once"] } else { &["k"] };
        let mut killed = ready(&server, options);
        server.kill9();
        let start = Instant::now();
        killed.type_line("end");
        let output = killed.output();
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
        assert_eq!(output.code, 3, "{output:?}");
        assert!(output.stderr.contains("\"k\" could not be released"), "{output:?}");

        server.start_again();
        let mut stopped = ready(&server, options);
        server.freeze();
        let start = Instant::now();
        stopped.type_line("end");
        let output = stopped.output();
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
        assert_eq!(output.code, 3, "{output:?}");
        assert!(output.stderr.contains("\"k\" could not be released"), "{output:?}");
        server.thaw();
    }
}

#[test]
fn a_killed_holder_with_bind_frees_the_lock_soon() {
    let server = Server::start();
    for options in
        [&["k", "--bind"][..], &["k", "--bind", "--once"], &["--bind=0.5", "--fair", "k"]]
    {
        let info = if options.contains(&"--fair") { "DFAIR.INFO" } else { "DLOCK.INFO" };
        let first = ready(&server, options);
        assert!(server.cmd(&[info, "k"]).field("bound-client").int() > 0);
        let mut next =
            Running::run(&server, &[options, &["--", "sh", "-c", "echo next; read line"]].concat());
        if !options.contains(&"--once") {
            wait_until("the next to wait", || server.cmd(&[info, "k"]).field("waiters").int() == 1);
        }
        let start = Instant::now();
        first.signal(Signal::SIGKILL);
        assert_eq!(next.line(), "next");
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        // Granted on the connection on which it waited, it is bound to the one that stays.
        next.type_line("end");
        assert_eq!(next.output().code, 0);
        server.left_over_check();
    }
}

#[test]
fn a_bound_lock_survives_a_lost_connection_for_its_time() {
    let server = Server::start();
    let mut running = ready(&server, &["k", "--bind=20"]);
    let bound = || server.cmd(&["DLOCK.INFO", "k"]).field("bound-client");
    let before = bound().int();
    server.cmd(&["CLIENT", "KILL", "ID", &before.to_string()]);
    wait_until("it to be bound again", || {
        let now = bound();
        !now.is_null() && now.int() != before
    });
    running.type_line("end");
    assert_eq!(running.output().code, 3);
    server.left_over_check();
}

#[test]
fn a_hold_has_a_longest_time() {
    let server = Server::start();
    let start = Instant::now();
    let script = "trap 'echo ending; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let output = output(&server, &["run", "k", "--max-hold", "1.5", "--", "sh", "-c", script]);
    assert_eq!((output.code, output.stdout.as_str()), (75, "ready\nending\n"), "{output:?}");
    let text = "dlock: the lock \"k\" is lost: it was held for the time of --max-hold; ending the command\n";
    assert!(output.stderr.contains(text), "{output:?}");
    assert!(start.elapsed() >= Duration::from_millis(1400), "{:?}", start.elapsed());
    wait_until("the lock to be free", || server.cmd(&["DLOCK.INFO", "k"]).is_null());
}
