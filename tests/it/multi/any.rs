//! Immediate replies of ANYACQUIRE.

use std::collections::BTreeMap;

use super::one_of;
use crate::support::{Reply, Server};

fn stripes(count: usize) -> String {
    (0..count).map(|n| format!("s{n}")).collect::<Vec<_>>().join(" ")
}

/// Repeated acquires get different locks, not always the first of the list.
#[test]
fn the_look_starts_at_a_different_key_each_time() {
    const STRIPES: usize = 7;
    let server = Server::start();
    let keys = stripes(STRIPES);
    let mut counts = BTreeMap::new();
    let mut before = String::new();
    for n in 0..STRIPES * 20 {
        let reply = server.ask(&format!("DLOCK.ANYACQUIRE {STRIPES} {keys} o{n}"));
        let key = one_of(&reply).0;
        assert_ne!(key, before, "the same one twice in a row");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", &key, &format!("o{n}")]).int(), 0);
        *counts.entry(key.clone()).or_insert(0) += 1;
        before = key;
    }
    assert_eq!(counts.len(), STRIPES, "{counts:?}");
    assert!(counts.values().all(|count| (10..=40).contains(count)), "{counts:?}");
    server.left_over_check();
}
