//! Faults that a test can cause.

use std::time::Duration;

use dlock_client::{Client, ErrorKind, Lost};
use dlock_quorum::QuorumLock;
use dlock_testing_server::FakeServer;
use tokio::time::{Instant, sleep};

use crate::{start, until, waiters};

#[tokio::test(start_paused = true)]
async fn holds_and_places_outlive_their_connections() {
    let (server, client) = start().await;
    for fair in [false, true] {
        let lock = |client: &Client| if fair { client.fair_lock("k") } else { client.lock("k") };
        let guard = lock(&client).acquire().await.unwrap();
        let waiting = lock(&client);
        let waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
        until("the place", || waiters(&server, "k") == 1).await;
        for _ in 0..10 {
            server.kill_connections();
            assert_eq!(server.connections(), 0);
            until("a new connection", || server.connections() > 0).await;
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(guard.lost_now(), None);
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_outlives_a_short_outage_and_not_a_long_one() {
    let (server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    // The first renewal asks for the full lease.
    sleep(Duration::from_secs(4)).await;
    server.set_unavailable(true);
    assert!(server.client().await.is_err());
    sleep(Duration::from_secs(15)).await;
    server.set_unavailable(false);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(guard.lost_now(), None);

    server.set_unavailable(true);
    let start = Instant::now();
    assert_eq!(guard.lost().await, Lost::Expired);
    assert!(start.elapsed() <= Duration::from_secs(30), "{:?}", start.elapsed());
    let error = client.lock("k").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    server.set_unavailable(false);
    assert!(client.lock("k").acquire().await.unwrap().token() > guard.token());
}

/// The token tells the late writes of the first holder.
#[tokio::test(start_paused = true)]
async fn a_restart_without_the_data_lets_the_next_in() {
    let (server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let other = server.client().await.unwrap();
    let waiting = tokio::spawn(async move { other.lock("k").acquire().await.unwrap() });
    until("the place", || waiters(&server, "k") == 1).await;
    server.restart();
    let next = waiting.await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.lost().await, Lost::Refused);
    assert_eq!(next.lost_now(), None);
}

/// Requests are repeated over new connections, and count once.
#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_counts_each_request_once() {
    let (server, client) = start().await;
    let lock = client.lock("k").owner("me");
    server.set_frozen(true);
    let acquire = lock.clone();
    let acquire = tokio::spawn(async move { acquire.acquire().await.unwrap() });
    sleep(Duration::from_secs(8)).await;
    assert!(!acquire.is_finished());
    server.set_frozen(false);
    let guard = acquire.await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn holds_of_every_family_can_be_broken() {
    let (server, client) = start().await;
    let locks = [
        client.lock("lock"),
        client.fair_lock("fair"),
        client.rw_lock("write").write(),
        client.rw_lock("read").read(),
    ];
    for lock in locks {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(server.break_lock(guard.key()), 1);
        assert_eq!(guard.lost().await, Lost::Broken);
    }
    let semaphore = client.semaphore("permits").limit(3);
    let permits = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    assert_eq!(server.break_lock("permits"), 2);
    for permit in &permits {
        assert_eq!(permit.lost().await, Lost::Broken);
    }
    assert_eq!(server.break_lock("none"), 0);
    let guard = client.lock("deleted").acquire().await.unwrap();
    assert!(server.delete("deleted") && !server.delete("deleted"));
    assert_eq!(guard.lost().await, Lost::Deleted);
}

#[tokio::test(start_paused = true)]
async fn a_bound_hold_ends_after_its_connection() {
    let (server, client) = start().await;
    let rest = Duration::from_secs(2);
    let guard = client.lock("k").bind(rest).acquire().await.unwrap();
    sleep(Duration::from_secs(100)).await;
    let other = server.client().await.unwrap();
    let waiting = tokio::spawn(async move { other.lock("k").acquire().await.unwrap() });
    until("the place", || waiters(&server, "k") == 1).await;
    server.set_unavailable(true);
    assert!(matches!(guard.lost().await, Lost::Expired | Lost::Disconnected));
    server.set_unavailable(false);
    drop(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn grants_wait_for_the_replicas_that_the_test_has() {
    let (server, client) = start().await;
    let lock = client.lock("k").replicas(2, Duration::from_secs(1));
    server.set_replicas(1);
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replicas { acknowledged: 1, wanted: 2 });
    server.set_replicas(2);
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// A second release would end the hold of the other guard.
#[tokio::test(start_paused = true)]
async fn a_reentry_that_replicas_do_not_confirm_is_released_once() {
    let (server, client) = start().await;
    let lock = client.lock("k").owner("me");
    let guard = lock.acquire().await.unwrap();
    let reentry = lock.replicas(1, Duration::from_secs(1));
    let error = reentry.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Replicas { acknowledged: 0, wanted: 1 });
    sleep(Duration::from_mins(1)).await;
    let other = server.client().await.unwrap();
    assert!(other.lock("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_lasts_as_long_as_replicas_confirm_it() {
    let server = FakeServer::start();
    server.set_replicas(1);
    let profile = Client::builder().holds_through_failover(1);
    let client = server.connect(profile).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    sleep(Duration::from_mins(5)).await;
    assert_eq!(guard.lost_now(), None);
    // One round may fail, and the next makes up for it.
    server.set_replicas(0);
    sleep(Duration::from_secs(12)).await;
    server.set_replicas(1);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(guard.lost_now(), None);
    server.set_replicas(0);
    let start = Instant::now();
    assert_eq!(guard.lost().await, Lost::Expired);
    assert!(start.elapsed() <= Duration::from_secs(30));
    // The server has it still: it accepted all renewals.
    let other = server.client().await.unwrap();
    assert!(other.lock("k").try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_quorum_lock_outlives_one_of_three_servers() {
    let servers = [FakeServer::start(), FakeServer::start(), FakeServer::start()];
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(server.client().await.unwrap());
    }
    let lock = QuorumLock::new(clients, "k");
    let guard = lock.acquire().await.unwrap();
    servers[0].set_unavailable(true);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(guard.lost_now(), None);
    servers[1].set_unavailable(true);
    guard.lost().await;
}

#[tokio::test(start_paused = true)]
async fn operators_see_what_there_is() {
    let (server, client) = start().await;
    let guard = client.lock("jobs:1").owner("alice").acquire().await.unwrap();
    client.semaphore("pool").init(3).await.unwrap();
    let waiting = client.lock("jobs:1").owner("bob");
    let waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
    until("the place", || waiters(&server, "jobs:1") == 1).await;
    let admin = dlock_admin::Admin::new(&client);
    assert_eq!(admin.locks(b"*").await.unwrap().len(), 2);
    let found = admin.locks(b"job?:[0-9]").await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(admin.position(&found[0], b"bob").await.unwrap(), Some(1));
    let stats = admin.stats().await.unwrap();
    assert_eq!((stats[0].held_locks, stats[0].last_token), (1, guard.token()));
    drop(guard);
    drop(waiting.await.unwrap());
}

/// Programs without tokio.
#[test]
fn blocking_clients_share_a_server() {
    let server = FakeServer::start();
    let (client, other) = (server.blocking_client().unwrap(), server.blocking_client().unwrap());
    let guard = client.lock("k").acquire().unwrap();
    let waiting = std::thread::spawn(move || other.lock("k").acquire().unwrap().token());
    while waiters(&server, "k") == 0 {
        std::thread::yield_now();
    }
    let token = guard.token();
    guard.release().unwrap();
    assert!(waiting.join().unwrap() > token);
}
