//! Clusters: no waiter misses its grant, and no holder the end of its hold, when slots or primaries change.

use std::time::{Duration, Instant};

use dlock_client::{ClientBuilder, Lock, Lost};
use dlock_testing::{Dice, Nodes, Reply as _, Server, wait_until};

use crate::cluster::{Load, key_on};
use crate::support::{Variant, at_rest, number, quick, until, within};

/// Waiters retry by themselves only after half of this: later than any test waits.
const NO_POLLING: Duration = Duration::from_mins(2);

fn without_polling() -> ClientBuilder {
    quick().queue(NO_POLLING)
}

/// Messages of the new primary come over the connection to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_told_of_after_a_failover() {
    let mut nodes = Nodes::start(3);
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    let client = without_polling().lease(Duration::from_mins(5)).connect(&nodes.url()).await;
    let client = client.unwrap();
    let (key, other) = (key_on(&nodes, 0, 0), key_on(&nodes, 0, 1));
    let guards = [client.lock(&key).acquire().await, client.lock(&other).acquire().await];
    let to = &nodes.all()[replica];
    tokio::task::block_in_place(|| {
        nodes.all()[0].wait_replica_synced(to);
        nodes.fail_over(replica);
    });
    // A round of renewals that finds a hold broken says less, and rounds that failed on the way are soon repeated.
    until("the last renewals of both holds", at_rest(|| to.calls("DLOCK.RENEW"), 2)).await;
    for (key, guard) in [key, other].iter().zip(guards) {
        to.cmd(&["DLOCK.BREAK", key]).ok();
        assert_eq!(within("lost()", guard.unwrap().lost()).await, Lost::Broken);
    }
    client.close().await.unwrap();
    nodes.left_over_check();
}

/// The primary is killed. At the promoted replica the client requests its place again. So the message of the hand-off
/// reaches the waiter, and the waiter does not depend on its own retries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_told_after_its_primary_is_killed() {
    let mut nodes = Nodes::start(3);
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    let client = without_polling().lease(Duration::from_mins(5)).connect(&nodes.url()).await;
    let client = client.unwrap();
    let key = key_on(&nodes, 0, 0);
    let lock = client.lock(&key);
    let waiters = |at: &Server| number(&at.cmd(&["DLOCK.INFO", &key]), "waiters");
    let waiting = Waiting::start(&lock, || waiters(&nodes.all()[0])).await;
    tokio::task::block_in_place(|| {
        nodes.all()[0].wait_replica_synced(&nodes.all()[replica]);
        nodes.node(0).kill9();
        let to = &nodes.all()[replica];
        to.cmd(&["CLUSTER", "FAILOVER", "TAKEOVER"]).ok();
        wait_until("the failover", || to.cmd(&["ROLE"]).items()[0].text() == "master");
    });
    let to = &nodes.all()[replica];
    until("the place at the new primary", || waiters(to) == 1).await;
    waiting.hand_on("after a kill").await;
    client.close().await.unwrap();
    to.left_over_check();
}

/// A lock that is held, with a task that waits for it.
struct Waiting {
    guard: dlock_client::Guard,
    waiter: tokio::task::JoinHandle<Instant>,
}

impl Waiting {
    async fn start(lock: &Lock, waiters: impl Fn() -> i64) -> Self {
        let guard = within("the acquire", lock.acquire()).await.unwrap();
        let lock = lock.clone();
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let granted = Instant::now();
            guard.release().await.unwrap();
            granted
        });
        until("the place", || waiters() == 1).await;
        Self { guard, waiter }
    }

    /// Hands the lock off to the waiter; returns the time.
    async fn hand_on(self, what: &str) {
        let start = Instant::now();
        within("the release", self.guard.release()).await.unwrap();
        let granted = within("the waiter", self.waiter).await.unwrap();
        println!("{what}: granted {:?} after the release", granted.duration_since(start));
    }
}

/// Tasks that hand locks to each other continue, without polling, while slots of locks move and a replica takes
/// over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_waiter_misses_its_grant() {
    let mut nodes = Nodes::start(3);
    nodes.add_replica(0);
    nodes.wait_whole();
    let client = without_polling().connect(&nodes.url()).await.unwrap();
    let keys: Vec<String> = (0..12).map(|n| format!("k{n}")).collect();
    let load = Load::start(&client, &keys);
    load.goes_on().await;
    let any = &nodes.all()[0];
    let mut dice = Dice::seeded(23);
    for round in 0..24 {
        let slot = any.slot(&keys[round % keys.len()]);
        let from = nodes.owner_of(slot).expect("all agree after each move");
        let to = (from + 1 + usize::try_from(dice.below(2)).unwrap()) % 3;
        tokio::task::block_in_place(|| nodes.move_slot(slot, from, to));
        if round % 4 == 3 {
            load.goes_on().await;
        }
    }
    tokio::task::block_in_place(|| {
        any.wait_replica_synced(&nodes.all()[3]);
        nodes.fail_over(3);
    });
    let start = Instant::now();
    load.goes_on().await;
    println!("all went on {:?} after the failover", start.elapsed());
    load.stop().await;
    // Not `left_over_check`: a place whose connection was replaced may outlive its acquire, by QUEUE, if its slot
    // leaves the node and comes back. The server skips such a place, so it blocks no lock.
    for (n, key) in keys.iter().enumerate() {
        let lock = Variant::ALL[n % 4].lock(&client, key);
        within("the acquire", lock.acquire()).await.unwrap().release().await.unwrap();
    }
    client.close().await.unwrap();
    let held = |node: &Server| node.info_number("dlock", "held_locks") == 0;
    until("no lock to be held", || nodes.all().iter().all(held)).await;
}
