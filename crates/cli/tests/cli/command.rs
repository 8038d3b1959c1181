//! Starts and ends the command under test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testing::{LIMIT, Server};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Result of the command.
#[derive(Debug, PartialEq, Eq)]
pub struct Output {
    /// As in shells: 128 + n for a signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The command in a new session, detached from the terminal of the test run. All signals have their default action,
/// also if the test run ignores some, as under nohup(1).
pub fn detached(args: &[&str]) -> Command {
    with_signals("--default-signal", args)
}

/// As [`detached`], with this option of env(1) for signals.
pub fn with_signals(option: &str, args: &[&str]) -> Command {
    let mut command = Command::new("setsid");
    command.args(["env", option, env!("CARGO_BIN_EXE_dlock")]).args(args);
    command
}

/// As [`detached`], for this server.
pub fn dlock(server: &Server, args: &[&str]) -> Command {
    for_server(server, detached(args))
}

/// `command` with the URL of this server, and nothing to read.
pub fn for_server(server: &Server, mut command: Command) -> Command {
    command.env("DLOCK_URL", server.url()).stdin(Stdio::null());
    command
}

/// Runs it to its end.
#[track_caller]
pub fn output(server: &Server, args: &[&str]) -> Output {
    Running::start(dlock(server, args)).output()
}

/// Runs it to its end; returns stdout. Fails unless it succeeds with an empty stderr.
#[track_caller]
pub fn stdout(server: &Server, args: &[&str]) -> String {
    let output = output(server, args);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}: {output:?}");
    output.stdout
}

/// The running command. Dropping it ends it and its children.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<thread::JoinHandle<String>>,
}

impl Running {
    #[track_caller]
    pub fn start(mut command: Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("setsid and dlock");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (to, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = to.send(line);
            }
        });
        let mut stderr = child.stderr.take().expect("a pipe");
        let stderr = Some(thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        }));
        Running { stdin: child.stdin.take(), child, lines, stderr }
    }

    /// `dlock run` with these arguments.
    #[track_caller]
    pub fn run(server: &Server, args: &[&str]) -> Running {
        let mut command = dlock(server, &["run"]);
        Running::start({
            command.args(args).stdin(Stdio::piped());
            command
        })
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    /// The next line of its stdout.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.lines.recv_timeout(LIMIT).expect("a line of output in time")
    }

    /// Types a line into its stdin.
    pub fn type_line(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("a pipe"), "{line}").expect("an open pipe");
    }

    /// Ends its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end; returns its exit status.
    #[track_caller]
    pub fn status(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "it still runs after {LIMIT:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end; returns the output that was not yet read.
    #[track_caller]
    pub fn output(mut self) -> Output {
        let status = self.status();
        let stdout: String = self.lines.iter().map(|line| line + "\n").collect();
        let stderr = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Output { code: code.expect("an end"), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Asked first, it ends its children, which may be in another group.
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(2) {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            let _ = kill(self.pid(), Signal::SIGTERM);
            let _ = kill(self.pid(), Signal::SIGCONT);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether a process exists and is not a zombie.
pub fn lives(pid: &str) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The state letter of a process: R, S, T, Z, …
pub fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
