//! Request ids: the answer to a call whose REQID repeats an earlier one.
//!
//! While a hold lasts, it knows its requests itself, and its verbs repeat their answers. The memory of the machine
//! ([`crate::value::spent`]) knows requests that are over. Each verb asks it first. Ended holds and verbs that leave no
//! hold behind add to it.

use crate::base::ids::HoldId;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::shares::User;
use crate::base::time::{LeaseInstant, Now};
use crate::ports::answers::{quoted, wrong_type};
use crate::ports::effects::{Fault, Outcome};
use crate::step::Step;
use crate::step::holder::holds_of;
use crate::tables::Tables;
use crate::value::hold::Hold;
use crate::value::resource::{Body, Resource};
use crate::value::spent::{Limits, Loss, Print, RequestKey, Scope, SpentRequests, Use};
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
    Take(u32),
    Give(u32),
    Drain,
    Resize(ResizeTo),
}

/// A call that may carry REQID.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub kind: Kind,
    /// The mode, for a read-write lock.
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

    /// The holds that the call may be about. Of the permits, only some.
    pub(crate) fn may_be_about(self, resource: &Resource) -> Vec<HoldId> {
        match &resource.body {
            Body::Semaphore(semaphore) if !self.owner.is_empty() => {
                let repeated = self.id.and_then(|id| semaphore.permits.by_request(self.owner, id));
                repeated.into_iter().map(|(id, _)| id).collect()
            }
            Body::Rw(_) => holds_of(resource, self.owner),
            Body::Semaphore(_) | Body::Lock(_) | Body::Fair(_) | Body::Latch(_) => Vec::new(),
        }
    }

    /// The name under which the memory knows it.
    pub fn name(self) -> Option<RequestKey<'a>> {
        let scope = Scope::of(self.kind, self.mode)?;
        Some(RequestKey { scope, owner: self.owner, id: self.id? })
    }
}

impl Tables {
    /// The answer to a call about a key that has another type now: what the memory knows of its request, else
    /// `WRONGTYPE`.
    pub(crate) fn answer_alone(&self, key: Key<'_>, call: Call<'_>, now: Now) -> Outcome {
        let used = |name| self.find_spent(key, name, self.regime.lease(now.mono));
        let known = call.name().and_then(|name| Some((name, used(name)?)));
        match (call.asks, known) {
            (Asks::Acquire, Some((name, used))) => spent(key, name, used),
            (Asks::Release, Some((name, used))) => released_before(key, name, used),
            _ => wrong_type(),
        }
    }

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

    /// Notes the ids that a step left in [`Step::unknown`], as those of `user`.
    pub(crate) fn note_unknown(&mut self, user: User, ids: &[Print], lease: LeaseInstant) {
        let limits = self.settings.request_limits();
        for &print in ids {
            self.spent.put(user, print, Use::Unknown, lease, limits);
        }
    }

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
        let name = call.name().filter(|name| hold_with(resource, *name).is_none())?;
        match self.tables.find_spent(self.key, name, self.lease) {
            Some(used) if call.asks.may_copy(used) => {
                Some(self.answer_again(resource, call, name, used))
            }
            Some(_) => Some(misused(self.key, name)),
            None if matches!(call.asks, Asks::Acquire) => self.refused_before(name),
            None => None,
        }
    }

    /// The answer to a copy of a request whose place ended with `DEADLOCK`.
    fn refused_before(&self, name: RequestKey<'_>) -> Option<Outcome> {
        self.tables.refused.find(self.key, name, self.lease, refused_limits(self.tables))?;
        let (owner, key) = (quoted(name.owner), quoted(self.key.name));
        let text = format!(
            "{owner} waited forever for {key}, and its place is gone; ask with another REQID"
        );
        Some(Outcome::fault(ErrorCode::Deadlock, text))
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
                self.tables.in_flight.answered_again(self.key, None, call.id);
                Outcome::Taken
            }
            (Asks::Give(_) | Asks::Resize(_), _) => Outcome::Available(resource.available()),
            (Asks::Drain, Use::Drained(answer)) => Outcome::Count(u64::from(answer)),
            _ => released_before(self.key, name, used),
        }
    }

    /// Notes a request that no hold knows.
    pub(crate) fn spend(&mut self, call: Call<'_>, what: Use) {
        if let Some(name) = call.name() {
            self.note_spent(name, what);
        }
    }

    pub(crate) fn note_spent(&mut self, name: RequestKey<'_>, what: Use) {
        let limits = self.tables.settings.request_limits();
        let print = self.tables.spent.print(self.key, name);
        if what == Use::Unknown {
            self.unknown.push(print);
        } else {
            self.tables.spent.put(self.user, print, what, self.lease, limits);
        }
        self.spent.push(name, Some(what));
        self.dirty = true;
    }

    /// Forgets a request that was rolled back: the next copy of it counts as the first.
    pub(crate) fn forget_spent(&mut self, name: RequestKey<'_>) {
        self.tables.spent.forget(self.key, name);
        self.spent.push(name, None);
        self.dirty = true;
    }
}

