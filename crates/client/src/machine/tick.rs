//! What is due.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::Heard;
use super::calls::Next;
use super::servers::{Entry, To};
use super::slot::Place;
use super::{Action, CHECKS, HEARTBEAT, Machine};
use crate::base::clock::Moment;
use crate::base::lost::Lost;

/// How late the end of a time may be noticed, and how much longer it is if that is later: a computation on the thread
/// of the runtime may have kept the request from being written.
const LATE: Duration = Duration::from_millis(30);
const MORE: Duration = Duration::from_millis(50);

impl Machine {
    /// When [`Machine::tick`] is due.
    pub(crate) fn wake_at(&self) -> Moment {
        self.wake_at
    }

    pub(super) fn wake_by(&mut self, at: Moment) {
        if at < self.wake_at {
            self.wake_at = at;
            self.effects.wakes = true;
        }
    }

    pub(crate) fn tick(&mut self, now: Moment) {
        while let Some(Reverse((at, id))) =
            self.timers.peek().copied().filter(|timer| timer.0.0 <= now)
        {
            self.timers.pop();
            let Some(running) = self.calls.get_mut(&id).filter(|running| running.timer == at)
            else {
                continue;
            };
            running.timer = Moment::NEVER;
            if running.outcome.is_some() {
                continue;
            }
            let due = running.call.wake_at();
            if due > now {
                // It has been set later since.
                self.advance(id, Next::Rest, now);
                continue;
            }
            let copy = Some(running.copy);
            if due.after(LATE) < now && running.excused != copy {
                running.excused = copy;
                running.timer = now.after(MORE);
                self.timers.push(Reverse((running.timer, id)));
                continue;
            }
            self.unblock(id);
            let Some(running) = self.calls.get_mut(&id) else { continue };
            // What comes for it from now on comes too late.
            running.copy += 1;
            let server = self.servers.of(running.call.place());
            let server = server.and_then(|server| self.servers.all.get(server));
            let failure =
                server.filter(|server| !server.is_up).and_then(|server| server.error.as_ref());
            let next = running.call.tick(now, failure);
            self.advance(id, next, now);
        }
        for number in 0..self.servers.all.len() {
            self.watch(number, now);
        }
        if self.check_at <= now {
            self.check_at = Moment::NEVER;
            self.check(now);
        }
        let moved = std::mem::take(&mut self.moved);
        if !moved.is_empty() {
            self.ask_again(
                now,
                None,
                |place| matches!(place, Place::Slot(slot) if moved.contains(&slot)),
            );
        }
        self.renew(now);
        self.wake_at = Moment::NEVER;
        let timer = self.timers.peek().map_or(Moment::NEVER, |timer| timer.0.0);
        let servers = (0..self.servers.all.len()).map(|server| self.watch_at(server)).min();
        for at in [timer, self.check_at, self.holds.look_at].into_iter().chain(servers) {
            self.wake_by(at);
        }
    }

    pub(super) fn watch_at(&self, number: usize) -> Moment {
        let Some(server) = self.servers.all.get(number).filter(|server| server.is_up) else {
            return Moment::NEVER;
        };
        let quiet = server.flying == 0;
        if quiet { server.progress.after(HEARTBEAT) } else { self.overdue_at(number) }
    }

    /// A connection that does not answer is given up. One on which something waits is asked from time to time.
    pub(super) fn watch(&mut self, number: usize, now: Moment) {
        if self.watch_at(number) > now {
            return;
        }
        let (waits, limit) = (self.waits(), self.response_limit());
        let Some(server) = self.servers.all.get_mut(number) else { return };
        if server.flying == 0 {
            server.progress = now;
            if waits {
                let (to, place) = (To::Nobody, Place::Server(number));
                let commands = Arc::from([redis::cmd("PING")]);
                self.push(Entry { to, place, commands, confirm: None, asking: false });
            }
        } else if server.overdue.take().is_some() {
            self.actions.push_back(Action::Break(number));
        } else {
            // A computation may have kept requests from being written, and replies from being read.
            server.overdue = Some(now.after(limit / 10));
        }
    }

    /// Whether a call waits for a message, or on a connection of its own.
    pub(crate) fn waits(&self) -> bool {
        self.calls.values().any(|running| running.outcome.is_none() && running.call.waits())
    }

    /// As [`Machine::check_now`], but not too often: anybody may have sent the message.
    pub(super) fn check(&mut self, now: Moment) {
        let at = self.checked.after(CHECKS);
        if now < at {
            self.check_at = self.check_at.min(at);
            self.wake_by(at);
        } else {
            self.check_now(now);
        }
    }

    /// Each wait asks again, and each hold is renewed, now or soon: messages may have been missed.
    pub(super) fn check_now(&mut self, now: Moment) {
        self.checked = now;
        let how = std::mem::take(&mut self.is_flushed).then_some(Lost::Flushed);
        self.holds.hint_all(now, how);
        self.wake_by(now);
        self.ask_again(now, how, |_| true);
    }

    /// The waits at these places ask again: their places may be lost.
    pub(super) fn ask_again(
        &mut self,
        now: Moment,
        how: Option<Lost>,
        is_meant: impl Fn(Place) -> bool,
    ) {
        let waiting: Vec<_> = self.by_request.values().copied().collect();
        for id in waiting {
            if self.calls.get(&id).is_some_and(|running| is_meant(running.call.place())) {
                self.hear(id, Heard::Other(how), &[], now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::settings::Settings;
    use crate::machine::calls::AskCall;
    use crate::machine::servers::Servers;

    /// When a request that gets no reply within a second is over, if the machine is told the time at these moments.
    fn over_at(told_ms: &[u64]) -> Option<u64> {
        let at = |ms| Moment::from_nanos(ms * 1_000_000);
        let mut servers = Servers::new(false, 1);
        servers.named("server");
        let mut machine = Machine::new(Arc::new(Settings::default()), 0, servers);
        let second = Duration::from_secs(1);
        let ask = AskCall::new(Place::Server(0), [redis::cmd("PING")], second, second, at(0));
        let id = machine.run(Box::new(ask), false, at(0));
        told_ms.iter().copied().find(|&ms| {
            machine.tick(at(ms));
            machine.calls[&id].outcome.is_some()
        })
    }

    #[test]
    fn an_end_that_is_noticed_late_comes_a_little_later_once() {
        assert_eq!(over_at(&[999, 1_029, 1_200]), Some(1_029));
        assert_eq!(over_at(&[999, 1_100, 1_149, 1_150, 1_200]), Some(1_150));
        assert_eq!(over_at(&[999, 1_100, 9_000]), Some(9_000));
    }
}
