//! `dlock top` in a real terminal, and into a pipe.

use std::fs;

use dlock_testing::{Reply as _, Server, args, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::stdout;
use crate::tmux::Tmux;

/// The line of the list that begins with this key.
fn row<'s>(screen: &'s str, key: &str) -> Option<&'s str> {
    screen.lines().find(|line| line.split_whitespace().next() == Some(key))
}

/// The process in the foreground of the terminal.
fn top_in(terminal: &Tmux) -> Pid {
    let shell = terminal.variable("pane_pid");
    let stat = fs::read_to_string(format!("/proc/{shell}/stat")).expect("the shell's state");
    // After the name: state, parent, group, session, terminal, foreground group.
    let fields = stat.rsplit_once(") ").expect("a name").1;
    Pid::from_raw(fields.split(' ').nth(5).expect("a foreground group").parse().expect("a number"))
}

#[track_caller]
fn expect_shell(terminal: &Tmux) {
    wait_until("the shell's screen", || terminal.variable("alternate_on") == "0");
    terminal.line("stty -a | grep -c ' icanon .* echo '; echo shell=$((40 + 2))");
    let screen = terminal.wait_for("shell=42");
    assert!(screen.contains("\n1\nshell=42"), "raw mode is left over:\n{screen}");
}

#[test]
fn the_screen_shows_locks_holders_and_waiters() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", "600000", "LABEL", "night"]).ok();
    server.cmd(&["DLOCK.ACQUIRE", "another", "zoe", "PX", "600000"]).ok();
    let bob = server.block(&["DLOCK.ACQUIRE", "door", "bob", "BLOCK", "0"]);
    let carol = server.block(&["DLOCK.ACQUIRE", "door", "carol", "BLOCK", "0"]);
    let terminal = Tmux::open(&server);
    terminal.line("dlock top -i 0.1");

    let screen = terminal.wait_until("the locks", |screen| row(screen, "door").is_some());
    assert!(screen.starts_with("dlock top: "), "{screen}");
    assert!(screen.contains(&format!(" at 127.0.0.1:{}", server.port())), "{screen}");
    assert!(
        screen
            .contains("2 holds, 0 permits, 2 keys; waiting: 2 blocked, 0 queued, longest queue 2"),
        "{screen}"
    );
    let door: Vec<&str> = row(&screen, "door").unwrap_or_default().split_whitespace().collect();
    assert_eq!(
        (&door[..3], door[4], door[6]),
        (&["door", "dlock", "alice"][..], "2", "night"),
        "{screen}"
    );
    let line = |screen: &str, key| screen.lines().position(|line| line.starts_with(key));
    assert!(
        line(&screen, "door ") < line(&screen, "another "),
        "the busiest comes first:\n{screen}"
    );
    terminal.wait_for("0.0 expiries");

    // By grants, by time, by key.
    terminal.keys(&["s", "s", "s"]);
    terminal.wait_until("the order of keys", |screen| {
        screen.contains("(sorted by key)") && line(screen, "another ") < line(screen, "door ")
    });
    terminal.keys(&["s", "Up", "Enter"]);
    let screen = terminal
        .wait_until("the waiters", |screen| screen.contains("bob") && screen.contains("carol"));
    assert!(
        screen.contains("held by    alice") && screen.contains(&bob.id().to_string()),
        "{screen}"
    );

    // Changes become visible.
    bob.hang_up();
    terminal
        .wait_until("bob to be gone", |screen| screen.contains("carol") && !screen.contains("bob"));
    server.cmd(&["DLOCK.RELEASE", "door", "alice"]);
    terminal.wait_for("held by    carol");
    terminal.keys(&["Escape"]);
    terminal.wait_until("the list", |screen| {
        row(screen, "door").is_some_and(|row| row.contains("carol"))
    });

    terminal.resize(60, 10);
    terminal.wait_until("a smaller screen", |screen| {
        screen.lines().count() <= 10
            && screen.lines().all(|line| line.chars().count() <= 60)
            && row(screen, "door").is_some()
            && screen.contains('…')
    });
    terminal.resize(120, 30);
    terminal.wait_for("0.0 timeouts");

    terminal.keys(&["q"]);
    expect_shell(&terminal);
    drop(carol);
    server.cmd(&["DEL", "door", "another"]).ok();
    server.left_over_check();
}

