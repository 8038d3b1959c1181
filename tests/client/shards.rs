//! Clusters: messages stay in the shard of their lock, and no waiter misses its grant when slots or primaries change.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_client::{ClientBuilder, ErrorKind, Lock, Lost};
use dlock_testing::{Cut, Dice, Nodes, Proxy, Reply as _, Server, wait_until};

use crate::cluster::{Load, key_on};
use crate::support::{Variant, at_rest, number, quick, until, within};

/// Waiters retry by themselves only after half of this: later than any test waits.
const NO_POLLING: Duration = Duration::from_mins(2);

fn without_polling() -> ClientBuilder {
    quick().queue(NO_POLLING)
}

/// A user that may not use sharded pub/sub.
const PLAIN: &str = "ACL SETUSER plain on >secret ~* &dlock:notify* +@all -ssubscribe";

fn as_plain(url: &str) -> String {
    url.replace("://", "://plain:secret@")
}

/// Bus messages of some grants: to all nodes, and within a shard.
struct Bus<'a> {
    nodes: &'a Nodes,
    is_counted: bool,
    before: (i64, i64),
}

impl<'a> Bus<'a> {
    fn of(nodes: &'a Nodes) -> Self {
        let is_counted = nodes.counts_bus_messages();
        Self { nodes, is_counted, before: nodes.bus_messages() }
    }

    /// Checks their numbers, where the server counts them.
    #[track_caller]
    fn assert_sent(&self, expected: (i64, i64), what: &str) {
        let now = self.nodes.bus_messages();
        let sent = (now.0 - self.before.0, now.1 - self.before.1);
        println!("{what}: bus messages {sent:?}, counted: {}", self.is_counted);
        assert!(!self.is_counted || sent == expected, "{what}: {sent:?}, not {expected:?}");
    }
}

/// The shard channels with subscribers, and their nodes.
fn shard_channels(nodes: &Nodes) -> Vec<(usize, String)> {
    let all = nodes.all().iter().enumerate();
    let of_node = |(n, node): (usize, &Server)| {
        let channels = node.cmd(&["PUBSUB", "SHARDCHANNELS"]).items();
        channels.into_iter().map(move |channel| (n, channel.text())).collect::<Vec<_>>()
    };
    all.flat_map(of_node).collect()
}

/// Makes `count` grants to a waiter.
async fn grants(count: usize, lock: &Lock, waiters: impl Fn() -> i64) {
    for _ in 0..count {
        let guard = within("the acquire", lock.acquire()).await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap().release().await.unwrap() }
        });
        until("the place", || waiters() == 1).await;
        let _ = guard.release().await.unwrap();
        let _ = within("the waiter", waiting).await.unwrap();
    }
}

/// Primaries, each with a counting proxy in front: clients know only the proxies.
struct Behind {
    nodes: Nodes,
    proxies: Vec<Proxy>,
    /// A key on the first of them.
    key: String,
}

impl Behind {
    fn start(count: usize) -> Self {
        let nodes = Nodes::start(count);
        let key = key_on(&nodes, 0, 0);
        let proxies: Vec<Proxy> = nodes.all().iter().map(Proxy::to).collect();
        for (node, proxy) in nodes.all().iter().zip(&proxies) {
            let port = proxy.port().to_string();
            node.cmd(&["CONFIG", "SET", "cluster-announce-port", &port]).ok();
        }
        let behind = Self { nodes, proxies, key };
        wait_until("every node to know the proxies", || {
            behind.nodes.all().iter().all(|node| {
                let known = node.cmd(&["CLUSTER", "NODES"]).text();
                behind.proxies.iter().all(|proxy| known.contains(&format!(":{}@", proxy.port())))
            })
        });
        behind
    }

    fn url(&self) -> String {
        format!("redis-cluster://127.0.0.1:{}", self.proxies[0].port())
    }

    /// Messages that clients received, including confirmations of subscriptions.
    fn pushes(&self) -> u64 {
        let traffic = self.proxies.iter().flat_map(Proxy::traffic);
        traffic.map(|connection| connection.pushes).sum()
    }
}

