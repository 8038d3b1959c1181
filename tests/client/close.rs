//! Clients that close leave nothing behind, so that no other client has to wait.

use std::pin::pin;
use std::time::{Duration, Instant};

use dlock_admin::Admin;
use dlock_client::{Client, Error, ErrorKind, Lost};
use dlock_quorum::QuorumLock;
use dlock_testing::{Proxy, Reply as _, Server, Way};
use tokio::task::JoinHandle;

use crate::support::{Variant, for_each_variant, loss_of, number, quick, start, until, within};

/// Far less than the time a place outlives its connection.
const PROMPTLY: Duration = Duration::from_secs(4);

type Waiting = JoinHandle<Result<(), dlock_client::Error>>;

/// Number of the server's connections, including that of the test.
fn connections(server: &Server) -> usize {
    server.cmd(&["CLIENT", "LIST"]).text().lines().count()
}

/// Waits for the lock as every kind of waiter, on `client`.
fn wait_for(client: &Client, key: &str, variant: Variant) -> Waiting {
    let lock = variant.lock(client, key);
    tokio::spawn(async move { lock.acquire().await.map(drop) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_in_the_queue_need_not_wait_for_a_client_that_closed() {
    let server = std::sync::Arc::new(Server::start());
    for_each_variant(|variant| {
        let server = server.clone();
        async move {
            for waiters in [1, 50] {
                let key = &format!("{variant:?} {waiters}");
                let url = server.url();
                let [holding, closing, next] = [(); 3].map(async |()| Client::connect(&url).await);
                let (holding, closing, next) =
                    (holding.await.unwrap(), closing.await.unwrap(), next.await.unwrap());
                let holder = variant.lock(&holding, key).acquire().await.unwrap();
                let waits: Vec<_> =
                    (0..waiters).map(|_| wait_for(&closing, key, variant)).collect();
                until("all to wait", || variant.waiters(&server, key) == waiters).await;
                let behind = wait_for(&next, key, variant);
                until("the next", || variant.waiters(&server, key) == waiters + 1).await;
                let begin = Instant::now();
                within("the close", closing.close()).await.unwrap();
                let took = begin.elapsed();
                assert_eq!(variant.waiters(&server, key), 1, "{key}: none of ours after {took:?}");
                for wait in waits {
                    let error = within("a wait", wait).await.unwrap().unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                }
                let begin = Instant::now();
                holder.release().await.unwrap();
                within("the next", behind).await.unwrap().unwrap();
                assert!(begin.elapsed() < PROMPTLY, "{key}: {:?}", begin.elapsed());
            }
        }
    })
    .await;
    server.left_over_check();
}

/// Guards of every kind, some of which were already lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_are_released_and_their_guards_told() {
    let (server, client) = start().await;
    let lock = client.lock("lock").acquire().await.unwrap();
    let fair = client.fair_lock("fair").acquire().await.unwrap();
    let twice = client.lock("twice").owner("me");
    let named = (twice.acquire().await.unwrap(), twice.acquire().await.unwrap());
    let read = client.rw_lock("rw").read().acquire().await.unwrap();
    let write = client.rw_lock("ww").write().acquire().await.unwrap();
    let own = client.lock("own").fixed_lease(Duration::from_mins(5)).acquire().await.unwrap();
    let permit = client.semaphore("s").limit(3).count(2).acquire().await.unwrap();
    let all = client.multi_lock(["a", "b"]).acquire().await.unwrap();
    let all_named = client.multi_lock(["c", "d"]).owner("me").acquire().await.unwrap();
    let any = client.any_lock(["e"]).acquire().await.unwrap();
    let quorum = QuorumLock::new([client.clone()], "q").acquire().await.unwrap();
    let kept_by_one = client.multi_lock(["broken", "whole"]).acquire().await.unwrap();
    assert_eq!(server.cmd(&["DLOCK.BREAK", "broken"]).int(), 1);
    assert_eq!(within("lost()", kept_by_one.lost()).await, Lost::Broken);
    let told = [lock.lost(), fair.lost(), named.0.lost(), any.lost()];
    let quorum_told = quorum.lost();
    let (begins, begun) = tokio::sync::oneshot::channel();
    let working = tokio::spawn({
        let lock = client.lock("work");
        async move {
            let work = async |_| {
                let _ = begins.send(());
                std::future::pending::<Result<(), Error>>().await
            };
            lock.with(work).await
        }
    });
    within("the work", begun).await.unwrap();

    within("the close", client.close()).await.unwrap();
    server.left_over_check();
    for lost in told {
        assert_eq!(within("lost()", lost).await, Lost::Closed);
    }
    assert_eq!(within("lost()", quorum_told).await, Lost::Closed);
    let all_lost = [
        read.lost_now(),
        write.lost_now(),
        own.lost_now(),
        named.1.lost_now(),
        permit.lost_now(),
        all.lost_now(),
        all_named.lost_now(),
        quorum.lost_now(),
    ];
    assert_eq!(all_lost, [Some(Lost::Closed); 8]);
    assert_eq!(kept_by_one.lost_now(), Some(Lost::Broken), "it was lost before");
    let error = within("the work", working).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost { reason: Lost::Closed, finished: false });
    loss_of(lock.release().await);
    loss_of(permit.release().await);
    loss_of(all.release().await);
    loss_of(quorum.release().await);
    until("its connections to end", || connections(&server) == 1).await;
}

/// Including waiters on dedicated connections, and calls that do not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_and_none_begins() {
    let (server, client) = start().await;
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder", "EX", "300"]).int();
    server.cmd(&["DRW.ACQUIRE", "rw", "holder", "WRITE", "EX", "300"]).int();
    server.cmd(&["DSEM.INIT", "s", "1"]).int();
    server.cmd(&["DSEM.ACQUIRE", "s", "holder", "EX", "300"]).ok();
    server.cmd(&["DLATCH.INIT", "c", "1"]).int();
    let waits: Vec<Waiting> = (0..7)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                match n {
                    0 => client.multi_lock(["k", "l"]).acquire().await.map(drop),
                    1 => client.any_lock(["k"]).acquire().await.map(drop),
                    2 => client.rw_lock("rw").read().acquire().await.map(drop),
                    3 => client.semaphore("s").acquire().await.map(drop),
                    4 => client
                        .semaphore("s")
                        .take_timeout(1, Duration::from_mins(5))
                        .await
                        .map(drop),
                    5 => client.latch("c").wait().await,
                    _ => QuorumLock::new([client], "k").acquire().await.map(drop),
                }
            })
        })
        .collect();
    let waiters = |info: &str, key: &str| number(&server.cmd(&[info, key]), "waiters");
    let all = || {
        [
            waiters("DLOCK.INFO", "k"),
            waiters("DRW.INFO", "rw"),
            waiters("DSEM.INFO", "s"),
            waiters("DLATCH.INFO", "c"),
        ]
    };
    until("all to wait", || all() == [2, 1, 2, 1]).await;
    within("the close", client.close()).await.unwrap();
    for wait in waits {
        let error = within("a wait", wait).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    until("the end of all waits", || all() == [0; 4]).await;
    let late = [
        client.lock("x").acquire().await.map(drop).unwrap_err(),
        client.lock("x").try_acquire().await.map(drop).unwrap_err(),
        client.multi_lock(["x"]).try_acquire().await.map(drop).unwrap_err(),
        client.semaphore("s").give(1).await.map(drop).unwrap_err(),
        client.latch("c").wait().await.unwrap_err(),
        QuorumLock::new([client.clone()], "x").try_acquire().await.map(drop).unwrap_err(),
        Admin::new(&client).locks(b"*").await.map(drop).unwrap_err(),
    ];
    for error in late {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    server.cmd(&["FLUSHALL"]).ok();
    until("its connections to end", || connections(&server) == 1).await;
}

/// A task that selects between a wait and a signal often neither polls nor drops the wait while it closes its client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unpolled_future_keeps_no_place() {
    let server = std::sync::Arc::new(Server::start());
    for_each_variant(|variant| {
        let server = server.clone();
        async move {
            let key = &variant.key();
            let [holding, client] = [(); 2].map(async |()| Client::connect(&server.url()).await);
            let (holding, client) = (holding.await.unwrap(), client.await.unwrap());
            let holder = variant.lock(&holding, key).acquire().await.unwrap();
            let lock = variant.lock(&client, key);
            let mut acquiring = pin!(lock.acquire());
            tokio::select! {
                _ = &mut acquiring => panic!("granted"),
                () = until("the place", || variant.waiters(&server, key) == 1) => {}
            }
            within("the close", client.close()).await.unwrap();
            assert_eq!(variant.waiters(&server, key), 0, "{key}");
            let error = within("the acquire", acquiring).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed);
            holder.release().await.unwrap();
        }
    })
    .await;
    server.left_over_check();
}

