//! `dlock run`: execution and exit codes.

use std::time::{Duration, Instant};

use dlock_testing::{Reply as _, Server, wait_until};

use crate::command::{Running, dlock, output, stdout};

/// The owner of a lock, as the server shows it.
fn owner(server: &Server, key: &str) -> String {
    server.cmd(&["DLOCK.INFO", key]).field("owner").text()
}

/// A command that announces its start, and ends with code 0 on request.
const READY: [&str; 4] = ["--", "sh", "-c", "echo ready; read line"];

fn ready(server: &Server, args: &[&str]) -> Running {
    let mut running = Running::run(server, &[args, &READY[..]].concat());
    assert_eq!(running.line(), "ready");
    running
}

fn end(mut running: Running) {
    running.type_line("end");
    let output = running.output();
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let server = Server::start();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -9 $$", 137),
    ] {
        let output = output(&server, &["run", "k", "--", "sh", "-c", script]);
        assert_eq!((output.code, output.stderr.as_str()), (code, ""), "{script}");
        server.left_over_check();
    }
    assert_eq!(stdout(&server, &["run", "k", "echo", "-n", "--", "x"]), "-- x\n");
}

#[test]
fn the_command_knows_its_lock() {
    let server = Server::start();
    let script = "echo $DLOCK_KEY; echo $DLOCK_OWNER; echo $DLOCK_TOKEN; echo ${DLOCK_PERMIT-none}; read line";
    let mut running = Running::run(&server, &["a key", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "a key");
    let info = server.cmd(&["DLOCK.INFO", "a key"]);
    let named = running.line();
    assert_eq!(named, info.field("owner").text());
    assert!(named.contains(&format!(":{}:", running.pid())), "{named}");
    assert_eq!(running.line(), info.field("token").int().to_string());
    assert_eq!(running.line(), "none");
    assert_eq!(info.field("label").text(), "sh");
    end(running);
    server.left_over_check();

    let script = "echo $DLOCK_OWNER; echo $DLOCK_PERMIT; echo ${DLOCK_TOKEN-none}; read line";
    let mut command =
        dlock(&server, &["run", "s", "--limit", "3", "--count", "2", "--label", "two", "--"]);
    command
        .args(["sh", "-c", script])
        .env("DLOCK_TOKEN", "of an outer lock")
        .stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    let (named, permit) = (running.line(), running.line());
    let permits = server.cmd(&["DSEM.PERMITS", "s"]).items();
    assert_eq!(permits.len(), 1);
    assert_eq!((permits[0].field("id").text(), permits[0].field("owner").text()), (permit, named));
    assert_eq!(
        (permits[0].field("count").int(), permits[0].field("label").text()),
        (2, "two".to_owned())
    );
    assert_eq!(running.line(), "none");
    end(running);
    server.left_over_check();
}

#[test]
fn calls_without_a_wait_get_a_code() {
    let server = Server::start();
    let holder = ready(&server, &["k"]);
    let no = |args: &[&str]| {
        let args = [&["run"], args, &["--", "echo", "ran"][..]].concat();
        let output = output(&server, &args);
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""), "{args:?}");
        output.code
    };
    assert_eq!(no(&["-n", "k"]), 1);
    assert_eq!(no(&["k", "-n", "-E", "0"]), 0);
    assert_eq!(no(&["k", "--nonblock", "--conflict-exit-code", "9"]), 9);
    assert_eq!(no(&["k", "-w", "0"]), 1);
    let start = Instant::now();
    assert_eq!(no(&["k", "-w", "0.3", "-E", "9"]), 9);
    assert!(start.elapsed() >= Duration::from_millis(300));
    // They left no place in the queue.
    assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("waiters").int(), 0);
    end(holder);
    assert_eq!(stdout(&server, &["run", "-n", "k", "--", "echo", "ran"]), "ran\n");
    server.left_over_check();
}

