//! A hold: a grant in force.

use crate::base::bytes::Owner;
use crate::base::time::{Instant, LeaseInstant, Millis};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::Hasher;
use dlock_wire::names;
use siphasher::sip::SipHasher13;

/// Number of request ids that a hold remembers.
pub const REQUESTS_KEPT: usize = 8;

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
    /// The last request ids.
    pub requests: Requests,
    /// Free text for INFO and WAITERS.
    pub label: Box<[u8]>,
    /// Whether messages about this hold are published, and where.
    pub notify: Notify,
    /// The id of the request that asked for them: messages carry it.
    pub notify_request: Option<Box<[u8]>>,
    /// The binding to a connection.
    pub binding: Option<Binding>,
    /// Set while a QUEUE grant waits to be claimed.
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
    /// After a restart or failover: the latest end of the hold unless it is bound again.
    pub orphan_until: Option<LeaseInstant>,
}

/// A QUEUE grant that is not claimed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unclaimed {
    /// The connection of the waiter; [`NO_CLIENT`] if it is closed.
    pub client: u64,
    /// Time from the grant in which its owner can claim it, in milliseconds.
    pub claim_ms: Millis,
}

/// The last few request ids of a hold, oldest first, and what each of them did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(Vec<u8>);

/// What a request did to a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// ACQUIRE.
    Acquire,
    /// RELEASE, which answered this.
    Release(u32),
}

/// Bit in the byte in front of an id, whose low six bits are the length minus one: RELEASE, whose answer follows the id
/// in four bytes.
const RELEASE: u8 = 0x40;

/// A request id, and what the request did.
type Request<'a> = (&'a [u8], Did);

/// Splits off the first request id; `None` if the bytes are invalid.
fn split_first(bytes: &[u8]) -> Option<(Request<'_>, &[u8])> {
    let (&head, rest) = bytes.split_first()?;
    let len = usize::from(head & !RELEASE) + 1;
    let (id, rest) = rest.split_at_checked(len).filter(|_| len <= names::REQID_MAX)?;
    if head & RELEASE == 0 {
        return Some(((id, Did::Acquire), rest));
    }
    let (answer, rest) = rest.split_first_chunk()?;
    Some(((id, Did::Release(u32::from_le_bytes(*answer))), rest))
}

impl Requests {
    /// Rebuilds the list from [`Requests::as_bytes`]. `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8], keep: usize) -> Option<Self> {
        let mut rest = bytes;
        let mut count = 0;
        while !rest.is_empty() {
            (_, rest) = split_first(rest)?;
            count += 1;
        }
        (count <= keep).then(|| Self(bytes.to_vec()))
    }

    /// Every id, each with what it did.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What request `id` did, if it is among them.
    pub fn find(&self, id: &[u8]) -> Option<Did> {
        self.iter().find(|(known, _)| *known == id).map(|(_, did)| did)
    }

    /// Adds `id` (1 to 64 bytes) and forgets the oldest beyond `keep`.
    pub fn remember(&mut self, id: &[u8], did: Did, keep: usize) {
        debug_assert!(!id.is_empty() && id.len() <= names::REQID_MAX);
        let mut count = self.iter().count();
        while count >= keep
            && let Some((_, rest)) = split_first(&self.0)
        {
            let oldest = self.0.len() - rest.len();
            self.0.drain(..oldest);
            count -= 1;
        }
        // Request ids have 1 to 64 bytes, so their length fits; another one is not an id.
        let Some(Ok(len)) = id.len().checked_sub(1).map(u8::try_from) else { return };
        self.0.reserve(1 + id.len());
        self.0.push(if did == Did::Acquire { len } else { RELEASE | len });
        self.0.extend_from_slice(id);
        if let Did::Release(answer) = did {
            self.0.extend_from_slice(&answer.to_le_bytes());
        }
    }

    /// Forgets `id`: its effect was rolled back.
    pub fn forget(&mut self, id: &[u8]) {
        let mut kept = Self::default();
        for (known, did) in self.iter().filter(|(known, _)| *known != id) {
            kept.remember(known, did, usize::MAX);
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

    /// What request `id` did to this hold, if it has seen it.
    pub fn seen(&self, id: Option<&[u8]>) -> Option<Did> {
        self.extras.as_ref()?.requests.find(id?)
    }

    /// Notes what request `id` did.
    pub fn remember(&mut self, id: Option<&[u8]>, did: Did) {
        if let Some(id) = id {
            self.extras_mut().requests.remember(id, did, REQUESTS_KEPT);
        }
    }

    /// Forgets request `id`: its effect was rolled back.
    pub fn forget(&mut self, id: Option<&[u8]>) {
        if let (Some(id), Some(extras)) = (id, &mut self.extras) {
            extras.requests.forget(id);
        }
    }

    /// The label; empty if there is none.
    pub fn label(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| &extras.label)
    }

    /// The binding to a connection.
    pub fn binding(&self) -> Option<Binding> {
        self.extras.as_ref().and_then(|extras| extras.binding)
    }

    /// The connection to which the hold is bound; [`NO_CLIENT`] if there is none.
    pub fn bound_to(&self) -> u64 {
        self.binding().map_or(NO_CLIENT, |binding| binding.client)
    }

    /// Whether the grant waits to be claimed, and for whom.
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
    fn the_last_eight_ids_are_kept() {
        let mut requests = Requests::default();
        for n in 0..10u8 {
            let did = [Did::Acquire, Did::Release(u32::from(n))];
            requests.remember(&[b'r', n], did[usize::from(n) % 2], REQUESTS_KEPT);
        }
        assert_eq!(requests.find(&[b'r', 1]), None);
        assert!((2..10).all(|n| requests.find(&[b'r', n]).is_some()));
        assert_eq!(requests.find(&[b'r', 5]), Some(Did::Release(5)));
        assert_eq!(requests.find(&[b'r', 6]), Some(Did::Acquire));
        let again = Requests::from_bytes(requests.as_bytes(), REQUESTS_KEPT);
        assert_eq!(again, Some(requests));
    }

    #[test]
    fn damaged_id_lists_are_refused() {
        let long = [&[64u8 | 0x80][..], &[b'r'; 65]].concat();
        for bytes in [&[0u8][..], &[1, b'a'], &[0, b'a', 2, b'b'], &[RELEASE, b'a', 0, 0, 0], &long]
        {
            assert_eq!(Requests::from_bytes(bytes, REQUESTS_KEPT), None);
        }
        let longest = [&[63][..], &[b'r'; 64]].concat();
        assert!(Requests::from_bytes(&longest, REQUESTS_KEPT).is_some());
        let nine = [0, b'a'].repeat(9);
        assert_eq!(Requests::from_bytes(&nine, REQUESTS_KEPT), None);
    }
}
