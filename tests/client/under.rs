//! Work under a hold: every handle and every guard, with work that can fail and waits that end.

use std::{fmt, num::ParseIntError, time::Duration};

use dlock_client::{Error, ErrorKind, Lost, Permit, blocking};
use dlock_quorum::QuorumLock;
use dlock_testing::{Proxy, Reply as _, Server, Way};

use crate::support::{loss_of, number, start, until, within};

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

/// The ways to work, of a handle whose key is free; `$hold.lost_now()` is what every view has.
macro_rules! works {
    ($handle:expr) => {{
        let (name, handle) = (stringify!($handle), &$handle);
        println!("{name}");
        let done: Result<_, Error> = handle.with(async |hold| Ok(hold.lost_now())).await;
        assert_eq!(done.unwrap(), None, "{name}");
        let parsed: Result<u64, Failure> = handle.with(async |_| Ok("17".parse()?)).await;
        assert_eq!(parsed.unwrap(), 17, "{name}");
        let soon = handle.clone().timeout(SHORT);
        let failed: Result<u64, Failure> = soon.with(async |_| Ok("x".parse()?)).await;
        assert!(matches!(failed, Err(Failure::Number)), "{name}: {failed:?}");

        // Their futures outlive the handle.
        let short_lived = handle.clone();
        let work = short_lived.with(|_| async { Ok::<_, Error>(2) });
        let failing = short_lived.with(|_| async { Err::<(), _>(Failure::Number) });
        drop(short_lived);
        assert_eq!(tokio::spawn(work).await.unwrap().unwrap(), 2, "{name}");
        assert!(tokio::spawn(failing).await.unwrap().is_err(), "{name}");

        let guard = handle.acquire().await.unwrap();
        let refused: Result<(), Failure> = soon.with(async |_| panic!("not granted")).await;
        let Err(Failure::Lock(error)) = refused else { panic!("{name}: {refused:?}") };
        assert_eq!(error.kind(), ErrorKind::NotAcquired, "{name}");
        let hold = guard.hold();
        assert!(hold.valid_for() > Duration::ZERO, "{name}");
        let done: Result<_, Error> = guard.with(async |hold| Ok(hold.lost_now())).await;
        assert_eq!(done.unwrap(), None, "{name}");
        assert_eq!(hold.valid_for(), Duration::ZERO, "{name}: released");
        let guard = handle.try_acquire().await.unwrap().expect("released");
        let done: Result<u64, Failure> = guard.with(async |_| Err(Failure::Number)).await;
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
    let read = client.rw_lock("rw").read();
    let key: Result<_, Error> = read.with(async |hold| Ok(hold.key().to_vec())).await;
    assert_eq!(key.unwrap(), b"rw");
    let semaphore = client.semaphore("permit").limit(1);
    let id: Result<_, Error> = semaphore.with(async |hold| Ok(hold.permit_id())).await;
    assert_eq!(id.unwrap().len(), 36);
    let both = client.multi_lock(["a", "b"]);
    let tokens: Result<_, Error> = both.with(async |hold| Ok(hold.tokens().to_vec())).await;
    assert_eq!(tokens.unwrap().len(), 2);
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
        lock.with(async |_| {
            break_it();
            std::future::pending().await
        }),
    )
    .await;
    let Err(Failure::Lock(error)) = cancelled else { panic!("{cancelled:?}") };
    assert_eq!(error.kind(), ErrorKind::Lost { reason: Lost::Broken, finished: false });
    let failed: Result<(), Failure> = lock
        .with(async |hold| {
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
    let token = lock.with(|guard| Ok::<_, Error>(guard.token())).unwrap();
    let parsed: Result<u64, Failure> = lock.with(|_| Ok("17".parse()?));
    assert_eq!(parsed.unwrap(), 17);
    let failed: Result<u64, Failure> = lock.with(|_| Ok("x".parse()?));
    assert!(matches!(failed, Err(Failure::Number)), "{failed:?}");
    let soon = lock.clone().timeout(SHORT);
    assert!(soon.with(|guard| Ok::<_, Error>(guard.token())).unwrap() > token);
    let guard = lock.acquire().unwrap();
    let refused: Result<(), Error> = soon.with(|_| panic!("not granted"));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotAcquired);
    let failed: Result<u64, Failure> = guard.with(|_| Ok("x".parse()?));
    assert!(matches!(failed, Err(Failure::Number)), "{failed:?}");
    let refused: Result<(), Failure> = lock.with(|guard| {
        server.cmd(&["DLOCK.BREAK", "k"]).ok();
        guard.wait_lost(Duration::from_secs(20))?;
        Ok(())
    });
    assert!(matches!(refused, Err(Failure::Lock(_))), "{refused:?}");
    let semaphore = client.semaphore("s").limit(2);
    let permits = [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()];
    blocking::Permit::release_all(permits).unwrap();
    assert!(semaphore.with(|permit| Ok::<_, Error>(permit.permit_id())).unwrap().len() == 36);
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
    let released = within("the releases", Permit::release_all(permits)).await;
    let took = begin.elapsed();
    assert!(took < delay * 20, "100 releases took {took:?}, each of them alone {delay:?}");
    println!("100 releases at {delay:?} each way: {took:?}");
    proxy.heal();
    assert_eq!(loss_of(released), Lost::Broken);
    Permit::release_all([]).await.unwrap();
    until("no permit to be out", || server.cmd(&["DSEM.INFO", "s"]).is_null()).await;
    assert_eq!(number(&server.cmd(&["DSEM.INFO", "t"]), "available"), 0);
    server.left_over_check();
}
