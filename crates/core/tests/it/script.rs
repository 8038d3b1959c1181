//! Runs tables of steps on a machine in a made-up world. Their language is that of [`dlock_testing::table`], with these
//! rows, too:
//!
//! | row | what happens |
//! |---|---|
//! | `tick`, `tick shut` | the alarm rings; the server takes no writes |
//! | `attach` | a replica of the server is online |
//! | `held-back` | from here on answers to blocked callers stay in flight |
//! | `delivered c2`, `undelivered c2` | such an answer arrives, or cannot be sent |
//! | `abandoned c2`, `withdraw c2` | the server unblocked the call, or did not block it |
//! | `pause`, `resume` | CLIENT PAUSE |
//! | `del k unheard`, `removals-heard` | the key is removed; the machines learn of it later |
//! | `move k between swapdb 1 2` | MOVE to database 1 between two SWAPDB, in one transaction |
//! | `slot-lost k` | the slot of the key moved away |
//! | `swapdb 0 1 unheard`, `swaps-heard` | the replica's machine learns of it later |
//! | `flushall unheard`, `flushes-heard` | the replica's machine processes the notice later |
//! | `replica-slow` | from here on the replica's tick is behind |
//! | `failover` | the replica takes over |
//! | `demote`, `promote` | this server becomes a replica, and a primary again |
//! | `unread`, `unread replica` | the servers, or the replica, get a record that they cannot read |
//! | `restart`, `restart rdb` | the process is restarted: from its AOF, from a snapshot |
//! | `set portion 2` | the portion of large work in one step |
//! | `wall -5` | the wall clock is set, in seconds |
//!
//! `tests/it/rules.rs` runs the tables also on a real server, without those that have such rows, and without those of
//! [`run_here`] and its like, in which something ends in its time.

mod copies;
mod random;
mod steps;
mod view;

use crate::support::{MS, Saved, Seen, World};
use dlock_core::base::ids::QueueId;
use dlock_core::base::key::{Key, Place};
use dlock_core::base::slab::SlabId;
use dlock_core::machine::{Fact, ServerEvent};
use dlock_core::ports::effects::Outcome;
use dlock_core::ports::turn::Caller;
use dlock_core::record::Level;
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_testing::table::{self, Call};
use dlock_wire::message::Message;
use dlock_wire::permit::{self, PermitId};
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Request;
use dlock_wire::table::COMMANDS;
use std::fmt::Write;

/// Errors whose second word is a part of the answer.
const SAY_MORE: [ErrorCode; 1] = [ErrorCode::Lost];

/// Where the clock stands when a table begins.
const BASE_US: u64 = 50_000 * MS;

struct Table {
    world: World,
    db: u32,
    /// Tokens in the order of their appearance.
    tokens: Vec<u64>,
    with_events: bool,
    held_back: bool,
    /// Rows are random: a token may be shown late.
    any_order: bool,
}

/// Runs a table.
pub fn run(script: &str) {
    run_as("DLOCK", script);
}

/// Runs a table of the common contract of DLOCK and DFAIR, with each of them.
pub fn run_both(script: &str) {
    run_as("DLOCK", script);
    run_as("DFAIR", script);
}

/// Runs a table in which a verb alone belongs to `family`.
pub fn run_as(family: &str, script: &str) {
    table::run(Table::new(World::new(Settings::default(), BASE_US)), family, script);
}

/// As [`run`]; a real server would do something else.
pub fn run_here(script: &str) {
    run(script);
}

/// As [`run_both`]; a real server would do something else.
pub fn run_both_here(script: &str) {
    run_both(script);
}

/// As [`run_as`]; a real server would do something else.
pub fn run_as_here(family: &str, script: &str) {
    run_as(family, script);
}

impl table::World for Table {
    fn at(&mut self, ms: u64) {
        self.world.at(BASE_US + ms * MS);
    }

    fn call(&mut self, call: Call<'_>, _expected: &str) -> String {
        let on_primary = |client, may_block| (client, may_block, false);
        let (client, may_block, on_replica) = match call.caller {
            table::Caller::Client(client) => on_primary(client, true),
            table::Caller::InMulti(client) => on_primary(client, false),
            table::Caller::Script => on_primary(0, false),
            table::Caller::Replica => (0, false, true),
        };
        if on_replica {
            self.world.exchange();
        }
        let shown = self.make(&call, Caller { client, db: self.db, may_block });
        if on_replica {
            self.world.exchange();
        }
        shown
    }

