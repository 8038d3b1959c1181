//! Request ids: the answer to a call whose REQID repeats an earlier one.
//!
//! While a hold lasts, it knows its requests itself, and its verbs repeat their answers. The memory of the machine
//! ([`crate::value::spent`]) knows requests that are over. Each verb asks it first. Ended holds and verbs that leave no
//! hold behind add to it.

use crate::base::ids::HoldId;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::{LeaseInstant, Now};
use crate::ports::answers::quoted;
use crate::ports::effects::Outcome;
use crate::step::Step;
use crate::step::end::End;
use crate::tables::Tables;
use crate::tables::portions::AT_ONCE;
use crate::value::hold::{Did, Hold};
use crate::value::resource::{Body, Resource};
use crate::value::spent::{Limits, RequestKey, Scope, SpentRequests, Use, spent_of};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Mode, ResizeTo};

/// Number of refused requests that are remembered.
const REMEMBERED: usize = 1_000;

/// The verb of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asks {
    Acquire,
    Release,
    Cancel,
    Take(u32),
    Give(u32),
    Drain,
    Resize(ResizeTo),
}

/// A call that may carry REQID.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub kind: Kind,
    /// The mode, for a read-write lock; CANCEL is about both modes.
    pub mode: Option<Mode>,
    /// Empty for calls without an owner.
    pub owner: &'a [u8],
    pub id: Option<&'a [u8]>,
    pub asks: Asks,
}

impl<'a> Call<'a> {
    /// A call for permits without an owner, or for the number of permits.
    pub fn without_owner(id: Option<&'a [u8]>, asks: Asks) -> Self {
        Self { kind: Kind::Semaphore, mode: None, owner: &[], id, asks }
    }

    /// `ERR`: the id was used for another request.
    pub fn misused(self, key: Key<'_>) -> Outcome {
        self.names().next().map_or(Outcome::Null, |name| misused(key, name))
    }

    /// The holds that the call may be about. Of the permits, only some.
    pub(crate) fn may_be_about(self, resource: &Resource) -> Vec<HoldId> {
        match &resource.body {
            Body::Semaphore(semaphore) if !self.owner.is_empty() => {
                let permits = &semaphore.permits;
                let repeated = self.id.and_then(|id| permits.by_request(self.owner, id));
                let repeated = repeated.map(|(id, _)| id);
                repeated.into_iter().chain(permits.all_to_claim(self.owner).take(AT_ONCE)).collect()
            }
            Body::Rw(_) => resource.holds_of(self.owner).map(|(id, _)| id).collect(),
            Body::Semaphore(_) | Body::Lock(_) | Body::Fair(_) | Body::Latch(_) => Vec::new(),
        }
    }

    /// The names under which the memory knows it.
    pub fn names(self) -> impl Iterator<Item = RequestKey<'a>> {
        let modes = match (self.kind, self.mode) {
            (Kind::Rw, None) => [Some(Mode::Read), Some(Mode::Write)],
            (_, mode) => [mode, None],
        };
        let second = modes[1].is_some();
        let scopes = modes.into_iter().take(1 + usize::from(second));
        let scopes = scopes.filter_map(move |mode| Scope::of(self.kind, mode));
        let id = self.id;
        scopes.filter_map(move |scope| Some(RequestKey { scope, owner: self.owner, id: id? }))
    }
}

/// What is known of the request named by a call.
enum Known {
    /// A hold in force knows it; the flag says whether the owner has claimed that hold.
    ByHold(Did, bool),
    /// It is over.
    Over(Use),
}

impl Tables {
    /// Number of requests known at `now` that are over. O(n): for tests.
    pub fn known_requests(&self, now: Now) -> usize {
        let (lease, limits) = (self.regime.lease(now.mono), self.settings.request_limits());
        let known = self.spent.entries(lease, limits).map(|(print, ..)| print);
        let broken = self.requests_of_broken().map(|(print, _)| print);
        known.chain(broken).collect::<alloc::collections::BTreeSet<_>>().len()
    }
}

/// Another data set replaces the present one, and with it the known requests: `spent`, or none.
pub(crate) fn replace_spent(tables: &mut Tables, spent: Option<SpentRequests>) {
    // They belonged to the former data set.
    tables.pending.broken.clear();
    let keys = tables.spent.keys();
    tables.spent = spent.unwrap_or_else(|| SpentRequests::new(keys));
}