impl Asks {
    /// Whether this can repeat a request with the use `used`, or end it.
    pub fn may_copy(self, used: Use) -> bool {
        match used {
            Use::Lost(_) | Use::Released(_) | Use::Waited | Use::Unknown => {
                matches!(self, Self::Acquire | Self::Release)
            }
            Use::Taken(n) => matches!(self, Self::Take(m) if m == n),
            Use::Given(n) => matches!(self, Self::Give(m) if m == n),
            Use::Drained(_) => matches!(self, Self::Drain),
            Use::ResizedTo(n) => matches!(self, Self::Resize(ResizeTo::Absolute(m)) if m == n),
            Use::ResizedBy(n) => matches!(self, Self::Resize(ResizeTo::By(m)) if m == n.into()),
        }
    }
}

/// The hold in which a request counts.
pub(crate) fn hold_with<'r>(
    resource: &'r Resource,
    name: RequestKey<'_>,
) -> Option<(HoldId, &'r Hold)> {
    let kind = resource.kind();
    if let (Body::Semaphore(semaphore), Scope::Semaphore) = (&resource.body, name.scope) {
        // An owner can have thousands of permits, so they are found by an index.
        return semaphore.permits.by_request(name.owner, name.id);
    }
    let own = resource.holds_of(name.owner);
    let mut own = own.filter(|(id, _)| Scope::of_hold(kind, *id) == Some(name.scope));
    own.find(|(_, hold)| hold.has_request(Some(name.id)))
}

#[cold]
fn spent(key: Key<'_>, name: RequestKey<'_>, used: Use) -> Outcome {
    let end = match used {
        Use::Lost(_) => "is over: its hold has ended",
        _ => "is over: it was released",
    };
    Outcome::fault(ErrorCode::Spent, format!("{} {end}. Ask with another REQID", shown(key, name)))
}

/// The answer to a RELEASE of a request that is over.
fn released_before(key: Key<'_>, name: RequestKey<'_>, used: Use) -> Outcome {
    match used {
        Use::Released(answer) if name.scope == Scope::Semaphore => {
            Outcome::Available(i64::from(answer.cast_signed()))
        }
        Use::Released(answer) => Outcome::Count(u64::from(answer)),
        Use::Waited => Outcome::Null,
        Use::Lost(loss) => lost(key, name, loss),
        _ => unknown(key, name),
    }
}

/// The second word of `LOST` for a lease that was over.
const EXPIRED: &str = "expired";

/// Whether a `LOST` says that the lease was over.
pub(crate) fn is_expiry(lost: &Fault) -> bool {
    lost.text.split(' ').next() == Some(EXPIRED)
}

/// `LOST`: the hold of a request had ended before its RELEASE.
#[cold]
fn lost(key: Key<'_>, name: RequestKey<'_>, loss: Loss) -> Outcome {
    let (reason, why) = match loss {
        Loss::Expired => (EXPIRED, "its lease was over"),
        Loss::Broken => ("broken", "an operator broke it"),
        Loss::Deleted => ("deleted", "the key was deleted or overwritten"),
        Loss::Disconnected => ("disconnected", "the connection that it was bound to closed"),
        Loss::Released => ("released", "a RELEASE without its REQID ended it"),
    };
    let text = format!("{reason} the hold of {} had ended before: {why}", shown(key, name));
    Outcome::fault(ErrorCode::Lost, text)
}

/// `UNKNOWN`: the server knows nothing that a RELEASE could end.
#[cold]
pub(crate) fn unknown(key: Key<'_>, name: RequestKey<'_>) -> Outcome {
    let text = format!(
        "{} has nothing here that this server knows of. RELEASE names the REQID of the ACQUIRE",
        shown(key, name)
    );
    Outcome::fault(ErrorCode::Unknown, text)
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

/// How long and how many refused requests are remembered.
pub(crate) fn refused_limits(tables: &Tables) -> Limits {
    Limits { keep_ms: tables.settings.request_memory_ms, most: REMEMBERED }
}
