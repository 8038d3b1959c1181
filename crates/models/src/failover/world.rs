//! The world of the model: a group of servers with asynchronous replication, and two clients of one lock.
//!
//! Between two ticks of the clock anything may happen in any order, and nothing has to happen. Times are stored as what
//! is left of them and names of servers do not count, so the states are finite, and histories have no bound.
//!
//! Each simplification allows at least as much as real servers and clients do:
//! - A server carries out a request when it is sent, and a replica acknowledges what it applies at once. A client
//!   counts a request as soon as its rules allow it, and may forget it at any time. Later replies confirm less.
//! - An acknowledgement counts until the request is over, also if its connection has ended. A primary that once had
//!   enough replicas accepts writes until it is demoted or restarts: `min-replicas-max-lag` has no end.
//! - There are no tokens: a hold of an owner is any hold of that owner.
//! - A server that is demoted or restarts answers no WAIT for earlier requests: its clients get an error, or, after
//!   another promotion, see that a quarantine began.
//!
//! The bounds are the number of servers, the ticks of a lease, and two writes on their way to a replica.

mod mark;
mod rules;
mod text;

pub use self::{
    mark::NAMES,
    rules::{Rule, Rules, Stream},
};

pub const MOST: usize = 6;

/// An owner: 0 is nobody, 1 and 2 are the clients.
type Owner = u8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    /// A replica without a connection to its primary.
    #[default]
    Alone,
    /// It loads a full copy.
    Loads,
    /// A replica whose acknowledgements count.
    Online,
    Primary,
}

/// A write on its way to a replica: the owner after it, and the clients (a set of bits) whose open request it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Write {
    owner: Owner,
    requests: u8,
}

/// More writes are applied together with the last one.
const QUEUE: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Server {
    role: Role,
    /// The server that it follows, if it loads or is online.
    from: u8,
    owner: Owner,
    /// Of a primary: what is left.
    lease: u8,
    quarantine: u8,
    /// Of a primary: replicas that came online since it began to serve, at most `n`.
    arrived: u8,
    queued: u8,
    queue: [Write; QUEUE],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    #[default]
    Grant,
    Reentry,
    Renewal,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Client {
    /// How long it believes that it holds the lock.
    belief: u8,
    /// Its open request: what is left of the lease since it was sent; 0 is none.
    left: u8,
    kind: Kind,
    at: u8,
    acknowledged: u8,
    /// A quarantine began at its server since it was sent; of a re-entry also if there was one then.
    began: bool,
}

/// Numbers are those of clients, then of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Tick,
    Acquire(u8, u8),
    Renew(u8, u8),
    Release(u8, u8),
    /// The client dies, or its releases do.
    Forget(u8),
    /// A replica applies the next write.
    Apply(u8),
    /// A server becomes a replica of another one, or connects to it again, with a full copy.
    Follow(u8, u8),
    Online(u8),
    /// With the data of this owner.
    Promote(u8, Owner),
    Restart(u8, Owner),
}

#[derive(Clone, Copy, Debug)]
pub struct World {
    servers: [Server; MOST],
    clients: [Client; 2],
}

impl World {
    pub fn new(rules: &Rules) -> Self {
        let mut servers = [Server::default(); MOST];
        servers[1..rules.servers].fill(Server { role: Role::Online, ..Server::default() });
        servers[0] = Server { role: Role::Primary, arrived: rules.confirm, ..Server::default() };
        Self { servers, clients: [Client::default(); 2] }
    }

    /// All that can happen next.
    pub fn events(&self, rules: &Rules, events: &mut Vec<Event>) {
        events.clear();
        events.push(Event::Tick);
        let lags = rules.stream == Stream::Lags;
        for (c, client) in (0u8..).zip(&self.clients) {
            for (p, server) in self.servers_of(rules).filter(|(_, server)| server.writes(rules)) {
                let is_holder = server.owner == c + 1 && server.lease > 0;
                if client.belief == 0 && (is_holder || server.lease == 0 && server.quarantine == 0)
                {
                    events.push(Event::Acquire(c, p));
                }
                if is_holder {
                    events.push(Event::Release(c, p));
                    if client.belief > 0 {
                        events.push(Event::Renew(c, p));
                    }
                }
            }
            if client.belief > 0 || client.left > 0 {
                events.push(Event::Forget(c));
            }
        }
        for (x, server) in self.servers_of(rules) {
            let is_primary = server.role == Role::Primary;
            let data = if lags { server.owner..=server.owner } else { 0..=2 };
            match server.role {
                Role::Loads => events.push(Event::Online(x)),
                Role::Online if server.queued > 0 => events.push(Event::Apply(x)),
                _ => {}
            }
            if is_primary {
                events.extend(data.map(|owner| Event::Restart(x, owner)));
            } else {
                events.extend(data.map(|owner| Event::Promote(x, owner)));
            }
            if lags && server.owner > 0 {
                events.push(Event::Restart(x, 0));
            }
            for (p, other) in self.servers_of(rules).filter(|(p, _)| *p != x) {
                let is_replica_of =
                    |up: u8| self.servers[usize::from(up)].role == Role::Primary && up != x;
                let is_chain =
                    rules.chains && other.role == Role::Online && is_replica_of(other.from);
                if other.role == Role::Primary || is_chain {
                    events.push(Event::Follow(x, p));
                }
            }
        }
    }

