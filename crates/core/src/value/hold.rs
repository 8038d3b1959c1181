//! A hold: a grant in force.

use crate::base::bytes::Owner;
use crate::base::time::{Instant, LeaseInstant, Millis};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::Hasher;
use dlock_wire::names;
use siphasher::sip::SipHasher13;

/// Largest number of ids of a hold that are not released.
pub const OPEN_MAX: usize = 64;

/// Number of ids that a hold remembers after they are over.
pub const OVER_KEPT: usize = 8;

/// The client id that stands for "no connection".
pub const NO_CLIENT: u64 = 0;

/// A grant in force.
#[derive(Debug, Clone)]
pub struct Hold {
    /// The owner that holds it.
    pub owner: Owner,
    /// The fencing token of the grant.
    pub token: u64,
    /// End of the lease. While the resource has no entry in the lease index (it was just loaded), this is the time
    /// left, counted from 0.
    pub deadline: LeaseInstant,
    /// Its own lease, used by a renewal that names none, and in full by a promoted replica.
    pub lease_ms: Millis,
    /// Time of the grant.
    pub since: Instant,
    /// Number of acquires it stands for; at least 1.
    pub count: u32,
    /// Changes whenever the owner gets an answer for this hold. The rollback of an undelivered grant uses it to see
    /// whether the owner has learnt of the hold since.
    pub answers: u16,
    /// The parts that few holds have.
    pub extras: Option<Box<Extras>>,
}

/// The parts of a hold that few holds have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// Its request ids.
    pub requests: Requests,
    /// Free text for INFO and WAITERS.
    pub label: Box<[u8]>,
    /// Whether messages about this hold are published, and where.
    pub notify: Notify,
    /// The id of the request that asked for them: messages carry it.
    pub notify_request: Option<Box<[u8]>>,
    /// The binding to a connection.
    pub binding: Option<Binding>,
    /// Set until a request of the owner reaches a grant to its place.
    pub unclaimed: Option<Unclaimed>,
}

/// Whether and where messages about a waiter or hold are published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Notify {
    /// It has neither QUEUE nor NOTIFY: no messages.
    #[default]
    Silent,
    /// On the owner's channel, `dlock:notify:<owner>`.
    Owner,
    /// On a channel of its own.
    Channel(Box<[u8]>),
    /// On a channel of its own, with sharded pub/sub.
    Sharded(Box<[u8]>),
}

impl Notify {
    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        match self {
            Self::Channel(name) | Self::Sharded(name) => name.len(),
            Self::Silent | Self::Owner => 0,
        }
    }
}

/// The binding of a hold to a connection (BIND).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// Lease that is left when the connection closes, in milliseconds.
    pub ms: Millis,
    /// The connection; [`NO_CLIENT`] if it is closed or unknown.
    pub client: u64,
    /// The lease was shortened because the connection closed.
    pub is_shortened: bool,
}

/// A grant to a place that no request of its owner has reached yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unclaimed {
    /// The connection of the waiter; [`NO_CLIENT`] if it is closed.
    pub client: u64,
}

/// The ids of the requests that a hold was given to, in the order in which they came or ended, and what became of each.
/// At most [`OPEN_MAX`] are not over, and the last [`OVER_KEPT`] that are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(Vec<u8>);

/// What became of a request in a hold that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// It counts in the hold.
    Acquired,
    /// Its RELEASE answered this.
    Released(u32),
    /// A RELEASE without its id took its count.
    Overtaken,
}

/// Bits in the byte in front of an id, whose low six bits are the length minus one: it was released, and the answer
/// follows the id in four bytes; or its count was taken.
const RELEASED: u8 = 0x40;
const OVERTAKEN: u8 = 0x80;

/// A request id, and what became of the request.
type Request<'a> = (&'a [u8], Did);

/// Splits off the first request id; `None` if the bytes are invalid.
fn split_first(bytes: &[u8]) -> Option<(Request<'_>, &[u8])> {
    let (&head, rest) = bytes.split_first()?;
    let len = usize::from(head & !(RELEASED | OVERTAKEN)) + 1;
    let (id, rest) = rest.split_at_checked(len)?;
    match head & (RELEASED | OVERTAKEN) {
        0 => Some(((id, Did::Acquired), rest)),
        OVERTAKEN => Some(((id, Did::Overtaken), rest)),
        RELEASED => {
            let (answer, rest) = rest.split_first_chunk()?;
            Some(((id, Did::Released(u32::from_le_bytes(*answer))), rest))
        }
        _ => None,
    }
}