/// A client closes even if the future of its close is dropped, and all callers get the same result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_goes_on_when_its_future_is_dropped() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    proxy.delay(Way::ToServer, Duration::from_millis(100));
    let first = tokio::time::timeout(Duration::from_millis(10), client.close()).await;
    assert!(first.is_err(), "it waits for the answer");
    assert_eq!(guard.lost_now(), Some(Lost::Closed));
    let other = client.clone();
    let (one, two) = within("both", async { tokio::join!(client.close(), other.close()) }).await;
    one.unwrap();
    two.unwrap();
    server.left_over_check();
    until("the connection to end", || proxy.open() == 0).await;
}

/// A server that does not answer delays the close by the response timeout at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_does_not_wait_for_ever() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    proxy.stall_all();
    let begin = Instant::now();
    let error = within("the close", client.close()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(begin.elapsed() < PROMPTLY, "{:?}", begin.elapsed());
    assert_eq!(client.close().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(guard.lost_now(), Some(Lost::Closed));
    drop(guard);
    proxy.heal();
    server.cmd(&["FLUSHALL"]).ok();
    // Without holds there is nothing to wait for.
    let idle = quick().connect(&proxy.url()).await.unwrap();
    proxy.stall_all();
    within("the close", idle.close()).await.unwrap();
}

/// The close of one client of a quorum releases the lock on all servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_lock_ends_with_the_first_of_its_clients() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(Client::connect(&server.url()).await.unwrap());
    }
    let lock = QuorumLock::new(clients.clone(), "k");
    let guard = lock.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.map(drop) }
    });
    within("the close", clients[1].close()).await.unwrap();
    assert_eq!(within("lost()", guard.lost()).await, Lost::Closed);
    let error = within("the wait", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    for server in &servers {
        server.left_over_check();
    }
    loss_of(guard.release().await);
}

