//! Commands of dlock, and what the machine wants to happen: messages, and answers to blocked calls.

use dlock_core::effects::{Effects, Fault, Outcome};
use dlock_core::key::Key;
use dlock_core::kind::Kind;
use dlock_core::op::{Op, family_of};
use dlock_core::queues::waiter::WaiterId;
use dlock_core::state::hold::NO_CLIENT;
use dlock_core::store::{Slot, Store as _};
use dlock_wire::permit::{self, PermitId};
use dlock_wire::reply::{ErrorCode, Shape as _, Sink as _, quote};
use dlock_wire::request::{self, Request};
use dlock_wire::table::{COMMANDS, CommandId, LockVerb, RwVerb, SemVerb};

use super::resp::Resp;
use super::state::State;

impl State {
    /// Executes a command of a connection, and answers it now or, if it blocks, later.
    pub(super) fn receive(&mut self, client: u64, words: &[Vec<u8>]) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = self.execute(client, &words);
        if let (Some(reply), Some(connection)) = (reply, self.connections.get(&client)) {
            connection.send(reply);
        }
    }

    /// Executes a command that no connection has sent.
    pub(super) fn command(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.execute(NO_CLIENT, words).map(|reply| reply.0).unwrap_or_default()
    }

    /// The reply; None: the caller is blocked.
    fn execute(&mut self, client: u64, words: &[&[u8]]) -> Option<Resp> {
        let Some((name, args)) = words.split_first() else {
            return Some(Resp::error("ERR the command has no name"));
        };
        let is_it =
            |row: &&dlock_wire::table::Command| row.name.as_bytes().eq_ignore_ascii_case(name);
        let Some(row) = COMMANDS.iter().find(is_it) else {
            return Some(self.general(client, name, args));
        };
        // It may have been taken for dead.
        if self.machine.connections().is_unresponsive(client) {
            self.step(|machine, turn| {
                machine.mark_active(turn, client);
                machine.drain_some(turn);
            });
        }
        match request::parse(row.id, args) {
            Ok(request) => self.carry_out(client, row.id, &request),
            Err(error) => Some(Resp::error(&format!("ERR {error}"))),
        }
    }

    fn carry_out(&mut self, client: u64, id: CommandId, request: &Request<'_>) -> Option<Resp> {
        let caller = self.caller(client);
        let permit = uuid::Uuid::new_v4().into_bytes();
        let Some(op) = Op::of(id, request, permit) else {
            return Some(self.read(caller.db, id, request));
        };
        let outcome = self.step_of(caller, |machine, turn| machine.execute(turn, op));
        outcome.as_ref().map(reply)
    }

    /// Executes a request that changes nothing.
    fn read(&mut self, db: u32, id: CommandId, request: &Request<'_>) -> Resp {
        let now = self.now();
        let (machine, store) = (&self.machine, &mut self.keys);
        let Some(kind) = family_of(id) else { return refused() };
        let mut reply = Resp::default();
        let done = match *request {
            Request::Info { key: name } => {
                machine.info(store, now, kind, Key { db, name }).map(|info| match info {
                    Some(info) => info.write(&mut reply),
                    None => reply.null(),
                })
            }
            Request::Check { key: name, token } => {
                machine.is_current(store, now, kind, Key { db, name }, token).map(|is_current| {
                    if is_current {
                        1_u64.write(&mut reply);
                    } else {
                        reply = stale(kind, name, token);
                    }
                })
            }
            Request::Waiters { key: name, count } => {
                let most = count.and_then(|count| usize::try_from(count).ok());
                let key = (kind, Key { db, name });
                let rows = machine.waiters(store, now, key, most.unwrap_or(usize::MAX));
                rows.map(|rows| rows.write(&mut reply))
            }
            Request::Position { key: name, owner } => {
                let position = machine.position(store, now, (kind, Key { db, name }), owner);
                position.map(|position| match position {
                    Some(position) => (position as u64).write(&mut reply),
                    None => reply.null(),
                })
            }
            Request::Permits { key: name } => {
                let rows = machine.permits(store, now, Key { db, name });
                rows.map(|rows| rows.write(&mut reply))
            }
            _ => return refused(),
        };
        match done {
            Ok(()) => reply,
            Err(_) => Resp::error(WRONG_TYPE),
        }
    }

    /// Ends all holds of a key of any family by force. Returns their number.
    pub(super) fn break_holds(&mut self, name: &[u8]) -> u64 {
        let Slot::Here(resource) = self.keys.get(Key { db: 0, name }) else { return 0 };
        let kind = resource.kind();
        let permits: Vec<PermitId> = match kind {
            Kind::Semaphore => resource.holds().map(|(id, _)| id.to_be_bytes()).collect(),
            Kind::Lock | Kind::Fair | Kind::Rw | Kind::Latch => Vec::new(),
        };
        let mut run = |id: CommandId, args: &[&[u8]]| {
            let words = [&[id.name().as_bytes()], args].concat();
            match self.execute(NO_CLIENT, &words).as_ref().map(|reply| reply.0.as_slice()) {
                Some([b':', digits @ .., b'\r', b'\n']) => {
                    std::str::from_utf8(digits).ok().and_then(|n| n.parse().ok()).unwrap_or(0)
                }
                _ => 0,
            }
        };
        match kind {
            Kind::Lock => run(CommandId::Lock(LockVerb::Break), &[name]),
            Kind::Fair => run(CommandId::Fair(LockVerb::Break), &[name]),
            Kind::Rw => run(CommandId::Rw(RwVerb::Break), &[name]),
            Kind::Semaphore => permits
                .iter()
                .map(|id| run(CommandId::Sem(SemVerb::Break), &[name, &permit::text(id)]))
                .sum(),
            Kind::Latch => 0,
        }
    }

    /// Carries out effects, without the answer to the caller.
    pub(super) fn perform(&mut self, caller: u64, fx: &mut Effects) {
        if let Some(waiter) = fx.parked.take() {
            // It may be woken by the same step.
            self.parked.insert(waiter, caller);
            if let Some(connection) = self.connections.get_mut(&caller) {
                connection.is_blocked = true;
            }
        }
        for message in fx.messages.drain(..) {
            let channel = (message.is_sharded, message.channel);
            for connection in self.connections.values() {
                if connection.channels.contains(&channel) {
                    let mut push = Resp::default();
                    push.push(3);
                    push.bulk(if channel.0 { b"smessage" } else { b"message" });
                    push.bulk(&channel.1);
                    push.bulk(&message.text);
                    connection.send(push);
                }
            }
        }
        for wake in fx.wakes.drain(..) {
            self.wake(wake.waiter, &wake.outcome);
        }
    }

    fn wake(&mut self, waiter: WaiterId, outcome: &Outcome) {
        let client = self.parked.remove(&waiter);
        match client.and_then(|client| self.connections.get_mut(&client)) {
            Some(connection) => {
                connection.is_blocked = false;
                connection.send(reply(outcome));
                if outcome.is_grant() {
                    self.machine.delivered(waiter);
                }
            }
            None if outcome.is_grant() => self.undelivered.push_back(waiter),
            None => {}
        }
    }
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

fn refused() -> Resp {
    Resp::error("ERR the fake server does not have this command")
}

fn stale(kind: Kind, key: &[u8], token: u64) -> Resp {
    // A read-write lock can have several holds.
    let whose = if kind == Kind::Rw { "a hold" } else { "the hold" };
    let key = quote(key);
    Resp::error(&format!("{} token {token} is not that of {whose} on {key}", ErrorCode::Stale))
}

fn reply(outcome: &Outcome) -> Resp {
    let mut reply = Resp::default();
    let to = &mut reply;
    match outcome {
        Outcome::Token(number) | Outcome::Count(number) => number.write(to),
        Outcome::Tokens(tokens) => tokens.write(to),
        Outcome::Granted { key, token } => (key.clone(), *token).write(to),
        Outcome::Permit(id) => id.write(to),
        Outcome::Taken => 1_u64.write(to),
        Outcome::Available(number) => number.write(to),
        Outcome::Null => to.null(),
        Outcome::Fault(Fault { code, text }) => return Resp::error(&format!("{code} {text}")),
    }
    reply
}
