//! The machine: all volatile state, and the verbs that change it.
//!
//! Every verb that writes runs the same steps on a key. It ends expired holds, runs the verb, hands off to the waiters
//! now admitted, and notes the new state once as a record. So expiry has one implementation, and a late alarm cannot
//! cause a wrong state.

mod acquire;
mod answered;
mod caller;
mod durable;
mod entry;
mod flush;
mod former;
mod grant;
mod hand_on;
mod holder;
mod in_flight;
mod keyspace;
mod latch;
mod multi;
mod places;
mod presence;
mod reentry;
mod removed;
mod replay;
mod requests;
mod rw;
mod semaphore;
mod tick;
mod ties;

pub use caller::Caller;
pub use keyspace::Lost;
pub(crate) use places::keeps_place;
pub use replay::Unfit;
pub use tick::{Gate, Progress, RETRY_MS};

use crate::connection::Connections;
use crate::effects::{Effects, Outcome, Subject};
use crate::hold::{Hold, Notify};
use crate::holds::HoldId;
use crate::lease::{EntryId, Leases};
use crate::queue::{HashKeys, WaiterId};
use crate::record;
use crate::resource::{Kind, Resource};
use crate::spent::SpentRequests;
use crate::store::{Key, Slot, Store};
use crate::time::{Instant, LeaseClock, LeaseInstant, Millis, Now};
use crate::token::Tokens;
use crate::waits::Waits;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use hashbrown::HashMap;
use in_flight::InFlight;

/// What an operator can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Lease of an ACQUIRE without PX or EX, in milliseconds.
    pub default_lease_ms: Millis,
    /// How long a queue entry outlives its connection, in milliseconds.
    pub fair_grace_ms: Millis,
    /// Waiters on one key, blocked or queued.
    pub max_waiters_per_key: usize,
    /// Waiters on all keys together.
    pub max_waiters: usize,
    /// Refuse a call that would close a cycle of waiting owners.
    pub deadlock_detection: bool,
    /// How long new grants wait after a start or promotion, in milliseconds.
    pub restart_quarantine_ms: Millis,
    /// How long a lock stays closed after a hold ended without action of its holder, in milliseconds.
    pub lock_delay_ms: Millis,
    /// Longest time in which a QUEUE grant can be claimed, in milliseconds.
    pub claim_ms: Millis,
    /// How far a token of FENCE or RESTORE may be above the wall clock, in milliseconds.
    pub max_token_lead_ms: Millis,
    /// How long a request that is over is remembered, in milliseconds.
    pub request_memory_ms: Millis,
    /// Largest number of remembered requests.
    pub request_memory_max: usize,
    /// The server is part of a cluster: a key that is gone may have moved to another node.
    pub cluster: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_lease_ms: 30_000,
            fair_grace_ms: 5_000,
            max_waiters_per_key: 100_000,
            max_waiters: 1_000_000,
            deadlock_detection: true,
            restart_quarantine_ms: 0,
            lock_delay_ms: 0,
            claim_ms: 30_000,
            max_token_lead_ms: 60_000,
            request_memory_ms: 60_000,
            request_memory_max: 1_000_000,
            cluster: false,
        }
    }
}

/// Events since the start, for INFO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the INFO fields
pub struct Counters {
    pub grants_at_once: u64,
    pub grants_after_waiting: u64,
    pub timeouts: u64,
    pub expiries: u64,
    pub releases: u64,
    pub broken: u64,
    pub disconnected: u64,
    pub deadlocks_refused: u64,
    pub deadlock_searches_cut: u64,
    pub replaced: u64,
    pub unclaimed: u64,
}

