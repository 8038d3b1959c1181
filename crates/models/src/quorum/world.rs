//! The world of the model: clients that drive the real [`Attempt`], servers that follow the command reference, and
//! messages that may take forever.
//!
//! Time goes in ticks, all monotonic clocks at the same speed. Between two ticks anything may happen in any order: a
//! client begins, hears answers, looks at its timer (late, if at all), renews, releases; a server works off one of
//! the requests that are on their way to it; a server crashes or comes back. Nothing has to happen, so a message that
//! is never delivered is a lost one, and a client that does nothing is a slow or a dead one.
//!
//! Two things keep the number of states small and lose no behaviour:
//! - A client hears several answers in one step, and only if it then does something. Had it heard some of them
//!   before, it would have waited; and an answer that it has not heard yet can still be lost. (When it hears of a
//!   majority sets how long it waits for the others, but that is less than a tick, or ends with the timeout.)
//! - States that differ only by when they are reached are one: [`World::mark`] counts times and tokens from now.
//!   So there is no last tick.

macro_rules! say {
    ($log:expr, $world:expr, $($text:tt)*) => {
        if let Some(log) = $log.as_deref_mut() {
            let _ = write!(log, "  {:>2}  ", $world.now);
            let _ = writeln!(log, $($text)*);
        }
    };
}

mod clients;
mod events;
mod mark;
mod rules;

use std::{fmt::Write, time::Duration};

pub use self::rules::{Crash, Mistake, Rules};
use crate::attempt::Attempt;

pub const SERVERS: usize = 3;
pub const MOST_TRIES: usize = 3;

/// One tick: long against everything in the algorithm that is counted in milliseconds.
const TICK: Duration = Duration::from_secs(1);

/// How far a server's wall clock goes in a tick, in tokens: more than are granted in any history.
const TOKENS_A_TICK: u64 = 16;

/// The wall clock at the beginning, in tokens. No other number in an [`Attempt`] is as large.
const EPOCH: u64 = 1_000_000;

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

fn name(t: u8, rules: &Rules) -> String {
    name_of(t.into(), rules)
}

/// A, B; a client's later tries as B', B''.
fn name_of(t: usize, rules: &Rules) -> String {
    let client = rules.tries[t];
    let mut name = String::from(char::from(b'A' + client));
    name.extend(rules.tries[..t].iter().filter(|c| **c == client).map(|_| '\''));
    name
}