    fn happen(&mut self, words: &[&str], _expected: &str) -> String {
        Table::happen(self, words)
    }

    fn rest(&mut self) {
        if !self.held_back {
            self.world.all_delivered();
        }
    }

    fn finish(self) {
        self.world.finish();
    }
}

impl Table {
    fn new(world: World) -> Table {
        Table {
            world,
            db: 0,
            tokens: Vec::new(),
            with_events: false,
            held_back: false,
            any_order: false,
        }
    }

    /// A row of a random table, without its time.
    fn perform(&mut self, words: &[&str]) -> String {
        table::step(self, "DLOCK", words, "")
    }

    fn make(&mut self, call: &Call<'_>, caller: Caller) -> String {
        let words: Vec<String> = call.words.iter().map(|word| self.number(word)).collect();
        let name = call.command();
        let command = COMMANDS.iter().find(|command| command.name == name);
        let command = command.unwrap_or_else(|| panic!("no command {name}"));
        let args: Vec<&[u8]> = words[1..].iter().map(String::as_bytes).collect();
        let request =
            dlock_wire::parse(command.id, &args).unwrap_or_else(|error| panic!("{error}"));
        match request {
            Request::Read(read) => self.view(caller, &read),
            Request::Op(op) => {
                let seen = self.world.call(caller, op);
                self.show(&seen)
            }
            Request::Log(call) => self.log(call),
            Request::Apply(_) => panic!("a record is no call"),
        }
    }

    /// `$t1` stands for a token, `$p1` for the id of the first permit that was asked for.
    fn number(&self, word: &str) -> String {
        if let Some(number) = word.strip_prefix("$p") {
            let id: u128 = number.parse().expect("the number of a permit");
            let text = permit::text(&id.to_be_bytes());
            return String::from_utf8_lossy(&text).into_owned();
        }
        match word.strip_prefix("$t") {
            Some(name) => {
                let at: usize = name.parse().expect("the name of a token");
                self.tokens[at - 1].to_string()
            }
            None => word.to_owned(),
        }
    }

    fn happen(&mut self, words: &[&str]) -> String {
        let client = |word: &str| -> u64 { word[1..].parse().expect("a connection") };
        let number = |word: &str| -> u32 { word.parse().expect("a number") };
        let (db, world) = (self.db, &mut self.world);
        let key = |name: &'static str| Key { db, name: name.as_bytes() };
        let name = |word: &str| -> &'static str { word.to_owned().leak() };
        let seen = match *words {
            ["tick"] => world.tick(Gate::Open),
            ["tick", "shut"] => world.tick(Gate::Shut),
            ["attach"] => world.step(|machine, turn| {
                machine.learn(Fact::ReplicaAttached(turn.now.mono));
            }),
            ["gone", who] => world.gone(client(who)),
            ["undelivered", who] => world.undelivered(client(who)),
            ["abandoned", who] => {
                let waiter = world.blocked_on(client(who)).expect("a blocked call");
                world.abandoned(waiter)
            }
            ["withdraw", who] => {
                let waiter = world.blocked_on(client(who)).expect("a blocked call");
                world.blocked.remove(&waiter);
                world.step(|machine, turn| {
                    machine.event(turn, ServerEvent::Withdrawn(waiter));
                })
            }
            ["del", k, "unheard"] => world.unlink_unheard(key(name(k))),
            ["removals-heard"] => world.hear_of_removals(),
            ["del", k] => world.unlink(key(name(k)), false),
            ["over", k] => world.unlink(key(name(k)), true),
            ["rename", from, to] => world.rename(key(name(from)), key(name(to))),
            ["rename", from, to, "unheard"] => world.rename_unheard(key(name(from)), key(name(to))),
            ["renames-heard"] => world.hear_of_renames(),
            ["move", k, to] => {
                let to = Key { db: number(to), name: name(k).as_bytes() };
                world.rename(key(name(k)), to)
            }
            ["move", k, "between", "swapdb", a, b] => {
                world.move_between_swaps(key(name(k)), (number(a), number(b)))
            }
            ["restore", from, to] => world.restore(key(name(from)), key(name(to))),
            ["swapdb", a, b] => world.swap_databases(number(a), number(b)),
            ["swapdb", a, b, "unheard"] => world.swap_databases_unheard(number(a), number(b)),
            ["swaps-heard" | "flushes-heard"] => world.hear_of_databases(),
            ["flushall", "unheard"] => world.flush_unheard(None),
            ["flushdb", db] => world.flush(Some(number(db))),
            ["flushall"] => world.flush(None),
            ["slot-lost", k] => world.step(|machine, turn| {
                let queues = QueueId::FIRST..machine.tables().waits.queue_bound();
                machine.slot_lost(
                    queues,
                    |key| if key.name == k.as_bytes() { Place::Gone } else { Place::Here },
                    turn.fx,
                );
            }),
            ["failover"] => world.fail_over(),
            ["demote"] => {
                // A change of role ends bindings, as if the connections closed.
                world.ledger.all_gone();
                world.step(|machine, _| {
                    machine.learn(Fact::Demoted);
                })
            }
            ["promote"] => world.step(|machine, turn| {
                machine.learn(Fact::Promoted(turn.now));
            }),
            ["restart"] => world.restart(Saved::Aof),
            ["restart", "rdb"] => world.restart(Saved::Rdb),
            ["restart", "rdb", "unindexed"] => world.restart_unindexed(Saved::Rdb),
            _ => {
                self.arrange(words);
                return String::new();
            }
        };
        self.show(&seen)
    }

