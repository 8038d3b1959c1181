//! Holds, as `DRW.INFO` shows them and as a part of [`LockInfo`](super::LockInfo).

use alloc::vec::Vec;
use core::time::Duration;

use super::shape::{Shape, Sink, Unreadable, Value, map};

map! {
    /// A hold of a lock.
    #[derive(Default)]
    HolderInfo {
        "owner" => owner: Vec<u8>, "the holder";
        "token" => token: u64, "fencing token of the hold";
        "holds" => holds: u64, "how often the owner holds the lock in this mode";
        "lease-ms" => lease: Duration, "length of the lease";
        "ttl-ms" => left: Duration, "the remaining lease";
        "held-ms" => held: Duration, "how long the owner has held the lock";
        "label" => label: Vec<u8>, "LABEL of the hold";
        "bound-client" => bound_client: Option<u64>,
            "id of the connection that BIND binds the hold to; 0 for none";
    }
}

/// A hold, or Null.
impl Shape for Option<HolderInfo> {
    fn write(&self, to: &mut impl Sink) {
        match self {
            Some(hold) => hold.write(to),
            None => to.null(),
        }
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        HolderInfo::read_or_null(what, from)
    }
}
