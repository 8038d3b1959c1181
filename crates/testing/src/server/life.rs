//! The life of a server: start, hang, crash, restart, and checks of its log.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::PoisonError,
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use super::Server;
use crate::{
    client::{Client, Heard},
    process::Guarded,
    value::Reply as _,
    wait::{LIMIT, wait_until},
    wallclock::WallClock,
};

/// Each of these in the log fails the test.
const CRASH_MARKS: [&str; 5] =
    ["BUG REPORT START", "ASSERTION FAILED", "crashed by signal", "panicked", "internal error"];

/// Lines of the log that a failed test shows; of a crash report, the first ones.
const LOG_LINES: usize = 150;

impl Server {
    /// Shifts the server's wall clock by this many seconds from the true one. Needs
    /// [`Setup::preload_wallclock`](super::Setup::preload_wallclock).
    #[track_caller]
    pub fn shift_wall_clock(&self, seconds: i64) {
        let clock = self.wallclock.as_ref().expect("started with preload_wallclock()");
        clock.shift_nanos(seconds.checked_mul(1_000_000_000).expect("less than 292 years"));
    }

    /// SIGSTOP: the process hangs, its connections stay. Returns when it has stopped.
    #[track_caller]
    pub fn freeze(&self) {
        self.child().as_mut().expect("the server runs").freeze();
        let stat = format!("/proc/{}/stat", self.pid());
        wait_until("the server to stop", || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        });
    }

    /// SIGCONT: ends [`Server::freeze`].
    #[track_caller]
    pub fn thaw(&self) {
        self.child().as_mut().expect("the server runs").thaw();
    }

    /// SIGKILL, like a power cut. [`Server::start_again`] restarts the server.
    #[track_caller]
    pub fn kill9(&mut self) {
        let mut child = self.child().take().expect("the server runs");
        assert_eq!(child.ended(), None, "the server had died before kill9\n{}", self.log_tail());
        child.kill();
        self.forget_connection();
    }

    /// SHUTDOWN with these arguments (`NOSAVE`, `SAVE`, …); returns when the process has ended.
    #[track_caller]
    pub fn shutdown(&mut self, words: &[&str]) {
        let mut command = vec!["SHUTDOWN"];
        command.extend(words);
        let mut client = self.client();
        client.send(&command);
        if let Heard::Reply(refusal) = client.hear(LIMIT) {
            panic!("SHUTDOWN was refused: {}", refusal.show());
        }
        let mut child = self.child().take().expect("the server runs");
        wait_until("the server to end", || child.ended().is_some());
        self.forget_connection();
    }

    /// Starts it again with the same configuration, folder and port, after [`Server::kill9`] or [`Server::shutdown`].
    #[track_caller]
    pub fn start_again(&mut self) {
        if let Err(log) = self.try_start_again() {
            panic!("the server does not start again:\n{log}");
        }
    }

    /// The same; the log of a server that ends at its start.
    #[track_caller]
    pub fn try_start_again(&mut self) -> Result<(), String> {
        assert!(self.child().is_none(), "the server still runs");
        self.launch()
    }

    /// Makes the configuration name another module, without arguments, for the next [`Server::start_again`].
    #[track_caller]
    pub fn replace_module(&mut self, file: &Path) {
        assert!(self.child().is_none(), "the server still runs");
        let path = self.config_file();
        let text = fs::read_to_string(&path).expect("a file in a folder of ours");
        let named = format!("loadmodule {}", file.display());
        let is_module = |line: &str| line.starts_with("loadmodule ");
        let lines: Vec<&str> =
            text.lines().map(|line| if is_module(line) { &*named } else { line }).collect();
        assert!(lines.contains(&&*named), "the configuration names no module:\n{text}");
        fs::write(&path, lines.join("\n")).expect("a file in a folder of ours");
    }

    /// SHUTDOWN and start.
    #[track_caller]
    pub fn restart(&mut self) {
        self.shutdown(&[]);
        self.start_again();
    }

    /// Exit status of the server if it ended by itself.
    pub fn crashed(&self) -> Option<ExitStatus> {
        self.child().as_mut().and_then(Guarded::ended)
    }

    /// Ignores log lines with this text that would otherwise count as a crash.
    pub fn tolerate_in_log(&self, text: &str) {
        self.tolerated.lock().expect("no test thread fails here").push(text.to_owned());
    }

    /// All output of the server: its log, and stdout before the log was opened.
    pub fn log(&self) -> String {
        let read = |name| fs::read(self.dir.path().join(name)).unwrap_or_default();
        let mut text = read("output");
        text.extend(read("log"));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The end of [`Server::log`] with a heading; after a crash, the part from a little before it, where the stack is.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let crash =
            lines.iter().position(|line| CRASH_MARKS.iter().any(|mark| line.contains(mark)));
        let end = lines.len().saturating_sub(LOG_LINES);
        let from = crash.map_or(end, |crash| end.min(crash.saturating_sub(LOG_LINES / 3)));
        let shown = &lines[from..lines.len().min(from + LOG_LINES)];
        format!("--- log of the server on port {} ---\n{}\n---", self.port, shown.join("\n"))
    }

    /// Starts the process and waits until it serves; on failure returns its log.
    pub(super) fn launch(&mut self) -> Result<(), String> {
        let output = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("output"))
            .expect("a file in a folder of ours");
        let mut command = Command::new(self.binary.path());
        command
            .arg(self.config_file())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file handle"))
            .stderr(output);
        if self.preload {
            self.wallclock = Some(WallClock::install(self.dir.path(), &mut command));
        }
        // The socket file of the previous process refuses connections until the new one replaces it; that is fine.
        let child = Guarded::spawn(command)
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.binary.path()));
        *self.child() = Some(child);
        let start = Instant::now();
        while !self.serves() {
            if let Some(status) = self.crashed() {
                *self.child() = None;
                return Err(format!("{}\nended with {status}", self.log_tail()));
            }
            assert!(start.elapsed() < LIMIT, "no server after {LIMIT:?}\n{}", self.log_tail());
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether it accepts connections and has finished loading.
    fn serves(&self) -> bool {
        let Ok(mut client) = Client::connect(&self.socket, LIMIT) else {
            return false;
        };
        client.send(&["PING"]);
        matches!(client.hear(LIMIT), Heard::Reply(Value::SimpleString(pong)) if pong == "PONG")
    }

    /// An unexpected end of the server, if there was one.
    fn complaint(&self) -> Option<String> {
        if let Some(status) = self.crashed() {
            return Some(format!("the server died: {status}"));
        }
        let tolerated = self.tolerated.lock().unwrap_or_else(PoisonError::into_inner);
        let log = self.log();
        let bad = log.lines().find(|line| {
            CRASH_MARKS.iter().any(|mark| line.contains(mark))
                && !tolerated.iter().any(|text| line.contains(text))
        });
        bad.map(|line| format!("the server's log speaks of a crash: {line}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let complaint = self.complaint();
        // The process ends before the folder that it writes to is removed.
        *self.child() = None;
        if thread::panicking() {
            eprintln!("{}\n{}", complaint.unwrap_or_default(), self.log_tail());
        } else if let Some(complaint) = complaint {
            let _ = io::stderr().flush();
            panic!("{complaint}\n{}", self.log_tail());
        }
    }
}
