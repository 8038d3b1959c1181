//! The world of the model: clients that drive the real [`Attempt`], servers that follow the command reference, and
//! messages that may take for ever.
//!
//! Time goes in ticks, all monotonic clocks at the same speed. Between two ticks anything may happen in any order: a
//! client begins, hears answers, looks at its timer (late, if at all), renews, releases; a server works off one of
//! the requests that are on their way to it; a server crashes or comes back. Nothing has to happen, so a message that
//! is never delivered is a lost one, and a client that does nothing is a slow or a dead one.
//!
//! Two things keep the number of states small and lose no behaviour:
//! - A client hears several answers in one step, and only if it then does something. Had it heard some of them
//!   before, it would have waited; and an answer that it has not heard yet can still be lost.
//! - States that differ only by when they are reached are one: [`World::mark`] counts times and tokens from now.
//!   So there is no last tick.

use std::{
    fmt::Write,
    hash::{Hash, Hasher},
    time::Duration,
};

use crate::attempt::{Answer, Ask, Attempt, Call, Standing, Terms};

pub const SERVERS: usize = 3;
pub const MOST_TRIES: usize = 3;

/// One tick: long against everything in the algorithm that is counted in milliseconds.
const TICK: Duration = Duration::from_secs(1);

/// How far a server's wall clock goes in a tick, in tokens: more than are granted in any history.
const TOKENS_A_TICK: u64 = 16;

/// The wall clock at the beginning, in tokens. No other number in an [`Attempt`] is as large.
const EPOCH: u64 = 1_000_000;

/// What a server that crashed still has when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Everything that it did: `appendfsync always`.
    DataKept,
    DataLost,
}

/// One thing that the client does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Sends no FENCE and behaves as if all had been acknowledged.
    NoWriteBack,
    /// Sends FENCE and does not wait for the acknowledgement.
    TrustsUnacknowledged,
    /// Takes the validity before it sends FENCE, and counts it from when it returns.
    OldValidity,
    /// Counts the lease from the first answer that it hears.
    LeaseFromFirstAnswer,
    /// Counts a renewed lease from when the renewals are answered.
    LeaseFromRenewed,
}

/// What may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Which client makes which try; a client makes its next one after the one before is over.
    pub tries: &'static [u8],
    /// Ticks.
    pub lease: u8,
    /// How far each server's wall clock is ahead, in ticks.
    pub ahead: [u64; SERVERS],
    /// How many requests are lost, or later than in the same tick; those to a server that is down are not counted.
    /// Answers may all be late or lost.
    pub late: u8,
    /// How often an ACQUIRE reaches its server twice.
    pub repeats: u8,
    /// How often a client loses a connection on which it waits for an answer, and hears of it.
    pub cuts: u8,
    /// How often each try may renew.
    pub renewals: u8,
    pub crashes: u8,
    pub crash: Crash,
    /// `dlock.restart-quarantine-ms`, in ticks.
    pub quarantine: u8,
    pub mistake: Option<Mistake>,
}

impl Rules {
    fn terms(&self) -> Terms {
        Terms { lease: TICK * u32::from(self.lease), timeout: TICK }
    }

    /// After so many ticks without an answer no attempt changes any more.
    fn longest(&self) -> u16 {
        u16::from(self.lease) * (u16::from(self.renewals) + 1) + 1
    }
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    owner: usize,
    token: u64,
    until: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    /// Since when it is down.
    down: Option<u16>,
    quarantine: u16,
    last: u64,
    hold: Option<Hold>,
}

/// What is on its way between one try and one server.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    acquire: bool,
    fence: bool,
    /// Of this round.
    renew: Option<u8>,
    release: bool,
    acquired: Reply,
    fenced: Reply,
    renewed: Reply,
    /// Which of the requests are late.
    late: [bool; 4],
    /// The client waits for an answer to ACQUIRE, FENCE, this round of RENEW.
    waits: [Option<u8>; 3],
}