/// A user without sharded pub/sub gets messages as before: from every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_one_message_to_one_listener() {
    const GRANTS: usize = 200;
    let behind = Behind::start(3);
    for node in behind.nodes.all() {
        node.cmd(&PLAIN.split(' ').collect::<Vec<_>>()).ok();
    }
    let count = GRANTS.cast_signed() as i64;
    for (url, messages, deliveries) in [(behind.url(), 0, 1), (as_plain(&behind.url()), 2, 3)] {
        let client = without_polling().connect(&url).await.unwrap();
        let lock = client.lock(&behind.key);
        let node = &behind.nodes.all()[0];
        let waiters = || number(&node.cmd(&["DLOCK.INFO", &behind.key]), "waiters");
        // All connections exist and are subscribed.
        grants(1, &lock, waiters).await;
        within("the latches", client.latch("a").wait()).await.unwrap();
        let (bus, pushes) = (Bus::of(&behind.nodes), behind.pushes());
        grants(GRANTS, &lock, waiters).await;
        let delivered = || (behind.pushes() - pushes).cast_signed();
        until("the last messages", || delivered() >= deliveries * count).await;
        bus.assert_sent((messages * count, 0), &format!("{GRANTS} grants"));
        assert_eq!(delivered(), deliveries * count);
        client.close().await.unwrap();
    }
    behind.nodes.left_over_check();
}

/// An older server rejects SNOTIFY. The client sends NOTIFY instead, and waiters need not poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_know_snotify_is_asked_to_notify() {
    let behind = Behind::start(1);
    let (node, proxy) = (&behind.nodes.all()[0], &behind.proxies[0]);
    proxy.hide_word("SNOTIFY");
    proxy.remember();
    let with_snotify = || {
        let seen = proxy.seen();
        seen.iter().filter(|seen| seen.command.iter().any(|word| word == b"SNOTIFY")).count()
    };
    for variant in Variant::ALL {
        // The first request over a connection, by each way.
        let client = without_polling().connect(&behind.url()).await.unwrap();
        let (key, lock) = (variant.key(), variant.lock(&client, &variant.key()));
        grants(1, &lock, || variant.waiters(node, &key)).await;
        assert_eq!(with_snotify(), 1, "{variant:?}: tried once");
        grants(2, &lock, || variant.waiters(node, &key)).await;
        let several = client.multi_lock(["{t}a", "{t}b"]);
        let _ = within("the acquire", several.acquire()).await.unwrap().release().await.unwrap();
        assert_eq!(with_snotify(), 0, "{variant:?}: tried again");
        client.close().await.unwrap();
    }
    let client = without_polling().connect(&behind.url()).await.unwrap();
    let several = client.multi_lock(["{t}a", "{t}b"]);
    let _ = within("the acquire", several.acquire()).await.unwrap().release().await.unwrap();
    assert_eq!(with_snotify(), 1);
    client.close().await.unwrap();
    behind.nodes.left_over_check();
}

/// A hold keeps its channel: the client subscribes to it again over a new connection, and at a new primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_told_of_after_a_reconnect_and_a_failover() {
    let behind = Behind::start(1);
    let (node, proxy) = (&behind.nodes.all()[0], &behind.proxies[0]);
    let client = without_polling().connect(&behind.url()).await.unwrap();
    // It is not renewed, so only a message reports the loss.
    let lock = client.lock(&behind.key).lease(Duration::from_mins(5));
    let guard = within("the acquire", lock.acquire()).await.unwrap();
    let channels = shard_channels(&behind.nodes);
    let connections = proxy.accepted();
    proxy.cut(Cut::Reset);
    let again = || {
        let traffic = proxy.traffic();
        // Two plain channels and the shard channel are confirmed.
        traffic[connections..].iter().any(|connection| connection.pushes == 3)
    };
    until("the subscriptions", again).await;
    assert_eq!(shard_channels(&behind.nodes), channels);
    node.cmd(&["DLOCK.BREAK", &behind.key]).ok();
    assert_eq!(within("lost()", guard.lost()).await, Lost::Broken);
    drop(guard);
    client.close().await.unwrap();
    behind.nodes.left_over_check();

    let mut nodes = Nodes::start(3);
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    let client = without_polling().lease(Duration::from_mins(5)).connect(&nodes.url()).await;
    let client = client.unwrap();
    let (key, other) = (key_on(&nodes, 0, 0), key_on(&nodes, 0, 1));
    let guards = [client.lock(&key).acquire().await, client.lock(&other).acquire().await];
    let channel = shard_channels(&nodes)[0].1.clone();
    let to = &nodes.all()[replica];
    tokio::task::block_in_place(|| {
        nodes.all()[0].wait_replica_synced(to);
        nodes.fail_over(replica);
    });
    let there = || shard_channels(&nodes) == [(replica, channel.clone())];
    until("the same channel at the new primary", there).await;
    // A round of renewals that finds a hold broken says less, and rounds that failed on the way are soon repeated.
    until("the last renewals of both holds", at_rest(|| to.calls("DLOCK.RENEW"), 2)).await;
    for (key, guard) in [key, other].iter().zip(guards) {
        to.cmd(&["DLOCK.BREAK", key]).ok();
        assert_eq!(within("lost()", guard.unwrap().lost()).await, Lost::Broken);
    }
    client.close().await.unwrap();
    nodes.left_over_check();
}