#[test]
fn a_call_that_does_not_get_the_lock_says_who_holds_it() {
    let server = Server::start();
    let holder = ready(&server, &["k", "--label", "report"]);
    for args in [&["-n"][..], &["-w", "0.1"], &["-n", "--once"]] {
        let output = output(&server, &[&["run", "-v", "k"], args, &["--", "true"]].concat());
        assert_eq!(output.code, 1, "{output:?}");
        let said = format!("dlock: \"k\" was not acquired (held by: {}; ", owner(&server, "k"));
        assert!(output.stderr.starts_with(&said), "{output:?}");
        assert!(output.stderr.ends_with("s; label: report)\n"), "{output:?}");
    }
    end(holder);
    let permit = ready(&server, &["s", "--limit", "1"]);
    let output = output(&server, &["run", "-n", "-v", "s", "--count", "1", "--", "true"]);
    let said = "dlock: \"s\" was not acquired (held by: 1 of 1 permit; left: -; label: -)\n";
    assert_eq!((output.code, output.stderr.as_str()), (1, said));
    end(permit);
    server.left_over_check();
}

#[test]
fn waiters_get_the_lock_in_order() {
    let server = Server::start();
    for options in [&["k"][..], &["-w", "20", "k"], &["--fair", "k"]] {
        let first = ready(&server, options);
        let mut second = Running::run(&server, &[options, &READY[..]].concat());
        let fair = options.contains(&"--fair");
        let info = if fair { "DFAIR.INFO" } else { "DLOCK.INFO" };
        wait_until("the second to wait", || server.cmd(&[info, "k"]).field("waiters").int() == 1);
        end(first);
        assert_eq!(second.line(), "ready");
        end(second);
        server.left_over_check();
    }
}

#[test]
fn many_share_it_or_one_has_it_alone() {
    let server = Server::start();
    let readers = [ready(&server, &["-s", "k"]), ready(&server, &["k", "--shared", "-n"])];
    assert_eq!(server.cmd(&["DRW.INFO", "k"]).field("readers").items().len(), 2);
    assert_eq!(output(&server, &["run", "-n", "-x", "k", "--", "true"]).code, 1);
    readers.into_iter().for_each(end);
    let writer = ready(&server, &["-x", "k"]);
    assert_eq!(output(&server, &["run", "-n", "-s", "k", "--", "true"]).code, 1);
    assert_eq!(output(&server, &["run", "-n", "-x", "k", "--", "true"]).code, 1);
    end(writer);
    server.left_over_check();
}

#[test]
fn as_many_at_a_time_as_there_are_permits() {
    let server = Server::start();
    let two = [ready(&server, &["s", "--limit", "2"]), ready(&server, &["s", "--limit", "2"])];
    assert_eq!(output(&server, &["run", "s", "-n", "--limit", "2", "--", "true"]).code, 1);
    two.into_iter().for_each(end);
    server.left_over_check();

    // A semaphore that already exists; without --limit.
    server.cmd(&["DSEM.INIT", "s", "3"]).ok();
    let wide = ready(&server, &["s", "--count", "2"]);
    assert_eq!(output(&server, &["run", "s", "-n", "--count", "2", "--", "true"]).code, 1);
    assert_eq!(output(&server, &["run", "s", "-n", "--count", "1", "--", "true"]).code, 0);
    end(wide);
    let too_wide = output(&server, &["run", "s", "--count", "4", "--", "true"]);
    assert_eq!(too_wide.code, 69);
    assert!(too_wide.stderr.starts_with("dlock: cannot lock \"s\": LIMIT "), "{}", too_wide.stderr);
    server.cmd(&["DEL", "s"]);
    server.left_over_check();
}

