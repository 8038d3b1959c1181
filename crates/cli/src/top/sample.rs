//! Sample data for tests.

use std::time::{Duration, Instant};

use dlock_admin::{Entry, HolderInfo, Info, Kind, LockInfo, Stats};

use super::state::Look;
use crate::look::Seen;

/// A lock that `alice` holds.
pub fn lock(key: &str, token: u64, waiters: u64, held: u64) -> Seen {
    let holder = HolderInfo {
        owner: b"alice".to_vec(),
        token,
        holds: 1,
        lease: Duration::from_secs(30),
        left: Duration::from_secs(20),
        held: Duration::from_secs(held),
        label: b"night".to_vec(),
        bound_client: None,
    };
    let holder = Some(holder);
    let info = Info::Lock(LockInfo { holder, waiters, ..LockInfo::free(Kind::Lock) });
    Seen { entry: Entry { key: key.as_bytes().to_vec(), kind: Kind::Lock }, info }
}

/// A sample of one server with these keys.
pub fn look(at: Instant, keys: Vec<Seen>) -> Look {
    let mut server = Stats::default();
    "127.0.0.1:6379".clone_into(&mut server.address);
    "Redis 7.0.15".clone_into(&mut server.version);
    server.uptime_s = 61;
    server.connected_clients = 4;
    server.used_memory = 3 << 20;
    server.held_locks = keys.len() as u64;
    Look { at, servers: vec![server], keys, more: 0, hidden: 0, is_partial: false, details: None }
}