/// The primary is killed. At the promoted replica the client requests its place again and listens to the same channel.
/// So the message of the hand-off reaches the waiter, and the waiter does not depend on its own retries.
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
    let channels = shard_channels(&nodes);
    tokio::task::block_in_place(|| {
        nodes.all()[0].wait_replica_synced(&nodes.all()[replica]);
        nodes.node(0).kill9();
        let to = &nodes.all()[replica];
        to.cmd(&["CLUSTER", "FAILOVER", "TAKEOVER"]).ok();
        wait_until("the failover", || to.cmd(&["ROLE"]).items()[0].text() == "master");
    });
    let to = &nodes.all()[replica];
    until("the place at the new primary", || waiters(to) == 1).await;
    let listened_to = || to.cmd(&["PUBSUB", "SHARDCHANNELS"]).items();
    until("the channel at the new primary", || {
        listened_to()
            .iter()
            .map(dlock_testing::Reply::text)
            .eq(channels.iter().map(|(_, name)| name.clone()))
    })
    .await;
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
            let _ = guard.release().await.unwrap();
            granted
        });
        until("the place", || waiters() == 1).await;
        Self { guard, waiter }
    }

    /// Hands the lock off to the waiter; returns the time.
    async fn hand_on(self, what: &str) {
        let start = Instant::now();
        let _ = within("the release", self.guard.release()).await.unwrap();
        let granted = within("the waiter", self.waiter).await.unwrap();
        println!("{what}: granted {:?} after the release", granted.duration_since(start));
    }
}