/// Whether this server decides or follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It decides.
    Primary,
    /// It replays the decisions of its primary: it ends no lease and serves no waiter.
    Replica,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Machine {
    /// What an operator can set; the shell keeps it up to date.
    pub settings: Settings,
    pub(crate) counters: Counters,
    role: Role,
    clock: LeaseClock,
    tokens: Tokens,
    leases: Leases,
    pub(crate) waits: Waits,
    /// Waiters inspected by searches for cycles.
    pub(crate) searched: u64,
    connections: Connections,
    /// Grants in flight to a parked caller: not known to be delivered yet.
    in_flight: HashMap<WaiterId, InFlight, HashKeys>,
    /// Requests that were carried out and are over.
    spent: SpentRequests,
    /// Calls for several keys that may be grantable.
    ripe: VecDeque<WaiterId>,
    /// Keys to check because their value came from elsewhere with queue entries in it.
    revisit: VecDeque<(u32, Vec<u8>)>,
    /// Queues whose waiters all have the same answer, and that answer.
    answered: BTreeMap<u32, Outcome>,
    /// Waiters from before this server became a replica, not answered yet.
    former: VecDeque<former::Former>,
    /// Connections whose waiters count again, or no longer count: their queues must be checked, from the queue of this
    /// waiter on. With `true`, queues of locks for one holder are left out.
    to_stall: VecDeque<(u64, u32, bool)>,
    /// Largest number of waiters that one step serves, and of expired holds that it ends.
    wide_at_once: usize,
    /// FLUSHDB and FLUSHALL that are not drained, oldest first.
    flushes: VecDeque<flush::Flush>,
    /// Removed large values whose holds are not all ended, oldest first.
    removed: VecDeque<removed::Removed>,
    /// Removed values whose memory is freed piece by piece.
    debris: removed::AllDebris,
    /// The key index at which the next ANYACQUIRE starts.
    any_start: usize,
    quarantine_until: Option<Instant>,
    /// Whether the server would accept a client's write. Set for each operation: see [`Machine::set_gate`].
    gate: Gate,
    /// Number of promotions: an entry of an older epoch gets its lease in full, from `epoch_began`.
    epoch: u32,
    epoch_began: LeaseInstant,
    /// Entries below this may still belong to an older epoch.
    epoch_cursor: EntryId,
}

/// The key changed its type since the call began: `WRONGTYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign;

/// One operation on one key.
#[allow(clippy::struct_excessive_bools)] // facts that do not exclude each other
struct Step<'a> {
    key: Key<'a>,
    now: Now,
    /// The lease clock now.
    lease: LeaseInstant,
    fx: &'a mut Effects,
    /// The state of the resource changed: update its index entry and note a record.
    dirty: bool,
    /// A record has been noted.
    changed: bool,
    /// It has a new holder: a time to live that a client set on the key is removed.
    granted: bool,
    /// Requests that were carried out or rolled back, for the record.
    spent: record::SpentStep,
    /// Largest number of expired holds that this step ends.
    ends_at_most: usize,
    /// Waiters served in this step, by all of its hand-offs.
    served: usize,
    /// The queue whose waiters, all of them skipped, a grant overtakes.
    overtakes: Option<u32>,
    /// The waiter id of the caller, if it is in the queue.
    caller: Option<WaiterId>,
    /// The answer to the caller if a grant reaches it within the call.
    answer: Option<Outcome>,
}

/// Why a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Released,
    /// The owner returned an unclaimed grant (CANCEL), or the grant could not be delivered.
    Returned,
    Expired,
    Unclaimed,
    Disconnected,
    Broken,
}

impl Machine {
    /// A machine that just started. `keys` should be random, so that clients cannot choose keys and owners that
    /// collide.
    pub fn new(keys: HashKeys, settings: Settings) -> Self {
        Self {
            settings,
            counters: Counters::default(),
            role: Role::Primary,
            clock: LeaseClock::default(),
            tokens: Tokens::default(),
            leases: Leases::default(),
            waits: Waits::new(keys),
            searched: 0,
            connections: Connections::new(keys),
            in_flight: HashMap::with_hasher(keys),
            spent: SpentRequests::new(keys),
            ripe: VecDeque::new(),
            revisit: VecDeque::new(),
            answered: BTreeMap::new(),
            former: VecDeque::new(),
            to_stall: VecDeque::new(),
            wide_at_once: WIDE_AT_ONCE,
            flushes: VecDeque::new(),
            removed: VecDeque::new(),
            debris: VecDeque::new(),
            any_start: 0,
            quarantine_until: None,
            gate: Gate::Unknown,
            epoch: 0,
            epoch_began: LeaseInstant(0),
            epoch_cursor: 0,
        }
    }

    /// Events since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The fencing tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The queues.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// The lease index.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The known state of connections.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Whether this server decides or follows.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Number of grants sent to a parked caller that are not known to have arrived.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The time on the lease clock.
    pub fn lease_time(&self, mono: Instant) -> LeaseInstant {
        self.clock.at(mono)
    }

    /// Tells the machine whether the server would accept a client's write, for the next operation. The shell sets
    /// [`Gate::Unknown`] before it lends the machine, so that no operation uses the answer given to another one.
    pub fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Limits the waiters served, holds ended and keys checked in one step to this number, at least two. For tests of
    /// work that is done in portions.
    pub fn set_portion(&mut self, most: usize) {
        self.wide_at_once = most.max(2);
        self.waits.many_readers = most.max(2);
    }

    /// Whether the machine may change keys now.
    fn accepts_writes(&self) -> bool {
        self.gate == Gate::Open
    }

    /// Tells the machine whether the server is paused at `mono` (`CLIENT PAUSE`, `FAILOVER`).
    pub fn observe(&mut self, mono: Instant, paused: bool) {
        self.clock.observe(mono, paused);
    }

