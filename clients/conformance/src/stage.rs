//! A scene on its servers: performs the steps.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use dlock_testing::{Binary, Blocked, Proxy, Reply as _, Trigger, Way};
use tempfile::TempDir;

use crate::{
    driver::{Driver, Stop, after},
    pattern::matches,
    scene::{self, Line, Scene, Step, Times},
    servers::{Servers, show},
};

/// How long a step waits unless it says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two questions to a server.
const PAUSE: Duration = Duration::from_millis(10);
/// A token, and a request id, that the server has not issued and the client has not sent.
const FORGED: (&str, &str) = ("9007199254740991", "0123456789abcdef0123456789abcdef");

/// Where a scene stopped.
#[derive(Debug)]
pub struct Halt {
    /// The step: its line in the file, and its text. None: before the first or after the last one.
    pub at: Option<(usize, String)>,
    /// Why.
    pub why: Stop,
    /// The end of the driver's log.
    pub log: String,
}

struct Stage {
    servers: Servers,
    driver: Driver,
    command: Vec<String>,
    folder: TempDir,
    posted: Option<Blocked>,
    fault: Option<Trigger>,
    /// Requests that the proxy saw.
    requests: Vec<Vec<Vec<u8>>>,
    saved: BTreeMap<String, String>,
    marks: BTreeMap<String, Instant>,
    /// The end of the step before.
    before: Instant,
    /// Offsets of the driver's clocks: seconds of the wall clock, milliseconds of `CLOCK_BOOTTIME`.
    clocks: (i64, i64),
    /// Direction and number of bytes of the cut that `cut here` prepares, and the bytes so far.
    cut: Option<(Way, Option<usize>, u64)>,
}

/// Runs a scene with the driver that `command` starts.
pub fn run(scene: &Scene, binary: &Binary, command: &[String]) -> Result<(), Halt> {
    let early = |why| Halt { at: None, why, log: String::new() };
    let folder = tempfile::tempdir().map_err(|error| early(Stop::Failed(error.to_string())))?;
    let servers = Servers::start(scene, binary);
    let driver = Driver::start(command, folder.path()).map_err(|why| early(Stop::Kit(why)))?;
    let mut stage = Stage {
        servers,
        driver,
        command: command.to_vec(),
        folder,
        posted: None,
        fault: None,
        requests: Vec::new(),
        saved: BTreeMap::new(),
        marks: BTreeMap::new(),
        before: Instant::now(),
        clocks: (0, 0),
        cut: None,
    };
    stage.perform(&scene.steps)?;
    stage.finish().map_err(|why| stage.halt(None, why))
}

impl Stage {
    fn halt(&self, at: Option<&Line>, why: Stop) -> Halt {
        let at = at.map(|line| (line.number, self.filled(&line.text)));
        let wire = self.servers.proxy().map(Proxy::wire).unwrap_or_default();
        let wire = wire.into_iter().map(|frame| {
            let mark = if frame.way == Way::ToServer { '→' } else { '←' };
            (frame.at, mark, frame.to_string())
        });
        Halt { at, why, log: self.driver.log_tail(wire.collect()) }
    }

    fn finish(&self) -> Result<(), Stop> {
        self.driver.finish()?;
        if self.clocks == (0, 0) || self.driver.reads_clocks() {
            return Ok(());
        }
        let what = "clock that the kit can move (a static binary?): its pass proves nothing";
        Err(Stop::Unsupported(what.to_owned()))
    }

