//! What one client's large value or mass removal costs others.

use crate::{
    args,
    support::{Client, Family, Reply, wait_until},
};

fn pipeline<A: AsRef<[u8]>>(client: &mut Client, calls: impl Iterator<Item = Vec<A>>) {
    let calls: Vec<Vec<A>> = calls.collect();
    for calls in calls.chunks(1_000) {
        for reply in client.pipeline(calls) {
            reply.ok();
        }
    }
}

/// The server evicts until its memory is below the limit. A module that keeps the memory of an evicted value makes it
/// evict on and on.
#[test]
fn evicting_one_large_semaphore_evicts_few_other_keys() {
    const PERMITS: i64 = 20_000;
    const OTHERS: i64 = 2_000;
    let policy = ["maxmemory-policy", "volatile-ttl", "maxmemory-samples", "64"];
    let server = Family::Lock.with(&policy).start();
    let mut client = server.client();
    let set = |n: i64| args!["SET", format!("other:{n}"), "x", "EX", 100_000];
    pipeline(&mut client, (0..OTHERS).map(set));
    client.cmd(&args!["DSEM.INIT", "s", PERMITS]).int();
    let acquire = |n: i64| {
        let owner = format!("o{n}");
        args!["DSEM.ACQUIRE", "s", owner, "PX", 600_000, "BIND", 0, "NOTIFY", "c", "REQID", n]
    };
    pipeline(&mut client, (0..PERMITS).map(acquire));
    // It is evicted as soon as it is in the sample: it has the shortest time to live.
    client.cmd(&["EXPIRE", "s", "1000"]).int();
    let limit = server.info_number("memory", "used_memory") - 2_000_000;
    client.cmd(&args!["CONFIG", "SET", "maxmemory", limit]).ok();
    wait_until("the server to be below its limit", || {
        client.cmd(&["SET", "new", "x"]).is_null()
            || server.info_number("memory", "used_memory") < limit
    });
    assert_eq!(client.cmd(&["EXISTS", "s"]).int(), 0);
    let evicted = server.info_number("stats", "evicted_keys");
    println!("{evicted} of {OTHERS} evicted");
    assert!(evicted < OTHERS / 2, "{evicted} keys were evicted");
    let owner_asks = client.cmd(&["DSEM.ACQUIRE", "s", "o7", "LIMIT", "5", "REQID", "7"]);
    assert!(owner_asks.error().starts_with("SPENT "), "{owner_asks:?}");
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}
