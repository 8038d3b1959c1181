//! Latches.

use std::time::{Duration, Instant};

use dlock_client::{ErrorKind, Latch};
use dlock_testing::{Reply as _, SOON};

use crate::places::Place;
use crate::support::{number, start, start_on, until, within};

on_both! {
    a_latch_opens_for_all,
    a_latch_that_ends_closed_is_broken,
    a_wait_for_a_latch_blocks_no_other_call,
}

fn waiters(server: &impl Place) -> i64 {
    number(&server.cmd(&["DLATCH.INFO", "k"]), "waiters")
}

fn waiting(latch: &Latch) -> tokio::task::JoinHandle<Result<(), dlock_client::Error>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await })
}

async fn a_latch_opens_for_all<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let latch = client.latch("k");
    within("an open latch", latch.wait()).await.unwrap();
    assert!(latch.init(3).await.unwrap());
    assert!(!latch.init(5).await.unwrap());
    assert_eq!(latch.remaining().await.unwrap(), Some(3));
    let start = Instant::now();
    assert!(!latch.wait_timeout(Duration::from_millis(50)).await.unwrap());
    assert!(start.elapsed() >= Duration::from_millis(50) && start.elapsed() < SOON);
    let all: Vec<_> = (0..20).map(|_| waiting(&latch)).collect();
    let cancelled = waiting(&latch);
    until("all to wait", || waiters(&server) == 21).await;
    cancelled.abort();
    until("one to go", || waiters(&server) == 20).await;
    assert_eq!(latch.count_down(2).await.unwrap(), 1);
    assert_eq!(waiters(&server), 20);
    assert_eq!(latch.count_down(1).await.unwrap(), 0);
    for task in all {
        within("a waiter", task).await.unwrap().unwrap();
    }
    assert_eq!(latch.remaining().await.unwrap(), None);
    assert_eq!(latch.count_down(1).await.unwrap(), 0);
    assert!(latch.wait_timeout(Duration::ZERO).await.unwrap());
    server.left_over_check();
}

async fn a_latch_that_ends_closed_is_broken<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let latch = client.latch("k");
    latch.init(1).await.unwrap();
    let waiter = waiting(&latch);
    until("the waiter", || waiters(&server) == 1).await;
    server.cmd(&["DEL", "k"]).ok();
    let error = within("the waiter", waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broken);

    latch.init_for(1, Duration::from_secs(2)).await.unwrap();
    let error = within("the waiter", latch.wait()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broken);

    server.left_over_check();
}

/// A blocked call occupies its connection: no other call may queue behind it.
async fn a_wait_for_a_latch_blocks_no_other_call<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let latch = client.latch("k");
    latch.init(1).await.unwrap();
    let waiter = waiting(&latch);
    until("the waiter", || waiters(&server) == 1).await;
    let guard = within("an acquire", client.lock("l").acquire()).await.unwrap();
    within("a release", guard.release()).await.unwrap();
    let other = server.client().await;
    other.latch("k").count_down(1).await.unwrap();
    within("the waiter", waiter).await.unwrap().unwrap();
    server.left_over_check();
}

/// Its absence is no opening for a task that asks later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_was_lost_is_not_open() {
    let (server, client) = start().await;
    let latch = client.latch("k");
    for end in [&["DEL", "k"][..], &["SET", "k", "v"]] {
        latch.init(1).await.unwrap();
        assert!(!latch.is_open().await.unwrap());
        server.cmd(end);
        server.cmd(&["DEL", "k"]);
        assert_eq!(latch.is_open().await.unwrap_err().kind(), ErrorKind::Broken, "{end:?}");
        let waited = within("a lost latch", latch.wait()).await;
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Broken, "{end:?}");
    }
    latch.init(1).await.unwrap();
    latch.count_down(1).await.unwrap();
    assert!(latch.is_open().await.unwrap());
    server.left_over_check();
}
