//! The machine's doors: all that the shell may ask of it.
//!
//! The state is in [`Tables`]. A door hands it to the room that does the work: the operations of clients (`ops`),
//! events without a call (`events`), and the step in which both run on a key (`step`, entered by `run::enter`).

use crate::base::hash::HashKeys;
use crate::base::ids::{QueueId, WaiterId};
use crate::base::key::{Key, Place, Swap};
use crate::base::time::{Instant, Now};
use crate::events::diverged::Source;
use crate::events::tick::Progress;
use crate::events::{disconnect, diverged, former, replay, tick, undelivered};
use crate::ops;
use crate::ports::effects::Effects;
use crate::ports::lost::Lost;
use crate::ports::store::Store;
use crate::ports::turn::{Turn, WrongType};
use crate::record::divergence::Refused;
use crate::record::{DecodeError, Level, Standing};
use crate::reply::{self, View};
use crate::run::{activity, call, flush, keyspace, lost};
use crate::step::requests;
use crate::tables::Tables;
use crate::tables::regime::Gate;
use crate::tables::settings::Settings;
use crate::value::resource::Resource;
use crate::value::spent::SpentRequests;
use alloc::vec::Vec;
use core::ops::Range;
use dlock_wire::permit::PermitId;
use dlock_wire::request::{Op, Read};

/// See the module documentation.
#[derive(Debug)]
pub struct Machine {
    tables: Tables,
}