    fn perform(&mut self, steps: &[Line]) -> Result<(), Halt> {
        for line in steps {
            if let Step::EachByte { way, body } = &line.step {
                self.each_byte(line, *way, body)?;
            } else {
                let words = ["proxy", "server", "driver", "failover", "move", "wait", "cut"];
                if words.iter().any(|word| line.text.starts_with(word)) {
                    self.driver.note('$', &line.text);
                }
                self.step(&line.step).map_err(|why| self.halt(Some(line), why))?;
            }
            self.before = Instant::now();
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Tell(words) => self.tell(words)?,
            Step::Expect { subject, pattern, times, save } => {
                self.expect(subject, pattern, times, save.as_deref())?;
            }
            Step::Never { subject, pattern, time } => {
                let (subject, pattern) = (self.filled(subject), self.filled(pattern));
                self.driver.never(&subject, &pattern, after(*time))?;
            }
            Step::Redis { words, pattern, is_polled, save } => {
                let reply = self.redis(words, pattern.as_deref(), *is_polled)?;
                if let Some(name) = save {
                    self.save(name, &reply);
                }
            }
            Step::Post(words) => {
                let words = self.filled(words);
                self.driver.note('$', &format!("{words} (not awaited)"));
                let words: Vec<&str> = words.split(' ').collect();
                self.posted = Some(self.servers.first().post(&words));
            }
            Step::Reply(pattern) => {
                let posted = self.posted.as_mut().ok_or("no `async redis` before".to_owned())?;
                let reply = show(&posted.expect_reply(PATIENCE));
                self.demand(pattern, &reply)?;
            }
            Step::Honest { task, key, time } => self.honest(task, key, after(*time))?,
            Step::Forge { event, key, token } => self.forge(event, key, token.as_deref()),
            Step::Resend { pattern, reply } => self.resend(pattern, reply)?,
            Step::Requests { pattern, count, is_polled } => {
                let (pattern, end) = (self.filled(pattern), after(PATIENCE));
                loop {
                    let found = self.seen(&pattern).count();
                    if count.admits(found) {
                        break;
                    }
                    if !is_polled || Instant::now() > end {
                        return Err(format!("the client sent {found} requests `{pattern}`").into());
                    }
                    self.driver.never("", "", after(PAUSE))?;
                }
            }
            Step::Connections { is_ever, count, is_polled } => {
                let end = after(PATIENCE);
                loop {
                    let proxy = self.servers.proxy()?;
                    let found = if *is_ever { proxy.accepted() } else { proxy.open() };
                    if count.admits(found) {
                        break;
                    }
                    if !is_polled || Instant::now() > end {
                        return Err(format!("the client has or had {found} connections").into());
                    }
                    self.driver.never("", "", after(PAUSE))?;
                }
            }
            Step::Wait(time) => self.driver.never("", "", after(*time))?,
            Step::Mark(name) => drop(self.marks.insert(name.clone(), Instant::now())),
            Step::Proxy(what) => self.fault(what)?,
            Step::Server(what) => self.servers.perform(*what)?,
            Step::Driver(what) => self.process(*what)?,
            Step::Failover { is_by_death } => self.servers.fail_over(*is_by_death)?,
            Step::MoveSlot(key) => self.servers.move_slot(&self.filled(key))?,
            Step::CutHere => self.arm()?,
            Step::EachByte { .. } => return Err("`each byte` in `each byte`".to_owned().into()),
        }
        Ok(())
    }

    // Words

