//! Work that was finished under a valid lock counts, with any reply to the release.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock_client::{Client, Error, ErrorKind, Lost, blocking};
use dlock_quorum::QuorumLock;
use dlock_testing::{Fault, Proxy, Reply as _, Server, Trigger};

use crate::support::{loss_of, quick, start, until, within};

/// One release in this number loses its reply.
const EVERY: usize = 20;
const TURNS: usize = 400;

const KINDS: [&str; 10] =
    ["lock", "blocked", "fair", "named", "read", "write", "permit", "all", "all named", "any"];

/// Cuts the connection instead of every 20th reply to a release, of any family.
fn lose_releases(proxy: &Proxy) -> Trigger {
    let count = AtomicUsize::new(0);
    proxy.on(usize::MAX, Fault::LoseReply, move |command| {
        command[0].ends_with(b"RELEASE")
            && count.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY)
    })
}

async fn with(client: &Client, kind: &str, n: usize) -> Result<usize, Error> {
    let lock = match kind {
        "lock" => client.lock(kind),
        "blocked" => client.lock(kind).wait(dlock_client::Wait::Blocking),
        "fair" => client.fair_lock(kind),
        "named" => client.lock(kind).owner("me"),
        "read" => client.rw_lock(kind).read(),
        "write" => client.rw_lock(kind).write(),
        "permit" => return client.semaphore(kind).limit(1).with(async |_| Ok(n)).await,
        "all" => return client.multi_lock([kind, "all too"]).with(async |_| Ok(n)).await,
        "all named" => {
            let all = client.multi_lock([kind, "all named too"]).owner("me");
            return all.with(async |hold| Ok(n + hold.tokens().len() - 2)).await;
        }
        _ => return client.any_lock([kind]).with(async |_| Ok(n)).await,
    };
    lock.with(async |_| Ok(n)).await
}

async fn release(client: &Client, kind: &str) -> Result<(), Error> {
    let lock = match kind {
        "lock" => client.lock(kind),
        "blocked" => client.lock(kind).wait(dlock_client::Wait::Blocking),
        "fair" => client.fair_lock(kind),
        "named" => client.lock(kind).owner("me"),
        "read" => client.rw_lock(kind).read(),
        "write" => client.rw_lock(kind).write(),
        "permit" => {
            let permit = client.semaphore(kind).limit(1).acquire().await.unwrap();
            return permit.release().await;
        }
        "all" | "all named" => {
            let mut all = client.multi_lock([kind, "both"]);
            if kind == "all named" {
                all = all.owner("me");
            }
            return all.acquire().await.unwrap().release().await;
        }
        _ => return client.any_lock([kind]).acquire().await.unwrap().release().await,
    };
    lock.acquire().await.unwrap().release().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_release_loses_no_result() {
    let server = Server::start();
    let mut tasks = Vec::new();
    for kind in KINDS {
        let proxy = Proxy::to(&server);
        let client = quick().connect(&proxy.url()).await.unwrap();
        tasks.push(tokio::spawn(async move {
            let lost = lose_releases(&proxy);
            for n in 0..TURNS {
                let done = within(kind, with(&client, kind, n)).await;
                assert_eq!(done.unwrap_or_else(|error| panic!("{kind} {n}: {error}")), n, "{kind}");
            }
            assert!(lost.fired() >= TURNS / EVERY / 2, "{kind}: {} lost", lost.fired());
            lost.fired()
        }));
    }
    let mut lost = 0;
    for task in tasks {
        // Each of its turns has a time limit.
        lost += task.await.unwrap();
    }
    println!("{} turns, {lost} replies lost", TURNS * KINDS.len());
    server.left_over_check();
}

/// The first copy of each release loses its reply: the second gets the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_was_repeated_is_one() {
    let server = Server::start();
    for kind in KINDS {
        for fault in [Fault::LoseReply, Fault::HalfOpen] {
            let proxy = Proxy::to(&server);
            let client = quick().connect(&proxy.url()).await.unwrap();
            let lost = proxy.on(1, fault, |command| command[0].ends_with(b"RELEASE"));
            let released = within(kind, release(&client, kind)).await;
            assert_eq!(lost.fired(), 1, "{kind}");
            assert!(released.is_ok(), "{kind} {fault:?}: {released:?}");
        }
    }
    server.left_over_check();
}

/// The hold ends before the work does, the client does not hear of it, and the reply to the release is lost: the server
/// says to each copy how it ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_whose_reply_was_lost_is_a_loss() {
    let server = Server::start();
    for kind in KINDS {
        let proxy = Proxy::to(&server);
        let client = quick().connect(&proxy.url()).await.unwrap();
        proxy.swallow_messages();
        let lost = lose_first_copies(&proxy);
        let done = within(kind, with_a_loss(&server, &client, kind)).await;
        let error = done.expect_err(kind);
        let finished = ErrorKind::Lost { reason: Lost::Broken, finished: true };
        assert_eq!((error.kind(), lost.fired()), (finished, 1), "{kind}: {error}");
        assert!(error.keys().eq([kind.as_bytes()]), "{kind}: {error}");
        proxy.heal();
        until("all to be released", || server.cmd(&["DBSIZE"]).int() == 0).await;
    }
    server.left_over_check();
}