    /// Starts the quarantine of `restart_quarantine_ms` at `mono`: the process just started.
    pub fn begin_quarantine(&mut self, mono: Instant) {
        let ms = self.settings.restart_quarantine_ms;
        self.quarantine_until = (ms > 0).then(|| mono + ms);
    }

    /// How long the quarantine lasts from `mono` on, in milliseconds; 0 when there is none.
    pub fn quarantine_left(&self, mono: Instant) -> Millis {
        self.quarantine_until.map_or(0, |until| until - mono)
    }

    /// Whether the end of a quarantine is not processed yet: some waiters have not been checked since.
    pub(crate) fn has_quarantine(&self) -> bool {
        self.quarantine_until.is_some()
    }

    /// Learns a token that came with data.
    pub fn learn_token(&mut self, token: u64) {
        self.tokens.learn(token);
    }

    /// The largest token that FENCE or RESTORE may bring at this wall clock, in microseconds. It is the last token, or
    /// `max_token_lead_ms` above the clock.
    pub fn token_ceiling(&self, wall_us: u64) -> u64 {
        self.tokens.ceiling(wall_us, self.settings.max_token_lead_ms)
    }

    /// Whether the machine grants and hands off now: not on a replica, not unless the server is known to accept writes,
    /// not in quarantine.
    fn may_grant(&self, mono: Instant) -> bool {
        self.accepts_writes() && self.role == Role::Primary && self.quarantine_left(mono) == 0
    }

