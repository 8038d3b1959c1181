//! The steps of a history, drawn at random.

use super::compare::lossy;
use super::{CONNECTIONS, IDS, OWNERS, Simulation, UNIT_MS};
use crate::model::{Family, KEYS, Model};
use crate::support::{Saved, World};
use dlock_core::base::key::Key;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::regime::Gate;
use dlock_testing::Dice;
use dlock_wire::request::{
    Acquire, AwaitEnd, Cancel, Channel, Fence, LockFamily, LockOp, Mode, OneKey, Op, Release,
    Renew, Request, RwAcquire, RwBreak, RwOp, RwRelease, RwRenew, Unblock,
};
use dlock_wire::table::CommandId;

/// One of some numbers of units, in milliseconds, or nothing.
fn maybe_ms(dice: &mut Dice, one_in: u64, units: &[u64]) -> Option<u64> {
    dice.one_in(one_in).then(|| dice.pick(units) * UNIT_MS)
}

/// A token far below, at or above the limit.
fn token_of_fence(dice: &mut Dice, current: Option<u64>, wall_us: u64) -> u64 {
    let base = match dice.below(3) {
        0 => 1,
        1 => current.unwrap_or(1),
        _ => wall_us + 60_000_000,
    };
    base + dice.below(3)
}

impl Simulation {
    pub(super) fn act(&mut self) {
        if self.shut && !self.random.one_in(4) {
            return self.act_shut();
        }
        if self.shut {
            self.open();
        }
        match self.random.below(100) {
            0..80 => self.act_call(),
            // With one key only: see the choice of the key below.
            92..94 if self.has_portions => self.act_call(),
            80..86 => self.act_gone(),
            86..88 => self.act_undelivered(),
            88 => self.act_abandoned(),
            89..92 => self.act_unlink(),
            92..94 => self.act_rename(),
            94..96 => {
                self.shut = true;
                self.paused = self.random.one_in(2);
                self.say(|| format!("shut, paused: {}", self.paused));
                self.world.pause(self.paused);
                self.model.pause(self.paused);
            }
            96..98 => {
                let by_us = self.random.pick(&[3_600_000_000, 1_000, 86_400_000_000]);
                self.say(|| format!("the wall clock is set by {by_us} us"));
                self.world.wall_us = if self.random.one_in(2) {
                    self.world.wall_us + by_us
                } else {
                    self.world.wall_us - by_us
                };
            }
            98 => self.act_fail_over(),
            _ => self.act_restart(),
        }
    }

    fn open(&mut self) {
        self.shut = false;
        self.paused = false;
        self.say(|| "open".to_owned());
        self.world.pause(false);
        self.model.pause(false);
        self.world.gate = Gate::Open;
        self.world.step(|_, _| ());
        self.model.shut(false);
        if self.world.is_cluster || self.random.one_in(2) {
            self.tick();
        }
    }

    fn act_shut(&mut self) {
        self.tick();
        if self.random.one_in(3) {
            self.act_unblock();
        }
    }