#[test]
fn a_command_that_cannot_be_run() {
    let server = Server::start();
    let none = output(&server, &["run", "k", "--", "no-such-command"]);
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (127, "dlock: no-such-command: no such command\n")
    );
    let file = server.config_file();
    let file = file.to_str().expect("a path");
    let not = output(&server, &["run", "k", "--", file]);
    assert_eq!(not.code, 126);
    assert!(not.stderr.starts_with(&format!("dlock: {file}: cannot be run: ")), "{}", not.stderr);
    server.left_over_check();
}

#[test]
fn errors_name_the_problem() {
    let server = Server::start();
    for args in [
        &["run", "k"][..],
        &["run", "k", "-n", "-w", "1", "--", "true"],
        &["run", "k", "-E", "75", "--", "x"],
    ] {
        let output = output(&server, args);
        assert_eq!(output.code, 64, "{args:?}");
        assert!(output.stderr.starts_with("dlock: "), "{}", output.stderr);
    }
    let empty = output(&server, &["run", "", "--", "true"]);
    assert_eq!(empty.code, 64, "{}", empty.stderr);

    let flock = output(&server, &["k", "-c", "true"]);
    assert_eq!(flock.code, 64);
    assert!(flock.stderr.contains("  tip: to run a command under a lock: dlock run "), "{flock:?}");
    let flock = output(&server, &["run", "k", "-c", "true"]).stderr;
    assert!(flock.contains("  tip: for a line of the shell: dlock run KEY -- sh -c "), "{flock}");
    assert_eq!(flock.matches("tip:").count(), 1, "{flock}");

    server.cmd(&["SET", "str", "1"]).ok();
    server.cmd(&["DFAIR.ACQUIRE", "fair", "alice"]).ok();
    for (key, tip) in [("str", "choose another key)\n"), ("fair", "`dlock run --fair`)\n")] {
        let wrong = output(&server, &["run", key, "--", "true"]);
        assert_eq!(wrong.code, 69);
        let begin = format!("dlock: cannot lock \"{key}\": WRONGTYPE ");
        assert!(wrong.stderr.starts_with(&begin) && wrong.stderr.ends_with(tip), "{wrong:?}");
    }
    server.cmd(&["DEL", "fair"]).ok();
    let database = output(&server, &["--url", &format!("{}/99", server.url()), "ls"]);
    assert!(database.stderr.contains("`CONFIG GET databases`"), "{database:?}");

    let nobody =
        output(&server, &["--url", "redis://u:secret@127.0.0.1:1", "run", "k", "--", "true"]);
    assert_eq!(nobody.code, 69);
    let begin = "dlock: cannot connect to redis://127.0.0.1:1: ";
    assert!(
        nobody.stderr.starts_with(begin) && !nobody.stderr.contains("secret"),
        "{}",
        nobody.stderr
    );
    let end = "(no server listens there: start it, or name another one with --url or DLOCK_URL)\n";
    assert!(nobody.stderr.ends_with(end) && !nobody.stderr.contains("TLS"), "{}", nobody.stderr);

    let url = format!("redis://u:secret@127.0.0.1:{}", server.port());
    let refused = output(&server, &["run", "--url", &url, "k", "--", "true"]);
    assert_eq!(refused.code, 69);
    assert!(
        refused.stderr.contains("WRONGPASS") && !refused.stderr.contains("secret"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_server_without_the_module_is_named_as_such() {
    let server = Server::with(&[]).without_module().start();
    for args in [&["run", "k", "--", "true"][..], &["info", "k"]] {
        let output = output(&server, args);
        assert_eq!(output.code, 69, "{args:?}");
        assert!(output.stderr.contains("the dlock module is not loaded"), "{}", output.stderr);
    }
}

#[test]
fn the_lock_is_kept_until_the_command_has_ended() {
    let server = Server::start();
    let script =
        "trap 'echo ending; read line; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let mut running = Running::run(&server, &["k", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "ready");
    running.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(running.line(), "ending");
    assert!(owner(&server, "k").contains(&format!(":{}:", running.pid())));
    running.type_line("now");
    assert_eq!(running.output().code, 3);
    server.left_over_check();
}
