//! Clusters: keys on several servers, slots that move under load, nodes that hang and die.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dlock_client::{Client, ErrorKind, Lost};
use dlock_testing::{Dice, Nodes, Proxy, Reply as _, Server, Way};

use crate::support::{PATIENCE, Variant, number, quick, until, within};

/// One key on each of three nodes.
fn keys_of(nodes: &Nodes) -> [String; 3] {
    [0, 1, 2].map(|node| key_on(nodes, node, 0))
}

/// A key on that node, different for each `n`.
pub fn key_on(nodes: &Nodes, node: usize, n: usize) -> String {
    let any = &nodes.all()[0];
    let keys = (0..).map(|n| format!("k{n}"));
    let mut here = keys.filter(|key| nodes.owner_of(any.slot(key)) == Some(node));
    here.nth(n).expect("some key is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_found_where_they_are() {
    let nodes = Nodes::start(3);
    let keys = keys_of(&nodes);
    // One node is enough to discover the others.
    let one = format!("redis-cluster://127.0.0.1:{}", nodes.all()[1].port());
    for url in [nodes.url(), one] {
        let client = Client::connect(&url).await.unwrap();
        for variant in Variant::ALL {
            for (node, key) in nodes.all().iter().zip(&keys) {
                let lock = variant.lock(&client, key);
                let guard = within("the acquire", lock.acquire()).await.unwrap();
                assert_eq!(variant.holds(node, key), 1);
                let waiting = tokio::spawn({
                    let lock = lock.clone();
                    async move { lock.acquire().await.unwrap() }
                });
                until("the place", || variant.waiters(node, key) == 1).await;
                guard.release().await.unwrap();
                let guard = within("the waiter", waiting).await.unwrap();
                node.cmd(&[&variant.command("BREAK"), key]).ok();
                assert_eq!(within("lost()", guard.lost()).await, Lost::Broken);
            }
        }
        let striped = client.striped_lock("stock", 4);
        let all = [striped.acquire().await.unwrap(), striped.acquire().await.unwrap()];
        drop(all);
        let error = client.multi_lock(&keys).acquire().await.unwrap_err();
        assert!(error.text().contains("the same part in braces"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        within("the latch", client.latch("open").wait()).await.unwrap();
    }
    nodes.left_over_check();
}

/// FLUSHALL on one node does not affect holds on others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_of_one_node_loses_the_holds_of_that_node() {
    let nodes = Nodes::start(3);
    let keys = keys_of(&nodes);
    let client = Client::connect(&nodes.url()).await.unwrap();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(client.lock(key).acquire().await.unwrap());
    }
    nodes.all()[0].cmd(&["FLUSHALL"]).ok();
    let lost = within("lost()", guards[0].lost()).await;
    // A renewal that was on its way is refused before the message of the flush comes.
    assert!(matches!(lost, Lost::Flushed | Lost::Refused), "{lost:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    for guard in &guards[1..] {
        assert_eq!(guard.lost_now(), None);
    }
    drop(guards);
    nodes.left_over_check();
}

/// One node hangs: the holds on the others are still renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_does_not_cost_the_holds_of_others() {
    let nodes = Nodes::with(3, &["cluster-node-timeout", "30000"]);
    let keys = keys_of(&nodes);
    let lease = Duration::from_secs(4);
    let client = Client::builder().lease(lease).connect(&nodes.url()).await.unwrap();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(client.lock(key).acquire().await.unwrap());
    }
    nodes.all()[0].freeze();
    let start = Instant::now();
    assert_eq!(within("lost()", guards[0].lost()).await, Lost::Expired);
    while start.elapsed() < lease * 2 {
        for guard in &guards[1..] {
            assert_eq!(guard.lost_now(), None, "after {:?}", start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    nodes.all()[0].thaw();
    drop(guards);
    nodes.left_over_check();
}

/// Tasks that acquire and release locks of many slots, two for each key. Each checks that it is alone.
pub struct Load {
    over: Arc<AtomicBool>,
    done: Arc<Vec<AtomicUsize>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    pub fn start(client: &Client, keys: &[String]) -> Load {
        let over = Arc::new(AtomicBool::new(false));
        let done: Arc<Vec<_>> =
            Arc::new((0..keys.len() * 2).map(|_| AtomicUsize::new(0)).collect());
        let inside: Arc<Vec<_>> = Arc::new(keys.iter().map(|_| AtomicUsize::new(0)).collect());
        let tasks = (0..keys.len() * 2)
            .map(|n| {
                let at = n / 2;
                let lock = Variant::ALL[at % 4].lock(client, &keys[at]);
                let (over, done, inside) = (over.clone(), done.clone(), inside.clone());
                tokio::spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        match within("an acquire", lock.acquire()).await {
                            Ok(guard) => {
                                assert_eq!(
                                    inside[at].fetch_add(1, Ordering::SeqCst),
                                    0,
                                    "not alone"
                                );
                                tokio::time::sleep(Duration::from_millis(1)).await;
                                let lost = guard.lost_now();
                                inside[at].fetch_sub(1, Ordering::SeqCst);
                                let _ = within("a release", guard.release()).await;
                                assert_eq!(lost, None);
                                done[n].fetch_add(1, Ordering::SeqCst);
                            }
                            Err(error) => println!("{:?}: {error}", error.kind()),
                        }
                    }
                })
            })
            .collect();
        Load { over, done, tasks }
    }

    pub async fn goes_on(&self) {
        let before: Vec<_> = self.done.iter().map(|n| n.load(Ordering::SeqCst)).collect();
        let all = || {
            let now = self.done.iter().map(|n| n.load(Ordering::SeqCst));
            now.zip(&before).all(|(now, &before)| now > before + 2)
        };
        until("every task to go on", all).await;
    }

    pub async fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            within("a task", task).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load() {
    let nodes = Nodes::start(3);
    let client = quick().connect(&nodes.url()).await.unwrap();
    let keys: Vec<String> = (0..12).map(|n| format!("k{n}")).collect();
    let load = Load::start(&client, &keys);
    load.goes_on().await;
    // A hold moves with its slot and is renewed on the target.
    let guard = within("the acquire", client.lock("moves").acquire()).await.unwrap();
    let mut dice = Dice::seeded(41);
    let mut slots: Vec<u16> = keys.iter().map(|key| nodes.all()[0].slot(key)).collect();
    slots.push(nodes.all()[0].slot("moves"));
    for round in 0..26 {
        let slot = slots[round % slots.len()];
        let from = nodes.owner_of(slot).expect("all agree after each move");
        let to = (from + 1 + usize::try_from(dice.below(2)).unwrap()) % 3;
        tokio::task::block_in_place(|| nodes.move_slot(slot, from, to));
        if round % 6 == 5 {
            load.goes_on().await;
        }
    }
    let start = Instant::now();
    load.goes_on().await;
    println!("all went on {:?} after the last move", start.elapsed());
    assert_eq!(guard.lost_now(), None);
    guard.renew(Duration::from_secs(20)).await.unwrap();
    within("a release", guard.release()).await.unwrap();
    load.stop().await;
    nodes.left_over_check();
}

