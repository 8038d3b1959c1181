//! Decoding of payloads. Everything is read and checked before anything is changed.

use super::{CONFIG, Clocks, DecodeError, GRANTED, Level, ReplayedRequest, SPENT, STEP, check};
use crate::base::bytes::Owner;
use crate::base::ids::{ALONE, HoldId};
use crate::base::kind::Kind;
use crate::base::time::{LeaseInstant, Millis};
use crate::record::format::{
    Bytes, CLOSED, ClosedV1, FAIR, FENCED, FREE, HELD, HoldV1, LATCH, LatchV1, MembersV1, PermitV1,
    QueueEntryV1, RW, SEMAPHORE, SemaphoreV1, SpentV1, UNFENCED,
};
use crate::value::fair::{Fair, QueueEntry};
use crate::value::hold::{Hold, owner_hash};
use crate::value::holds::Holds;
use crate::value::latch::Latch;
use crate::value::lock::Lock;
use crate::value::resource::{Body, Resource};
use crate::value::rw::RwLock;
use crate::value::semaphore::Semaphore;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use dlock_wire::names;
use serde::Deserialize;

/// The unread part of a payload.
pub(super) struct Input<'a> {
    rest: &'a [u8],
    now: Clocks,
    is_step: bool,
    /// Its requests, besides the state.
    spent: Vec<ReplayedRequest<'a>>,
}

/// The largest token in a payload, and its requests.
type CarriedOut<'a> = (u64, Vec<ReplayedRequest<'a>>);

impl<'a> Input<'a> {
    /// The rest of a payload.
    pub(super) fn of(rest: &'a [u8], now: Clocks) -> Self {
        Self { rest, now, is_step: false, spent: Vec::new() }
    }

    /// Splits the level and the flags off a payload.
    pub(super) fn open(payload: &'a [u8], now: Clocks) -> Result<(Self, u8), DecodeError> {
        Level::of(payload)?;
        let &[_, flags, ref rest @ ..] = payload else { return Err(DecodeError::Damaged) };
        check(flags & !(GRANTED | STEP | SPENT) == 0)?;
        let mut input = Self { is_step: flags & STEP != 0, ..Self::of(rest, now) };
        if flags & SPENT != 0 {
            let count: usize = input.next()?;
            // Memory grows with the data read, not with the declared count.
            for _ in 0..count {
                let told = input.next::<SpentV1<'_>>()?.restore()?;
                input.spent.push(told);
            }
        }
        Ok((input, flags))
    }

    /// The declared number of waiters.
    pub(super) fn waiters(mut self) -> Result<usize, DecodeError> {
        let Some((&FAIR, rest)) = self.rest.split_first() else { return Ok(0) };
        self.rest = rest;
        self.lock()?;
        Ok(self.next::<MembersV1>()?.put)
    }