    /// Rows without output.
    fn arrange(&mut self, words: &[&str]) {
        let world = &mut self.world;
        match *words {
            ["unread"] => world.cannot_read(false),
            ["unread", "replica"] => world.cannot_read(true),
            ["diverged", number] => {
                let missing = world.machine.tables().regime.divergence.total().total();
                assert_eq!(missing.to_string(), number, "records that were refused");
            }
            ["level", number] => {
                assert_eq!(
                    world.machine.tables().level.number().to_string(),
                    number,
                    "the record level"
                );
            }
            ["held-back"] => self.held_back = true,
            ["events"] => self.with_events = true,
            ["replica-slow"] => world.is_replica_slow = true,
            ["delivered", who] => world.delivered(who[1..].parse().expect("a connection")),
            ["pause"] => world.pause(true),
            ["resume"] => world.pause(false),
            ["db", number] => self.db = number.parse().expect("a number"),
            ["ttl", key] => world.expire_later(Key { db: self.db, name: key.as_bytes() }),
            ["ttls", ref keys @ ..] => {
                let left: Vec<_> = world.keys.with_ttl.iter().map(|(_, name)| &name[..]).collect();
                let expected: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
                assert_eq!(left, expected, "keys with a time to live");
            }
            ["wall", seconds] => {
                let seconds: i64 = seconds.parse().expect("seconds");
                world.wall_us =
                    world.wall_us.checked_add_signed(seconds * 1_000_000).expect("time");
            }
            ["set", "portion", value] => {
                world.set_portion(value.parse().expect("a number"));
            }
            ["set", name, value] => {
                let value: u64 = value.parse().expect("a number");
                let count = usize::try_from(value).expect("a count");
                world.set(|settings| match name {
                    "default-lease" => settings.default_lease_ms = value,
                    "grace" => settings.fair_grace_ms = value,
                    "max-waiters-per-key" => settings.max_waiters_per_key = count,
                    "max-waiters" => settings.max_waiters = count,
                    "max-holds-per-key" => settings.max_holds_per_key = count,
                    "max-keys-per-call" => settings.max_keys_per_call = count,
                    "quarantine" => settings.restart_quarantine_ms = value,
                    "lock-delay" => settings.lock_delay_ms = value,
                    "claim" => settings.claim_ms = value,
                    "max-token-lead-ms" => settings.max_token_lead_ms = value,
                    "request-memory-ms" => settings.request_memory_ms = value,
                    "request-memory-max" => settings.request_memory_max = count,
                    "deadlock-detection" => settings.deadlock_detection = value != 0,
                    "recheck" => settings.deadlock_recheck_ms = value,
                    "log-max-len" => settings.log_max_len = count,
                    "log-wait" => settings.log_wait_ms = value,
                    "log-hold" => settings.log_hold_ms = value,
                    "record-level" => {
                        let level = value.try_into().ok().and_then(Level::new);
                        settings.record_level = level.expect("a level");
                    }
                    "cluster" => settings.cluster = value != 0,
                    _ => panic!("no setting {name}"),
                });
            }
            _ => panic!("no such row: {words:?}"),
        }
    }