/// An answer on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Reply {
    #[default]
    None,
    No,
    Token(u32),
}

#[derive(Clone, Debug, Default)]
struct Try {
    attempt: Option<Attempt>,
    begun: u16,
    lines: [Line; SERVERS],
    /// T, once it is chosen.
    token: u64,
    renewals: u8,
    /// Until which tick (not including it) the client believes that it holds the lock.
    believes: Option<u16>,
    /// When FENCE or the last RENEW was sent, if any was; for mistakes only.
    sent: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Acquire,
    Fence,
    Renew,
    Release,
}

const ANSWERED: [Kind; 3] = [Kind::Acquire, Kind::Fence, Kind::Renew];

/// One step of a history. Numbers are of tries and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Tick,
    Begin(u8),
    /// The client hears the answers of these servers (a set of bits), hears that the connections to those are lost,
    /// and looks at its timer.
    Hear {
        t: u8,
        heard: u8,
        cut: u8,
        wake: bool,
    },
    Renew(u8),
    Release(u8),
    /// The server works off a request; with `true` a repeat of it is still to come.
    Serve(u8, u8, Kind, bool),
    Crash(u8),
    Restart(u8),
}

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Two clients believe that they hold the lock.
    TwoHolders,
    /// A lock was returned with a token that is not larger than one that was returned before.
    TokenNotLarger,
}

#[derive(Clone, Debug)]
pub struct World {
    now: u16,
    servers: [Server; SERVERS],
    tries: [Try; MOST_TRIES],
    /// The largest token that was returned.
    top: u64,
    late: u8,
    repeats: u8,
    cuts: u8,
    crashes: u8,
}

/// Where a history is written to, if it is.
pub type Log<'a> = Option<&'a mut String>;

macro_rules! say {
    ($log:expr, $world:expr, $($text:tt)*) => {
        if let Some(log) = $log.as_deref_mut() {
            let _ = write!(log, "  {:>2}  ", $world.now);
            let _ = writeln!(log, $($text)*);
        }
    };
}

impl World {
    pub fn new(rules: &Rules) -> Self {
        Self {
            now: 0,
            servers: [Server::default(); SERVERS],
            tries: std::array::from_fn(|_| Try::default()),
            top: 0,
            late: rules.late,
            repeats: rules.repeats,
            cuts: rules.cuts,
            crashes: rules.crashes,
        }
    }

    /// Everything that can happen next.
    pub fn events(&self, rules: &Rules, events: &mut Vec<Event>) {
        events.clear();
        // All begins somewhere, and the clients are alike.
        if self.tries[0].attempt.is_none() {
            events.push(Event::Begin(0));
            return;
        }
        for (number, t) in (0u8..).zip(&self.tries).take(rules.tries.len()) {
            self.events_of_try(number, t, rules, events);
            for (place, line) in (0u8..).zip(&t.lines) {
                if self.servers[usize::from(place)].down.is_none() {
                    requests(number, place, line, self.repeats, events);
                }
            }
        }
        for (place, server) in (0u8..).zip(&self.servers) {
            match server.down {
                None if self.crashes > 0 => events.push(Event::Crash(place)),
                // A restart takes time: clocks go on.
                Some(since) if self.now > since => events.push(Event::Restart(place)),
                _ => {}
            }
        }
        events.push(Event::Tick);
    }

