//! A hold: a grant in force.

use crate::base::bytes::Owner;
use crate::base::time::{Instant, LeaseInstant, Millis};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::Hasher;
use dlock_wire::names;
use siphasher::sip::SipHasher13;

/// Largest number of request ids that count in a hold.
pub const OPEN_MAX: usize = 64;

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

/// The ids of the requests that count in a hold, oldest first, at most [`OPEN_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(Vec<u8>);

/// Splits off the first request id, behind a byte with its length minus one; `None` if the bytes are invalid.
fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&head, rest) = bytes.split_first()?;
    let len = usize::from(head) + 1;
    (len <= names::REQID_MAX).then(|| rest.split_at_checked(len))?
}

impl Requests {
    /// Rebuilds the list from [`Requests::as_bytes`]. `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (mut rest, mut len) = (bytes, 0);
        while !rest.is_empty() {
            (_, rest) = split_first(rest)?;
            len += 1;
        }
        (len <= OPEN_MAX).then(|| Self(bytes.to_vec()))
    }

    /// Every id, behind a byte with its length minus one.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds `id` (1 to 64 bytes), which is not among them, at the end.
    pub fn add(&mut self, id: &[u8]) {
        debug_assert!((1..=names::REQID_MAX).contains(&id.len()));
        // The length fits; what has another one is not an id.
        let Some(Ok(head)) = id.len().checked_sub(1).map(u8::try_from) else { return };
        self.0.reserve(1 + id.len());
        self.0.push(head);
        self.0.extend_from_slice(id);
    }

    /// Forgets `id`: it does not count in the hold any more.
    pub fn forget(&mut self, id: &[u8]) {
        let mut kept = Self::default();
        self.iter().filter(|known| *known != id).for_each(|known| kept.add(known));
        *self = kept;
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
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

    /// Its request ids, oldest first.
    pub fn request_ids(&self) -> impl Iterator<Item = &[u8]> {
        self.extras.iter().flat_map(|extras| extras.requests.iter())
    }

    /// Hashes of its requests, each with its owner.
    pub(crate) fn requests_by_hash(&self) -> BTreeSet<u64> {
        self.request_ids().map(|id| request_hash(&self.owner, id)).collect()
    }

    /// Whether request `id` counts in it.
    pub fn has_request(&self, id: Option<&[u8]>) -> bool {
        id.is_some_and(|id| self.request_ids().any(|known| known == id))
    }

    /// Notes that request `id` counts in it.
    pub fn remember(&mut self, id: Option<&[u8]>) {
        if let Some(id) = id.filter(|id| !self.has_request(Some(id))) {
            self.extras_mut().requests.add(id);
        }
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

    /// A request of the owner is answered for this hold.
    pub fn touch(&mut self) {
        self.answers = self.answers.saturating_add(1);
        if let Some(extras) = &mut self.extras {
            extras.unclaimed = None;
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
    fn ids_stay_in_the_order_in_which_they_came() {
        let mut requests = Requests::default();
        for id in [&b"a"[..], b"bc", &[b'd'; 64]] {
            requests.add(id);
        }
        requests.forget(b"bc");
        requests.forget(b"unknown");
        assert!(requests.iter().eq([&b"a"[..], &[b'd'; 64]]));
        assert_eq!(Requests::from_bytes(requests.as_bytes()), Some(requests));
    }

    #[test]
    fn damaged_id_lists_are_refused() {
        let too_long = [&[64][..], &[b'r'; 65]].concat();
        for bytes in [&[0u8][..], &[1, b'a'], &[0, b'a', 2, b'b'], &[0, b'a', 0], &too_long] {
            assert_eq!(Requests::from_bytes(bytes), None);
        }
        let most = [0, b'a'].repeat(OPEN_MAX);
        assert!(Requests::from_bytes(&most).is_some());
        assert_eq!(Requests::from_bytes(&[&most[..], b"\0b"].concat()), None);
    }
}