impl Step<'_> {
    /// The answer to a copy of a request that is over; `ERR` for an id that was used for another request. `None`: the
    /// call has to be carried out, or repeats what a hold in force knows.
    pub(crate) fn recall(&mut self, resource: &Resource, call: Call<'_>) -> Option<Outcome> {
        if matches!(call.asks, Asks::Acquire)
            && let Some(outcome) = self.refused_before(call)
        {
            return Some(outcome);
        }
        let used = call.names().find_map(|name| match self.known(resource, name)? {
            Known::ByHold(did, _) if !call.asks.may_repeat(did) => {
                Some(Err(misused(self.key, name)))
            }
            // It was granted, so there is nothing to cancel; the owner's present wait belongs to another request.
            Known::ByHold(Did::Acquire, true) if matches!(call.asks, Asks::Cancel) => {
                Some(Ok((name, Use::Acquired)))
            }
            Known::ByHold(..) => None,
            Known::Over(used) if call.asks.may_copy(used) => Some(Ok((name, used))),
            Known::Over(_) => Some(Err(misused(self.key, name))),
        })?;
        Some(match used {
            Ok((name, used)) => self.answer_again(resource, call, name, used),
            Err(fault) => fault,
        })
    }

    fn answer_again(
        &mut self,
        resource: &Resource,
        call: Call<'_>,
        name: RequestKey<'_>,
        used: Use,
    ) -> Outcome {
        if let Asks::Acquire = call.asks {
            return spent(self.key, name, used);
        }
        // Replicated again, so that a later WAIT covers the repeated answer.
        self.dirty = true;
        match (call.asks, used) {
            (Asks::Take(_), _) => {
                self.tables.in_flight.taken_again(self.key, call.id);
                Outcome::Taken
            }
            (Asks::Give(_) | Asks::Resize(_), _) => Outcome::Available(resource.available()),
            (Asks::Cancel, Use::Acquired) => {
                self.tables.in_flight.cancel_on_the_way(self.key, resource, call.owner, call.id);
                Outcome::Count(0)
            }
            // NOTHELD would say no more than that nothing is held now.
            (_, Use::PassedOver) => spent(self.key, name, used),
            (Asks::Release, Use::Released(answer)) if call.kind == Kind::Semaphore => {
                Outcome::Available(i64::from(answer))
            }
            (_, Use::Released(answer) | Use::Cancelled(answer) | Use::Drained(answer)) => {
                Outcome::Count(u64::from(answer))
            }
            _ => Outcome::Null,
        }
    }

    fn known(&self, resource: &Resource, name: RequestKey<'_>) -> Option<Known> {
        if let Some((did, is_claimed)) = seen_by_hold(resource, name) {
            return Some(Known::ByHold(did, is_claimed));
        }
        self.tables.find_spent(self.key, name, self.lease).map(Known::Over)
    }
}

impl Tables {
    /// Whether a call names a request that is over, as far as the memory knows.
    pub(crate) fn is_over(&self, key: Key<'_>, now: Now, call: Call<'_>) -> bool {
        let lease = self.regime.lease(now.mono);
        call.names().any(|name| self.find_spent(key, name, lease).is_some())
    }
}

impl Step<'_> {
    /// What a TAKE with this id did, for waiters with the id of a call that was carried out meanwhile.
    pub(crate) fn taken_by(&self, id: Option<&[u8]>) -> Option<Use> {
        let mut names = Call::without_owner(id, Asks::Take(0)).names();
        self.tables.find_spent(self.key, names.next()?, self.lease)
    }
}

impl Tables {
    /// What a request that is over did.
    pub(crate) fn find_spent(
        &self,
        key: Key<'_>,
        name: RequestKey<'_>,
        lease: LeaseInstant,
    ) -> Option<Use> {
        let known = self.spent.find(key, name, lease, self.settings.request_limits());
        known.or_else(|| self.find_broken(key, name))
    }
}

impl Step<'_> {
    /// Notes a request that no hold knows.
    pub(crate) fn spend(&mut self, call: Call<'_>, what: Use) {
        for name in call.names() {
            self.note_spent(name, what);
        }
    }

    /// Notes the requests of a hold that has ended.
    pub(crate) fn spend_hold(&mut self, kind: Kind, id: HoldId, hold: &Hold, end: End) {
        for (name, what) in spent_of(kind, id, hold, matches!(end, End::Released | End::Done)) {
            self.note_spent(name, what);
        }
    }

    pub(crate) fn note_spent(&mut self, name: RequestKey<'_>, what: Use) {
        let limits = self.tables.settings.request_limits();
        let print = self.tables.spent.print(self.key, name);
        self.tables.spent.put(self.user, print, what, self.lease, limits);
        self.spent.push(name, Some(what));
        self.dirty = true;
    }

    /// Forgets a request that was rolled back: the next copy of it counts as the first.
    pub(crate) fn unspend(&mut self, call: Call<'_>) {
        for name in call.names() {
            self.forget_spent(name);
        }
    }

    pub(crate) fn forget_spent(&mut self, name: RequestKey<'_>) {
        self.tables.spent.forget(self.key, name);
        self.spent.push(name, None);
        self.dirty = true;
    }
}