    fn events_of_try(&self, number: u8, t: &Try, rules: &Rules, events: &mut Vec<Event>) {
        let Some(attempt) = &t.attempt else {
            let client = rules.tries[usize::from(number)];
            let before = rules.tries[..usize::from(number)].iter().rposition(|c| *c == client);
            let free = before.is_none_or(|before| {
                self.tries[before].attempt.as_ref().is_some_and(Attempt::is_over)
            });
            if free {
                events.push(Event::Begin(number));
            }
            return;
        };
        if matches!(attempt.standing(), Standing::Held { .. }) {
            events.push(Event::Release(number));
            if t.renewals < rules.renewals {
                events.push(Event::Renew(number));
            }
        }
        let (mut replies, mut waits) = (0u8, 0u8);
        for (s, line) in t.lines.iter().enumerate() {
            let on_the_way = [line.acquired, line.fenced, line.renewed];
            replies |= u8::from(on_the_way.iter().any(|reply| *reply != Reply::None)) << s;
            waits |= u8::from(line.waits.iter().any(Option::is_some)) << s;
        }
        let due = attempt.next_tick().is_some_and(|due| due <= self.since(t));
        for heard in (0..8u8).filter(|heard| heard & !replies == 0) {
            for cut in [0, 1, 2, 4u8] {
                if cut & !(waits & !heard) == 0 && (cut == 0 || self.cuts > 0) {
                    if heard | cut != 0 {
                        events.push(Event::Hear { t: number, heard, cut, wake: false });
                    }
                    if due {
                        events.push(Event::Hear { t: number, heard, cut, wake: true });
                    }
                }
            }
        }
    }

    fn since(&self, t: &Try) -> Duration {
        TICK * u32::from(self.now - t.begun)
    }

    fn clock(&self, s: usize, rules: &Rules) -> u64 {
        EPOCH + (u64::from(self.now) + rules.ahead[s]) * TOKENS_A_TICK
    }

    /// Lets it happen. `None`: nothing came of it, or the same as of another event.
    pub fn step(
        &mut self,
        event: Event,
        rules: &Rules,
        mut log: Log,
    ) -> Option<Result<(), Broken>> {
        let mut fine = Ok(());
        match event {
            Event::Tick => {
                self.go_late()?;
                self.now += 1;
                for server in self.servers.iter_mut().filter(|server| server.down.is_none()) {
                    server.hold = server.hold.filter(|hold| hold.until > self.now);
                }
            }
            Event::Begin(t) => {
                let (attempt, calls) = Attempt::start(SERVERS, rules.terms());
                let a = &mut self.tries[usize::from(t)];
                a.attempt = Some(attempt);
                a.begun = self.now;
                say!(log, self, "{} asks all servers", name(t, rules));
                fine = self.send(t, calls, rules, &mut log);
            }
            Event::Hear { t, heard, cut, wake } => {
                fine = self.hear(t, heard, cut, wake, rules, &mut log)?;
            }
            Event::Renew(t) => {
                say!(log, self, "{} renews", name(t, rules));
                self.tries[usize::from(t)].renewals += 1;
                fine = self.drive(t, rules, &mut log, Attempt::renew).1;
            }
            Event::Release(t) => {
                say!(log, self, "{} releases", name(t, rules));
                fine = self.drive(t, rules, &mut log, |attempt, _| attempt.release()).1;
            }
            Event::Serve(t, s, kind, again) => {
                self.repeats -= u8::from(again);
                self.serve(t, s, kind, again, rules, &mut log);
            }
            Event::Crash(s) => {
                say!(log, self, "s{s} crashes ({:?})", rules.crash);
                self.crashes -= 1;
                let server = &mut self.servers[usize::from(s)];
                server.down = Some(self.now);
                if rules.crash == Crash::DataLost {
                    server.last = 0;
                    server.hold = None;
                }
            }
            Event::Restart(s) => {
                say!(log, self, "s{s} is back");
                let server = &mut self.servers[usize::from(s)];
                server.down = None;
                server.quarantine = self.now + u16::from(rules.quarantine);
                // The AOF knows the lease of a hold, not what was left of it.
                if let Some(hold) = &mut server.hold {
                    hold.until = self.now + u16::from(rules.lease);
                }
            }
        }
        self.forget(rules);
        Some(fine.and_then(|()| self.two_holders(rules, &mut log)))
    }

