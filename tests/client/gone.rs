//! Clusters whose nodes fail, and waits on dedicated connections to a failed node.

use std::time::{Duration, Instant};

use dlock_client::{Client, ErrorKind, Wait};
use dlock_testing::{Nodes, Proxy, Reply as _, Server, args};

use crate::support::{PATIENCE, quick, start, until, within};

fn key_of(nodes: &Nodes, node: usize) -> String {
    let mut keys = (0..).map(|n| format!("k{n}"));
    keys.find(|key| nodes.owner_of(nodes.all()[0].slot(key)) == Some(node)).unwrap()
}

/// A node that hangs keeps its connections open. Its waiters continue where its slots have moved, for any kind of
/// lock. That includes a client without other traffic, which would otherwise not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_on_connections_of_their_own_leave_a_node_that_is_replaced() {
    let mut nodes = Nodes::with(3, &["cluster-node-timeout", "1000"]);
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    let tag = key_of(&nodes, 0);
    let key = |name: &str| format!("{{{tag}}}:{name}");
    let (primary, next) = (&nodes.all()[0], &nodes.all()[replica]);
    for name in ["a", "b"] {
        primary.cmd(&["DLOCK.ACQUIRE", &key(name), "holder", "EX", "300"]).int();
    }
    primary.cmd(&["DSEM.INIT", &key("s"), "1"]).int();
    primary.cmd(&["DSEM.TAKE", &key("s")]).int();
    primary.cmd(&["DLATCH.INIT", &key("l"), "1"]).int();
    let client = async || quick().retry_for(PATIENCE).connect(&nodes.url()).await.unwrap();
    let latch = client().await.latch(key("l"));
    let latch = tokio::spawn(async move { latch.wait().await.unwrap() });
    let semaphore = client().await.semaphore(key("s"));
    let take = async move { semaphore.take_timeout(1, Duration::from_hours(1)).await.unwrap() };
    let take = tokio::spawn(take);
    let all = client().await.multi_lock([key("a")]);
    let all = tokio::spawn(async move { all.acquire().await.unwrap() });
    let one = client().await.lock(key("b")).wait(Wait::Blocking);
    let one = tokio::spawn(async move { one.acquire().await.unwrap() });
    until("all to wait", || primary.blocked_clients() == 4).await;
    primary.wait_replica_synced(next);
    primary.freeze();
    let role = || next.cmd(&["ROLE"]).items()[0].text();
    until("the failover", || role() == "master").await;
    let failover = Instant::now();
    until("all to wait there", || next.blocked_clients() == 4).await;
    println!("all there {:?} after the failover", failover.elapsed());
    for name in ["a", "b"] {
        next.cmd(&["DLOCK.RELEASE", &key(name), "holder"]).int();
    }
    next.cmd(&["DSEM.GIVE", &key("s")]).int();
    next.cmd(&["DLATCH.COUNTDOWN", &key("l")]).int();
    within("the latch", latch).await.unwrap();
    assert!(within("the permit", take).await.unwrap());
    let guards = (within("all", all).await.unwrap(), within("one", one).await.unwrap());
    drop(guards);
    next.cmd(&["DEL", &key("s")]).int();
    next.left_over_check();
}

/// A slot is moving to a node that hangs: a redirected waiter waits no longer than requested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_in_time_where_the_target_of_a_slot_hangs() {
    let nodes = Nodes::with(3, &["cluster-node-timeout", "30000"]);
    let key = key_of(&nodes, 0);
    let (source, target) = (&nodes.all()[0], &nodes.all()[1]);
    let client = quick().retry_for(Duration::from_secs(2)).connect(&nodes.url()).await.unwrap();
    let slot = source.slot(&key);
    source.begin_slot_move(slot, target);
    // The lock is held on the target. The source has no key, so every request is redirected.
    let mut there = target.client();
    let hold = args!["DLOCK.ACQUIRE", &key, "holder"];
    there.pipeline(&[args!["ASKING"], hold])[1].int();
    let all = client.multi_lock([&key]);
    let waiting = tokio::spawn({
        let all = all.clone();
        async move { all.acquire().await }
    });
    until("the wait at the target", || target.blocked_clients() == 1).await;
    target.freeze();
    let begin = Instant::now();
    let waited = within("a short wait", all.acquire_timeout(Duration::from_secs(1))).await;
    assert!(waited.as_ref().map_or_else(|e| e.kind() == ErrorKind::Unavailable, Option::is_none));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    // A wait without a timeout fails after `retry_for`, because the node is gone.
    let error = within("the long wait", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    target.thaw();
    there.pipeline(&[args!["ASKING"], args!["DLOCK.RELEASE", &key, "holder"]])[1].int();
    nodes.left_over_check();
}

