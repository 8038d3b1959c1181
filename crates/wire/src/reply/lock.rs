//! `DLOCK.INFO` and `DFAIR.INFO`.

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
}

impl LockInfo {
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
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let mut fields = Fields::of(what, from)?;
        let (kind, waiters) = (fields.get("kind")?, fields.get("waiters")?);
        let hold = HolderInfo::read_fields(&mut fields)?;
        Ok(if hold.holds > 0 {
            Self { kind, holder: Some(hold), closed_for: Duration::ZERO, waiters }
        } else {
            Self { kind, holder: None, closed_for: hold.left, waiters }
        })
    }
}
