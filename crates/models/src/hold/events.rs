//! What can happen.

use super::*;

#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Tick,
    Renew(u64),
    Probe,
    /// A task looks whether the hold is lost.
    Look,
    ServerReads(usize),
    ServerCloses(usize),
    ClientReads,
    /// The client notices the end of its connection. It retries the renewals without a reply, or gives them up.
    ClientLoses {
        retries: bool,
    },
    ClientConnects,
    /// Another copy of each renewal that the client retries.
    SendAgain,
    Break,
    ClientHearsOfBreak,
    Release,
}

impl World {
    pub(super) fn events(&self, bounds: Bounds) -> Vec<Event> {
        let mut events = vec![];
        if self.now < bounds.ticks {
            events.push(Event::Tick);
        }
        let current = self.current();
        if current > 0 {
            if self.client.renewals < bounds.renewals {
                events.extend([Event::Renew(SHORT), Event::Renew(LONG)]);
            }
            if self.probes < bounds.probes {
                events.push(Event::Probe);
            }
            if !self.connections[current - 1].to_client.is_empty() {
                events.push(Event::ClientReads);
            }
            if !self.again.is_empty() {
                events.push(Event::SendAgain);
            }
            events.push(Event::ClientLoses { retries: false });
            if self.connections.len() < bounds.connections {
                events.push(Event::ClientLoses { retries: true });
            }
        } else if self.connections.len() < bounds.connections {
            events.push(Event::ClientConnects);
        }
        for (n, connection) in self.connections.iter().enumerate() {
            if connection.server_has_it {
                if !connection.to_server.is_empty() {
                    events.push(Event::ServerReads(n + 1));
                }
                events.push(Event::ServerCloses(n + 1));
            }
        }
        if bounds.probes > 0 && !self.client.has_ended() {
            events.push(Event::Look);
        }
        if !bounds.other_ends {
            return events;
        }
        if !self.is_broken && self.hold.is_some() {
            events.push(Event::Break);
        }
        if self.is_broken && !self.heard_of_it {
            events.push(Event::ClientHearsOfBreak);
        }
        if !self.is_released {
            events.push(Event::Release);
        }
        events
    }
}
