//! Commands of dlock, and what the machine wants to happen: messages, and answers to blocked calls.

use dlock_core::base::ids::WaiterId;
use dlock_core::base::key::Key;
use dlock_core::base::kind::Kind;
use dlock_core::machine::{Fact, ServerEvent};
use dlock_core::ports::effects::{Answer, Effects, Outcome};
use dlock_core::ports::store::{Lookup, Store as _};
use dlock_core::ports::turn::Caller;
use dlock_core::value::hold::NO_CLIENT;
use dlock_wire::reply::{Shape as _, Sink as _};
use dlock_wire::request::{
    LockFamily, LockOp, Log, OneKey, OnePermit, Op, Request, RwBreak, RwOp, SemOp,
};
use dlock_wire::table::COMMANDS;

use crate::resp::Resp;
use crate::state::State;

impl State {
    /// Executes a command of a connection, and answers it now or, if it blocks, later.
    pub(crate) fn receive(&mut self, client: u64, words: &[Vec<u8>]) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = self.execute(client, &words);
        if let (Some(reply), Some(connection)) = (reply, self.connections.get(&client)) {
            connection.send(reply);
        }
    }

    /// Executes a command that no connection has sent.
    pub(crate) fn command(&mut self, words: &[&[u8]]) -> Vec<u8> {
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
        if self.machine.tables().connections.is_unresponsive(client) {
            self.step(|machine, turn| {
                machine.event(turn, ServerEvent::ClientActive(client));
                machine.event(turn, ServerEvent::Drained);
            });
        }
        match dlock_wire::parse(row.id, args) {
            Ok(request) => self.carry_out(client, &request),
            Err(error) => Some(Resp::error(&format!("ERR {error}"))),
        }
    }

    fn carry_out(&mut self, client: u64, request: &Request<'_>) -> Option<Resp> {
        let caller = self.caller(client);
        match request {
            Request::Op(op) => self.operate(caller, op).map(|outcome| reply(&outcome)),
            Request::Read(read) => {
                let now = self.now();
                Some(match self.machine.read(&mut self.keys, now, caller.db, read) {
                    Ok(view) => Resp::written(|to| view.write(to)),
                    Err(_) => Resp::error(WRONG_TYPE),
                })
            }
            Request::Log(call) => Some(self.log(*call)),
            Request::Apply(_) => Some(Resp::error("ERR the fake server replays no records")),
        }
    }

    fn log(&mut self, call: Log) -> Resp {
        let mut reply = Resp::default();
        match call {
            Log::Get { count } => self.machine.tables().log.write(count, &mut reply),
            Log::Len => (self.machine.tables().log.len() as u64).write(&mut reply),
            Log::Reset => {
                self.machine.learn(Fact::LogReset);
                return Resp::ok();
            }
        }
        reply
    }

    /// The answer to an operation; None: the caller is blocked.
    fn operate(&mut self, caller: Caller, op: &Op<'_>) -> Option<Outcome> {
        let permit = uuid::Uuid::new_v4().into_bytes();
        self.step_of(caller, |machine, turn| machine.execute(turn, op, permit))
    }

    /// Ends all holds of a key of any family by force. Returns their number.
    pub(crate) fn break_holds(&mut self, key: &[u8]) -> u64 {
        let Lookup::Here(resource) = self.keys.get(Key { db: 0, name: key }) else { return 0 };
        let lock = |family| vec![Op::Lock(family, LockOp::Break(OneKey { key }))];
        let ops = match resource.kind() {
            Kind::Lock => lock(LockFamily::Lock),
            Kind::Fair => lock(LockFamily::Fair),
            Kind::Rw => vec![Op::Rw(RwOp::Break(RwBreak { key, owner: None }))],
            Kind::Semaphore => resource
                .holds()
                .map(|(id, _)| OnePermit { key, permit: id.to_be_bytes() })
                .map(|permit| Op::Sem(SemOp::Break(permit)))
                .collect(),
            Kind::Latch => Vec::new(),
        };
        let count = |outcome| if let Some(Outcome::Count(count)) = outcome { count } else { 0 };
        ops.iter().map(|op| count(self.operate(self.caller(NO_CLIENT), op))).sum()
    }

    /// Carries out effects, without the answer to the caller.
    pub(crate) fn perform(&mut self, caller: u64, fx: &mut Effects) {
        if let Some(Answer::Parked(waiter)) = fx.answer {
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
                    self.machine.learn(Fact::Delivered(waiter));
                }
            }
            None if outcome.is_grant() => self.undelivered.push_back(waiter),
            None => {}
        }
    }
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

fn reply(outcome: &Outcome) -> Resp {
    Resp::written(|to| outcome.write(to))
}