/// Work in whose last step an operator breaks the hold.
async fn with_a_loss(server: &Server, client: &Client, kind: &str) -> Result<(), Error> {
    let broken = |command: &str| {
        server.cmd(&[command, kind]).ok();
        Ok(())
    };
    let lock = match kind {
        "fair" => client.fair_lock(kind),
        "named" => client.lock(kind).owner("me"),
        "read" => client.rw_lock(kind).read(),
        "write" => client.rw_lock(kind).write(),
        "permit" => {
            let work = async |hold: dlock_client::PermitHold| {
                server.cmd(&["DSEM.BREAK", kind, &hold.permit_id()]).int();
                Ok(())
            };
            return client.semaphore(kind).limit(1).with(work).await;
        }
        "all" | "all named" => {
            let mut all = client.multi_lock([kind, "second"]);
            if kind == "all named" {
                all = all.owner("me");
            }
            return all.with(async |_| broken("DLOCK.BREAK")).await;
        }
        "any" => return client.any_lock([kind]).with(async |_| broken("DLOCK.BREAK")).await,
        _ => client.lock(kind),
    };
    let command = match kind {
        "fair" => "DFAIR.BREAK",
        "read" | "write" => "DRW.BREAK",
        _ => "DLOCK.BREAK",
    };
    lock.with(async |_| broken(command)).await
}

/// A server that remembers no requests cannot say what the first copy found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_remembers_nothing_makes_the_outcome_unknown() {
    let server = Server::start();
    server.cmd(&["CONFIG", "SET", "dlock.request-memory-ms", "0"]).ok();
    for kind in KINDS {
        let proxy = Proxy::to(&server);
        let client = quick().connect(&proxy.url()).await.unwrap();
        let lost = lose_first_copies(&proxy);
        let error = within(kind, with(&client, kind, 7)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReleaseUnknown, "{kind}: {error}");
        assert!(lost.fired() > 0, "{kind}");
    }
    server.left_over_check();
}

/// Cuts the connection instead of the first reply to a release.
fn lose_first_copies(proxy: &Proxy) -> Trigger {
    proxy.on(1, Fault::LoseReply, |command| command[0].ends_with(b"RELEASE"))
}

/// The first copy waits for a connection: the server still says how the hold ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_lost_before_the_first_copy_could_be_sent_is_a_loss() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    let permit = client.semaphore("s").limit(1).acquire().await.unwrap();
    proxy.refuse();
    proxy.cut(dlock_testing::Cut::Reset);
    // It ends before the client has a connection again.
    server.cmd(&["DLOCK.BREAK", "k"]).int();
    server.cmd(&["DSEM.BREAK", "s", &permit.permit_id()]).int();
    until("the connection to go", || proxy.open() == 0).await;
    // The client detects the closed connection; a request written to a dead connection would count as sent.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let releases = tokio::spawn(async move { tokio::join!(guard.release(), permit.release()) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.accept();
    let (lock, permit) = within("both", releases).await.unwrap();
    for released in [lock, permit] {
        assert_eq!(loss_of(released), Lost::Broken);
    }
    server.left_over_check();
}

/// Lost says why, and whether the work was complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_says_why_and_whether_the_work_had_finished() {
    let (server, client) = start().await;
    let lease = Duration::from_secs(1);
    let lock = client.lock("k").fixed_lease(lease);
    // The last step outlasts the lease: a step cannot be interrupted.
    let late = lock.with(async |_| {
        std::thread::sleep(lease * 2);
        Ok::<_, Error>(())
    });
    let error = within("late work", late).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost { reason: Lost::Expired, finished: true });
    let endless = lock.with(async |_| std::future::pending::<Result<(), Error>>().await);
    let error = within("endless work", endless).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost { reason: Lost::Expired, finished: false });
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_loses_no_result_either() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let proxies: Vec<_> = servers.iter().map(Proxy::to).collect();
    let mut clients = Vec::new();
    for proxy in &proxies {
        clients.push(quick().connect(&proxy.url()).await.unwrap());
    }
    let lost: Vec<_> = proxies.iter().map(lose_releases).collect();
    let lock = QuorumLock::new(clients, "k").server_timeout(Duration::from_secs(2));
    for n in 0..TURNS {
        let work = lock.with(async |hold| Ok::<_, Error>((hold.token() > 0).then_some(n)));
        assert_eq!(within("the quorum", work).await.unwrap(), Some(n));
        let guard = within("the quorum", lock.acquire()).await.unwrap();
        guard.release().await.unwrap();
    }
    assert!(lost.iter().all(|lost| lost.fired() >= TURNS / EVERY));
    for server in &servers {
        server.left_over_check();
    }
}

#[test]
fn threads_lose_no_result_either() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let lost = lose_releases(&proxy);
    let client = blocking::Client::connect_with(quick(), &proxy.url()).unwrap();
    let semaphore = client.semaphore("s").limit(1);
    for n in 0..TURNS {
        assert_eq!(client.lock("k").with(|_| Ok::<_, Error>(n)).unwrap(), n);
        assert_eq!(semaphore.with(|_| Ok::<_, Error>(n)).unwrap(), n);
        client.fair_lock("f").acquire().unwrap().release().unwrap();
    }
    assert!(lost.fired() >= TURNS * 2 / EVERY);
    // Work that outlasts its lease is detected at its end.
    let lease = Duration::from_secs(1);
    let error = client.lock("k").fixed_lease(lease).with(|guard| {
        while guard.lost_now().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok::<_, Error>(())
    });
    let lost = ErrorKind::Lost { reason: Lost::Expired, finished: true };
    assert_eq!(error.unwrap_err().kind(), lost);
    server.left_over_check();
}
