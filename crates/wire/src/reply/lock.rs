//! `DLOCK.INFO` and `DFAIR.INFO`.

use alloc::vec::Vec;
use core::time::Duration;

use super::shape::{Field, Fields, Shape, Sink, Unreadable, Value, field};
use super::{HolderInfo, Kind};

/// The state of a DLOCK or DFAIR key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// [`Kind::Lock`] or [`Kind::Fair`].
    pub kind: Kind,
    /// Its holder. `None`: it is free, but has a queue or is closed by `dlock.lock-delay-ms`.
    pub holder: Option<HolderInfo>,
    /// While it is free: for how long `dlock.lock-delay-ms` keeps it closed; else zero.
    pub closed_for: Duration,
    /// Length of the queue.
    pub waiters: u64,
    /// Number of calls of AWAIT that observe the hold.
    pub observers: u64,
    /// While it is free: the owner of the MACQUIRE at the head of the queue that still waits for another key; else
    /// empty.
    pub reserved_for: Vec<u8>,
}

impl LockInfo {
    /// A lock that is free, without a queue.
    pub const fn free(kind: Kind) -> Self {
        Self {
            kind,
            holder: None,
            closed_for: Duration::ZERO,
            waiters: 0,
            observers: 0,
            reserved_for: Vec::new(),
        }
    }

    /// The fields of the map, in the order of the reply. Those of the holder are not nested.
    pub const FIELDS: &'static [Field] = &[
        ("kind", "the family: `dlock` or `dfair`"),
        (
            "owner",
            "the holder; empty without one (there is a queue, or the lock is closed by \
             `dlock.lock-delay-ms`)",
        ),
        ("token", "fencing token of the hold"),
        ("holds", "how often the owner holds the lock; 0 without a holder"),
        ("lease-ms", "length of the lease"),
        ("ttl-ms", "the remaining lease"),
        ("held-ms", "how long the owner has held the lock"),
        ("label", "LABEL of the hold"),
        ("bound-client", "id of the connection that BIND binds the hold to; 0 for none"),
        ("waiters", "length of the queue"),
        ("observers", "number of calls of AWAIT that observe the hold"),
        (
            "reserved-for",
            "while the lock is free: the owner of the MACQUIRE that keeps it closed until its \
             other keys are free; else empty",
        ),
    ];
}

impl Shape for LockInfo {
    fn write(&self, to: &mut impl Sink) {
        to.map(Self::FIELDS.len());
        field(to, "kind", &self.kind);
        match &self.holder {
            Some(holder) => holder.write_fields(to),
            // Without a holder, `ttl-ms` is what is left of the lock-delay.
            None => HolderInfo { left: self.closed_for, ..HolderInfo::default() }.write_fields(to),
        }
        field(to, "waiters", &self.waiters);
        field(to, "observers", &self.observers);
        field(to, "reserved-for", &self.reserved_for);
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let mut fields = Fields::of(what, from)?;
        let hold = HolderInfo::read_fields(&mut fields)?;
        let is_held = hold.holds > 0;
        Ok(Self {
            kind: fields.get("kind")?,
            closed_for: if is_held { Duration::ZERO } else { hold.left },
            holder: is_held.then_some(hold),
            waiters: fields.get("waiters")?,
            observers: fields.get("observers")?,
            reserved_for: fields.get("reserved-for")?,
        })
    }
}