    /// What is on its way now will be late. `None` if that is too much.
    fn go_late(&mut self) -> Option<()> {
        let down = self.servers.map(|server| server.down.is_some());
        let lines = self.tries.iter_mut().flat_map(|t| t.lines.iter_mut().zip(down));
        for line in lines.filter_map(|(line, down)| (!down).then_some(line)) {
            for (there, late) in line.requests().into_iter().zip(&mut line.late) {
                if there && !*late {
                    self.late = self.late.checked_sub(1)?;
                    *late = true;
                }
            }
        }
        Some(())
    }

    fn serve(&mut self, t: u8, s: u8, kind: Kind, again: bool, rules: &Rules, log: &mut Log) {
        let owner = usize::from(t);
        let clock = self.clock(s.into(), rules);
        let wanted = self.tries[owner].token;
        let line = &mut self.tries[owner].lines[usize::from(s)];
        let server = &mut self.servers[usize::from(s)];
        let mine = server.hold.filter(|hold| hold.owner == owner);
        let until = self.now + u16::from(rules.lease);
        let reply = match kind {
            Kind::Acquire => {
                line.acquire = again;
                if mine.is_none() && server.hold.is_none() && server.quarantine <= self.now {
                    server.last = (server.last + 1).max(clock);
                    server.hold = Some(Hold { owner, token: server.last, until });
                }
                let reply = server.hold.filter(|hold| hold.owner == owner);
                let reply = reply.map_or(Reply::No, |hold| Reply::token(hold.token));
                // A repeat is answered to nobody if the client has its answer.
                if line.waits[0].is_some() {
                    line.acquired = reply;
                }
                reply
            }
            Kind::Fence => {
                line.fence = false;
                line.fenced = match mine {
                    None => Reply::No,
                    Some(hold) => {
                        let raised = hold.token.max(wanted);
                        server.hold = Some(Hold { token: raised, ..hold });
                        server.last = server.last.max(raised);
                        Reply::token(raised)
                    }
                };
                line.fenced
            }
            Kind::Renew => {
                line.renew = None;
                line.renewed = match mine.filter(|hold| hold.token == wanted) {
                    None => Reply::No,
                    Some(hold) => {
                        server.hold = Some(Hold { until, ..hold });
                        Reply::token(hold.token)
                    }
                };
                line.renewed
            }
            Kind::Release => {
                line.release = false;
                if mine.is_some() {
                    server.hold = None;
                }
                Reply::None
            }
        };
        if log.is_some() {
            let hold = server.hold.map_or("free".into(), |hold| {
                let Hold { token, until, .. } = hold;
                format!("{} with {token} until {until}", name_of(hold.owner, rules))
            });
            say!(log, self, "s{s} serves {kind:?} of {}: {reply:?}; now {hold}", name(t, rules));
        }
    }

    /// `None` if the client goes on waiting afterwards: then it may as well hear it later.
    fn hear(
        &mut self,
        t: u8,
        heard: u8,
        cut: u8,
        wake: bool,
        rules: &Rules,
        log: &mut Log,
    ) -> Option<Result<(), Broken>> {
        let (mut acted, mut fine) = (false, Ok(()));
        for s in (0..3u8).filter(|s| (heard | cut) & (1 << s) != 0) {
            for (n, kind) in ANSWERED.into_iter().enumerate() {
                let a = &mut self.tries[usize::from(t)];
                let line = &mut a.lines[usize::from(s)];
                let reply = match kind {
                    Kind::Acquire => &mut line.acquired,
                    Kind::Fence => &mut line.fenced,
                    _ => &mut line.renewed,
                };
                let answer = match *reply {
                    _ if line.waits[n].is_none() => continue,
                    _ if cut & (1 << s) != 0 => Answer::Unknown,
                    Reply::None => continue,
                    Reply::No => Answer::No,
                    Reply::Token(token) => Answer::Token(token.into()),
                };
                *reply = Reply::None;
                let Some(round) = line.waits[n].take() else { continue };
                let ask = match kind {
                    Kind::Acquire => Ask::Acquire,
                    Kind::Fence => Ask::Fence(a.token),
                    _ => Ask::Renew { token: a.token, round: round.into() },
                };
                say!(log, self, "{} hears from s{s} of {kind:?}: {answer:?}", name(t, rules));
                let (did, is_fine) = self.answered(t, s, ask, answer, rules, log);
                acted |= did;
                fine = fine.and(is_fine);
            }
        }
        self.cuts -= u8::from(cut != 0);
        if wake {
            say!(log, self, "{} looks at its timer", name(t, rules));
            let (did, is_fine) = self.drive(t, rules, log, Attempt::tick);
            acted |= did;
            fine = fine.and(is_fine);
        }
        acted.then_some(fine)
    }

