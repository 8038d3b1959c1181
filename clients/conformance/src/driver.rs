//! A driver: the process with the client under test, and what it said so far.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, PipeReader, PipeWriter, Write as _, pipe},
    path::Path,
    process::Command,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use dlock_testing::{Guarded, WallClock, wait_until};

use crate::pattern::matches;

/// Lines of the log that a failed scene shows.
const SHOWN: usize = 80;

/// What the driver said about one subject (a task, a client), and was not asked about yet.
#[derive(Debug, Default)]
struct Said {
    /// The words after the subject, with the time of their arrival.
    events: Vec<(Instant, String)>,
    /// The same, for replies to `check`: `is held`, `is lost`.
    checks: Vec<(Instant, String)>,
    /// The last release found that the hold had ended: a loss that is reported late does not matter.
    is_over: bool,
}

#[derive(Debug, Default)]
struct State {
    said: BTreeMap<String, Said>,
    log: Vec<Logged>,
    unsupported: Option<String>,
    ended: bool,
}

/// A line of the log: when, `<`, `>` or another mark, and the text.
pub type Logged = (Instant, char, String);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, mark: char, line: &str) {
        self.lock().log.push((Instant::now(), mark, line.to_owned()));
    }

    fn hear(&self, line: &str) {
        self.log('<', line);
        let (subject, words) = line.split_once(' ').unwrap_or((line, ""));
        let mut state = self.lock();
        if let Some(what) = words.strip_prefix("unsupported") {
            state.unsupported = Some(what.trim().to_owned());
        }
        let said = state.said.entry(subject.to_owned()).or_default();
        let list = if words.starts_with("is ") { &mut said.checks } else { &mut said.events };
        list.push((Instant::now(), words.to_owned()));
        self.changed.notify_all();
    }
}

/// Why a step did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The client did not do what the scene expects.
    Failed(String),
    /// The client has no such feature: the scene does not count.
    Unsupported(String),
    /// The kit could not go on: a server did not start, or ended.
    Kit(String),
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Failed(text)
    }
}

/// A running driver. Dropping it kills the process.
#[derive(Debug)]
pub struct Driver {
    process: Guarded,
    input: PipeWriter,
    clock: WallClock,
    start: Instant,
    shared: Arc<Shared>,
}

impl Driver {
    /// Starts `command`. `folder` is for files of the kit.
    pub fn start(command: &[String], folder: &Path) -> Result<Driver, String> {
        let (errors, child_errors) = pipe().map_err(|error| error.to_string())?;
        let adapt =
            |process: &mut Command| WallClock::install(folder, process.stderr(child_errors));
        let (process, input, output, clock) = start(command, adapt)?;
        let state = Mutex::default();
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        read(output, {
            let shared = shared.clone();
            move |line| {
                if let Some(line) = line {
                    shared.hear(line);
                } else {
                    shared.lock().ended = true;
                    shared.changed.notify_all();
                }
            }
        });
        read(errors, {
            let shared = shared.clone();
            move |line| line.into_iter().for_each(|line| shared.log('!', line))
        });
        Ok(Driver { process, input, clock, start: Instant::now(), shared })
    }

    /// Goes on with the log of an earlier process.
    pub fn follow(self, earlier: &Driver) -> Driver {
        self.shared.lock().log = std::mem::take(&mut earlier.shared.lock().log);
        Driver { start: earlier.start, ..self }
    }

    /// Sends it one line.
    pub fn tell(&mut self, line: &str) -> Result<(), Stop> {
        self.note('>', line);
        let sent = writeln!(self.input, "{line}");
        sent.map_err(|error| Stop::Failed(format!("the driver has ended: {error}")))
    }

    /// Adds a line to the log of the scene.
    pub fn note(&self, mark: char, line: &str) {
        self.shared.log(mark, line);
    }