    fn act_call(&mut self) {
        if self.random.one_in(20) {
            return self.act_unblock();
        }
        let busy = |client: &u64| {
            self.world.blocked.values().any(|other| other == client)
                || self.world.sent.iter().any(|(_, other)| other == client)
        };
        let idle: Vec<u64> =
            self.connections.iter().copied().filter(|client| !busy(client)).collect();
        if idle.is_empty() {
            return self.act_gone();
        }
        let random = &mut self.random;
        let (client, may_block) = match random.below(20) {
            0 => (0, false),
            1 => (random.pick(&idle), false),
            _ => (random.pick(&idle), true),
        };
        if !self.sent.is_empty() && random.one_in(6) {
            return self.act_late(client, may_block);
        }
        // With one key: the order in which one tick does portions of several keys is undefined.
        let k = if self.has_portions { 0 } else { random.index(KEYS.len()) };
        let family = if random.one_in(40) {
            random.pick(&[Family::Lock, Family::Fair, Family::Rw])
        } else {
            self.families[k]
        };
        let key = KEYS[k].as_bytes();
        let owner = random.pick(&OWNERS).as_bytes();
        let mode = random.pick(&[Mode::Read, Mode::Read, Mode::Write]);
        let held = self.model.tokens(k);
        let current = (!held.is_empty()).then(|| random.pick(&held));
        let token = match random.below(8) {
            0 => Some(7),
            1..4 => current,
            _ => None,
        };
        let lease_ms = maybe_ms(random, 2, &[1, 2, 3, 8, 40]);
        let bind_ms = maybe_ms(random, 5, &[0, 1, 3, 50]);
        let fresh = format!("n{}", self.last_request);
        self.last_request += 1;
        // Most are new; some were used before, perhaps for another request.
        let reqid = match random.below(6) {
            0 => Some(random.pick(&IDS).as_bytes()),
            1..3 => Some(fresh.as_bytes()),
            _ => None,
        };
        let verb = random.below(22);
        let acquire = Acquire {
            key,
            owner,
            lease_ms,
            block_ms: maybe_ms(random, 2, &[0, 1, 2, 5]),
            queue_ms: maybe_ms(random, self.queue_one_in, &[1, 2, 4]),
            notify: random
                .one_in(8)
                .then(|| random.pick(&[Channel::Plain(b"channel"), Channel::Sharded(b"shard")])),
            reqid,
            no_reentry: random.one_in(8) && family != Family::Rw,
            bind_ms,
            label: random.one_in(8).then(|| random.pick(&[&b"x"[..], b""])),
        };
        let release = Release { key, owner, all: random.one_in(4), token, reqid, done: false };
        let renew = Renew { key, owner, lease_ms, token, bind_ms };
        let cancel = Cancel { key, owner, reqid };
        let op = if family == Family::Rw {
            Op::Rw(match verb {
                0..11 => RwOp::Acquire(RwAcquire { mode, acquire }),
                11..15 => RwOp::Release(RwRelease { mode, release }),
                15..17 => RwOp::Renew(RwRenew { mode, renew }),
                17 => RwOp::Break(RwBreak { key, owner: Some(owner) }),
                18 => RwOp::Break(RwBreak { key, owner: None }),
                _ => RwOp::Cancel(cancel),
            })
        } else {
            let is_fair = family == Family::Fair;
            let family = if is_fair { LockFamily::Fair } else { LockFamily::Lock };
            Op::Lock(
                family,
                match verb {
                    0..11 => LockOp::Acquire(acquire),
                    11..15 => LockOp::Release(release),
                    15..17 => LockOp::Renew(renew),
                    17 => {
                        let token = token_of_fence(random, current, self.world.now().wall_us);
                        LockOp::Fence(Fence { key, owner, token })
                    }
                    18 => LockOp::Break(OneKey { key }),
                    19 => LockOp::Cancel(cancel),
                    _ => {
                        let block_ms = maybe_ms(random, 1, &[0, 0, 1, 2, 5]);
                        LockOp::Await(AwaitEnd { token, block_ms, ..AwaitEnd::new(key) })
                    }
                },
            )
        };
        let has_id = matches!(op, Op::Rw(RwOp::Cancel(_))) || matches!(verb, 0..15 | 19);
        if has_id && reqid.is_some() {
            self.sent.push(Sent::of(op));
        }
        self.call(client, may_block, op);
    }

    /// A copy of one of the last requests comes late.
    fn act_late(&mut self, client: u64, may_block: bool) {
        let last = self.sent.len().min(16);
        let at = self.sent.len() - 1 - self.random.index(last);
        let Sent { command, args } = self.sent[at].clone();
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let Ok(Request::Op(op)) = dlock_wire::parse(command, &args) else {
            panic!("what was sent before")
        };
        self.call(client, may_block, op);
    }

    fn act_unblock(&mut self) {
        let blocked: Vec<u64> = self.world.blocked.values().copied().collect();
        let client = match blocked.len() {
            0 => 77,
            len => blocked[self.random.index(len)],
        };
        let error = self.random.one_in(2);
        self.call(88, true, Op::Unblock(Unblock { client, error }));
    }