    /// Applies the payload to `current`.
    pub(super) fn carry_out(
        mut self,
        current: &mut Resource,
        is_there: bool,
    ) -> Result<CarriedOut<'a>, DecodeError> {
        let Some((&what, rest)) = self.rest.split_first() else { return Err(DecodeError::Damaged) };
        let kind = match what {
            FREE => current.kind(),
            CLOSED | HELD => Kind::Lock,
            FAIR => Kind::Fair,
            RW => Kind::Rw,
            SEMAPHORE => Kind::Semaphore,
            LATCH => Kind::Latch,
            _ => return Err(DecodeError::Damaged),
        };
        check(!is_there || kind == current.kind())?;
        if let FREE | CLOSED | HELD = what {
            let lock = self.lock()?;
            self.end()?;
            // A step needs members that can stay as they are, and this state has none.
            check(!self.is_step)?;
            let token = token(&lock);
            match kind {
                Kind::Lock => current.body = Body::Lock(lock),
                _ => current.body = Resource::free(kind).body,
            }
            return Ok((token, self.spent));
        }
        self.rest = rest;
        if self.is_step && is_there {
            return self.members(&mut current.body);
        }
        let mut fresh = Resource::free(kind).body;
        let carried_out = self.members(&mut fresh)?;
        current.body = fresh;
        Ok(carried_out)
    }

    fn lock(&mut self) -> Result<Lock, DecodeError> {
        let (&what, rest) = self.rest.split_first().ok_or(DecodeError::Damaged)?;
        self.rest = rest;
        match what {
            FREE => Ok(Lock::Free),
            CLOSED => self.next::<ClosedV1>()?.restore(self.now),
            HELD => Ok(Lock::Held(self.next::<HoldV1<'_>>()?.restore(self.now, FENCED)?)),
            _ => Err(DecodeError::Damaged),
        }
    }

    /// A state with members, or a step of one.
    fn members(mut self, body: &mut Body) -> Result<CarriedOut<'a>, DecodeError> {
        let token = match body {
            Body::Fair(fair) => self.fair()?.carry_out(fair),
            Body::Rw(rw) => self.rw()?.carry_out(rw)?,
            Body::Semaphore(semaphore) => self.semaphore()?.carry_out(semaphore),
            Body::Latch(latch) => self.latch()?.carry_out(latch),
            Body::Lock(_) => return Err(DecodeError::Impossible),
        };
        Ok((token, self.spent))
    }

    fn fair(&mut self) -> Result<FairChange, DecodeError> {
        let (lock, members, now) = (self.lock()?, self.next()?, self.now);
        let entries = Changes::read(self, members, |input| {
            let place: QueueEntryV1<'_> = input.next()?;
            Ok((place.seq, Arc::new(place.restore(now)?)))
        })?;
        self.end()?;
        check(self.is_step || !entries.put.is_empty() || !matches!(lock, Lock::Free))?;
        check(are_distinct_owners(entries.put.iter().map(|(_, place)| &place.owner)))?;
        Ok(FairChange { lock, entries })
    }

    fn rw(&mut self) -> Result<RwChange, DecodeError> {
        let (lock, members, now) = (self.lock()?, self.next()?, self.now);
        let readers = Changes::read(self, members, |input| {
            let hold = input.next::<HoldV1<'_>>()?.restore(now, FENCED)?;
            Ok((HoldId::from(hold.token), Box::new(hold)))
        })?;
        self.end()?;
        check(self.is_step || !readers.put.is_empty() || !matches!(lock, Lock::Free))?;
        check(are_distinct_owners(readers.put.iter().map(|(_, hold)| &hold.owner)))?;
        Ok(RwChange { lock, readers })
    }

    fn semaphore(&mut self) -> Result<SemaphoreChange, DecodeError> {
        let state: SemaphoreV1 = self.next()?;
        check((1..=names::PERMITS_MAX).contains(&state.capacity))?;
        check(state.taken <= names::PERMITS_MAX)?;
        let now = self.now;
        let permits = Changes::read(self, state.permits, |input| {
            let permit: PermitV1<'_> = input.next()?;
            let hold = permit.hold.restore(now, UNFENCED)?;
            check(permit.id != ALONE && hold.count <= names::PERMITS_MAX)?;
            Ok((permit.id, Box::new(hold)))
        })?;
        self.end()?;
        Ok(SemaphoreChange { state, permits })
    }

    fn latch(&mut self) -> Result<LatchChange<'a>, DecodeError> {
        let state: LatchV1 = self.next()?;
        check((1..=state.initial).contains(&state.count) && state.initial <= names::LATCH_MAX)?;
        let time = state.time.map(|time| time.restore(self.now)).transpose()?;
        let mut requests: Vec<&[u8]> = Vec::new();
        for _ in 0..state.requests {
            let id: Bytes<'a> = self.next()?;
            check((1..=names::REQID_MAX).contains(&id.0.len()))?;
            check(requests.last().is_none_or(|last| *last < id.0))?;
            requests.push(id.0);
        }
        self.end()?;
        Ok(LatchChange { state, time, requests })
    }

    fn next<T: Deserialize<'a>>(&mut self) -> Result<T, DecodeError> {
        let read = bincode::serde::borrow_decode_from_slice(self.rest, CONFIG);
        let (item, len) = read.map_err(|_| DecodeError::Damaged)?;
        self.rest = self.rest.get(len..).unwrap_or_default();
        Ok(item)
    }

    /// The state is complete. Parts may follow that this code does not know: each has a tag and its length, and is
    /// skipped.
    pub(super) fn end(&mut self) -> Result<(), DecodeError> {
        while !self.rest.is_empty() {
            let (_tag, _part): (u64, Bytes<'_>) = (self.next()?, self.next()?);
        }
        Ok(())
    }
}

/// The token of the hold in force; 0 if there is none.
fn token(lock: &Lock) -> u64 {
    lock.hold().map_or(0, |hold| hold.token)
}

/// Whether no owner comes twice. Their hashes are compared first.
fn are_distinct_owners<'a>(owners: impl ExactSizeIterator<Item = &'a Owner> + Clone) -> bool {
    if owners.len() < 2 {
        return true;
    }
    let mut hashes: Vec<u64> = owners.clone().map(|owner| owner_hash(owner)).collect();
    hashes.sort_unstable();
    // Ids whose hash equals that of another one: hardly ever any.
    let twice = hashes.windows(2).filter_map(|pair| (pair[0] == pair[1]).then_some(pair[0]));
    let twice: BTreeSet<u64> = twice.collect();
    let mut seen = BTreeSet::new();
    twice.is_empty()
        || owners.filter(|owner| twice.contains(&owner_hash(owner))).all(|owner| seen.insert(owner))
}

/// Members of a key that leave or come, both in the order of their ids. A new member replaces the one with the same id.
struct Changes<K, T> {
    gone: Vec<K>,
    put: Vec<(K, T)>,
}

/// Every member takes at least this number of bytes.
const MEMBER_LEAST: usize = 8;

