//! What can happen next.

use super::{Event, Kind, Line, Reply, Rules, Try, World};
use crate::attempt::{Attempt, Standing};

impl World {
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