    fn call(&mut self, client: u64, may_block: bool, op: Op<'_>) {
        let may_wait = match op {
            Op::Lock(_, LockOp::Acquire(call))
            | Op::Rw(RwOp::Acquire(RwAcquire { acquire: call, .. })) => {
                call.block_ms.is_some() || call.queue_ms.is_some()
            }
            _ => false,
        };
        if may_wait && self.world.machine.tables().settings.deadlock_detection {
            // Before it searches, the machine ends expired holds of all keys.
            self.tick();
        }
        self.say(|| format!("c{client} (may block: {may_block}) {}", shown(op)));
        let caller = Caller { client, db: 0, may_block };
        self.compare(
            |world| world.call(caller, op),
            |model, touched| model.call(client, may_block, &op, touched),
        );
    }

    fn act_gone(&mut self) {
        let at = self.random.index(CONNECTIONS);
        self.last_id += 1;
        let client = std::mem::replace(&mut self.connections[at], self.last_id);
        self.say(|| format!("c{client} is gone, c{} is new", self.last_id));
        self.compare(|world| world.gone(client), |model, touched| model.gone(client, touched));
    }

    fn act_undelivered(&mut self) {
        if let Some(&(_, client)) = self.world.sent.first() {
            self.say(|| format!("undelivered to c{client}"));
            self.compare(
                |world| world.undelivered(client),
                |model, touched| model.undelivered(client, touched),
            );
        }
    }

    fn act_abandoned(&mut self) {
        if let Some((&waiter, &client)) = self.world.blocked.iter().next() {
            self.say(|| format!("the call of c{client} is abandoned"));
            self.compare(
                |world| world.abandoned(waiter),
                |model, touched| model.abandoned(client, touched),
            );
        }
    }

    fn act_unlink(&mut self) {
        self.look_at_unseen_places();
        if self.random.one_in(8) {
            self.say(|| "FLUSHDB".to_owned());
            return self.compare(|world| world.flush(Some(0)), Model::flush);
        }
        let k = self.random.index(KEYS.len());
        if self.model.there[k] {
            let over = self.random.one_in(3);
            self.say(|| format!("{} {}", if over { "SET" } else { "DEL" }, KEYS[k]));
            let key = Key { db: 0, name: KEYS[k].as_bytes() };
            self.compare(
                |world| world.unlink(key, over),
                |model, touched| model.unlink(k, over, touched),
            );
        }
    }

    fn act_rename(&mut self) {
        let from = self.random.index(KEYS.len());
        let to = (from + 1 + self.random.index(KEYS.len() - 1)) % KEYS.len();
        self.look_at_unseen_places();
        if self.model.there[from] {
            self.say(|| format!("RENAME {} {}", KEYS[from], KEYS[to]));
            let [a, b] = [from, to].map(|k| Key { db: 0, name: KEYS[k].as_bytes() });
            self.compare(
                |world| world.rename(a, b),
                |model, touched| model.rename(from, to, touched),
            );
            if self.model.family(to) == Some(Family::Fair) {
                // Its waiters stay; the key itself is updated after all moves are processed.
                self.tick();
            }
        }
    }

    fn act_fail_over(&mut self) {
        self.look_at_unseen_places();
        self.say(|| "failover".to_owned());
        self.compare(World::fail_over, |model, _| model.fail_over());
    }

    fn act_restart(&mut self) {
        // The saved state of a server that just took over is that of its primary.
        self.tick();
        let saved = self.random.pick(&[Saved::Aof, Saved::Rdb]);
        self.say(|| format!("restart from {saved:?}"));
        self.compare(
            |world| world.restart(saved),
            |model, touched| model.restart(matches!(saved, Saved::Rdb), touched),
        );
        self.set_portions();
        for client in &mut self.connections {
            self.last_id += 1;
            *client = self.last_id;
        }
    }

    /// A server that just took over has checked all keys before the first command.
    fn look_at_unseen_places(&mut self) {
        if self.model.has_unseen_places() {
            self.tick();
        }
    }
}

/// A request that was sent before.
#[derive(Clone)]
pub(super) struct Sent {
    command: CommandId,
    args: Vec<Vec<u8>>,
}

impl Sent {
    fn of(op: Op<'_>) -> Self {
        let (request, mut args) = (Request::Op(op), Vec::new());
        request.write(&mut args);
        Self { command: request.id(), args }
    }
}

fn shown(op: Op<'_>) -> String {
    let Sent { command, args } = Sent::of(op);
    let args: Vec<String> = args.iter().map(|arg| lossy(arg)).collect();
    format!("{} {}", command.name(), args.join(" "))
}