    fn answered(
        &mut self,
        t: u8,
        s: u8,
        ask: Ask,
        answer: Answer,
        rules: &Rules,
        log: &mut Log,
    ) -> (bool, Result<(), Broken>) {
        let call = Call { server: s.into(), ask };
        let a = &mut self.tries[usize::from(t)];
        let first = a.lines.iter().filter(|line| line.waits[0].is_none()).count() == 1;
        if rules.mistake == Some(Mistake::LeaseFromFirstAnswer) && ask == Ask::Acquire && first {
            a.begun = self.now;
        }
        let old = rules.mistake == Some(Mistake::OldValidity) && matches!(ask, Ask::Fence(_));
        let then = TICK * u32::from(a.sent.unwrap_or(a.begun) - a.begun);
        self.drive(t, rules, log, |attempt, now| {
            attempt.answered(if old { then } else { now }, call, answer)
        })
    }

    /// Lets the algorithm take a step and sends what it says. Also says whether anything came of it.
    fn drive(
        &mut self,
        t: u8,
        rules: &Rules,
        log: &mut Log,
        step: impl FnOnce(&mut Attempt, Duration) -> Vec<Call>,
    ) -> (bool, Result<(), Broken>) {
        let now = self.since(&self.tries[usize::from(t)]);
        let a = &mut self.tries[usize::from(t)];
        let Some(attempt) = &mut a.attempt else { return (false, Ok(())) };
        let before = attempt.standing();
        let calls = step(attempt, now);
        let after = attempt.standing();
        if let Standing::Held { until, token } = after {
            a.token = token;
            if before != after {
                let ticks = until.as_millis().div_ceil(TICK.as_millis());
                let late = a.sent.filter(|_| a.counts_from_now(before, rules));
                let late = late.map_or(0, |sent| self.now - sent);
                a.believes = Some(a.begun + u16::try_from(ticks).unwrap() + late);
            }
        } else {
            a.believes = None;
        }
        if before != after {
            say!(log, self, "{}: {after:?}", name(t, rules));
        }
        let acted = before != after || !calls.is_empty();
        let mut fine = Ok(());
        if before == Standing::Pending
            && let Standing::Held { token, .. } = after
        {
            if token <= self.top {
                say!(log, self, "but {} was returned before", self.top);
                fine = Err(Broken::TokenNotLarger);
            }
            self.top = self.top.max(token);
        }
        (acted, fine.and(self.send(t, calls, rules, log)))
    }

    fn send(
        &mut self,
        t: u8,
        calls: Vec<Call>,
        rules: &Rules,
        log: &mut Log,
    ) -> Result<(), Broken> {
        let mut trusted = Vec::new();
        let a = &mut self.tries[usize::from(t)];
        for call in calls {
            let line = &mut a.lines[call.server];
            match call.ask {
                Ask::Acquire => {
                    line.acquire = true;
                    line.waits[0] = Some(0);
                }
                Ask::Release => line.release = true,
                Ask::Renew { round, .. } => {
                    let round = Some(u8::try_from(round).unwrap());
                    line.renew = round;
                    line.renewed = Reply::None;
                    line.waits[2] = round;
                    a.sent = Some(self.now);
                }
                Ask::Fence(token) => {
                    a.token = token;
                    a.sent = Some(self.now);
                    line.fence = rules.mistake != Some(Mistake::NoWriteBack);
                    line.waits[1] = Some(0);
                    if matches!(
                        rules.mistake,
                        Some(Mistake::NoWriteBack | Mistake::TrustsUnacknowledged)
                    ) {
                        line.waits[1] = None;
                        trusted.push((call, Answer::Token(token)));
                    }
                }
            }
        }
        let mut fine = Ok(());
        for (call, answer) in trusted {
            let answered =
                |attempt: &mut Attempt, now: Duration| attempt.answered(now, call, answer);
            fine = fine.and(self.drive(t, rules, log, answered).1);
        }
        fine
    }

