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
    Acquire, AwaitEnd, Channel, Fence, LockFamily, LockOp, Mode, OneKey, Op, Release, Renew,
    Request, RwAcquire, RwBreak, RwOp, RwRelease, RwRenew, Unblock,
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
            80..84 => self.act_gone(),
            84..88 => self.act_undelivered(),
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

    #[allow(clippy::too_many_lines)] // one arm for each verb
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
        if !self.has_portions && random.one_in(200) {
            return self.act_nest(client);
        }
        let mut k = random.index(self.keys);
        let mut owner = random.pick(&OWNERS[..self.owners]).to_owned();
        let mut mode = random.pick(&[Mode::Read, Mode::Read, Mode::Write]);
        let in_flight = self.model.in_flight();
        if !in_flight.is_empty() && random.one_in(2) {
            (k, owner, mode, _) = in_flight[random.index(in_flight.len())].clone();
        }
        let owner = owner.as_bytes();
        let family = if random.one_in(40) {
            random.pick(&[Family::Lock, Family::Fair, Family::Rw])
        } else {
            self.families[k]
        };
        let key = KEYS[k].as_bytes();
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
        // Most name an earlier ACQUIRE.
        let first = self.asked.len().saturating_sub(12);
        let asked = &self.asked[first..];
        let is_any = random.one_in(2);
        let is_near = |asked: &&Asked| asked.k == k && (is_any || asked.owner.as_bytes() == owner);
        let asked: Vec<&Asked> = asked.iter().filter(is_near).collect();
        let of_asked =
            (!asked.is_empty() && random.below(3) > 0).then(|| random.pick(&asked).clone());
        let (owner_of, mode_of, id_of) = of_asked.as_ref().map_or((owner, mode, reqid), |asked| {
            (asked.owner.as_bytes(), asked.mode, Some(&asked.id[..]))
        });
        let release = Release {
            key,
            owner: owner_of,
            all: random.one_in(4) && (id_of.is_none() || random.one_in(8)),
            token,
            reqid: id_of,
            delay_ms: maybe_ms(random, 6, &[1, 2, 3]),
            done: false,
        };
        let renew = Renew { key, owner, lease_ms, token, bind_ms };
        // Most of its ids are new: the ACQUIRE comes later, or never.
        let give_up = Release { reqid, ..Release::new(key, owner) };
        let op = if family == Family::Rw {
            Op::Rw(match verb {
                0..11 => RwOp::Acquire(RwAcquire { mode, acquire }),
                11..15 => {
                    // Readers get an error for it.
                    let keeps = mode_of == Mode::Write || random.one_in(8);
                    let delay_ms = release.delay_ms.filter(|_| keeps);
                    let release = Release { delay_ms, ..release };
                    RwOp::Release(RwRelease { mode: mode_of, release })
                }
                15..17 => RwOp::Renew(RwRenew { mode, renew }),
                17 => RwOp::Break(RwBreak { key, owner: Some(owner) }),
                18 => RwOp::Break(RwBreak { key, owner: None }),
                _ => RwOp::Release(RwRelease { mode, release: give_up }),
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
                    19 => LockOp::Release(give_up),
                    _ => {
                        let block_ms = maybe_ms(random, 1, &[0, 0, 1, 2, 5]);
                        LockOp::Await(AwaitEnd { token, block_ms, ..AwaitEnd::new(key) })
                    }
                },
            )
        };
        let has_id = matches!(op, Op::Rw(RwOp::Release(_))) || matches!(verb, 0..15 | 19);
        let id = if (11..15).contains(&verb) { id_of } else { reqid };
        if has_id && id.is_some() {
            self.sent.push(Sent::of(op));
        }
        if let Some(id) = reqid.filter(|_| verb < 11) {
            let mode = if family == Family::Rw { mode } else { Mode::Write };
            let owner = String::from_utf8_lossy(owner).into_owned();
            self.asked.push(Asked { k, owner, mode, id: id.to_vec() });
        }
        self.call(client, may_block, op);
    }

    /// An owner enters a hold many times.
    fn act_nest(&mut self, client: u64) {
        let (k, owner) = (self.random.index(self.keys), self.random.pick(&OWNERS[..self.owners]));
        let family = match self.families[k] {
            Family::Lock => LockFamily::Lock,
            Family::Fair => LockFamily::Fair,
            Family::Rw => return,
        };
        for _ in 0..40 {
            let id = format!("n{}", self.last_request);
            self.last_request += 1;
            let (key, owner) = (KEYS[k].as_bytes(), owner.as_bytes());
            let reqid = (!self.random.one_in(8)).then_some(id.as_bytes());
            let acquire = Acquire { reqid, ..Acquire::new(key, owner) };
            self.call(client, false, Op::Lock(family, LockOp::Acquire(acquire)));
        }
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

    /// Other requests of an owner whose grant is on its way, and the RELEASE of that.
    pub(super) fn act_beside(&mut self) {
        let in_flight = self.model.in_flight();
        let is_busy = |client: &u64| self.world.sent.iter().any(|(_, other)| other == client);
        let is_blocked = |client: &u64| self.world.blocked.values().any(|other| other == client);
        let mut idle = self.connections.iter().filter(|one| !is_busy(one) && !is_blocked(one));
        let (Some((k, owner, mode, id)), Some(&client)) = (in_flight.first(), idle.next()) else {
            return;
        };
        let (key, owner, family) = (KEYS[*k].as_bytes(), owner.as_bytes(), self.model.family(*k));
        let lock = match family {
            Some(Family::Lock) => Some(LockFamily::Lock),
            Some(Family::Fair) => Some(LockFamily::Fair),
            _ => None,
        };
        for _ in 0..=self.random.below(3) {
            let new = format!("n{}", self.last_request);
            self.last_request += 1;
            let reqid = (!self.random.one_in(3)).then_some(new.as_bytes());
            let acquire = Acquire { reqid, ..Acquire::new(key, owner) };
            let op = match lock {
                Some(family) => Op::Lock(family, LockOp::Acquire(acquire)),
                None => Op::Rw(RwOp::Acquire(RwAcquire { mode: *mode, acquire })),
            };
            self.call(client, false, op);
        }
        let reqid = id.as_deref().filter(|_| !self.random.one_in(4));
        let release = Release { reqid, ..Release::new(key, owner) };
        self.call(
            client,
            false,
            match lock {
                Some(family) => Op::Lock(family, LockOp::Release(release)),
                None => Op::Rw(RwOp::Release(RwRelease { mode: *mode, release })),
            },
        );
    }

    pub(super) fn act_undelivered(&mut self) {
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

/// An ACQUIRE that was sent before.
#[derive(Clone)]
pub(super) struct Asked {
    k: usize,
    owner: String,
    mode: Mode,
    id: Vec<u8>,
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