/// A waiter for a slot that moves requests again on the target, promptly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_follow_their_slot() {
    let nodes = Nodes::start(3);
    let client = quick().connect(&nodes.url()).await.unwrap();
    let key = &keys_of(&nodes)[0];
    let slot = nodes.all()[0].slot(key);
    for (round, variant) in Variant::ALL.into_iter().enumerate() {
        let (from, to) = (round % 3, (round + 1) % 3);
        let (source, target) = (&nodes.all()[from], &nodes.all()[to]);
        let lock = variant.lock(&client, key);
        let guard = within("the acquire", lock.acquire()).await.unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
            })
            .collect();
        until("the places", || variant.waiters(source, key) == 3).await;
        tokio::task::block_in_place(|| nodes.move_slot(slot, from, to));
        let moved = Instant::now();
        until("the places at the new node", || variant.waiters(target, key) == 3).await;
        println!("{variant:?}: all there {:?} after the move", moved.elapsed());
        within("a release", guard.release()).await.unwrap();
        for task in waiting {
            within("a waiter", task).await.unwrap();
        }
    }
    nodes.left_over_check();
}

/// One client renews explicitly, one only holds: it learns of the failover from its own renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_for_a_node_that_died() {
    let mut nodes = Nodes::with(3, &["cluster-node-timeout", "1000"]);
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    let key = &keys_of(&nodes)[0];
    // The same slot.
    let held = &format!("{{{key}}}:held");
    let lease = Duration::from_secs(30);
    let silent = quick().lease(lease).connect(&nodes.url()).await.unwrap();
    let holding = within("the acquire", silent.lock(held).acquire()).await.unwrap();
    let client = quick().retry_for(PATIENCE).connect(&nodes.url()).await.unwrap();
    let guard = within("the acquire", client.lock(key).acquire()).await.unwrap();
    // The failover may take longer than the lease of a grant from the queue.
    for hold in [&holding, &guard] {
        within("the first renewal", hold.renew(lease)).await.unwrap();
    }
    nodes.all()[0].wait_replica_synced(&nodes.all()[replica]);
    nodes.node(0).kill9();
    let start = Instant::now();
    within("the renewal", guard.renew(Duration::from_secs(25))).await.unwrap();
    println!("renewed {:?} after the death", start.elapsed());
    let node = &nodes.all()[replica];
    assert_eq!(guard.lost_now(), None);
    assert_eq!(number(&node.cmd(&["DLOCK.INFO", key]), "holds"), 1);
    within("a release", guard.release()).await.unwrap();
    let again = client.lock(key);
    within("the acquire", again.acquire()).await.unwrap().release().await.unwrap();

    // From now on no other client renews there.
    let renewals = || node.calls("DLOCK.RENEW");
    let before = renewals();
    until("a renewal by the watchdog", || {
        assert_eq!(holding.lost_now(), None, "after {:?}", start.elapsed());
        renewals() != before
    })
    .await;
    assert_eq!(number(&node.cmd(&["DLOCK.INFO", held]), "holds"), 1);
    within("a release", holding.release()).await.unwrap();
    node.left_over_check();
}