/// A waiting connection has no traffic. TCP keep-alive preserves it in network devices, and detects a machine without
/// power.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_kept_alive() {
    let (server, client) = start().await;
    let latch = client.latch("l");
    latch.init(1).await.unwrap();
    let waiting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await.unwrap() }
    });
    until("the wait", || server.blocked_clients() == 1).await;
    // Of each connection to the server: the running timer (2: keep-alive), and when it fires, in hundredths of a
    // second.
    let timers = || -> Vec<(String, u64)> {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let to_server = format!(":{:04X}", server.port());
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row[2].ends_with(&to_server) && row[3] == "01")
            .map(|row| row[5].split_once(':').unwrap())
            .map(|(timer, due)| (timer.to_owned(), u64::from_str_radix(due, 16).unwrap()))
            .collect()
    };
    until("timers of keep-alive, of the shared connection and of that which waits", || {
        let timers = timers();
        timers.len() == 2 && timers.iter().all(|(timer, due)| timer == "02" && *due <= 1_500)
    })
    .await;
    latch.count_down(1).await.unwrap();
    within("the latch", waiting).await.unwrap();
    server.left_over_check();
}

/// Returns after a client has asked this node for the slots, as waiting clients do.
async fn slots_are_asked_for(node: &Server) {
    let asked = || node.info("commandstats").get("cmdstat_cluster|slots").cloned();
    let before = asked();
    until("a look at the slots", || asked() != before).await;
}

/// The only node that the client knows dies; its replica, which the client has not been told of, takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_tell_the_slots_of_the_last_primary() {
    let mut nodes = Nodes::start(1);
    let client = quick().connect(&nodes.url()).await.unwrap();
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    // It learns of the replica with the next query of the slots.
    let watching = client.lock("watched");
    let guard = watching.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let watching = watching.clone();
        async move { watching.acquire().await.unwrap() }
    });
    slots_are_asked_for(&nodes.all()[0]).await;
    nodes.all()[0].wait_replica_synced(&nodes.all()[replica]);
    nodes.node(0).kill9();
    nodes.all()[replica].cmd(&["CLUSTER", "FAILOVER", "TAKEOVER"]).ok();
    let next = &nodes.all()[replica];
    until("the takeover", || next.cmd(&["ROLE"]).items()[0].text() == "master").await;
    within("the release", guard.release()).await.unwrap();
    drop(within("the waiter", waiting).await.unwrap());
    next.left_over_check();
}

/// All nodes are replaced by others, as containers are; the configured addresses lead to the new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_that_was_named_leads_to_a_new_cluster() {
    let (mut old, new) = (Nodes::start(1), Nodes::start(2));
    let proxy = Proxy::to(&old.all()[0]);
    let url = format!("redis-cluster://127.0.0.1:{}", proxy.port());
    let client = quick().retry_for(Duration::from_secs(20)).connect(&url).await.unwrap();
    let work = async |key: String| {
        within("the acquire", client.lock(&key).acquire()).await.unwrap().release().await.unwrap();
    };
    // The node announces another address, and the client learns only that one.
    let guard = client.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("k");
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    });
    proxy.refuse();
    proxy.cut(dlock_testing::Cut::Reset);
    slots_are_asked_for(&old.all()[0]).await;
    guard.release().await.unwrap();
    within("the waiter", waiting).await.unwrap();
    old.node(0).kill9();
    proxy.redirect(&new.all()[0]);
    proxy.accept();
    for node in [0, 1] {
        work(key_of(&new, node)).await;
    }
    new.left_over_check();
}

/// A node that was reset knows no slots. The client must not forget those of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_knows_of_no_slots_is_not_believed() {
    let nodes = Nodes::with(2, &["cluster-require-full-coverage", "no"]);
    let [whole, reset] = [0, 1].map(|node| key_of(&nodes, node));
    // A client asks a random node first.
    let mut clients = Vec::new();
    for _ in 0..10 {
        let builder = quick().retry_for(Duration::from_secs(1));
        clients.push(builder.connect(&nodes.url()).await.unwrap());
    }
    let take = async |client: &Client, key: &str| {
        within("the try", client.lock(key).try_acquire()).await.map(drop)
    };
    for client in &clients {
        take(client, &whole).await.unwrap();
        take(client, &reset).await.unwrap();
    }
    nodes.left_over_check();
    nodes.all()[1].cmd(&["CLUSTER", "RESET"]).ok();
    for client in &clients {
        // It refuses for now, which makes the client ask for the slots.
        take(client, &reset).await.unwrap();
        take(client, &whole).await.unwrap();
    }
    nodes.left_over_check();
}