    /// Drops messages that nobody minds, so that states that behave alike are alike.
    fn forget(&mut self, rules: &Rules) {
        for (owner, t) in self.tries.iter_mut().enumerate() {
            let doomed = t.is_doomed(self.now, rules);
            let Some(attempt) = &t.attempt else { continue };
            let over = attempt.is_over() || doomed;
            for (line, server) in t.lines.iter_mut().zip(&self.servers) {
                let may_hold = line.acquire || server.hold.is_some_and(|hold| hold.owner == owner);
                line.release &= may_hold;
                if over {
                    line.fence &= may_hold;
                    line.renew = line.renew.filter(|_| may_hold);
                    line.fenced = Reply::None;
                    line.renewed = Reply::None;
                    line.waits[1..].fill(None);
                    // Only a grant that can still be there is given back again.
                    if !doomed
                        && attempt.next_tick().is_none()
                        && (!may_hold || line.acquired == Reply::No)
                    {
                        line.acquired = Reply::None;
                        line.waits[0] = line.waits[0].filter(|_| line.acquire);
                    }
                }
                for (there, late) in line.requests().into_iter().zip(&mut line.late) {
                    *late &= there;
                }
            }
        }
    }

    fn two_holders(&self, rules: &Rules, log: &mut Log) -> Result<(), Broken> {
        let mut holders = (0u8..)
            .zip(&self.tries)
            .filter(|(_, t)| t.believes.is_some_and(|until| self.now < until));
        let (Some((first, _)), Some((second, _))) = (holders.next(), holders.next()) else {
            return Ok(());
        };
        say!(log, self, "{} and {} both hold the lock", name(first, rules), name(second, rules));
        Err(Broken::TwoHolders)
    }

    /// Tells states apart that behave differently.
    pub fn mark(&self, rules: &Rules) -> u64 {
        let mut hasher =
            FromNow { state: 0, blind: false, wall: u64::from(self.now) * TOKENS_A_TICK };
        (self.late, self.repeats, self.cuts, self.crashes).hash(&mut hasher);
        for (s, server) in self.servers.iter().enumerate() {
            server.down.map(|since| self.now > since).hash(&mut hasher);
            server.quarantine.saturating_sub(self.now).hash(&mut hasher);
            // A last token that the clock has passed is as good as none.
            hasher.token(server.last.max(self.clock(s, rules) - 1));
            if let Some(hold) = server.hold {
                (true, hold.owner, hold.until.saturating_sub(self.now)).hash(&mut hasher);
                hasher.token(hold.token);
            }
        }
        for t in &self.tries {
            t.mark(self.now, rules, &mut hasher);
        }
        let passed = (0..SERVERS).map(|s| self.clock(s, rules) - 1).min().unwrap_or(0);
        hasher.token(self.top.max(passed));
        hasher.finish()
    }
}

impl Line {
    fn requests(&self) -> [bool; 4] {
        [self.acquire, self.fence, self.renew.is_some(), self.release]
    }
}

impl Reply {
    fn token(token: u64) -> Self {
        Self::Token(u32::try_from(token).unwrap())
    }
}

impl Try {
    /// Whether it makes the mistake to count its lease from now.
    fn counts_from_now(&self, before: Standing, rules: &Rules) -> bool {
        match rules.mistake {
            Some(Mistake::OldValidity) => before == Standing::Pending,
            Some(Mistake::LeaseFromRenewed) => matches!(before, Standing::Held { .. }),
            _ => false,
        }
    }