    fn show(&mut self, seen: &Seen) -> String {
        self.name_new(seen);
        let mut parts = Vec::new();
        if let Some(reply) = &seen.reply {
            parts.push(self.outcome(reply));
        }
        if let Some(waiter) = seen.parked {
            let is_woken = !seen.wakes.is_empty();
            assert!(is_woken || self.world.blocked.contains_key(&waiter));
            parts.push("parked".to_owned());
        }
        for (client, outcome) in &seen.wakes {
            let outcome = self.outcome(outcome);
            parts.push(format!("c{client} gets {outcome}"));
        }
        for (channel, text) in &seen.messages {
            let shown = match Message::parse(text).expect("a message") {
                Message::Flushed { db } => format!("flushed {db}"),
                Message::Hold { event, db, id, owner, reqid, key } => {
                    let id = match permit::parse(id) {
                        Some(id) => format!("p{}", number(id)),
                        None if id == b"0" => "-".to_owned(),
                        None => self.name(lossy(id).parse().expect("a token")),
                    };
                    let reqid = match lossy(reqid) {
                        id if id.is_empty() => id,
                        id => format!("[{id}] "),
                    };
                    let (event, length) = (event.as_str(), owner.len());
                    format!("{event} {db} {id} {length} {} {reqid}{}", lossy(owner), lossy(key))
                }
            };
            parts.push(format!("{}: {shown}", lossy(channel)));
        }
        let mut shown = parts.join("; ");
        for (event, ..) in seen.events.iter().filter(|_| self.with_events) {
            let _ = write!(shown, " +{event}");
        }
        shown.trim().to_owned()
    }

    fn outcome(&mut self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Token(token) => self.name(*token),
            Outcome::Tokens(tokens) => {
                let names: Vec<String> = tokens.iter().map(|token| self.name(*token)).collect();
                names.join(" ")
            }
            Outcome::Granted { key, token } => {
                format!("{} {}", String::from_utf8_lossy(key), self.name(*token))
            }
            Outcome::Permit(id) => format!("p{}", number(*id)),
            Outcome::Taken => "taken".to_owned(),
            Outcome::Available(available) => available.to_string(),
            Outcome::Count(count) => count.to_string(),
            Outcome::Ended(how) => how.to_string(),
            Outcome::Null => "null".to_owned(),
            Outcome::Fault(fault) if SAY_MORE.contains(&fault.code) => {
                format!(
                    "{} {}",
                    fault.code.as_str(),
                    fault.text.split(' ').next().unwrap_or_default()
                )
            }
            Outcome::Fault(fault) => fault.code.as_str().to_owned(),
        }
    }

    /// Names the tokens that appear for the first time, in their own order.
    fn name_new(&mut self, seen: &Seen) {
        let outcomes = seen.reply.iter().chain(seen.wakes.iter().map(|(_, outcome)| outcome));
        let told = outcomes.flat_map(|outcome| match outcome {
            Outcome::Token(token) | Outcome::Granted { token, .. } => vec![*token],
            Outcome::Tokens(tokens) => tokens.clone(),
            _ => Vec::new(),
        });
        let said = seen.messages.iter().filter_map(|(_, text)| {
            let text = String::from_utf8_lossy(text);
            text.split(' ').nth(2)?.parse().ok()
        });
        let mut tokens: Vec<u64> = told.chain(said).filter(|&token| token > 0).collect();
        tokens.sort_unstable();
        for token in tokens {
            if !self.tokens.contains(&token) {
                let last = self.tokens.last().copied().unwrap_or(0);
                assert!(
                    self.any_order || token > last,
                    "the new token {token} is not above {last}"
                );
                self.tokens.push(token);
            }
        }
    }

    fn name(&self, token: u64) -> String {
        match self.tokens.iter().position(|&other| other == token) {
            Some(at) => format!("t{}", at + 1),
            None => format!("the unknown token {token}"),
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number of a permit: ids are counted here.
fn number(id: PermitId) -> u128 {
    u128::from_be_bytes(id)
}