/// Its caller learns what became of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_waits_for_a_release_under_way() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let before = proxy.requests("DLOCK.RELEASE");
    proxy.delay(Way::ToClient, Duration::from_millis(200));
    let release = tokio::spawn(guard.release());
    until("the request", || proxy.requests("DLOCK.RELEASE") > before).await;
    within("the close", client.close()).await.unwrap();
    within("the release", release).await.unwrap().unwrap();
    server.left_over_check();
}

/// Also of one that waits until a quarantine is over, or for the run of another task.
#[tokio::test]
async fn closing_ends_calls_that_wait_for_a_run() {
    let (server, client) = start().await;
    let work = client.lock("k");
    let running = tokio::spawn(async move {
        work.run_once(|_| std::future::pending::<Result<(), Error>>()).await
    });
    until("it runs", || server.cmd(&["EXISTS", "k"]).int() == 1).await;
    let lock = client.lock("k");
    let waiting =
        tokio::spawn(async move { lock.run_once(|_| async { Ok::<_, Error>(()) }).await });
    tokio::task::yield_now().await;
    client.close().await.unwrap();
    for call in [running, waiting] {
        let ended = within("a call", call).await.unwrap();
        assert!(matches!(ended.unwrap_err().kind(), ErrorKind::Closed | ErrorKind::Lost { .. }));
    }
    server.left_over_check();
}