/// Three primaries, each with a replica. The channel's slot moves, the lock's slot moves, a replica takes over.
async fn messages_stay_in_the_shard(version: Option<&'static str>) {
    const GRANTS: usize = 200;
    let nodes = tokio::task::spawn_blocking(move || {
        let setup = |_| version.map_or_else(|| Server::with(&[]), Server::of);
        let mut nodes = Nodes::of((0..3).map(setup));
        for n in 0..3 {
            nodes.add_replica(n);
        }
        nodes.wait_whole();
        nodes
    });
    let nodes = nodes.await.unwrap();
    let block = |work: &dyn Fn()| tokio::task::block_in_place(work);
    // For comparison: with NOTIFY, each message goes to all nodes, and the client listens at each primary.
    for node in nodes.all() {
        node.cmd(&PLAIN.split(' ').collect::<Vec<_>>()).ok();
    }
    let client = without_polling().connect(&as_plain(&nodes.url())).await.unwrap();
    let key = key_on(&nodes, 0, 1);
    let bus = Bus::of(&nodes);
    let count = || number(&nodes.all()[0].cmd(&["DLOCK.INFO", &key]), "waiters");
    grants(GRANTS, &client.lock(&key), count).await;
    bus.assert_sent((5 * GRANTS.cast_signed() as i64, 0), "with NOTIFY");
    let listeners =
        |node: &Server| node.cmd(&["PUBSUB", "CHANNELS", "dlock:notify:*"]).items().len();
    assert_eq!(nodes.all().iter().map(listeners).sum::<usize>(), 3);
    client.close().await.unwrap();
    let client = without_polling().connect(&nodes.url()).await.unwrap();
    // The first key decides about the channel's slot.
    let first = key_on(&nodes, 0, 0);
    let guard = within("the acquire", client.lock(&first).acquire()).await.unwrap();
    let _ = guard.release().await.unwrap();
    let any = &nodes.all()[0];
    let (slot, channel_slot) = (any.slot(&key), any.slot(&first));
    assert_ne!(slot, channel_slot);
    let lock = client.lock(&key);
    let waiters = |at: usize| {
        let node = &nodes.all()[at];
        number(&node.cmd(&["DLOCK.INFO", &key]), "waiters")
    };
    let some_grants = async |at: usize, count: usize, what: &str| {
        let bus = Bus::of(&nodes);
        grants(count, &lock, || waiters(at)).await;
        bus.assert_sent((0, count.cast_signed() as i64), what);
        let channels = shard_channels(&nodes);
        let here: Vec<_> = channels.iter().filter(|(node, _)| *node == at).collect();
        let [(_, channel)] = here.as_slice() else { panic!("{what}: {channels:?}") };
        let listeners = channels.iter().filter(|(_, name)| name == channel);
        assert_eq!(listeners.count(), 1, "{what}: one delivery");
    };
    some_grants(0, GRANTS, "at first").await;
    assert_eq!(any.slot(&shard_channels(&nodes)[0].1), channel_slot);

    let waiting = Waiting::start(&lock, || waiters(0)).await;
    block(&|| nodes.move_slot(channel_slot, 0, 1));
    waiting.hand_on("the channel's slot has moved").await;
    some_grants(0, 20, "after the channel's slot moved").await;

    let waiting = Waiting::start(&lock, || waiters(0)).await;
    block(&|| nodes.move_slot(slot, 0, 1));
    waiting.hand_on("the lock's slot has moved").await;
    some_grants(1, 20, "after the lock's slot moved").await;

    let waiting = Waiting::start(&lock, || waiters(1)).await;
    let replica = &nodes.all()[4];
    block(&|| {
        nodes.all()[1].wait_replica_synced(replica);
        nodes.fail_over(4);
    });
    waiting.hand_on("while a replica takes over").await;
    until("the failover", || nodes.owner_of(slot) == Some(4)).await;
    // It sends it nothing until it knows that.
    let replicas = format!("slave {}", replica.node_id());
    let is_known = || replica.cmd(&["CLUSTER", "NODES"]).text().contains(&replicas);
    until("the new primary to know its replica", is_known).await;
    some_grants(4, 20, "after the failover").await;
    client.close().await.unwrap();
    nodes.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_stay_in_the_shard_of_redis_7() {
    messages_stay_in_the_shard(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_stay_in_the_shard_of_redis_8() {
    messages_stay_in_the_shard(Some("redis-8.2")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_stay_in_the_shard_of_valkey_9() {
    messages_stay_in_the_shard(Some("valkey-9.1")).await;
}

/// Tasks that hand locks to each other continue, without polling, while slots of locks and channels move and a
/// replica takes over.
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
        let channels = shard_channels(&nodes);
        let slot = match channels.get(round % (2 * channels.len().max(1))) {
            Some((_, channel)) => any.slot(channel),
            None => any.slot(&keys[round % keys.len()]),
        };
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
        let _ = within("the acquire", lock.acquire()).await.unwrap().release().await.unwrap();
    }
    client.close().await.unwrap();
    let held = |node: &Server| node.info_number("dlock", "held_locks") == 0;
    until("no lock to be held", || nodes.all().iter().all(held)).await;
}

/// The server ends a subscription among many requests. Each request gets its own reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reply_is_mixed_up_when_the_server_ends_a_subscription() {
    const TASKS: usize = 50;
    const MOVES: usize = 20;
    let nodes = Nodes::start(2);
    let client = quick().connect(&nodes.url()).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let rounds: Arc<Vec<AtomicUsize>> = Arc::new((0..TASKS).map(|_| AtomicUsize::new(0)).collect());
    let moved = Arc::new(Mutex::new(HashSet::new()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| {
            let key = key_on(&nodes, 0, n);
            let (lock, slot) = (client.lock(&key), nodes.all()[0].slot(&key));
            let (over, rounds, moved) = (over.clone(), rounds.clone(), moved.clone());
            tokio::spawn(async move {
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    let guard = within("an acquire", lock.acquire()).await.unwrap();
                    // Tokens of one lock grow; a token of another lock would not be that of this hold.
                    assert!(guard.token() > last, "{} after {last}", guard.token());
                    last = guard.token();
                    within("a renewal", guard.renew(Duration::from_secs(20))).await.unwrap();
                    // A moved slot leaves the ids of ended holds behind: a copy of the release finds nothing there.
                    if let Err(error) = within("a release", guard.release()).await {
                        assert_eq!(error.kind(), ErrorKind::ReleaseUnknown);
                        assert!(moved.lock().unwrap().contains(&slot), "slot {slot}: {error}");
                    }
                    rounds[n].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let all_go_on = async || {
        let before: Vec<_> = rounds.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        let went_on =
            |(now, before): (&AtomicUsize, &usize)| now.load(Ordering::Relaxed) > before + 1;
        until("all to go on", || rounds.iter().zip(&before).all(went_on)).await;
    };
    let any = &nodes.all()[0];
    for _ in 0..MOVES {
        all_go_on().await;
        let channels = shard_channels(&nodes);
        let [(0, channel), ..] = channels.as_slice() else { panic!("{channels:?}") };
        let slot = any.slot(channel);
        moved.lock().unwrap().insert(slot);
        tokio::task::block_in_place(|| {
            nodes.move_slot(slot, 0, 1);
            nodes.move_slot(slot, 1, 0);
        });
    }
    all_go_on().await;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        within("a task", task).await.unwrap();
    }
    for variant in Variant::ALL {
        let lock = variant.lock(&client, &key_on(&nodes, 1, 0));
        grants(1, &lock, || variant.waiters(&nodes.all()[1], &key_on(&nodes, 1, 0))).await;
    }
    nodes.left_over_check();
}
