//! What can happen.

use super::*;

#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Tick,
    Renew(u64),
    /// A task looks whether the hold is lost.
    Look,
    /// A request comes, and perhaps `again` later.
    ServerReads {
        n: usize,
        again: bool,
    },
    ServerCloses(usize),
    /// A reply comes, and replicas have what was written, or not.
    ClientReads {
        n: usize,
        confirmed: bool,
    },
    ClientConnects,
    Break,
    Release,
}

impl World {
    pub(super) fn events(&self, bounds: Bounds) -> Vec<Event> {
        let mut events = vec![];
        if self.now < bounds.ticks {
            events.push(Event::Tick);
        }
        if self.renewals < bounds.renewals && !self.client.has_ended() {
            events.extend([Event::Renew(SHORT), Event::Renew(LONG)]);
        }
        for n in 0..self.to_server.len() {
            events.push(Event::ServerReads { n, again: false });
            if self.copies < bounds.copies {
                events.push(Event::ServerReads { n, again: true });
            }
        }
        for n in 0..self.to_client.len() {
            events.push(Event::ClientReads { n, confirmed: true });
            if bounds.other_ends {
                events.push(Event::ClientReads { n, confirmed: false });
            }
        }
        if self.connections.len() < bounds.connections {
            events.push(Event::ClientConnects);
        }
        let open = self.connections.iter().enumerate().filter(|(_, is_open)| **is_open);
        events.extend(open.map(|(n, _)| Event::ServerCloses(n + 1)));
        if !self.client.has_ended() && self.client.deadline() <= at(self.now) {
            events.push(Event::Look);
        }
        if bounds.other_ends && !self.is_broken && self.hold.is_some() {
            events.push(Event::Break);
        }
        if bounds.other_ends && !self.is_released {
            events.push(Event::Release);
        }
        events
    }
}
