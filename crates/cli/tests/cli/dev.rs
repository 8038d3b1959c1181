//! `dlock dev`: the server serves, and nothing is left of it, however `dlock dev` ends.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dlock_testing::{Binary, Profile, Server, module_path, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{Output, Running, detached, lives, with_signals};

/// `dlock dev` whose temporary folder is `home`.
fn dev(home: &Path, args: &[&str]) -> Command {
    let module = module_path(Profile::Dev).to_str().expect("text");
    with(home, &[&["--module", module, "--server", Binary::default().path()], args].concat())
}

fn with(home: &Path, args: &[&str]) -> Command {
    let mut command = detached(&[&["dev"], args].concat());
    command.env("TMPDIR", home).env("DLOCK_URL", "redis://127.0.0.1:1").stdin(Stdio::null());
    command
}

fn output(home: &Path, args: &[&str]) -> Output {
    Running::start(dev(home, args)).output()
}

/// The processes that are about `home`: guards and servers.
fn processes(home: &Path) -> Vec<Pid> {
    [guards(home), servers(home)].concat()
}

/// They name the folder in their command line.
fn guards(home: &Path) -> Vec<Pid> {
    let home = home.to_str().expect("text");
    all_processes(|process| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("--dev-guard\0") && line.contains(home)
    })
}

/// They run in the folder, and write another text over their command line.
fn servers(home: &Path) -> Vec<Pid> {
    all_processes(|process| {
        fs::read_link(process.join("cwd")).is_ok_and(|folder| folder.starts_with(home))
    })
}

fn all_processes(is_wanted: impl Fn(&Path) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let wanted = entries.map(|entry| entry.path()).filter(|process| is_wanted(process));
    let ids = wanted.filter_map(|process| process.file_name()?.to_str()?.parse().ok());
    ids.filter(|id: &i32| lives(&id.to_string())).map(Pid::from_raw).collect()
}

fn folders(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(home).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// A folder for `TMPDIR`, in that of a server.
fn home(server: &Server) -> PathBuf {
    let home = server.dir().join("tmp");
    fs::create_dir(&home).expect("a folder");
    home
}

#[track_caller]
fn wait_for_nothing_left(home: &Path) {
    wait_until("the folder is removed", || folders(home).is_empty());
    wait_until("no process is left", || processes(home).is_empty());
}

fn ping(url: &str) -> io::Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_dlock")).args(["--url", url, "ping"]).output()?;
    if output.status.success() { Ok(()) } else { Err(io::Error::other(format!("{output:?}"))) }
}

/// Starts it; returns its URL.
fn start(home: &Path, args: &[&str]) -> (Running, String) {
    let mut running = Running::start(dev(home, args));
    let url = running.line();
    ping(&url).expect("it answers as soon as the URL is printed, and has the module");
    (running, url)
}

#[test]
fn the_first_line_is_the_url_and_signals_end_everything() {
    let server = Server::start();
    let home = home(&server);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let (running, url) = start(&home, &[]);
        assert!(url.starts_with("redis://127.0.0.1:"), "{url}");
        let [folder] = &folders(&home)[..] else { panic!("one folder") };
        let mode = fs::metadata(folder).expect("a folder").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        running.signal(signal);
        let ended = running.output();
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "", ""));
        // At once, not a moment later.
        assert!(folders(&home).is_empty());
        assert_eq!(processes(&home), []);
        ping(&url).expect_err("it has ended");
    }
}

#[test]
fn a_signal_that_was_ignored_at_its_start_stays_ignored() {
    let server = Server::start();
    let home = home(&server);
    // As nohup(1) does.
    let module = module_path(Profile::Dev).to_str().expect("text");
    let program = Binary::default();
    let words = ["dev", "--module", module, "--server", program.path()];
    let mut command = with_signals("--ignore-signal=HUP", &words);
    command.env("TMPDIR", &home).stdin(Stdio::null());
    let mut running = Running::start(command);
    let url = running.line();
    ping(&url).expect("it answers");
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).expect("it runs");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a set");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a number");
    assert_eq!(ignored >> (Signal::SIGHUP as i32 - 1) & 1, 1, "{ignored:x}");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.output().code, 0);
    wait_for_nothing_left(&home);
}

#[test]
fn sigkill_leaves_nothing() {
    let server = Server::start();
    let home = home(&server);
    let (running, _) = start(&home, &[]);
    running.signal(Signal::SIGKILL);
    wait_for_nothing_left(&home);

    // The guard or the server alone: then `dlock dev` ends, too.
    for victims in [guards, servers] {
        let (running, _) = start(&home, &[]);
        let [victim] = victims(&home)[..] else { panic!("one process") };
        kill(victim, Signal::SIGKILL).expect("it runs");
        let ended = running.output();
        assert_eq!(ended.code, 69, "{ended:?}");
        assert!(ended.stderr.contains(" has ended:\n"), "{ended:?}");
        wait_for_nothing_left(&home);
    }
}