    /// What comes of an event. `true`: both clients believe that they hold the lock.
    pub fn step(&mut self, event: Event, rules: &Rules) -> bool {
        match event {
            Event::Tick => self.tick(rules),
            Event::Acquire(c, p) => {
                let server = &self.servers[usize::from(p)];
                let kind = if server.lease > 0 { Kind::Reentry } else { Kind::Grant };
                self.request(c, p, kind, rules);
            }
            Event::Renew(c, p) => self.request(c, p, Kind::Renewal, rules),
            Event::Release(c, p) => {
                let client = self.clients[usize::from(c)];
                // Else it is a late one, and the client has begun again elsewhere.
                if client.belief > 0 || client.at == p {
                    self.forget(c);
                }
                self.servers[usize::from(p)].lease = 0;
                self.write(p, Write::default(), rules);
            }
            Event::Forget(c) => self.forget(c),
            Event::Apply(x) => self.apply(x, rules),
            Event::Follow(x, p) => {
                self.leave(x);
                self.part(x);
                let owner = self.servers[usize::from(p)].owner;
                let server = &mut self.servers[usize::from(x)];
                *server = Server { role: Role::Loads, from: p, owner, ..Server::default() };
                if rules.stream == Stream::AnyData {
                    server.owner = 0;
                    self.online(x, rules);
                }
            }
            Event::Online(x) => self.online(x, rules),
            Event::Promote(x, owner) => self.serve(x, owner, rules),
            Event::Restart(x, owner) => {
                let was = self.servers[usize::from(x)].role;
                self.leave(x);
                self.part(x);
                self.servers[usize::from(x)] = Server { owner, ..Server::default() };
                if was == Role::Primary {
                    self.serve(x, owner, rules);
                }
            }
        }
        self.count(rules);
        self.clients.iter().all(|client| client.belief > 0)
    }

    fn servers_of(&self, rules: &Rules) -> impl Iterator<Item = (u8, &Server)> {
        (0u8..).zip(&self.servers[..rules.servers])
    }

    fn tick(&mut self, rules: &Rules) {
        for client in &mut self.clients {
            client.belief = client.belief.saturating_sub(1);
            client.left = client.left.saturating_sub(1);
        }
        for p in 0..rules.servers {
            if self.servers[p].writes(rules) || !rules.has(Rule::StandStill) {
                let server = &mut self.servers[p];
                server.quarantine = server.quarantine.saturating_sub(1);
                server.lease = server.lease.saturating_sub(1);
                if server.lease == 0 && server.owner > 0 && server.role == Role::Primary {
                    self.write(u8::try_from(p).unwrap(), Write::default(), rules);
                }
            }
        }
        self.forget_late();
    }

    /// The client sends it, and the server carries it out.
    fn request(&mut self, c: u8, p: u8, kind: Kind, rules: &Rules) {
        self.close(c);
        let client = &mut self.clients[usize::from(c)];
        let began = kind == Kind::Reentry && self.servers[usize::from(p)].quarantine > 0;
        let (belief, left) = (client.belief, rules.lease);
        *client = Client { belief, left, kind, at: p, began, ..Client::default() };
        self.servers[usize::from(p)].lease = rules.lease;
        self.write(p, Write { owner: c + 1, requests: 1 << c }, rules);
    }

    fn write(&mut self, p: u8, write: Write, rules: &Rules) {
        self.servers[usize::from(p)].owner = write.owner;
        for x in 0..rules.servers {
            let server = &mut self.servers[x];
            if server.from != p || !server.follows() {
                continue;
            }
            match rules.stream {
                Stream::Lags => server.push(write),
                Stream::AnyData => self.acknowledge(p, write.requests, rules),
            }
        }
    }

    fn apply(&mut self, x: u8, rules: &Rules) {
        let server = &mut self.servers[usize::from(x)];
        let write = server.queue[0];
        server.queue.rotate_left(1);
        server.queue[QUEUE - 1] = Write::default();
        server.queued -= 1;
        let from = server.from;
        self.acknowledge(from, write.requests, rules);
        // A replica's replicas are not counted.
        self.write(x, Write { requests: 0, ..write }, rules);
    }

    fn acknowledge(&mut self, p: u8, requests: u8, rules: &Rules) {
        for (c, client) in self.clients.iter_mut().enumerate() {
            if client.left > 0 && client.at == p && requests & (1 << c) != 0 {
                client.acknowledged = rules.confirm.min(client.acknowledged + 1);
            }
        }
    }

