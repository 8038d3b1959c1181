//! Which states are the same.

use std::array;

use super::{Client, MOST, Owner, Rules, Server, World};

/// Which servers and clients of the start are at which place of a [`World`].
#[derive(Clone, Copy)]
pub struct Names {
    pub servers: [u8; MOST],
    pub clients: [u8; 2],
}

/// Those of the start.
pub const NAMES: Names = Names { servers: [0, 1, 2, 3, 4, 5], clients: [0, 1] };

impl World {
    /// Puts servers and clients in an order that does not depend on who they are, as far as that is cheap.
    pub fn sort(&mut self, rules: &Rules, names: &mut Names) {
        if self.clients[1] < self.clients[0] {
            self.clients.swap(0, 1);
            names.clients.swap(0, 1);
            let other = |owner: Owner| (3 - owner) % 3;
            for server in &mut self.servers {
                server.owner = other(server.owner);
                for write in &mut server.queue[..usize::from(server.queued)] {
                    write.owner = other(write.owner);
                    write.requests = write.requests >> 1 | write.requests << 1 & 2;
                }
            }
        }
        let is_asked =
            |c: usize, x| self.clients[c].left > 0 && usize::from(self.clients[c].at) == x;
        let alone: [u64; MOST] = array::from_fn(|x| {
            let asked = u64::from(is_asked(0, x)) | u64::from(is_asked(1, x)) << 1;
            mix(asked, Server { from: 0, ..self.servers[x] }.packed())
        });
        let mut among = alone;
        for x in 0..rules.servers {
            let from = usize::from(self.servers[x].from);
            if self.servers[x].follows() {
                among[x] = among[x].wrapping_add(alone[from].rotate_left(1));
                among[from] = among[from].wrapping_add(alone[x].rotate_left(2));
            }
        }
        let mut order: [u8; MOST] = array::from_fn(|x| u8::try_from(x).unwrap());
        order[..rules.servers].sort_by_key(|x| among[usize::from(*x)]);
        let mut places = [0; MOST];
        for (place, x) in (0..).zip(order) {
            places[usize::from(x)] = place;
        }
        self.servers = order.map(|x| {
            let server = self.servers[usize::from(x)];
            Server {
                from: if server.follows() { places[usize::from(server.from)] } else { 0 },
                ..server
            }
        });
        names.servers = order.map(|x| names.servers[usize::from(x)]);
        for client in self.clients.iter_mut().filter(|client| client.left > 0) {
            client.at = places[usize::from(client.at)];
        }
    }

    /// A hash.
    pub fn mark(&self) -> u64 {
        let servers = self.servers.iter().map(Server::packed);
        servers.chain(self.clients.map(Client::packed)).fold(0, mix)
    }
}

/// A hash of more.
fn mix(hash: u64, more: u64) -> u64 {
    let product =
        u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * u128::from(more ^ 0xd6e8_feb8_6659_fd93);
    let folded = (product >> 64) ^ product ^ u128::from(more.rotate_left(32));
    u64::try_from(folded & u128::from(u64::MAX)).unwrap()
}

/// Numbers below 16 as one.
fn packed<const N: usize>(parts: [u8; N]) -> u64 {
    parts.iter().fold(0, |packed, part| packed << 4 | u64::from(*part))
}

impl Client {
    fn packed(self) -> u64 {
        let Self { belief, left, kind, at, acknowledged, began } = self;
        packed([belief, left, kind as u8, at, acknowledged, began.into()])
    }
}

impl Server {
    fn packed(&self) -> u64 {
        let Self { role, from, owner, lease, quarantine, arrived, queued, queue } = *self;
        let [first, second] = queue.map(|write| write.owner << 2 | write.requests);
        packed([role as u8, from, owner, lease, quarantine, arrived, queued, first, second])
    }
}