    fn filled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in self.saved.iter().rev() {
            text = text.replace(&format!("${name}"), value);
        }
        text
    }

    fn save(&mut self, name: &str, text: &str) {
        let last = text.split(' ').next_back().unwrap_or_default();
        self.saved.insert(name.to_owned(), last.to_owned());
    }

    fn demand(&self, pattern: &str, reply: &str) -> Result<(), Stop> {
        let pattern = self.filled(pattern);
        self.driver.note('=', reply);
        if matches(&pattern, reply) {
            return Ok(());
        }
        Err(Stop::Failed(format!("expected `{pattern}`, got `{reply}`")))
    }

    // The driver

    fn tell(&mut self, words: &str) -> Result<(), Stop> {
        let mut words = self.filled(words);
        let parts: Vec<&str> = words.split(' ').collect();
        if let ["open", name, options @ ..] = parts.as_slice() {
            let mut url = self.servers.url();
            let mut rest = Vec::new();
            for option in options {
                match option.split_once('=') {
                    Some(("db", number)) => url.push_str(number),
                    Some(("user", user)) => url = url.replace("://", &format!("://{user}@")),
                    _ => rest.push(*option),
                }
            }
            words = format!("open {name} {url} {}", rest.join(" "));
        }
        self.driver.tell(words.trim_end())
    }

    fn expect(
        &mut self,
        subject: &str,
        pattern: &str,
        times: &Times,
        save: Option<&str>,
    ) -> Result<(), Stop> {
        let (subject, pattern) = (self.filled(subject), self.filled(pattern));
        let start = match &times.of {
            None => self.before,
            Some(mark) => *self.marks.get(mark).ok_or(format!("no mark {mark}"))?,
        };
        let end = times.within.map_or(after(PATIENCE), |time| start + time);
        let (at, words) = self.driver.expect(&subject, &pattern, end)?;
        if let Some(from) = times.from.filter(|from| at < start + *from) {
            let early = (start + from - at).as_millis();
            return Err(format!("`{subject} {words}` came {early} ms too early").into());
        }
        if let Some(token) = words.strip_prefix("granted ") {
            self.save(&format!("token.{subject}"), token);
        }
        if let Some(name) = save {
            self.save(name, &words);
        }
        Ok(())
    }

    /// Fails if the client believes in a hold that the server does not know. The server is asked first, so no time
    /// passes in favour of the client.
    fn honest(&mut self, task: &str, key: &str, end: Instant) -> Result<(), Stop> {
        let (task, key) = (self.filled(task), self.filled(key));
        let token = self.filled(&format!("$token.{task}"));
        while Instant::now() < end {
            let known = self.ask(&format!("DLOCK.INFO {key}"))?;
            if !known.contains(&format!("token={token} ")) {
                self.driver.tell(&format!("check {task}"))?;
                if self.driver.expect(&task, "is held or is lost", after(PATIENCE))?.1 != "is lost"
                {
                    let why = format!("the client believes in {token}; the server has: {known}");
                    return Err(Stop::Failed(why));
                }
                // It has to stay lost.
                self.driver.never("", "", end.min(after(20 * PAUSE)))?;
            }
            self.driver.never("", "", after(PAUSE))?;
        }
        Ok(())
    }

    fn process(&mut self, what: scene::Driver) -> Result<(), Stop> {
        match what {
            scene::Driver::Stop => self.driver.stop(),
            scene::Driver::Continue => self.driver.go_on(),
            scene::Driver::Kill => self.driver.kill(),
            scene::Driver::Start => {
                let driver = Driver::start(&self.command, self.folder.path()).map_err(Stop::Kit)?;
                self.driver = driver.follow(&self.driver);
            }
            scene::Driver::Wallclock(seconds) => self.clocks.0 = seconds,
            scene::Driver::Suspend(time) => {
                self.driver.tell("suspend")?;
                self.driver.expect("driver", "ready", after(PATIENCE))?;
                self.clocks.0 += time / 1000;
                self.clocks.1 += time;
            }
        }
        if matches!(what, scene::Driver::Wallclock(_) | scene::Driver::Suspend(_)) {
            self.driver.move_clocks(self.clocks.0, self.clocks.1);
        }
        Ok(())
    }

    // Servers

    fn ask(&mut self, words: &str) -> Result<String, Stop> {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        self.servers.ask(&words)
    }

    fn redis(
        &mut self,
        words: &str,
        pattern: Option<&str>,
        is_polled: bool,
    ) -> Result<String, Stop> {
        let words = self.filled(words);
        self.driver.note('$', &words);
        let end = after(PATIENCE);
        loop {
            let reply = self.ask(&words)?;
            let wanted = pattern.map(|pattern| self.filled(pattern));
            if wanted.as_ref().is_some_and(|pattern| matches(pattern, &reply)) || !is_polled {
                let pattern = wanted.unwrap_or("*".to_owned());
                self.demand(&pattern, &reply)?;
                let is_error = reply.starts_with("error ") && !pattern.contains("error");
                return if is_error { Err(reply.into()) } else { Ok(reply) };
            }
            if Instant::now() > end {
                let wanted = wanted.unwrap_or_default();
                return Err(format!("expected `{wanted}`, the last reply was `{reply}`").into());
            }
            self.driver.never("", "", after(PAUSE))?;
        }
    }

    // Requests and faults

    /// Requests of the client that match, the oldest first.
    fn seen(&mut self, pattern: &str) -> impl Iterator<Item = &Vec<Vec<u8>>> {
        if let Ok(seen) = self.servers.proxy().map(Proxy::seen) {
            self.requests.extend(seen.into_iter().map(|seen| seen.command));
        }
        let is_seen = move |request: &&Vec<Vec<u8>>| {
            let words: Vec<_> = request.iter().map(|word| String::from_utf8_lossy(word)).collect();
            matches(pattern, &words.join(" "))
        };
        self.requests.iter().filter(is_seen)
    }

    /// Sends a copy of the client's latest request that matches.
    fn resend(&mut self, pattern: &str, wanted: &str) -> Result<(), Stop> {
        let pattern = self.filled(pattern);
        let latest = self.seen(&pattern).last().cloned();
        let latest = latest.ok_or(format!("the client sent no `{pattern}`"))?;
        let words: Vec<&[u8]> = latest.iter().map(Vec::as_slice).collect();
        let reply = self.servers.ask(&words)?;
        self.demand(wanted, &reply)
    }

    /// Publishes a message about a waiter, or a holder, that does not have the request's id.
    fn forge(&self, event: &str, key: &str, token: Option<&str>) {
        let key = self.filled(key);
        let server = self.servers.first();
        if event == "flushed" {
            server.cmd(&["PUBLISH", "dlock:notify", "flushed 0"]).int();
            return;
        }
        let waiters = server.cmd(&["DLOCK.WAITERS", &key]).items();
        let owner = match waiters.first() {
            Some(waiter) => waiter.field("owner").text(),
            None => server.cmd(&["DLOCK.INFO", &key]).field("owner").text(),
        };
        let (forged, id) = FORGED;
        let token = self.filled(token.unwrap_or(forged));
        let text = format!("{event} 0 {token} {} {owner} {} {id} {key}", owner.len(), id.len());
        for channel in server.cmd(&["PUBSUB", "CHANNELS", "dlock:notify:*"]).items() {
            self.driver.note('$', &format!("PUBLISH {} {text}", channel.text()));
            server.cmd(&["PUBLISH", &channel.text(), &text]).int();
        }
    }

    fn fault(&mut self, what: &scene::Proxy) -> Result<(), Stop> {
        use scene::Proxy as P;
        let proxy = self.servers.proxy()?;
        match what {
            P::Cut(how) => proxy.cut(*how),
            P::Refuse => proxy.refuse(),
            P::Accept => proxy.accept(),
            P::Stall(Some(way)) => proxy.stall(*way),
            P::Stall(None) => proxy.stall_all(),
            P::Mute => proxy.mute(),
            P::Flow => proxy.flow(),
            P::Heal => proxy.heal(),
            P::Delay(way, time) => proxy.delay(*way, *time),
            P::DropMessages => proxy.swallow_messages(),
            P::Fault(fault, name, times) => {
                let name = name.clone();
                let is_meant = move |command: &[Vec<u8>]| {
                    matches(&name, &String::from_utf8_lossy(&command[0]).to_uppercase())
                };
                self.fault = Some(proxy.on(*times, *fault, is_meant));
            }
            P::Struck => {
                let fault = self.fault.as_ref().ok_or("no fault before".to_owned())?;
                let end = after(PATIENCE);
                while fault.fired() == 0 {
                    if Instant::now() > end {
                        return Err("the client sent no such request".to_owned().into());
                    }
                    self.driver.never("", "", after(PAUSE))?;
                }
            }
        }
        Ok(())
    }

    fn each_byte(&mut self, line: &Line, way: Way, body: &[Line]) -> Result<(), Halt> {
        let fail = |stage: &Stage, why| stage.halt(Some(line), why);
        let (mut n, mut bytes) = (0, None);
        // The first pass counts the bytes.
        while bytes.is_none_or(|bytes| n <= bytes) {
            self.saved.insert("n".to_owned(), n.to_string());
            self.cut = Some((way, (n > 0).then_some(n), 0));
            if !body.iter().any(|line| matches!(line.step, Step::CutHere)) {
                self.arm().map_err(|why| fail(self, why))?;
            }
            self.perform(body)?;
            let from = self.cut.map_or(0, |(.., from)| from);
            let passed = self.passed(way).map_err(|why| fail(self, why))?;
            bytes = bytes.or_else(|| usize::try_from(passed - from).ok());
            self.servers.proxy().map_err(|why| fail(self, why))?.heal();
            n += 1;
        }
        self.driver.note('$', &format!("cut at each of {} bytes", n - 1));
        Ok(())
    }

    /// Prepares the cut of `each byte`, or begins to count.
    fn arm(&mut self) -> Result<(), Stop> {
        let (way, at, _) = self.cut.ok_or("`cut here` outside of `each byte`".to_owned())?;
        let from = self.passed(way)?;
        self.cut = Some((way, at, from));
        if let Some(at) = at {
            self.servers.proxy()?.cut_after(way, at);
        }
        Ok(())
    }

    /// Bytes in this direction so far.
    fn passed(&self, way: Way) -> Result<u64, Stop> {
        let traffic = self.servers.proxy()?.traffic();
        let bytes = traffic.iter().map(|one| match way {
            Way::ToServer => one.bytes_to_server,
            Way::ToClient => one.bytes_to_client,
        });
        Ok(bytes.sum())
    }
}