    /// Runs one verb on one key of the family `kind`. Expired holds end first, and the index is updated last. Then
    /// calls for several keys that became grantable are granted.
    fn on_key<S: Store, R>(
        &mut self,
        store: &mut S,
        key: (Kind, Key<'_>),
        now: Now,
        fx: &mut Effects,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, Foreign> {
        let result = self.on_key_alone(store, key, now, (fx, self.wide_at_once), verb)?;
        if !self.ripe.is_empty() {
            self.grant_what_is_ripe(store, now, fx);
        }
        Ok(result)
    }

    /// A queue of another family is left under this key, and all its waiters are gone: the key and its name are free.
    fn leave_ghosts(&mut self, key: Key<'_>, kind: Kind) {
        let Some(id) = self.waits.queue_of(key) else { return };
        let is_other = |queue: &crate::queue::Queue| queue.kind != kind && queue.len > 0;
        if self.waits.queue(id).is_some_and(is_other) && !self.waits.has_waiters(id) {
            self.waits.drop_queue(id);
        }
    }

    /// [`Machine::on_key`] for this key alone. At most `ends_at_most` expired holds end.
    fn on_key_alone<S: Store, R>(
        &mut self,
        store: &mut S,
        (kind, key): (Kind, Key<'_>),
        now: Now,
        (fx, ends_at_most): (&mut Effects, usize),
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, Foreign> {
        debug_assert!(
            self.accepts_writes() || self.role == Role::Replica,
            "a write behind the gate"
        );
        if self.is_flushing() {
            self.see_to_exchange_of(store, key);
            self.see_to_flush_of(store, key, fx);
        }
        let mut fresh;
        let (resource, is_there) = match store.get(key) {
            Slot::Here(resource) if resource.kind() == kind => (resource, true),
            Slot::Missing if !self.is_awaited_as_another(kind, key) => {
                fresh = Resource::free(kind);
                (&mut fresh, false)
            }
            Slot::Here(_) | Slot::Missing | Slot::Foreign | Slot::Elsewhere | Slot::OutOfReach => {
                return Err(Foreign);
            }
        };
        self.leave_ghosts(key, kind);
        let lease = self.clock.at(now.mono);
        let mut step = Step {
            key,
            now,
            lease,
            fx,
            dirty: false,
            changed: false,
            granted: false,
            spent: record::SpentStep::default(),
            ends_at_most,
            served: 0,
            overtakes: None,
            caller: None,
            answer: None,
        };
        let had_many_readers = is_there && self.waits.has_many_readers(resource);
        if is_there {
            self.enter(&mut step, resource);
            self.end_by_itself(&mut step, resource);
        }
        if step.granted {
            // Noted as a record of its own: the verb may end this hold again, and its token must not be lost.
            self.note_state(&mut step, resource);
        }
        let result = verb(self, &mut step, resource);
        if kind.minds_its_queue() {
            self.mind_queue(&mut step, resource);
        }
        if kind == Kind::Rw && self.role == Role::Primary {
            self.waits.mind_readers(key, resource, had_many_readers);
        }
        if step.dirty {
            self.note_state(&mut step, resource);
        }
        let Step { changed, granted, .. } = step;
        if changed {
            let is_free = resource.is_free();
            match (is_there, is_free) {
                (true, true) => store.remove(key),
                (false, false) => {
                    let value = core::mem::replace(resource, Resource::free(Kind::Lock));
                    store.put(key, value);
                }
                (true, false) if granted => store.persist(key),
                (true | false, _) => {}
            }
        }
        Ok(result)
    }

    /// Ends expired holds, and holds bound to a closed connection. Does nothing in a step that ends them after its
    /// verb.
    fn end_by_itself(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        if step.ends_at_most == 0 {
            return;
        }
        self.end_what_is_due(step, resource);
        let may_cut = self.accepts_writes() && self.role == Role::Primary;
        if may_cut && self.connections.has_departed() {
            self.cut_what_is_gone(step, resource);
        }
    }

    /// [`Machine::on_key`] for a key of any family; `None` if it is missing or of a foreign type.
    fn on_found<S: Store, R>(
        &mut self,
        store: &mut S,
        key: Key<'_>,
        now: Now,
        fx: &mut Effects,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Option<R> {
        let Slot::Here(resource) = store.get(key) else { return None };
        let kind = resource.kind();
        self.on_key(store, (kind, key), now, fx, verb).ok()
    }

    /// Checks a key in the tick. Of very many expired holds it ends a part, and the tick comes back.
    fn on_found_in_part<S: Store>(
        &mut self,
        store: &mut S,
        key: Key<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Option<()> {
        let Slot::Here(resource) = store.get(key) else { return None };
        let kind = resource.kind();
        self.on_key_alone(
            store,
            (kind, key),
            now,
            (fx, self.wide_at_once.min(AT_ONCE)),
            |_, _, _| (),
        )
        .ok()?;
        self.grant_what_is_ripe(store, now, fx);
        Some(())
    }

    /// Whether waiters of another family wait for the key, which is missing.
    pub(crate) fn is_awaited_as_another(&self, kind: Kind, key: Key<'_>) -> bool {
        let Some(id) = self.waits.queue_of(key) else { return false };
        let is_other = self.waits.queue(id).is_some_and(|queue| queue.kind != kind);
        is_other && self.waits.has_waiters(id)
    }

    /// Updates the index entry of a changed resource and notes the record of its new state.
    fn note_state(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        self.settle(step.key, resource);
        let (now, granted) = ((step.now.mono, step.lease), step.granted);
        let spent = core::mem::take(&mut step.spent);
        step.fx
            .record(step.key, |out| record::encode_step_with(resource, now, granted, &spent, out));
        step.dirty = false;
        step.changed = true;
    }
}

/// Where a hold is: the entry of its key, and its id there.
type Grip = (EntryId, HoldId);

/// The id of a hold in messages: the fencing token, or the permit id.
fn id_text(id: HoldId, hold: &Hold) -> String {
    if hold.token > 0 {
        return alloc::format!("{}", hold.token);
    }
    let text = dlock_wire::permit::text(&id.to_be_bytes());
    // These are always hexadecimal digits and dashes.
    core::str::from_utf8(&text).unwrap_or_default().into()
}

/// The subject of messages about a hold, and their channel; `None` if it sends none.
fn subject(id: HoldId, hold: &Hold) -> Option<Subject> {
    let extras = hold.extras.as_ref()?;
    let reqid = extras.notify_request.as_deref();
    Some(Subject {
        channel: hold.channel()?,
        is_sharded: matches!(extras.notify, Notify::Sharded(_)),
        id: id_text(id, hold),
        owner: hold.owner.to_vec(),
        reqid: reqid.unwrap_or_default().to_vec(),
    })
}

/// Formats a key or owner for a text.
fn quoted(bytes: &[u8]) -> String {
    dlock_wire::reply::quote(bytes)
}

fn wrong_type() -> Outcome {
    Outcome::fault(ErrorCode::WrongType, "Operation against a key holding the wrong kind of value")
}

/// The part of a large piece of work that an operation does at once; the tick does the rest.
const AT_ONCE: usize = 64;

/// Number of queue entries that a call for several keys removes at once when it ends. The tick does the rest.
const LEAVE_AT_ONCE: usize = 16;

/// Largest number of waiters that one step serves, and of expired holds that it ends. The tick does the rest. Until
/// then the queue is marked dirty, and new calls wait behind it.
const WIDE_AT_ONCE: usize = 256;

/// Number of effects after which an operation leaves the rest to the tick, and a tick to the next one. It bounds the
/// work of the server before it serves clients again.
const WEIGHT_AT_ONCE: usize = 128;

/// Slots collected before each of them is processed.
type Slots = Vec<u32>;