#[test]
fn it_ends_with_its_parent() {
    let server = Server::start();
    let home = home(&server);
    // The shell starts it in the background and ends when its stdin does.
    let mut shell = Command::new("setsid");
    let words = dev(&home, &[]);
    shell.args(["sh", "-c", "\"$@\" & read line", "sh"]).args(words.get_args());
    shell.env("TMPDIR", &home).stdin(Stdio::piped());
    let mut shell = Running::start(shell);
    ping(&shell.line()).expect("it answers");
    shell.type_line("end");
    assert_eq!(shell.output().code, 0);
    wait_for_nothing_left(&home);
}

#[test]
fn it_ends_when_stdin_is_closed_only_if_asked_to() {
    let server = Server::start();
    let home = home(&server);
    let mut command = dev(&home, &["--with-stdin"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    ping(&running.line()).expect("it answers");
    running.type_line("nobody reads this");
    running.close_stdin();
    assert_eq!(running.output().code, 0);
    wait_for_nothing_left(&home);
    // As in all other tests here, whose stdin is empty from the start.
    let (running, url) = start(&home, &[]);
    ping(&url).expect("it still answers");
    drop(running);
    wait_for_nothing_left(&home);
}

#[test]
fn programs_get_json() {
    let server = Server::start();
    let home = home(&server);
    let port = free_port().to_string();
    let mut running = Running::start(dev(&home, &["--json", "--port", &port]));
    let about: serde_json::Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!(about["url"], format!("redis://127.0.0.1:{port}"));
    assert_eq!(about["module"], module_path(Profile::Dev).to_str().expect("text"));
    assert_eq!(about["pid"], running.pid().as_raw());
    assert_eq!(about["folder"], folders(&home)[0].to_str().expect("text"));

    // The port is taken: it says so and leaves nothing.
    let second = Running::start(dev(&home, &["--json", "--port", &port])).output();
    assert_eq!(second.code, 69, "{second:?}");
    assert!(second.stderr.contains("Address already in use"), "{second:?}");
    let error: serde_json::Value = serde_json::from_str(&second.stdout).expect("JSON");
    assert_eq!(error["exit-code"], 69);
    drop(running);
    wait_for_nothing_left(&home);
}

#[test]
fn relative_paths_work() {
    let server = Server::start();
    let home = home(&server);
    let script = server.dir().join("serve");
    let text = format!("#!/bin/sh\nexec '{}' \"$@\"\n", Binary::default().path());
    fs::write(&script, text).expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    let module = module_path(Profile::Dev);
    let folder = module.parent().expect("a folder");
    std::os::unix::fs::symlink(folder, server.dir().join("modules")).expect("a link");
    let args = ["--server", "./serve", "--module", "modules/libdlock.so"];
    let mut command = with(Path::new("tmp"), &args);
    command.current_dir(server.dir());
    let mut running = Running::start(command);
    ping(&running.line()).expect("it answers");
    drop(running);
    wait_for_nothing_left(&home);
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn a_command_gets_the_url_and_gives_its_exit_code() {
    let server = Server::start();
    let home = home(&server);
    let command = env!("CARGO_BIN_EXE_dlock");
    let script = format!("'{command}' run door -- echo locked; exit 7");
    let ended = output(&home, &["--", "sh", "-c", &script]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (7, "locked\n", ""));
    assert!(folders(&home).is_empty());

    // A signal goes to the command.
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    let mut running = Running::start(dev(&home, &["--", "sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.output().code, 9);

    assert_eq!(output(&home, &["--", "sh", "-c", "kill -KILL $$"]).code, 137);
    let none = output(&home, &["--", "no-such-program"]);
    assert_eq!(none.code, 127);
    assert_eq!(none.stderr, "dlock: no-such-program: no such command\n");
    wait_for_nothing_left(&home);
}

#[test]
fn mistakes_are_named() {
    let server = Server::start();
    let home = home(&server);
    let no_module = home.join("no-module.so");
    let no_module = no_module.to_str().expect("text");
    for (args, code, text) in [
        (&["--module", no_module][..], 64, "--module"),
        (&["--module", "/etc/passwd"], 69, "/etc/passwd failed to load"),
        (&["--server", "no-such-server"], 64, "--server \"no-such-server\" is no program"),
        (&["--server", "/bin/true", "--module", "/etc/passwd"], 69, "/bin/true does not start:"),
        (&["--port", "0"], 64, "--port"),
        (&["--json", "--", "true"], 64, "--json"),
    ] {
        let ended = Running::start(with(&home, args)).output();
        assert_eq!(ended.code, code, "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(text), "{args:?}: {ended:?}");
        wait_for_nothing_left(&home);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command.args(["dev", "--module", "/etc/passwd"]).env("PATH", "/nowhere");
    let ended = Running::start(command).output();
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (69, "dlock: there is no redis-server and no valkey-server in PATH (--server names one)\n")
    );
}