impl Requests {
    /// Rebuilds the list from [`Requests::as_bytes`]. `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let (mut open, mut over) = (0, 0);
        while !rest.is_empty() {
            let ((_, did), behind) = split_first(rest)?;
            *(if did == Did::Acquired { &mut open } else { &mut over }) += 1;
            rest = behind;
        }
        (open <= OPEN_MAX && over <= OVER_KEPT).then(|| Self(bytes.to_vec()))
    }

    /// Every id, each with what it did.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What request `id` did, if it is among them.
    pub fn find(&self, id: &[u8]) -> Option<Did> {
        self.iter().find(|(known, _)| *known == id).map(|(_, did)| did)
    }

    /// Those that are not over, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().filter(|(_, did)| *did == Did::Acquired).map(|(id, _)| id)
    }

    /// Adds `id` (1 to 64 bytes) at the end.
    pub fn add(&mut self, id: &[u8], did: Did) {
        debug_assert!(!id.is_empty() && id.len() <= names::REQID_MAX);
        // Request ids have 1 to 64 bytes, so their length fits; another one is not an id.
        let Some(Ok(len)) = id.len().checked_sub(1).map(u8::try_from) else { return };
        self.0.reserve(1 + id.len());
        self.0.push(match did {
            Did::Acquired => len,
            Did::Released(_) => RELEASED | len,
            Did::Overtaken => OVERTAKEN | len,
        });
        self.0.extend_from_slice(id);
        if let Did::Released(answer) = did {
            self.0.extend_from_slice(&answer.to_le_bytes());
        }
    }

    /// Notes that `id` is over. Returns the oldest that is over, if there are too many of them.
    pub fn close(&mut self, id: &[u8], did: Did) -> Option<(Box<[u8]>, Did)> {
        self.forget(id);
        self.add(id, did);
        let mut over = self.iter().filter(|(_, did)| *did != Did::Acquired);
        let (id, did) = over.next().filter(|_| over.count() >= OVER_KEPT)?;
        let oldest = (Box::from(id), did);
        self.forget(&oldest.0);
        Some(oldest)
    }

    /// Forgets `id`: the hold knows nothing of it any more.
    pub fn forget(&mut self, id: &[u8]) {
        let mut kept = Self::default();
        for (known, did) in self.iter().filter(|(known, _)| *known != id) {
            kept.add(known, did);
        }
        *self = kept;
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Request<'_>> {
        let mut rest = self.0.as_slice();
        core::iter::from_fn(move || {
            let (first, tail) = split_first(rest)?;
            rest = tail;
            Some(first)
        })
    }
}

/// Hash of an owner; see [`request_hash`].
pub(crate) fn owner_hash(owner: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(owner);
    hasher.finish()
}

/// Hash of a request. Its function is public. A client that finds colliding requests of one owner can make their lookup
/// slow, but nothing else.
pub(crate) fn request_hash(owner: &[u8], id: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write_usize(owner.len());
    hasher.write(owner);
    hasher.write(id);
    hasher.finish()
}