/// What happened without a call, and changes keys.
#[derive(Debug)]
pub enum ServerEvent<'a> {
    /// A connection closed. Unsettled: report it again from the tick, when all keys can be reached.
    ClientGone(u64),
    /// A client that does not wait has sent a command.
    ClientActive(u64),
    /// A blocked call ended although its connection lives: it keeps its place only with QUEUE.
    Withdrawn(WaiterId),
    /// A blocked call ended with its connection.
    HungUp(WaiterId),
    /// A grant did not reach its blocked caller.
    Undelivered(WaiterId),
    /// RENAME or MOVE brought a value to this key.
    Moved(Key<'a>),
    /// A value of ours left this key: what it was, unless it went elsewhere.
    Unlinked(Key<'a>, Option<Lost>),
    /// A value was loaded under this key (RDB, RESTORE, a migration): its lease starts to run.
    Adopted(Key<'a>),
    /// A command asks about this key: its noted changes are applied first.
    Asked(Key<'a>),
    /// [`Machine::keys_flushed`] found keys in these databases.
    Flushed {
        /// The databases, in ascending order.
        databases: &'a [u32],
        /// One message `flushed db` replaces one message per hold.
        announce: bool,
    },
    /// [`Fact::Swapped`] was reported earlier; now keys can be read.
    Swapped,
    /// The events that the server reported are processed: the first queues are served, the tick does the rest.
    Drained,
}

/// What the machine has to know at the moment at which it happens, when no key can be read.
#[derive(Debug)]
pub enum Fact<'a> {
    /// The server would (or would not) accept a client's write at this moment. It is for the next operation.
    Gate(Gate, Instant),
    /// The next operation is another one: the last answer about the gate does not count for it.
    GateForgotten,
    /// Whether the server is paused at this moment (`CLIENT PAUSE`, `FAILOVER`).
    Paused(bool, Instant),
    /// This server begins to serve as a primary: its process started, or it was promoted. If the server then refuses
    /// writes, leases and the quarantine of `restart_quarantine_ms` begin with the first write that it accepts.
    InService(Instant),
    /// A replica of this primary is online: a quarantine begins. The replica may come from another primary, where it
    /// has confirmed grants that this server does not know.
    ReplicaAttached(Instant),
    /// The data set was loaded, and the server starts to serve.
    Loaded(Now),
    /// This server is a primary now.
    Promoted(Now),
    /// This server is a replica now.
    Demoted,
    /// A token came with data.
    Token(u64),
    /// A level came with data. It never goes back: the data may need it.
    Level(Level),
    /// A record or a value could not be read: this server is diverged.
    Unreadable(DecodeError),
    /// All keys were removed when this was missing. Unsettled: the mark has changed, `Regime::tell_mark` is due once
    /// the server may replicate.
    Forgiven(Refused),
    /// A file is about to be loaded, in place of all data.
    FileBegun,
    /// The file that is being loaded stands like this.
    FileStanding(Standing),
    /// A full synchronization has replaced the data set by one that stands like this.
    PrimaryStanding(Standing),
    /// Another data set has taken the place of the present one: its finished requests; `None`: it has none.
    Requests(Option<SpentRequests>),
    /// The answer of a blocked call was sent.
    Delivered(WaiterId),
    /// The grant in flight to a parked caller is not sent after all: [`ServerEvent::Undelivered`] follows, and leaves
    /// its owner nothing.
    Withheld(WaiterId),
    /// A value was unlinked from this key, which cannot be read now: until [`ServerEvent::Unlinked`], no owner counts
    /// as its holder.
    HoldersGone(Key<'a>),
    /// RENAME or MOVE has just brought this value to this key.
    ValueMoved(&'a Resource, Key<'a>),
    /// Two databases were swapped. Reported before anything else is done to the keys; [`ServerEvent::Swapped`] follows.
    Swapped(Swap),
    /// An operator empties the log.
    LogReset,
    /// For tests of work that is done in portions: the largest number of waiters served, holds ended and keys checked
    /// in one step, at least two.
    Portion(usize),
}

impl Machine {
    /// A machine that just started. `keys` should be random, so that clients cannot choose keys and owners that
    /// collide.
    pub fn new(keys: HashKeys, settings: Settings) -> Self {
        Self { tables: Tables::new(keys, settings) }
    }

    /// Carries out an operation of [`Turn::caller`]. The answer is in [`Turn::fx`].
    /// `permit` is a new id for the permits of DSEM.ACQUIRE; other operations do not use it.
    pub fn execute(&mut self, turn: &mut Turn<'_>, op: &Op<'_>, permit: PermitId) {
        let answer = ops::execute(&mut self.tables, turn, op, permit);
        self.tables.counters.count_refusal(&answer);
        turn.fx.answer = Some(answer);
    }

    /// Applies what happened without a call. Returns whether that is settled; if not, the event says what is left to
    /// the caller.
    pub fn event(&mut self, turn: &mut Turn<'_>, event: ServerEvent<'_>) -> bool {
        let tables = &mut self.tables;
        match event {
            ServerEvent::ClientGone(client) => {
                return disconnect::client_departs(tables, turn, client);
            }
            ServerEvent::ClientActive(client) => activity::mark_active(tables, turn, client),
            ServerEvent::Withdrawn(waiter) => {
                disconnect::withdraw(tables, turn.keys, turn.now, waiter);
            }
            ServerEvent::HungUp(waiter) => disconnect::hang_up(tables, turn.keys, turn.now, waiter),
            ServerEvent::Undelivered(waiter) => undelivered::undelivered(tables, turn, waiter),
            ServerEvent::Moved(key) => keyspace::moved(tables, turn, key),
            ServerEvent::Unlinked(key, lost) => lost::unlinked(tables, turn, key, lost),
            ServerEvent::Adopted(key) => replay::adopt(tables, turn, key),
            ServerEvent::Asked(key) => call::catch_up(tables, turn, key),
            ServerEvent::Flushed { databases, announce } => {
                flush::flushed(tables, turn, databases, announce);
            }
            ServerEvent::Swapped => flush::swapped(tables, turn),
            ServerEvent::Drained => disconnect::drain_some(tables, turn),
        }
        true
    }

    /// Learns a fact, without any effect on keys. Returns whether that is settled, as [`Machine::event`] does.
    #[inline] // Each command tells it two facts: only their branches are left there.
    pub fn learn(&mut self, fact: Fact<'_>) -> bool {
        let tables = &mut self.tables;
        match fact {
            Fact::Gate(gate, mono) => tables.regime.set_gate(gate, mono),
            Fact::GateForgotten => tables.regime.forget_gate(),
            Fact::Paused(paused, mono) => tables.regime.observe(mono, paused),
            Fact::InService(mono) => tables.begin_service(mono),
            Fact::ReplicaAttached(mono) => tables.replica_attached(mono),
            Fact::Loaded(now) => replay::loaded(tables, now),
            Fact::Promoted(now) => replay::promote(tables, now),
            Fact::Demoted => former::demote(tables),
            Fact::Token(token) => tables.tokens.learn(token),
            Fact::Level(level) => diverged::learn_level(tables, level),
            Fact::Unreadable(why) => diverged::count_refused(tables, why),
            Fact::Forgiven(missing) => return !diverged::forgive(tables, missing),
            Fact::FileBegun => diverged::begin_file(tables),
            Fact::FileStanding(standing) => diverged::stand_as_file(tables, standing),
            Fact::PrimaryStanding(standing) => diverged::stand_as_primary(tables, standing),
            Fact::Requests(spent) => requests::replace_spent(tables, spent),
            Fact::Delivered(waiter) => drop(tables.in_flight.remove(waiter)),
            Fact::Withheld(waiter) => tables.in_flight.withhold(waiter),
            Fact::HoldersGone(key) => keyspace::forget_holders(tables, key),
            Fact::ValueMoved(resource, key) => keyspace::value_moved(tables, resource, key),
            Fact::Swapped(swap) => flush::keys_swapped(tables, swap),
            Fact::LogReset => tables.log.reset(),
            Fact::Portion(most) => tables.wide_at_once = most.max(2),
        }
        true
    }

    /// The server has just removed all keys of one database (`None`: of all). Call this before anything else is done to
    /// the keys, and report [`ServerEvent::Flushed`] with the result once keys can be read: it has the databases that
    /// had keys of ours, in ascending order.
    pub fn keys_flushed(&mut self, db: Option<u32>) -> Vec<u32> {
        flush::keys_flushed(&mut self.tables, db)
    }

    /// This node no longer serves the slots of some keys: their waiters must ask elsewhere. Checks the queues with
    /// these numbers, below [`WaitQueues::queue_bound`](crate::tables::queues::WaitQueues::queue_bound), until they
    /// make much work. Returns the first number that it has not checked.
    pub fn slot_lost(
        &mut self,
        queues: Range<QueueId>,
        place: impl FnMut(Key<'_>) -> Place,
        fx: &mut Effects,
    ) -> QueueId {
        keyspace::slot_lost(&mut self.tables, queues, place, fx)
    }

    /// The cluster is down: the blocked calls in these queues end, until that makes much work. Returns the first number
    /// whose calls have not all ended.
    pub fn cluster_down(&mut self, turn: &mut Turn<'_>, queues: Range<QueueId>) -> QueueId {
        disconnect::end_calls(&mut self.tables, turn, queues)
    }

    /// Carries out `DLOCK.APPLY key payload`: sets the key to the state in the payload. If that cannot be done, this
    /// server is diverged from now on.
    pub fn replay(
        &mut self,
        keys: &mut dyn Store,
        now: Now,
        key: Key<'_>,
        payload: &[u8],
        source: Source,
    ) -> Result<(), DecodeError> {
        replay::replay(&mut self.tables, keys, now, key, payload, source)
    }

    /// Answers a reading command of a client in this database. Only a counter changes.
    pub fn read(
        &mut self,
        store: &mut dyn Store,
        now: Now,
        db: u32,
        read: &Read<'_>,
    ) -> Result<View, WrongType> {
        let view = reply::read(&self.tables, store, now, db, read)?;
        self.tables.counters.refused_stale += u64::from(matches!(view, View::Stale(_)));
        Ok(view)
    }

    /// Does up to `budget` pieces of work: waits that timed out, queue entries whose grace elapsed, expired leases and
    /// their hand-offs.
    ///
    /// Unless the gate is open, only waits time out: everything else is a write. Under [`Gate::Unknown`] the caller
    /// then checks `Tables::wants_to_write`, asks the server, and calls again.
    pub fn tick(&mut self, turn: &mut Turn<'_>, gate: Gate, budget: usize) -> Progress {
        tick::tick(&mut self.tables, turn, gate, budget)
    }

    /// The time of the next tick; `None` if nothing will happen by itself. `gate` is the last answer of the server.
    pub fn next_alarm(&self, now: Now, gate: Gate) -> Option<Instant> {
        self.tables.next_alarm(now, gate)
    }

    /// Changes settings.
    pub fn configure(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.tables.settings);
        self.tables.log.shorten(self.tables.settings.log_max_len);
    }

    /// The state, to read.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }
}