    /// Whether it has run out of time, and has not noticed.
    fn is_doomed(&self, now: u16, rules: &Rules) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| match attempt.standing() {
            Standing::Pending => now - self.begun >= u16::from(rules.lease),
            Standing::Held { until, .. } => {
                // The answer to a renewal may be on its way.
                let renews = self.lines.iter().any(|line| line.waits[2].is_some());
                !renews && TICK * u32::from(now - self.begun) >= until
            }
            _ => false,
        })
    }

    fn mark(&self, now: u16, rules: &Rules, hasher: &mut FromNow) {
        let Some(attempt) = &self.attempt else { return 0u8.hash(hasher) };
        let blind = attempt.is_over() || self.is_doomed(now, rules);
        let mut tokens_matter = !blind;
        for line in &self.lines {
            (line.acquire, line.fence, line.renew, line.release, line.late, line.waits)
                .hash(hasher);
            for reply in [line.acquired, line.fenced, line.renewed] {
                match reply {
                    Reply::None => 0u8.hash(hasher),
                    Reply::No => 1u8.hash(hasher),
                    Reply::Token(_) if blind => 2u8.hash(hasher),
                    Reply::Token(token) => hasher.token(token.into()),
                }
            }
            tokens_matter |= line.fence || line.renew.is_some();
        }
        if tokens_matter {
            hasher.token(self.token);
        }
        if attempt.is_over() && attempt.next_tick().is_none() {
            return 1u8.hash(hasher);
        }
        self.renewals.hash(hasher);
        self.believes.map(|until| until.saturating_sub(now)).hash(hasher);
        (now - self.begun).min(rules.longest()).hash(hasher);
        if rules.mistake.is_some() {
            self.sent.map(|sent| (now - sent).min(rules.longest())).hash(hasher);
        }
        hasher.blind = blind;
        attempt.hash(hasher);
        hasher.blind = false;
    }
}

/// A hasher that counts tokens from the wall clock of now; it tells them from other numbers by their size. 64 bits:
/// with ten million states, two are taken for one in one run of 300,000.
struct FromNow {
    state: u64,
    wall: u64,
    /// Takes all tokens as equal.
    blind: bool,
}

impl FromNow {
    fn token(&mut self, token: u64) {
        self.write_u64(token);
    }

    fn mix(&mut self, number: u64) {
        let product =
            u128::from(self.state ^ number ^ 0x9e37_79b9_7f4a_7c15) * 0xda94_2042_e4dd_58b5_u128;
        self.state = (self.state.rotate_left(23) ^ (product as u64) ^ ((product >> 64) as u64))
            .wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
}

impl Hasher for FromNow {
    fn finish(&self) -> u64 {
        self.state ^ (self.state >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(match number {
            _ if number < EPOCH / 2 => number,
            _ if self.blind => EPOCH,
            _ => number.wrapping_sub(self.wall),
        });
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }
}

fn requests(t: u8, s: u8, line: &Line, repeats: u8, events: &mut Vec<Event>) {
    if line.acquire {
        events.push(Event::Serve(t, s, Kind::Acquire, false));
        if repeats > 0 {
            events.push(Event::Serve(t, s, Kind::Acquire, true));
        }
    }
    if line.fence {
        events.push(Event::Serve(t, s, Kind::Fence, false));
    }
    if line.renew.is_some() {
        events.push(Event::Serve(t, s, Kind::Renew, false));
    }
    if line.release {
        events.push(Event::Serve(t, s, Kind::Release, false));
    }
}

fn name(t: u8, rules: &Rules) -> String {
    name_of(t.into(), rules)
}

/// A, B; a client's later tries as B', B''.
fn name_of(t: usize, rules: &Rules) -> String {
    let client = rules.tries[t];
    let earlier = rules.tries[..t].iter().filter(|c| **c == client).count();
    format!("{}{}", char::from(b'A' + client), "'".repeat(earlier))
}
