//! Work under a hold: every handle and every guard, with work that can fail and waits that end.

use std::{fmt, num::ParseIntError, time::Duration};

use dlock_client::{ErrorKind, Lost, Permit, Released, blocking};
use dlock_quorum::QuorumLock;
use dlock_testing::{Proxy, Reply as _, Server, Way};

use crate::support::{number, start, until, within};

/// An error of an application.
#[derive(Debug)]
enum Failure {
    Lock(dlock_client::Error),
    Number,
}

impl From<dlock_client::Error> for Failure {
    fn from(error: dlock_client::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<ParseIntError> for Failure {
    fn from(_: ParseIntError) -> Self {
        Self::Number
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

const SHORT: Duration = Duration::from_millis(50);

/// Four ways to work, of a handle whose key is free; `$hold.lost_now()` is what every view has.
macro_rules! works {
    ($handle:expr) => {{
        let (name, handle) = (stringify!($handle), &$handle);
        println!("{name}");
        assert_eq!(handle.with(async |hold| hold.lost_now()).await.unwrap(), None, "{name}");
        let parsed: Result<u64, Failure> = handle.try_with(async |_| Ok("17".parse()?)).await;
        assert_eq!(parsed.unwrap(), 17, "{name}");
        let failed: Result<u64, Failure> = handle.try_with(async |_| Ok("x".parse()?)).await;
        assert!(matches!(failed, Err(Failure::Number)), "{name}: {failed:?}");
        assert_eq!(handle.with_timeout(SHORT, async |_| 1).await.unwrap(), Some(1), "{name}");
        let failed: Result<Option<u64>, Failure> =
            handle.try_with_timeout(SHORT, async |_| Ok("x".parse()?)).await;
        assert!(matches!(failed, Err(Failure::Number)), "{name}: {failed:?}");

        // Their futures outlive the handle.
        let short_lived = handle.clone();
        let work =
            (short_lived.with(|_| async { 2 }), short_lived.with_timeout(SHORT, |_| async { 3 }));
        let failing = short_lived.try_with(|_| async { Err::<(), _>(Failure::Number) });
        let late = short_lived.try_with_timeout(SHORT, |_| async { Err::<(), _>(Failure::Number) });
        drop(short_lived);
        assert_eq!(tokio::spawn(work.0).await.unwrap().unwrap(), 2, "{name}");
        assert_eq!(tokio::spawn(work.1).await.unwrap().unwrap(), Some(3), "{name}");
        assert!(tokio::spawn(failing).await.unwrap().is_err(), "{name}");
        assert!(tokio::spawn(late).await.unwrap().is_err(), "{name}");

        let guard = handle.acquire().await.unwrap();
        let refused = handle.with_timeout(SHORT, async |_| panic!("not granted")).await;
        assert_eq!(refused.unwrap(), None::<()>, "{name}");
        let refused: Result<Option<u64>, Failure> =
            handle.try_with_timeout(SHORT, async |_| panic!("not granted")).await;
        assert!(matches!(refused, Ok(None)), "{name}: {refused:?}");
        let hold = guard.hold();
        assert!(hold.valid_for() > Duration::ZERO, "{name}");
        assert_eq!(guard.with(async |hold| hold.lost_now()).await.unwrap(), None, "{name}");
        assert_eq!(hold.valid_for(), Duration::ZERO, "{name}: released");
        let guard = handle.try_acquire().await.unwrap().expect("released");
        let done: Result<u64, Failure> = guard.try_with(async |_| Err(Failure::Number)).await;
        assert!(matches!(done, Err(Failure::Number)), "{name}: {done:?}");
        drop(handle.try_acquire().await.unwrap().expect("released after an error"));
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_handle_runs_work_under_its_hold() {
    let (server, client) = start().await;
    // Each in a future of its own: one function with the futures of all of them has a large stack.
    Box::pin(async { works!(client.lock("lock")) }).await;
    Box::pin(async { works!(client.fair_lock("fair")) }).await;
    Box::pin(async { works!(client.rw_lock("rw").write()) }).await;
    Box::pin(async { works!(client.semaphore("permit").limit(1)) }).await;
    Box::pin(async { works!(client.multi_lock(["all:1", "all:2"])) }).await;
    Box::pin(async { works!(client.any_lock(["any"])) }).await;
    Box::pin(async { works!(client.striped_lock("stripes", 1)) }).await;
    Box::pin(async { works!(QuorumLock::new([client.clone()], "quorum")) }).await;
    assert_eq!(
        client.rw_lock("rw").read().with(async |hold| hold.key().to_vec()).await.unwrap(),
        b"rw"
    );
    let id = client.semaphore("permit").limit(1).with(async |hold| hold.permit_id()).await.unwrap();
    assert_eq!(id.len(), 36);
    let tokens =
        client.multi_lock(["a", "b"]).with(async |hold| hold.tokens().to_vec()).await.unwrap();
    assert_eq!(tokens.len(), 2);
    server.left_over_check();
}

/// A lost hold is the error, also of work that fails because of it; the work is cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_hold_is_the_error_of_work_that_can_fail() {
    let (server, client) = start().await;
    let break_it = || server.cmd(&["DLOCK.BREAK", "k"]).ok();
    let lock = client.lock("k");
    let cancelled: Result<(), Failure> = within(
        "the work",
        lock.try_with(async |_| {
            break_it();
            std::future::pending().await
        }),
    )
    .await;
    let Err(Failure::Lock(error)) = cancelled else { panic!("{cancelled:?}") };
    assert_eq!(error.kind(), ErrorKind::Lost { reason: Lost::Broken, finished: false });
    let failed: Result<Option<()>, Failure> = lock
        .try_with_timeout(SHORT, async |hold| {
            break_it();
            // In one step of the work, which nothing can cancel.
            while hold.lost_now().is_none() {
                std::thread::yield_now();
            }
            Err(Failure::Number)
        })
        .await;
    let Err(Failure::Lock(error)) = failed else { panic!("{failed:?}") };
    assert_eq!(error.kind(), ErrorKind::Lost { reason: Lost::Broken, finished: true });
    server.left_over_check();
}

#[test]
fn threads_work_under_holds_too() {
    let server = Server::start();
    let client = blocking::Client::connect(&server.url()).unwrap();
    let lock = client.lock("k");
    let token = lock.with(blocking::Guard::token).unwrap();
    let parsed: Result<u64, Failure> = lock.try_with(|_| Ok("17".parse()?));
    assert_eq!(parsed.unwrap(), 17);
    let failed: Result<u64, Failure> = lock.try_with(|_| Ok("x".parse()?));
    assert!(matches!(failed, Err(Failure::Number)), "{failed:?}");
    assert!(lock.with_timeout(SHORT, blocking::Guard::token).unwrap() > Some(token));
    let guard = lock.acquire().unwrap();
    assert_eq!(lock.with_timeout(SHORT, |_| panic!("not granted")).unwrap(), None::<()>);
    let failed: Result<u64, Failure> = guard.try_with(|_| Ok("x".parse()?));
    assert!(matches!(failed, Err(Failure::Number)), "{failed:?}");
    let refused: Result<Option<()>, Failure> = lock.try_with_timeout(SHORT, |guard| {
        server.cmd(&["DLOCK.BREAK", "k"]).ok();
        guard.wait_lost(Duration::from_secs(20))?;
        Ok(())
    });
    assert!(matches!(refused, Err(Failure::Lock(_))), "{refused:?}");
    let semaphore = client.semaphore("s").limit(2);
    let permits = [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()];
    assert_eq!(
        blocking::Permit::release_all(permits).unwrap(),
        [Released::Available(1), Released::Available(2)]
    );
    assert!(semaphore.with(blocking::Permit::permit_id).unwrap().len() == 36);
    server.left_over_check();
}

/// One round trip for all, through a connection on which each takes long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_permits_are_released_in_one_round_trip() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = dlock_client::Client::connect(&proxy.url()).await.unwrap();
    let semaphores = ["s", "t"].map(|key| client.semaphore(key).limit(100));
    let mut permits = Vec::new();
    for n in 0..100 {
        permits.push(semaphores[n % 2].acquire().await.unwrap());
    }
    server.cmd(&["DSEM.BREAK", "s", &permits[2].permit_id()]).ok();
    within("the loss", permits[2].lost()).await;
    let delay = Duration::from_millis(50);
    proxy.delay(Way::ToServer, delay);
    let begin = std::time::Instant::now();
    let released = within("the releases", Permit::release_all(permits)).await.unwrap();
    let took = begin.elapsed();
    assert!(took < delay * 20, "100 releases took {took:?}, each of them alone {delay:?}");
    println!("100 releases at {delay:?} each way: {took:?}");
    proxy.heal();
    assert_eq!(released.len(), 100);
    assert!(matches!(released[2], Released::Gone { .. }));
    assert!(
        released.iter().enumerate().all(|(n, one)| n == 2 || matches!(one, Released::Available(_)))
    );
    assert!(Permit::release_all([]).await.unwrap().is_empty());
    until("no permit to be out", || server.cmd(&["DSEM.INFO", "s"]).is_null()).await;
    assert_eq!(number(&server.cmd(&["DSEM.INFO", "t"]), "available"), 0);
    server.left_over_check();
}
