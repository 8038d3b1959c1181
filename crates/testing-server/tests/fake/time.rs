//! Leases and waits while the test steps time.

use std::time::Duration;

use dlock_client::{Client, ErrorKind, Lost, Wait};
use dlock_testing_server::FakeServer;
use tokio::time::{Instant, advance, sleep};

use crate::start;

const HOUR: Duration = Duration::from_hours(1);
/// A deadline of the server is rounded up to 512 µs, a timer of tokio to 1 ms.
const ROUNDING: Duration = Duration::from_millis(2);

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_while_time_passes() {
    let begun = std::time::Instant::now();
    let (server, client) = start().await;
    let other = server.client().await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    for _ in 0..24 {
        sleep(HOUR).await;
        assert_eq!(guard.lost_now(), None);
        assert!(guard.valid_for() > Duration::from_secs(15), "{:?}", guard.valid_for());
        assert!(other.lock("k").try_acquire().await.unwrap().is_none());
    }
    guard.release().await.unwrap();
    println!("a day in {:?}", begun.elapsed());
}

/// As after a suspend: no renewal was sent in time.
#[tokio::test(start_paused = true)]
async fn a_jump_over_the_lease_loses_the_hold() {
    let (server, client) = start().await;
    let other = server.client().await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    // The first renewal asks for the full lease.
    sleep(Duration::from_secs(4)).await;
    advance(Duration::from_secs(28)).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(guard.lost_now(), None);
    advance(Duration::from_secs(31)).await;
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert_eq!(guard.lost().await, Lost::Expired);
    let next = other.lock("k").try_acquire().await.unwrap().expect("the lock is free");
    assert!(next.token() > guard.token());
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_on_time_for_its_holder_and_for_the_next() {
    for wait in [Wait::Queue, Wait::Blocking] {
        for fair in [false, true] {
            let (server, client) = start().await;
            let lock = move |client: &Client| {
                let lock = if fair { client.fair_lock("k") } else { client.lock("k") };
                lock.wait(wait)
            };
            let lease = Duration::from_secs(100);
            let other = server.client().await.unwrap();
            let guard = lock(&client).fixed_lease(lease).acquire().await.unwrap();
            let start = Instant::now();
            let next = tokio::spawn(async move { lock(&other).acquire().await.unwrap() });
            assert_eq!(guard.lost().await, Lost::Expired);
            let known = start.elapsed();
            assert!(known <= lease && known > lease * 9 / 10, "{wait:?} {fair} {known:?}");
            next.await.unwrap().release().await.unwrap();
            let granted = start.elapsed();
            assert!(granted >= lease, "{wait:?} {fair} {granted:?}");
            assert!(granted <= lease + ROUNDING, "{wait:?} {fair} {granted:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_with_a_limit_ends_by_it() {
    let (_server, client) = start().await;
    let _guard = client.lock("k").acquire().await.unwrap();
    client.latch("l").init(1).await.unwrap();
    for wait in [Wait::Queue, Wait::Blocking] {
        for limit in [1, 40, 86_400_000].map(Duration::from_millis) {
            let start = Instant::now();
            let lock = client.lock("k").wait(wait);
            assert!(lock.acquire_timeout(limit).await.unwrap().is_none());
            assert!(start.elapsed() >= limit, "{wait:?} {limit:?}");
            assert!(start.elapsed() < limit + Duration::from_millis(300), "{:?}", start.elapsed());
        }
    }
    let start = Instant::now();
    assert!(!client.latch("l").wait_timeout(HOUR).await.unwrap());
    assert!(start.elapsed() >= HOUR);
}

/// Many waiters, each of which works for a minute under the lock.
#[tokio::test(start_paused = true)]
async fn a_queue_is_served_in_order_over_hours() {
    let (server, client) = start().await;
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let start = Instant::now();
    for n in 0..100 {
        let (lock, order) = (client.lock("k"), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(n);
            sleep(Duration::from_mins(1)).await;
            guard.release().await.unwrap();
        }));
        crate::until("its place", || crate::waiters(&server, "k") == n).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(order.lock().unwrap().iter().copied().eq(0..100));
    assert!(start.elapsed() >= Duration::from_mins(100));
    assert!(start.elapsed() < Duration::from_mins(101), "{:?}", start.elapsed());
}

/// Two tests with clocks of their own in one process.
#[test]
fn each_runtime_has_its_own_time() {
    let hours = |hours: u32| {
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let (_server, client) = start().await;
                for _ in 0..hours {
                    let guard = client.lock("k").acquire().await.unwrap();
                    sleep(HOUR).await;
                    assert!(guard.valid_for() > Duration::from_secs(15));
                    guard.release().await.unwrap();
                }
            });
        }
    };
    let threads = [1, 3, 7].map(|n| std::thread::spawn(hours(n)));
    for thread in threads {
        thread.join().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_and_a_reader_end_with_their_leases() {
    let (server, client) = start().await;
    let lease = Duration::from_secs(50);
    let permit = client.semaphore("s").limit(1).fixed_lease(lease).acquire().await.unwrap();
    let reader = client.rw_lock("rw").read().fixed_lease(lease).acquire().await.unwrap();
    client.latch("l").init_for(1, lease).await.unwrap();
    let other = server.client().await.unwrap();
    let start = Instant::now();
    let (latch, writer) = (other.latch("l"), other.rw_lock("rw").write());
    let next = other.semaphore("s").limit(1);
    let (broken, writer, next) = tokio::join!(latch.wait(), writer.acquire(), next.acquire());
    assert_eq!(broken.unwrap_err().kind(), ErrorKind::Broken);
    assert!(writer.is_ok() && next.is_ok());
    assert!(start.elapsed() >= lease && start.elapsed() <= lease + ROUNDING * 2);
    assert_eq!(permit.lost_now(), Some(Lost::Expired));
    assert_eq!(reader.lost_now(), Some(Lost::Expired));
}

/// Also without the pause: then it is the time of the machine.
#[tokio::test]
async fn a_clock_that_runs_is_the_real_one() {
    let server = FakeServer::start();
    let client = server.client().await.unwrap();
    let start = std::time::Instant::now();
    let guard = client.lock("k").fixed_lease(Duration::from_millis(60)).acquire().await.unwrap();
    assert_eq!(guard.lost().await, Lost::Expired);
    assert!(client.lock("k").acquire().await.unwrap().token() > guard.token());
    assert!(start.elapsed() >= Duration::from_millis(60));
}

/// Dedicated connections close after a minute at rest; one that is in use stays.
#[tokio::test(start_paused = true)]
async fn idle_dedicated_connections_close() {
    let (server, client) = start().await;
    let (guard, before) = (client.lock("k").acquire().await.unwrap(), server.connections());
    let lock = client.lock("k").wait(Wait::Blocking);
    let wait = |time: Duration| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire_timeout(time).await.unwrap() })
    };
    let waits: Vec<_> = (0..20).map(|_| wait(Duration::from_secs(5))).collect();
    for wait in waits {
        assert!(wait.await.unwrap().is_none());
    }
    assert_eq!(server.connections(), before + 20);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(server.connections(), before + 20);
    let long = wait(Duration::from_mins(5));
    sleep(Duration::from_mins(2)).await;
    assert_eq!(server.connections(), before + 1, "only the one in use is left");
    assert!(long.await.unwrap().is_none());
    sleep(Duration::from_mins(2)).await;
    assert_eq!(server.connections(), before);
    guard.release().await.unwrap();
}

/// A bound hold of a server that does not answer is lost before the server could free it; one answer in time keeps it.
#[tokio::test(start_paused = true)]
async fn a_bound_hold_counts_from_the_last_answer() {
    let (server, client) = start().await;
    let bind = Duration::from_secs(2);
    let guard = client.lock("k").bind(bind).acquire().await.unwrap();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(guard.lost_now(), None);
    assert!(guard.valid_for() < bind);
    let start = Instant::now();
    server.set_frozen(true);
    let _ = guard.lost().await;
    let known = start.elapsed();
    assert!(known < bind && known > bind / 3, "{known:?}");
    server.set_frozen(false);
}
