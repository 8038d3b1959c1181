//! `DSEM.INFO` and `DSEM.PERMITS`.

use alloc::vec::Vec;
use core::time::Duration;

use super::shape::map;
use crate::permit::PermitText;

map! {
    /// The state of a DSEM key.
    #[derive(Copy, Default)]
    SemInfo {
        "capacity" => capacity: u64,
            "the number of permits; 0 for a semaphore that has waiters but does not exist yet";
        "available" => available: i64,
            "how many are available; negative while more are out than the capacity";
        "leased" => leased: u64, "how many are out by ACQUIRE";
        "taken" => taken: u64, "how many are out by TAKE and DRAIN";
        "waiters" => waiters: u64, "length of the queue";
    }
}

map! {
    /// Permits that are out with an owner and a lease.
    PermitInfo {
        "id" => id: PermitText, "the permit id";
        "owner" => owner: Vec<u8>, "the owner";
        "count" => count: u64, "how many permits the id stands for";
        "ttl-ms" => left: Duration, "the remaining lease";
        "held-ms" => held: Duration, "how long the owner has held the permit";
        "label" => label: Vec<u8>, "LABEL of the permit";
        "bound-client" => bound_client: Option<u64>,
            "id of the connection that BIND binds the permit to; 0 for none";
    }
}
