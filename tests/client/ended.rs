//! Clients whose runtime has ended.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, ErrorKind, Lost, Wait};
use dlock_quorum::QuorumLock;
use dlock_testing::{Reply as _, Server, wait_until};
use tokio::runtime::{Builder, Runtime};

use crate::support::{loss_of, number, within};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// No call waits for a task that no longer exists.
const AT_ONCE: Duration = Duration::from_secs(4);

#[test]
fn every_call_says_at_once_that_the_runtime_has_ended() {
    let server = Server::start();
    let (first, second) = (runtime(), runtime());
    let client = first.block_on(Client::connect(&server.url())).unwrap();
    let guard = first.block_on(client.lock("held").acquire()).unwrap();
    let permit = first.block_on(client.semaphore("permit").limit(1).acquire()).unwrap();
    drop(first);
    assert_eq!(guard.lost_now(), Some(Lost::Abandoned));
    let begin = Instant::now();
    second.block_on(async {
        let lock = client.lock("k");
        let blocked = client.lock("k").wait(Wait::Blocking);
        let several = client.multi_lock(["k", "l"]);
        let quorum = QuorumLock::new([client.clone()], "k");
        let semaphore = client.semaphore("s").limit(1);
        let errors = [
            lock.acquire().await.unwrap_err(),
            lock.try_acquire().await.unwrap_err(),
            lock.acquire_timeout(Duration::from_secs(5)).await.unwrap_err(),
            lock.check(1).await.unwrap_err(),
            lock.with(async |_| Ok::<_, Error>(())).await.unwrap_err(),
            blocked.acquire().await.unwrap_err(),
            several.acquire().await.unwrap_err(),
            several.try_acquire().await.unwrap_err(),
            quorum.acquire().await.unwrap_err(),
            semaphore.acquire().await.unwrap_err(),
            semaphore.take(1).await.unwrap_err(),
            semaphore.take_timeout(1, Duration::from_secs(5)).await.unwrap_err(),
            client.latch("c").wait().await.unwrap_err(),
            client.latch("c").init(1).await.unwrap_err(),
            client.close().await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            assert!(error.text().contains("runtime"), "{error}");
        }
        let error = guard.renew(Duration::from_secs(5)).await.unwrap_err();
        let lost = ErrorKind::Lost { reason: Lost::Abandoned, finished: false };
        assert_eq!(error.kind(), lost, "{error}");
        // A loss that was told stays one.
        assert_eq!(loss_of(permit.release().await), Lost::Abandoned);
    });
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    drop(guard);
    server.cmd(&["FLUSHALL"]).ok();
}

/// No task of the client has run in it yet.
#[test]
fn a_runtime_may_end_before_it_did_anything() {
    let server = Server::start();
    for _ in 0..20 {
        let first = Builder::new_current_thread().enable_all().build().unwrap();
        let client = first.block_on(Client::connect(&server.url())).unwrap();
        drop(first);
        let error = runtime().block_on(client.lock("k").try_acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    server.left_over_check();
}

/// Calls in progress in another runtime.
#[test]
fn a_wait_ends_with_the_runtime_of_its_client() {
    let server = Server::start();
    let (first, second) = (runtime(), runtime());
    let client = first.block_on(Client::connect(&server.url())).unwrap();
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder", "EX", "300"]).int();
    server.cmd(&["DLATCH.INIT", "c", "1"]).int();
    let (ended, waits) = mpsc::channel();
    for n in 0..4 {
        let (client, ended) = (client.clone(), ended.clone());
        second.spawn(async move {
            let error = match n {
                0 => client.lock("k").acquire().await.unwrap_err(),
                1 => client.lock("k").wait(Wait::Blocking).acquire().await.unwrap_err(),
                2 => client.multi_lock(["k", "l"]).acquire().await.unwrap_err(),
                _ => client.latch("c").wait().await.unwrap_err(),
            };
            ended.send(error).unwrap();
        });
    }
    let waiting = |key| number(&server.cmd(&["DLOCK.INFO", key]), "waiters");
    wait_until("all to wait", || waiting("k") == 3 && server.blocked_clients() == 3);
    drop(first);
    for _ in 0..4 {
        let error = waits.recv_timeout(AT_ONCE).expect("a wait ends");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(error.text().contains("runtime"), "{error}");
    }
    server.cmd(&["FLUSHALL"]).ok();
}

/// A server that a cluster client discovers in another runtime is still bound to the client's runtime.
#[test]
fn a_runtime_that_only_used_the_client_may_end() {
    let server = Server::start();
    let first = runtime();
    let client = first.block_on(Client::connect(&server.url())).unwrap();
    for wait in [Wait::Queue, Wait::Blocking] {
        for _ in 0..3 {
            let lock = client.lock("k").wait(wait);
            runtime().block_on(async {
                let holder = lock.acquire().await.unwrap();
                assert!(lock.acquire_timeout(Duration::from_millis(20)).await.unwrap().is_none());
                within("the release", holder.release()).await.unwrap();
            });
        }
    }
    server.left_over_check();
}