    /// The next event of `subject` until `end`, which has to match; returns its time and its words.
    pub fn expect(
        &self,
        subject: &str,
        pattern: &str,
        end: Instant,
    ) -> Result<(Instant, String), Stop> {
        let mut state = self.shared.lock();
        loop {
            let said = state.said.entry(subject.to_owned()).or_default();
            let is_check = pattern.starts_with("is ");
            let list = if is_check { &mut said.checks } else { &mut said.events };
            // Whether the loss was reported before the release found out is a matter of time.
            let is_end = ["was-lost", "unknown"].iter().any(|word| pattern.contains(word));
            if is_end && list.first().is_some_and(|(_, words)| words == "lost") {
                list.remove(0);
            }
            if !list.is_empty() {
                let (at, words) = list.remove(0);
                if let Some(what) = state.unsupported.clone() {
                    return Err(Stop::Unsupported(what));
                }
                if !matches(pattern, &words) {
                    return Err(Stop::Failed(format!("expected `{pattern}`, got `{words}`")));
                }
                if at > end {
                    let late = (at - end).as_millis();
                    return Err(Stop::Failed(format!("`{words}` came {late} ms too late")));
                }
                state.said.entry(subject.to_owned()).or_default().is_over = is_end;
                return Ok((at, words));
            }
            if let Some(what) = &state.unsupported {
                return Err(Stop::Unsupported(what.clone()));
            }
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() || state.ended {
                let has_spoken = state.log.iter().any(|(_, mark, _)| *mark == '<');
                let how = match (state.ended, has_spoken) {
                    (true, _) => "the driver has ended",
                    (false, true) => "nothing came in time",
                    (false, false) => "the driver has said nothing yet: is the machine busy?",
                };
                return Err(Stop::Failed(format!("expected `{subject} {pattern}`: {how}")));
            }
            let waited = self.shared.changed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Fails if an event of `subject` that matches comes before `end`.
    pub fn never(&self, subject: &str, pattern: &str, end: Instant) -> Result<(), Stop> {
        let mut state = self.shared.lock();
        loop {
            if let Some(what) = &state.unsupported {
                return Err(Stop::Unsupported(what.clone()));
            }
            let events = state.said.get(subject).map_or(&[][..], |said| &said.events);
            if let Some((_, words)) = events.iter().find(|(_, words)| matches(pattern, words)) {
                return Err(Stop::Failed(format!("`{subject} {words}` must not come here")));
            }
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(());
            }
            let waited = self.shared.changed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Fails if the driver said something that the scene did not expect, or lacks a feature.
    pub fn finish(&self) -> Result<(), Stop> {
        let state = self.shared.lock();
        if let Some(what) = &state.unsupported {
            return Err(Stop::Unsupported(what.clone()));
        }
        for (subject, said) in &state.said {
            let unread = said.events.iter().find(|(_, words)| !(said.is_over && words == "lost"));
            if let Some((_, words)) = unread {
                return Err(Stop::Failed(format!("no step expects `{subject} {words}`")));
            }
        }
        Ok(())
    }

    /// SIGSTOP; returns when it has stopped.
    pub fn stop(&mut self) {
        self.process.freeze();
        let stat = format!("/proc/{}/stat", self.process.id());
        wait_until("the driver to stop", || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        });
    }

    /// SIGCONT.
    pub fn go_on(&mut self) {
        self.process.thaw();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Moves its wall clock by seconds, and `CLOCK_BOOTTIME` by milliseconds, from the true ones.
    pub fn move_clocks(&self, wall: i64, boot_ms: i64) {
        self.clock.shift_nanos(wall.saturating_mul(1_000_000_000));
        self.clock.shift_boottime_nanos(boot_ms.saturating_mul(1_000_000));
    }

    /// Whether the process has read a clock that the kit can move, since it was moved.
    pub fn reads_clocks(&self) -> bool {
        self.clock.was_read()
    }

    /// The last lines of the log, with what passed on the wire.
    pub fn log_tail(&self, wire: Vec<Logged>) -> String {
        let mut log = self.shared.lock().log.clone();
        log.extend(wire);
        log.sort_by_key(|(at, ..)| *at);
        let shown = log[log.len().saturating_sub(SHOWN)..].iter().map(|(at, mark, text)| {
            let at = at.saturating_duration_since(self.start).as_secs_f64();
            format!("{at:8.3} {mark} {text}")
        });
        shown.collect::<Vec<_>>().join("\n    ")
    }
}

/// Starts a driver after `adapt`. Returns its process, its input, its output, and what `adapt` returned.
pub(crate) fn start<T>(
    command: &[String],
    adapt: impl FnOnce(&mut Command) -> T,
) -> Result<(Guarded, PipeWriter, PipeReader, T), String> {
    let [program, arguments @ ..] = command else { return Err("no driver".to_owned()) };
    let fail = |error| format!("cannot run {program}: {error}");
    let (child_input, input) = pipe().map_err(fail)?;
    let (output, child_output) = pipe().map_err(fail)?;
    let mut process = Command::new(program);
    process.args(arguments).stdin(child_input).stdout(child_output);
    let adapted = adapt(&mut process);
    Ok((Guarded::spawn(process).map_err(fail)?, input, output, adapted))
}

/// Calls `each` with every line, and with None at the end, on a thread.
pub(crate) fn read(from: PipeReader, each: impl Fn(Option<&str>) + Send + 'static) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            each(Some(line.trim_end()));
        }
        each(None);
    });
}

/// The moment after `time`.
pub fn after(time: Duration) -> Instant {
    Instant::now() + time
}
