//! `max_hold`: a holder that hangs cannot keep a lock forever.

use std::time::{Duration, Instant};

use dlock_client::{Client, Error, ErrorKind, Lost, blocking};
use dlock_quorum::QuorumLock;
use dlock_testing::{Reply as _, Server};

use crate::support::{loss_of, number, start, until, within};

/// Longer than several renewals of a short lease.
const MAX: Duration = Duration::from_secs(5);
/// Long enough that a machine that stalls for a second does not end it.
const LEASE: Duration = Duration::from_secs(2);
/// Held for longer than [`MAX`].
const LONGER_MS: i64 = 6_000;

async fn client(server: &Server) -> Client {
    Client::builder().lease(LEASE).connect(&server.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_hangs_loses_the_lock_after_max_hold() {
    let server = Server::start();
    let client = client(&server).await;
    let (lock, begin) = (client.lock("k").max_hold(MAX), Instant::now());
    let hung = lock.acquire().await.unwrap();
    let held_until = Instant::now() + MAX;
    // The next holder waits on the server, and gets the lock without any help of the first one.
    let next = within("the next holder", client.lock("k").acquire()).await.unwrap();
    let waited = begin.elapsed();
    assert!(waited >= MAX && next.token() > hung.token(), "after {waited:?}");
    assert!(Instant::now() < held_until + LEASE + Duration::from_secs(10));
    assert_eq!(hung.lost_now(), Some(Lost::MaxHold));
    assert_eq!(within("lost()", hung.lost()).await, Lost::MaxHold);
    let error = hung.renew(LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost { reason: Lost::MaxHold, finished: false });
    loss_of(hung.release().await);
    next.release().await.unwrap();

    // Work is cancelled; without the option it goes on.
    let done =
        within("the work", lock.with(async |_| std::future::pending::<Result<(), Error>>().await))
            .await;
    let lost = ErrorKind::Lost { reason: Lost::MaxHold, finished: false };
    assert_eq!(done.unwrap_err().kind(), lost);
    let guard = client.lock("k").acquire().await.unwrap();
    let held = || number(&server.cmd(&["DLOCK.INFO", "k"]), "held-ms");
    until("a longer hold", || held() > LONGER_MS).await;
    guard.release().await.unwrap();
    server.left_over_check();
}

/// Shorter than the lease: the server's lease is short from the beginning, for locks that outlive their process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_is_no_longer_than_max_hold() {
    let (server, client) = start().await;
    let second = Duration::from_secs(1);
    let guard = client.lock("k").max_hold(second).acquire().await.unwrap();
    let left = number(&server.cmd(&["DLOCK.INFO", "k"]), "ttl-ms");
    assert!(left <= 1_020, "{left} ms");
    // A renewal by hand does not go beyond it either.
    guard.renew(second * 60).await.unwrap();
    let left = number(&server.cmd(&["DLOCK.INFO", "k"]), "ttl-ms");
    assert!(left <= 1_020, "{left} ms");
    assert_eq!(within("lost()", guard.lost()).await, Lost::MaxHold);

    // With a lease of its own nothing renews the hold, and the option has no effect.
    let own = client.lock("own").fixed_lease(second * 60).max_hold(second).acquire().await.unwrap();
    assert!(own.valid_for() > second * 30);
    for wrong in [Duration::ZERO, Duration::from_hours(365 * 24 + 1)] {
        let error = client.lock("k").max_hold(wrong).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong:?}");
        assert!(error.text().contains("max_hold"), "{error}");
        let error = Client::builder().max_hold(Some(wrong)).connect(&server.url()).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid, "{wrong:?}");
    }
    drop((guard, own));
    server.left_over_check();
}

/// The guards of one owner end one by one: the server's hold lasts as long as the last of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_guard_of_the_owner_keeps_the_lock() {
    let server = Server::start();
    let client = client(&server).await;
    let task = client.new_owner();
    let limited = task.lock("k").max_hold(MAX).acquire().await.unwrap();
    let unlimited = task.lock("k").acquire().await.unwrap();
    assert_eq!(within("lost()", limited.lost()).await, Lost::MaxHold);
    let held = || number(&server.cmd(&["DLOCK.INFO", "k"]), "held-ms");
    until("a longer hold", || held() > LONGER_MS).await;
    assert_eq!(unlimited.lost_now(), None);
    drop(limited);
    until("its hold to be released", || number(&server.cmd(&["DLOCK.INFO", "k"]), "holds") == 1)
        .await;
    unlimited.release().await.unwrap();
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_handle_has_max_hold() {
    let server = Server::start();
    let client =
        Client::builder().lease(LEASE).max_hold(Some(MAX)).connect(&server.url()).await.unwrap();
    let fair = client.fair_lock("f").acquire().await.unwrap();
    let read = client.rw_lock("rw").read().acquire().await.unwrap();
    let permit = client.semaphore("s").limit(1).acquire().await.unwrap();
    let several = client.multi_lock(["a", "b"]).acquire().await.unwrap();
    let any = client.any_lock(["c", "d"]).acquire().await.unwrap();
    let quorum = QuorumLock::new([client.clone()], "q").max_hold(MAX).acquire().await.unwrap();
    let other = QuorumLock::new([client.clone()], "other").acquire().await.unwrap();
    let all = async {
        [
            fair.lost().await,
            read.lost().await,
            permit.lost().await,
            several.lost().await,
            any.lost().await,
            quorum.lost().await,
        ]
    };
    assert_eq!(within("all of them", all).await, [Lost::MaxHold; 6]);
    until("the quorum lock to be free", || server.cmd(&["DLOCK.INFO", "q"]).is_null()).await;
    assert_eq!(quorum.lost_now(), Some(Lost::MaxHold));
    assert_eq!(other.lost_now(), None);
    // One that is released before is not lost later.
    let early = QuorumLock::new([client.clone()], "q").max_hold(MAX).acquire().await.unwrap();
    let hold = early.hold();
    early.release().await.unwrap();
    assert_eq!(hold.lost_now(), None);
    drop((fair, read, permit, several, any, quorum, other));
    server.left_over_check();
}

#[test]
fn threads_have_max_hold() {
    let server = Server::start();
    let client = blocking::Client::connect(&server.url()).unwrap();
    let guard = client.lock("k").max_hold(LEASE).acquire().unwrap();
    assert_eq!(guard.wait_lost(Duration::from_secs(20)).unwrap(), Some(Lost::MaxHold));
    drop(guard);
    server.left_over_check();
}
