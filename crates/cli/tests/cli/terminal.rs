//! `dlock run` in a real terminal, with a shell that controls jobs.

use dlock_testing::{Reply as _, Server, wait_until};

use crate::tmux::Tmux;

fn is_held(server: &Server, key: &str) -> bool {
    !server.cmd(&["DLOCK.INFO", key]).is_null()
}

/// The exit code of the last command.
#[track_caller]
fn expect_code(terminal: &Tmux, code: i32) {
    terminal.line("echo code=$?.");
    terminal.wait_for(&format!("code={code}."));
}

#[test]
fn the_command_reads_from_the_terminal() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.line("dlock run k -- sh -c 'echo name?; read name; echo hello $name; exit 3'");
    terminal.wait_for("\nname?");
    assert!(is_held(&server, "k"));
    terminal.line("bob");
    terminal.wait_for("hello bob");
    expect_code(&terminal, 3);
    server.left_over_check();
}

#[test]
fn a_command_that_reads_at_once_is_not_left_stopped() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    // It may read the terminal before it was lent to it; the shell does the same check and gets its own.
    for n in 0..5 {
        terminal.line("dlock run k -- cat");
        wait_until("it to run", || is_held(&server, "k"));
        terminal.line(&format!("line {n}"));
        terminal.wait_for(&format!("line {n}\nline {n}"));
        terminal.keys(&["C-d"]);
        wait_until("it to end", || !is_held(&server, "k"));
    }
    terminal.line("dlock run k -- bash --norc -i");
    wait_until("it to run", || is_held(&server, "k"));
    terminal.line("echo in-$((1 + 1)); exit 4");
    terminal.wait_for("in-2");
    expect_code(&terminal, 4);
    server.left_over_check();
}

#[test]
fn ctrl_c_ends_the_command_and_the_lock_is_released() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.line("dlock run k -- sh -c 'echo running; exec sleep 60'");
    terminal.wait_for("\nrunning");
    terminal.keys(&["C-c"]);
    expect_code(&terminal, 130);
    server.left_over_check();

    // A process that handles the signal continues.
    terminal.line(
        "dlock run k -- sh -c 'trap \"echo caught-\\$((1 + 1))\" INT; echo ready; read a; read b; exit 6'",
    );
    terminal.wait_for("\nready");
    terminal.keys(&["C-c"]);
    terminal.wait_for("caught-2");
    assert!(is_held(&server, "k"));
    terminal.line("");
    terminal.line("");
    expect_code(&terminal, 6);
    server.left_over_check();
}

#[test]
fn ctrl_c_ends_the_wait() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder", "PX", "600000"]).ok();
    terminal.line("dlock run k -- echo never");
    wait_until("it to wait", || server.cmd(&["DLOCK.INFO", "k"]).field("waiters").int() == 1);
    terminal.keys(&["C-c"]);
    expect_code(&terminal, 130);
    wait_until("it to leave", || server.cmd(&["DLOCK.INFO", "k"]).field("waiters").int() == 0);
    server.cmd(&["DEL", "k"]).ok();
    server.left_over_check();
}

#[test]
fn ctrl_c_ends_the_script_around_it_too() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.line(
        "bash -c 'for i in 1 2 3; do dlock run k -- sh -c \"echo round $i; exec sleep 60\"; done'",
    );
    terminal.wait_for("\nround 1");
    terminal.keys(&["C-c"]);
    expect_code(&terminal, 130);
    assert!(!terminal.screen().contains("round 2"));
    server.left_over_check();
}

#[test]
fn ctrl_z_stops_and_fg_goes_on() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.line("dlock run k -- sh -c 'echo running; read line; echo got $line; exit 2'");
    terminal.wait_for("\nrunning");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    assert!(is_held(&server, "k"));
    terminal.line("fg");
    terminal.wait_for_command("sh");
    terminal.line("again");
    terminal.wait_for("got again");
    expect_code(&terminal, 2);
    server.left_over_check();
}

#[test]
fn a_command_continued_too_late_is_ended() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.line("dlock run k --lease 4 -- sh -c 'echo running; read line; echo got $line'");
    terminal.wait_for("\nrunning");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    wait_until("the lease to end", || !is_held(&server, "k"));
    terminal.line("fg");
    terminal.wait_for("the lock \"k\" is lost: its lease ran out");
    expect_code(&terminal, 75);
    server.left_over_check();
}

#[test]
fn in_the_background_it_waits_for_the_terminal() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.line("dlock run k -- sh -c 'read line; echo got-$line' &");
    wait_until("it to run", || is_held(&server, "k"));
    // The shell reports it before its next prompt.
    terminal.wait_until("that it was stopped", |screen| {
        terminal.keys(&["Enter"]);
        screen.contains("Stopped")
    });
    terminal.line("fg");
    terminal.wait_for_command("sh");
    terminal.line("hello");
    // The input that made the shell report may come before it.
    terminal.wait_for("\ngot-");
    expect_code(&terminal, 0);
    server.left_over_check();
}

#[test]
fn a_lost_lock_gives_the_terminal_back() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal
        .line("dlock run k --grace 0.2 -- sh -c 'trap \"\" TERM; stty -echo; echo deaf; sleep 60'");
    terminal.wait_for("\ndeaf");
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    terminal.wait_for("the lock \"k\" is lost: an operator broke it");
    expect_code(&terminal, 75);
    terminal.line("stty -a | grep -o ' echo '");
    terminal.wait_for("\n echo");
    server.left_over_check();
}

#[test]
fn where_no_shell_is_ctrl_z_has_no_effect() {
    let server = Server::start();
    let terminal = Tmux::open(&server);
    terminal.window("run k -- cat");
    wait_until("it to run", || is_held(&server, "k"));
    terminal.line("before");
    terminal.wait_for("before\nbefore");
    terminal.keys(&["C-z"]);
    terminal.line("after");
    terminal.wait_for("after\nafter");
    terminal.keys(&["C-d"]);
    wait_until("it to end", || !is_held(&server, "k"));
    server.left_over_check();
}