/// The last node to be asked for the slots, here the only one, gets all the remaining time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_node_without_others_is_waited_for() {
    let node = Server::with(&[]).cluster().start();
    let proxy = Proxy::to(&node);
    // Three or more round trips: longer than the second for one of several nodes, within the three of
    // `connect_timeout`.
    proxy.delay(Way::ToClient, Duration::from_millis(400));
    let url = format!("redis-cluster://127.0.0.1:{}", proxy.port());
    let client = within("connecting", Client::connect(&url)).await.unwrap();
    let guard = within("the acquire", client.lock("k").acquire()).await.unwrap();
    within("the release", guard.release()).await.unwrap();
    node.left_over_check();
}

/// What is on its way to a primary that hangs goes to the one that took over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_primary_that_was_replaced_go_to_the_next() {
    let mut nodes = Nodes::with(2, &["cluster-node-timeout", "30000"]);
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    let key = key_on(&nodes, 0, 0);
    let client = Client::builder().response_timeout(Duration::from_secs(20)).retry_for(PATIENCE);
    let client = client.connect(&nodes.url()).await.unwrap();
    within("the acquire", client.lock(&key).acquire()).await.unwrap().release().await.unwrap();
    nodes.all()[0].wait_replica_synced(&nodes.all()[replica]);
    nodes.all()[0].freeze();
    let calls: Vec<_> = (0..5)
        .map(|n| {
            let lock = client.lock(format!("{{{key}}}:{n}"));
            tokio::spawn(async move { lock.acquire().await?.release().await })
        })
        .collect();
    // They have been sent, as far as anybody can see.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let next = &nodes.all()[replica];
    next.cmd(&["CLUSTER", "FAILOVER", "TAKEOVER"]).ok();
    for call in calls {
        within("a call", call).await.unwrap().unwrap();
    }
    nodes.all()[0].thaw();
    client.close().await.unwrap();
}