#[test]
fn the_terminal_is_given_back_when_it_is_ended() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        terminal.line("clear; dlock top -i 0.1; echo code=$?.");
        terminal.wait_for("no locks");
        kill(top_in(&terminal), signal).expect("it runs");
        terminal.wait_for(&format!("code={code}."));
        expect_shell(&terminal);
    }
}

#[test]
fn ctrl_z_leaves_it_for_a_while() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.line("dlock top -i 0.1");
    terminal.wait_for("no locks");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    expect_shell(&terminal);
    terminal.line("fg");
    terminal.wait_for("no locks");
    terminal.keys(&["C-c"]);
    expect_shell(&terminal);
}

#[test]
fn a_server_that_goes_away_is_waited_for() {
    let mut server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.line("dlock top -i 0.1");
    terminal.wait_for("no locks");
    server.kill9();
    terminal.wait_for("trying again: ");
    server.start_again();
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice"]).ok();
    terminal.wait_until("the lock", |screen| {
        row(screen, "door").is_some() && screen.contains("q quit")
    });
    terminal.keys(&["q"]);
    expect_shell(&terminal);
    server.cmd(&["DEL", "door"]).ok();
}

#[test]
fn into_a_pipe_it_is_one_snapshot() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", "600000"]).ok();
    server.cmd(&["DSEM.INIT", "licences", "3"]).ok();
    let text = stdout(&server, &["top"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains(&format!(" at 127.0.0.1:{}, up ", server.port())), "{text}");
    assert_eq!(
        lines[1],
        "1 hold, 0 permits, 2 keys; waiting: 0 blocked, 0 queued, longest queue 0"
    );
    assert_eq!(
        lines[2],
        "since the start: 1 grant at once, 0 after waiting, 0 releases, 0 expiries, 0 timeouts"
    );
    assert_eq!(lines[4].split_whitespace().next(), Some("KEY"));
    assert!(row(&text, "door").is_some_and(|row| row.contains("alice")), "{text}");
    assert!(row(&text, "licences").is_some_and(|row| row.contains("0 of 3 permits")), "{text}");
    assert_eq!(lines.len(), 7);
    assert!(!text.contains('\u{1b}'), "no escape sequences");
    assert_eq!(stdout(&server, &["top", "d*"]).lines().count(), 6);
    server.cmd(&["DEL", "door", "licences"]).ok();
}

#[test]
fn the_busiest_of_very_many_is_shown() {
    let server = Server::start();
    let mut client = server.client();
    // More than one sample inspects.
    let calls: Vec<_> =
        (0..21_000).map(|n| args!["DLOCK.ACQUIRE", format!("k{n}"), "a", "PX", "600000"]).collect();
    client.pipeline(&calls);
    server.cmd(&["DLATCH.INIT", "zzz", "2"]).ok();
    let _waiter = server.block(&["DLATCH.AWAIT", "zzz", "BLOCK", "0"]);
    let text = stdout(&server, &["top"]);
    let first = text.lines().skip_while(|line| !line.starts_with("KEY")).nth(1).unwrap_or_default();
    assert!(first.starts_with("zzz "), "{first}");
    assert!(text.ends_with("\n11001 keys less busy: give a PATTERN to see them\n"));

    let terminal = Tmux::open(&server);
    terminal.line("dlock top -i 0.1");
    terminal.wait_until("the busiest", |screen| row(screen, "zzz").is_some());
    terminal.keys(&["q"]);
    terminal.wait_for_command("bash");
    expect_shell(&terminal);
    server.cmd(&["FLUSHALL"]).ok();
}

#[test]
fn how_long_waits_and_holds_last() {
    let server = Server::start();
    assert!(!stdout(&server, &["top"]).contains("p50/p99"));
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    waiter.expect_reply(dlock_testing::SOON).int();
    server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    let text = stdout(&server, &["top"]);
    for begin in ["waited p50/p99: dlock ", "held   p50/p99: dlock "] {
        assert!(text.lines().any(|line| line.starts_with(begin)), "{text}");
    }
}