impl Asks {
    /// Whether this can repeat the request that did `did` to a hold in force.
    pub(crate) fn may_repeat(self, did: Did) -> bool {
        match did {
            Did::Acquire => matches!(self, Self::Acquire | Self::Cancel),
            Did::Release(_) => matches!(self, Self::Release),
        }
    }

    /// Whether this can repeat a request with the use `used`, or CANCEL it.
    pub fn may_copy(self, used: Use) -> bool {
        match used {
            Use::Acquired | Use::Cancelled(_) => matches!(self, Self::Acquire | Self::Cancel),
            Use::Released(_) | Use::PassedOver => matches!(self, Self::Release),
            Use::Taken(n) => matches!(self, Self::Take(m) if m == n),
            Use::Given(n) => matches!(self, Self::Give(m) if m == n),
            Use::Drained(_) => matches!(self, Self::Drain),
            Use::ResizedTo(n) => matches!(self, Self::Resize(ResizeTo::Absolute(m)) if m == n),
            Use::ResizedBy(n) => {
                matches!(self, Self::Resize(ResizeTo::By(m)) if m == i64::from(n))
            }
        }
    }
}

/// What a request did to a hold in force that knows it, and whether the owner has claimed that hold.
pub(crate) fn seen_by_hold(resource: &Resource, name: RequestKey<'_>) -> Option<(Did, bool)> {
    if name.owner.is_empty() {
        return None;
    }
    let kind = resource.kind();
    if let (Body::Semaphore(semaphore), Scope::Semaphore) = (&resource.body, name.scope) {
        // An owner can have thousands of permits, so they are found by an index.
        let (_, hold) = semaphore.permits.by_request(name.owner, name.id)?;
        return Some((hold.seen(Some(name.id))?, hold.unclaimed().is_none()));
    }
    let own = resource.holds_of(name.owner);
    let mut own = own.filter(|(id, _)| Scope::of_hold(kind, *id) == Some(name.scope));
    own.find_map(|(_, hold)| Some((hold.seen(Some(name.id))?, hold.unclaimed().is_none())))
}

#[cold]
fn spent(key: Key<'_>, name: RequestKey<'_>, used: Use) -> Outcome {
    let end = match used {
        Use::Cancelled(_) => "was cancelled",
        Use::PassedOver => "found no hold: it had ended before",
        _ => "was carried out, and its hold has ended",
    };
    Outcome::fault(ErrorCode::Spent, format!("{} {end}", shown(key, name)))
}

/// The id of a call was used for another request.
#[cold]
pub(crate) fn misused(key: Key<'_>, name: RequestKey<'_>) -> Outcome {
    let text = format!(
        "{} was another one: REQID has to be new for each request, and the same for its copies only",
        shown(key, name)
    );
    Outcome::fault(ErrorCode::Err, text)
}

fn shown(key: Key<'_>, name: RequestKey<'_>) -> String {
    let of = match name.owner {
        [] => String::new(),
        owner => format!(" of {}", quoted(owner)),
    };
    format!("request {}{of} for {}", quoted(name.id), quoted(key.name))
}

/// The part of a RESIZE that is remembered.
pub(crate) fn resized(to: ResizeTo) -> Use {
    match to {
        ResizeTo::Absolute(permits) => Use::ResizedTo(permits),
        // The parser refuses values that do not fit.
        ResizeTo::By(delta) => Use::ResizedBy(i32::try_from(delta).unwrap_or_default()),
    }
}

impl Step<'_> {
    /// The answer to a copy of a request whose place ended with `DEADLOCK`.
    pub(crate) fn refused_before(&self, call: Call<'_>) -> Option<Outcome> {
        let limits = refused_limits(self.tables);
        let known = |name| self.tables.refused.find(self.key, name, self.lease, limits);
        call.names().find_map(known)?;
        let text = format!(
            "{} waited forever for {}, and its place is gone; ask with another REQID",
            crate::ports::answers::quoted(call.owner),
            crate::ports::answers::quoted(self.key.name)
        );
        Some(Outcome::fault(ErrorCode::Deadlock, text))
    }
}

/// How long and how many refused requests are remembered.
pub(crate) fn refused_limits(tables: &Tables) -> Limits {
    Limits { keep_ms: tables.settings.request_memory_ms, most: REMEMBERED }
}