impl<K: Ord + Copy, T> Changes<K, T> {
    /// Reads the declared number of members. Memory grows with the data read, not with the declared count.
    fn read<'a>(
        input: &mut Input<'a>,
        MembersV1 { gone, put }: MembersV1,
        mut member: impl FnMut(&mut Input<'a>) -> Result<(K, T), DecodeError>,
    ) -> Result<Self, DecodeError>
    where
        K: Deserialize<'a>,
    {
        check(input.is_step || gone == 0)?;
        let mut changes = Self { gone: Vec::new(), put: Vec::new() };
        for _ in 0..gone {
            let id = input.next()?;
            check(changes.gone.last().is_none_or(|last| *last < id))?;
            changes.gone.push(id);
        }
        // Reserved at once: a list that grows exists twice while it is moved.
        changes.put.reserve_exact(put.min(input.rest.len() / MEMBER_LEAST));
        for _ in 0..put {
            let (id, member) = member(input)?;
            check(changes.put.last().is_none_or(|(last, _)| *last < id))?;
            check(!changes.takes(id))?;
            changes.put.push((id, member));
        }
        Ok(changes)
    }

    fn takes(&self, id: K) -> bool {
        self.gone.binary_search(&id).is_ok()
    }

    /// Whether the member under `id`, if there is one, stays as it is.
    fn leaves(&self, id: K) -> bool {
        !self.takes(id) && self.put.binary_search_by_key(&id, |&(id, _)| id).is_err()
    }
}

struct FairChange {
    lock: Lock,
    entries: Changes<u64, Arc<QueueEntry>>,
}

impl FairChange {
    /// A fair lock has no index of owners, so an owner with an entry under another number is not found.
    fn carry_out(self, fair: &mut Fair) -> u64 {
        let token = token(&self.lock);
        fair.lock = self.lock;
        for seq in &self.entries.gone {
            fair.entries.remove(seq);
        }
        if fair.entries.is_empty() {
            fair.entries = self.entries.put.into_iter().collect();
        } else {
            fair.entries.extend(self.entries.put);
        }
        token
    }
}

struct RwChange {
    lock: Lock,
    readers: Changes<HoldId, Box<Hold>>,
}

impl RwChange {
    fn carry_out(self, rw: &mut RwLock) -> Result<u64, DecodeError> {
        let Self { lock, readers } = self;
        // One read hold per owner.
        let other = |owner: &Owner| rw.readers.of_owner(owner).any(|(id, _)| readers.leaves(id));
        check(!readers.put.iter().any(|(_, hold)| other(&hold.owner)))?;
        if let Some(writer) = lock.hold() {
            // The writer has no reads but its own.
            let is_there = |id: HoldId| rw.readers.get(id).is_some();
            let gone = readers.gone.iter().filter(|&&id| is_there(id)).count();
            let new = readers.put.iter().filter(|&&(id, _)| !is_there(id)).count();
            let reads = readers.put.iter().any(|(_, hold)| hold.owner == writer.owner)
                || other(&writer.owner);
            check(rw.readers.len() + new - gone == usize::from(reads))?;
        }
        let largest = readers.put.last().map_or(0, |(_, hold)| hold.token);
        let token = token(&lock).max(largest);
        rw.lock = lock;
        if rw.readers.is_empty() {
            rw.readers = Holds::of_sorted(readers.put);
            return Ok(token);
        }
        for id in readers.gone {
            rw.readers.remove(id);
        }
        for (id, hold) in readers.put {
            replace(&mut rw.readers, id, *hold);
        }
        Ok(token)
    }
}

/// Puts a hold in place of the one that it replaces, if there is one.
fn replace(holds: &mut Holds, id: HoldId, hold: Hold) -> Option<Hold> {
    let old = holds.remove(id);
    holds.insert(id, hold);
    old
}

struct SemaphoreChange {
    state: SemaphoreV1,
    permits: Changes<HoldId, Box<Hold>>,
}

impl SemaphoreChange {
    fn carry_out(self, semaphore: &mut Semaphore) -> u64 {
        semaphore.capacity = self.state.capacity;
        semaphore.is_passing = self.state.is_passing;
        semaphore.taken = self.state.taken;
        if semaphore.permits.is_empty() {
            let counts = self.permits.put.iter().map(|(_, hold)| u64::from(hold.count));
            semaphore.leased = counts.sum();
            semaphore.permits = Holds::of_sorted(self.permits.put);
            return 0;
        }
        for id in self.permits.gone {
            let old = semaphore.permits.remove(id);
            semaphore.leased -= old.map_or(0, |hold| u64::from(hold.count));
        }
        for (id, hold) in self.permits.put {
            semaphore.leased += u64::from(hold.count);
            let old = replace(&mut semaphore.permits, id, *hold);
            semaphore.leased -= old.map_or(0, |hold| u64::from(hold.count));
        }
        0
    }
}

struct LatchChange<'a> {
    state: LatchV1,
    time: Option<(Millis, LeaseInstant)>,
    requests: Vec<&'a [u8]>,
}

impl LatchChange<'_> {
    fn carry_out(self, latch: &mut Latch) -> u64 {
        latch.count = self.state.count;
        latch.initial = self.state.initial;
        (latch.lease_ms, latch.deadline) = self.time.unzip();
        latch.requests.extend(self.requests.into_iter().map(Box::from));
        0
    }
}