impl Hold {
    /// The request ids, if any were given.
    pub fn requests(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| extras.requests.as_bytes())
    }

    /// Hashes of its requests, each with its owner.
    pub(crate) fn requests_by_hash(&self) -> BTreeSet<u64> {
        let known = self.extras.iter().flat_map(|extras| extras.requests.iter());
        known.map(|(id, _)| request_hash(&self.owner, id)).collect()
    }

    /// What became of request `id`, if this hold knows it.
    pub fn seen(&self, id: Option<&[u8]>) -> Option<Did> {
        self.extras.as_ref()?.requests.find(id?)
    }

    /// Notes that request `id` counts in the hold.
    pub fn remember(&mut self, id: Option<&[u8]>) {
        if let Some(id) = id {
            // No id is listed twice.
            if self.seen(Some(id)).is_some() {
                self.forget(Some(id));
            }
            self.extras_mut().requests.add(id, Did::Acquired);
        }
    }

    /// Whether another request with an id can count in it.
    pub fn has_room_for_id(&self) -> bool {
        self.open_ids() < OPEN_MAX
    }

    /// Number of ids that are not over.
    pub fn open_ids(&self) -> usize {
        self.extras.as_ref().map_or(0, |extras| extras.requests.open().count())
    }

    /// Whether the hold is the grant to a place without an id, which no request has reached.
    pub fn is_nameless_grant(&self) -> bool {
        self.unclaimed().is_some() && self.requests().is_empty()
    }

    /// An answered request promises that the hold lasts `lease_ms` from `now`: it never ends before that, here or after
    /// a promotion.
    pub fn promise(&mut self, now: LeaseInstant, lease_ms: Millis) {
        let end = now + lease_ms;
        if end > self.deadline {
            self.deadline = end;
            self.lease_ms = lease_ms;
        } else {
            self.lease_ms = self.lease_ms.max(lease_ms);
        }
    }

    /// Forgets request `id`.
    pub fn forget(&mut self, id: Option<&[u8]>) {
        if let (Some(id), Some(extras)) = (id, &mut self.extras) {
            extras.requests.forget(id);
        }
    }

    /// The label; empty if there is none.
    pub fn label(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| &extras.label)
    }

    /// Sets the label. An empty one needs no space.
    pub fn set_label(&mut self, label: Option<&[u8]>) {
        if let Some(label) = label.filter(|label| !label.is_empty() || self.extras.is_some()) {
            self.extras_mut().label = label.into();
        }
    }

    /// The binding to a connection.
    pub fn binding(&self) -> Option<Binding> {
        self.extras.as_ref().and_then(|extras| extras.binding)
    }

    /// The connection to which the hold is bound; [`NO_CLIENT`] if there is none.
    pub fn bound_to(&self) -> u64 {
        self.binding().map_or(NO_CLIENT, |binding| binding.client)
    }

    /// Whether no request has reached this grant to a place, and whose it is.
    pub fn unclaimed(&self) -> Option<Unclaimed> {
        self.extras.as_ref().and_then(|extras| extras.unclaimed)
    }

    /// Whether the lease was shortened because its connection closed.
    pub fn is_shortened(&self) -> bool {
        self.binding().is_some_and(|binding| binding.is_shortened)
    }

    /// The rare parts, created if missing.
    pub fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Asks for messages about this hold, in the name of request `id`; [`Notify::Silent`] leaves it as it is.
    pub fn set_notify(&mut self, notify: Notify, id: Option<&[u8]>) {
        if notify != Notify::Silent {
            let extras = self.extras_mut();
            extras.notify = notify;
            extras.notify_request = id.map(Into::into);
        }
    }

    /// The channel for messages about this hold, if it sends any.
    pub fn channel(&self) -> Option<Vec<u8>> {
        channel(self.extras.as_ref().map(|extras| &extras.notify)?, &self.owner)
    }

    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        let extras = self.extras.as_ref().map_or(0, |extras| {
            let channel = extras.notify.heap_size();
            let request = extras.notify_request.as_ref().map_or(0, |id| id.len());
            let lists = extras.requests.0.capacity() + extras.label.len();
            size_of::<Extras>() + lists + channel + request
        });
        self.owner.heap_size() + extras
    }
}

/// The channel of messages for `owner`, if there is one.
pub fn channel(notify: &Notify, owner: &[u8]) -> Option<Vec<u8>> {
    match notify {
        Notify::Silent => None,
        Notify::Owner => Some(names::default_channel(owner)),
        Notify::Channel(name) | Notify::Sharded(name) => Some(name.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_as_small_as_the_memory_account_assumes() {
        assert!(size_of::<Hold>() <= 88);
    }

    #[test]
    fn open_ids_stay_and_the_last_eight_that_are_over() {
        let mut requests = Requests::default();
        (0..20u8).for_each(|n| requests.add(&[b'r', n], Did::Acquired));
        for n in 0..9u8 {
            let did = if n == 5 { Did::Overtaken } else { Did::Released(u32::from(n)) };
            let pushed_out = requests.close(&[b'r', n], did);
            let first = (Box::from([b'r', 0].as_slice()), Did::Released(0));
            assert_eq!(pushed_out, (n == 8).then_some(first));
        }
        assert_eq!(requests.find(&[b'r', 0]), None);
        assert_eq!(requests.find(&[b'r', 1]), Some(Did::Released(1)));
        assert_eq!(requests.find(&[b'r', 5]), Some(Did::Overtaken));
        assert_eq!(requests.find(&[b'r', 9]), Some(Did::Acquired));
        assert_eq!(requests.open().count(), 11);
        assert_eq!(Requests::from_bytes(requests.as_bytes()), Some(requests));
    }

    #[test]
    fn damaged_id_lists_are_refused() {
        let both = [RELEASED | OVERTAKEN, b'a', 0, 0, 0, 0];
        let short = [RELEASED, b'a', 0, 0, 0];
        for bytes in [&[0u8][..], &[1, b'a'], &[0, b'a', 2, b'b'], &short, &both] {
            assert_eq!(Requests::from_bytes(bytes), None);
        }
        let longest = [&[63][..], &[b'r'; 64]].concat();
        assert!(Requests::from_bytes(&longest).is_some());
        assert_eq!(Requests::from_bytes(&[0, b'a'].repeat(OPEN_MAX + 1)), None);
        assert_eq!(Requests::from_bytes(&[OVERTAKEN, b'a'].repeat(OVER_KEPT + 1)), None);
    }
}