    fn online(&mut self, x: u8, rules: &Rules) {
        let server = &mut self.servers[usize::from(x)];
        server.role = Role::Online;
        let p = server.from;
        let behind = server.queue.iter().fold(0, |behind, write| behind | write.requests);
        self.acknowledge(p, !behind, rules);
        let primary = &mut self.servers[usize::from(p)];
        if primary.role != Role::Primary {
            return;
        }
        primary.arrived = rules.confirm.min(primary.arrived + 1);
        if rules.has(Rule::QuarantineOfReplica) {
            primary.quarantine = rules.quarantine;
            for client in self.clients.iter_mut().filter(|client| client.left > 0 && client.at == p)
            {
                client.began = true;
            }
        }
    }

    /// It begins to serve as a primary.
    fn serve(&mut self, x: u8, owner: Owner, rules: &Rules) {
        let follows = |server: &&Server| server.role == Role::Online && server.from == x;
        let arrived = self.servers[..rules.servers].iter().filter(follows).count();
        let arrived = rules.confirm.min(u8::try_from(arrived).unwrap());
        let lease = if owner > 0 { rules.lease } else { 0 };
        let quarantine = if rules.has(Rule::QuarantineOfPrimary) { rules.quarantine } else { 0 };
        let role = Role::Primary;
        self.servers[usize::from(x)] =
            Server { role, owner, lease, quarantine, arrived, ..Server::default() };
    }

    /// Its replicas lose their connections to it.
    fn leave(&mut self, x: u8) {
        for server in &mut self.servers {
            if server.follows() && server.from == x {
                *server = Server { owner: server.owner, ..Server::default() };
            }
        }
    }

    /// It answers no request that is open.
    fn part(&mut self, x: u8) {
        for c in 0..2u8 {
            let client = self.clients[usize::from(c)];
            if client.left > 0 && client.at == x {
                self.close(c);
            }
        }
    }

    fn forget(&mut self, c: u8) {
        self.close(c);
        self.clients[usize::from(c)].belief = 0;
    }

    fn forget_late(&mut self) {
        for c in 0..2u8 {
            if self.clients[usize::from(c)].left == 0 {
                self.close(c);
            }
        }
    }

    /// The request of a client is open no longer.
    fn close(&mut self, c: u8) {
        let client = &mut self.clients[usize::from(c)];
        *client = Client { belief: client.belief, ..Client::default() };
        for server in &mut self.servers {
            server.queue.iter_mut().for_each(|write| write.requests &= !(1 << c));
            server.tidy();
        }
    }

    /// The clients look at what their servers reply to WAIT and INFO.
    fn count(&mut self, rules: &Rules) {
        for c in 0..2u8 {
            let client = self.clients[usize::from(c)];
            let quarantined = self.servers[usize::from(client.at)].quarantine > 0;
            let confirmed = |rule| client.acknowledged >= rules.confirm || !rules.has(rule);
            let outside = |rule| !quarantined || !rules.has(rule);
            let counts = match client.kind {
                Kind::Grant => {
                    confirmed(Rule::GrantConfirmed) && outside(Rule::GrantOutsideQuarantine)
                }
                Kind::Reentry => {
                    let is_calm = !client.began || !rules.has(Rule::ReentrySentOutsideQuarantine);
                    confirmed(Rule::GrantConfirmed)
                        && outside(Rule::ReentryOutsideQuarantine)
                        && is_calm
                }
                Kind::Renewal => {
                    let is_since = client.began && !outside(Rule::NoQuarantineSince);
                    client.belief > 0 && confirmed(Rule::RenewalConfirmed) && !is_since
                }
            };
            if client.left > 0 && counts {
                self.close(c);
                self.clients[usize::from(c)].belief = client.left.max(client.belief);
            }
        }
    }
}

impl Server {
    /// Whether it accepts writes.
    fn writes(&self, rules: &Rules) -> bool {
        let has_replicas = self.arrived >= rules.confirm || !rules.has(Rule::MinReplicas);
        self.role == Role::Primary && has_replicas
    }

    fn follows(&self) -> bool {
        matches!(self.role, Role::Loads | Role::Online)
    }

    fn push(&mut self, write: Write) {
        let queued = usize::from(self.queued);
        if queued == QUEUE {
            let last = &mut self.queue[QUEUE - 1];
            *last = Write { owner: write.owner, requests: last.requests | write.requests };
        } else {
            self.queue[queued] = write;
            self.queued += 1;
        }
        self.tidy();
    }

    /// Drops writes that change and confirm nothing.
    fn tidy(&mut self) {
        let (mut owner, mut kept, mut queue) = (self.owner, 0, [Write::default(); QUEUE]);
        for write in &self.queue[..usize::from(self.queued)] {
            if write.owner != owner || write.requests != 0 {
                queue[kept] = *write;
                kept += 1;
            }
            owner = write.owner;
        }
        self.queue = queue;
        self.queued = u8::try_from(kept).unwrap();
    }
}
