//! Work under a hold, whose process is stopped for longer than the lease.

use std::cell::Cell;
use std::task::Poll;
use std::time::Duration;

use dlock_testing::Server;

use crate::{Client, Error, ErrorKind, Lost};

/// Longer than what a hold needs at least.
const LEASE: Duration = Duration::from_millis(150);

/// A short await that lets no driver be polled: the task is ready again at once.
async fn step() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// As a process that is stopped for longer than the lease: the clock runs on, and no timer fires.
async fn work(steps: &Cell<u32>) -> Result<(), Error> {
    tokio::time::pause();
    std::thread::sleep(LEASE * 2);
    for _ in 0..1_000 {
        steps.set(steps.get() + 1);
        step().await;
    }
    Ok(())
}

#[tokio::test]
async fn no_step_begins_after_the_lease_whether_or_not_a_timer_fires() {
    let server = Server::start();
    let client = Client::connect(&server.url()).await.unwrap();
    for kind in ["lock", "permit", "all", "any"] {
        let steps = Cell::new(0);
        // On a busy machine a grant may come too late for any work.
        let done = loop {
            let done = match kind {
                "lock" => client.lock(kind).fixed_lease(LEASE).with(|_| work(&steps)).await,
                "permit" => {
                    let semaphore = client.semaphore(kind).limit(1).fixed_lease(LEASE);
                    semaphore.with(|_| work(&steps)).await
                }
                "all" => client.multi_lock([kind]).fixed_lease(LEASE).with(|_| work(&steps)).await,
                _ => client.any_lock([kind]).fixed_lease(LEASE).with(|_| work(&steps)).await,
            };
            if steps.get() > 0 {
                break done;
            }
        };
        tokio::time::resume();
        let lost = ErrorKind::Lost { reason: Lost::Expired, finished: false };
        assert_eq!(done.unwrap_err().kind(), lost, "{kind}");
        assert_eq!(steps.get(), 1, "{kind}: the step in which the process was stopped");
    }
    server.left_over_check();
}

/// A server that was made a replica by hand keeps its connections, and answers every PING.
#[tokio::test]
async fn a_bound_hold_ends_soon_after_its_server_refuses_to_write() {
    let server = Server::start();
    let client = Client::builder().retry_for(LEASE).connect(&server.url()).await.unwrap();
    let guard = client.lock("l").bind(LEASE * 2).acquire().await.unwrap();
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(client.lock("other").try_acquire().await.unwrap().is_none());
    let lost = tokio::time::timeout(LEASE * 20, guard.lost()).await;
    server.cmd(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(lost.unwrap(), Lost::Expired);
    // What it grants from then on lasts.
    let guard = client.lock("later").bind(LEASE * 2).acquire().await.unwrap();
    tokio::time::sleep(LEASE * 4).await;
    assert_eq!(guard.lost_now(), None);
}

#[tokio::test]
async fn a_binding_that_would_end_at_once_is_refused() {
    let server = Server::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let bound = |ms| client.lock("l").bind(Duration::from_millis(ms));
    for ms in [0, 19] {
        assert_eq!(bound(ms).try_acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(bound(20).try_acquire().await.unwrap().unwrap().release().await.is_ok());
}

/// What it releases is its own.
#[tokio::test]
async fn a_replaced_wait_does_not_end_the_one_that_replaced_it() {
    let server = Server::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let holder = client.lock("l").acquire().await.unwrap();
    let waits = || {
        let lock = client.lock("l").owner("o").wait(crate::Wait::Blocking);
        tokio::spawn(async move { lock.acquire().await })
    };
    let waiters = || server.cmd(&["DLOCK.WAITERS", "l"]).into_sequence().map_or(0, |all| all.len());
    let earlier = waits();
    while waiters() == 0 {
        tokio::task::yield_now().await;
    }
    let later = waits();
    assert_eq!(earlier.await.unwrap().unwrap_err().kind(), ErrorKind::Replaced);
    holder.release().await.unwrap();
    later.await.unwrap().unwrap().release().await.unwrap();
    client.close().await.unwrap();
}

/// There may be a hundred thousand waiting tasks.
#[tokio::test]
async fn the_future_of_an_acquire_is_small() {
    let server = Server::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let (lock, all) = (client.lock("l"), client.multi_lock(["k", "l"]));
    let sizes = [size_of_val(&lock.acquire()), size_of_val(&all.acquire())];
    println!("an acquire: {sizes:?} bytes");
    assert!(sizes.iter().all(|size| *size <= 600), "{sizes:?}");
}
