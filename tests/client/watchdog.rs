//! Holds are kept alive as long as their guards, and no longer; a client that loses one is notified.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dlock_client::{Client, ErrorKind, Guard, Lost};
use dlock_testing::{Proxy, Reply as _, SOON, Server, Way, args};

use crate::support::{Variant, for_each_variant, number, start, until, within};

/// The shortest lease that a busy machine can renew in time.
const LEASE: Duration = Duration::from_secs(3);

async fn short(url: &str) -> Client {
    Client::builder().lease(LEASE).connect(url).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_without_a_lease_of_their_own_last() {
    let server = Server::start();
    let client = short(&server.url()).await;
    let mut guards = Vec::new();
    for variant in Variant::ALL {
        let key = format!("{variant:?}");
        let guard = variant.lock(&client, &key).acquire().await.unwrap();
        guards.push((variant, key, guard));
    }
    let read = client.rw_lock("rw").read().acquire().await.unwrap();
    let permit = client.semaphore("sem").limit(1).acquire().await.unwrap();
    let multi = client.multi_lock(["m1", "m2"]).acquire().await.unwrap();
    let any = client.striped_lock("any", 2).acquire().await.unwrap();
    // Granted after a wait: by a message, or in the reply to a blocked call.
    for (variant, key, guard) in &mut guards {
        let waiting = tokio::spawn({
            let lock = variant.lock(&client, key);
            async move { lock.acquire().await.unwrap() }
        });
        until("the place", || variant.waiters(&server, key) == 1).await;
        let old = std::mem::replace(
            guard,
            within("the waiter", async {
                server.cmd(&[&variant.command("BREAK"), key]).ok();
                waiting.await.unwrap()
            })
            .await,
        );
        drop(old);
    }
    let start = Instant::now();
    while start.elapsed() < LEASE * 3 {
        for (variant, key, guard) in &guards {
            assert_eq!(guard.lost_now(), None, "{variant:?}");
            assert!(guard.valid_for() > Duration::ZERO);
            let info = variant.info(&server, key);
            assert_eq!(info.field("owner").bytes(), guard.owner(), "{variant:?}");
        }
        for lost in [read.lost_now(), permit.lost_now(), multi.lost_now(), any.lost_now()] {
            assert_eq!(lost, None);
        }
        tokio::time::sleep(LEASE / 10).await;
    }
    drop((guards, read, permit, multi, any));
    server.left_over_check();
}

/// The client never assumes a longer lease than the server grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_never_believed_in_for_longer_than_it_lasts() {
    let server = Arc::new(Server::start());
    let client = short(&server.url()).await;
    for_each_variant(|variant| believe(server.clone(), client.clone(), variant)).await;
    server.left_over_check();
}

async fn believe(server: Arc<Server>, client: Client, variant: Variant) {
    let key = &variant.key();
    let lock = variant.lock(&client, key);
    let first = lock.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    until("the place", || variant.waiters(&server, key) == 1).await;
    tokio::time::sleep(LEASE / 3).await;
    first.release().await.unwrap();
    let guard = within("the waiter", waiting).await.unwrap();
    let start = Instant::now();
    while start.elapsed() < LEASE * 2 {
        let asked = Instant::now();
        let before = guard.valid_for();
        let rest = number(&variant.info(&server, key), "ttl-ms");
        // A renewal may have begun since, and may have restarted the lease at the server: earlier after a message,
        // else later.
        let believed = before.min(guard.valid_for());
        let rest = Duration::from_millis(u64::try_from(rest).unwrap());
        // The server rounds to milliseconds.
        let rest = rest + asked.elapsed() + Duration::from_millis(1);
        assert!(believed <= rest, "{variant:?}: {believed:?} believed, {rest:?} left");
        tokio::time::sleep(LEASE / 20).await;
    }
    guard.release().await.unwrap();
}

/// The server may have executed a renewal, with or without its reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_lease_counts_as_soon_as_it_is_asked_for() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    // Two guards of one hold, and one of several locks.
    let named = client.lock("k").owner("me").fixed_lease(Duration::from_mins(1));
    let (renewed, sibling) = (named.acquire().await.unwrap(), named.acquire().await.unwrap());
    let several = client.multi_lock(["m", "n"]).fixed_lease(Duration::from_mins(1));
    let several = several.acquire().await.unwrap();
    proxy.stall(Way::ToClient);
    let renewals = tokio::spawn(async move {
        let lease = Duration::from_millis(600);
        let (one, other) = tokio::join!(renewed.renew(lease), several.renew(lease));
        (one.is_ok(), other.is_ok(), renewed, several)
    });
    until("the server to have both", || {
        let ttl = |key| number(&server.cmd(&["DLOCK.INFO", key]), "ttl-ms");
        ttl("k") <= 600 && ttl("n") <= 600
    })
    .await;
    let (asked, believed) = (Instant::now(), sibling.valid_for());
    let rest = u64::try_from(number(&server.cmd(&["DLOCK.INFO", "k"]), "ttl-ms")).unwrap();
    let rest = Duration::from_millis(rest + 1) + asked.elapsed();
    assert!(believed <= rest, "{believed:?} believed, {rest:?} left");
    assert_eq!(within("lost()", sibling.lost()).await, Lost::Expired);
    // The other hold was requested a moment later.
    until("both to end", || ["k", "n"].iter().all(|key| server.cmd(&["EXISTS", key]).int() == 0))
        .await;
    proxy.heal();
    let (one, other, renewed, several) = within("the renewals", renewals).await.unwrap();
    assert!(!one && !other, "both were lost before the answer came");
    assert_eq!(
        (renewed.lost_now(), several.lost_now()),
        (Some(Lost::Expired), Some(Lost::Expired))
    );
    drop((renewed, sibling, several));
    until("all to be given back", || server.keys() == 0).await;
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_holds_and_fixed_leases_are_not_renewed() {
    let server = Arc::new(Server::start());
    for_each_variant(|variant| renew_nothing(server.clone(), variant)).await;
    server.left_over_check();
}

async fn renew_nothing(server: Arc<Server>, variant: Variant) {
    let proxy = Proxy::to(&server);
    proxy.remember();
    let client = short(&proxy.url()).await;
    let key = |name: &str| format!("{name} {variant:?}");
    let (released, dropped) = (&key("released"), &key("dropped"));
    variant.lock(&client, released).acquire().await.unwrap().release().await.unwrap();
    drop(variant.lock(&client, dropped).acquire().await.unwrap());
    let own = variant.lock(&client, &key("own")).fixed_lease(LEASE * 3).acquire().await.unwrap();
    until("the release", || variant.is_free(&server, dropped)).await;
    proxy.seen();
    tokio::time::sleep(LEASE).await;
    for key in [released, dropped] {
        assert!(variant.is_free(&server, key), "{key}");
    }
    let seen: Vec<_> = proxy.seen().into_iter().map(|seen| seen.command).collect();
    assert!(!seen.iter().any(|command| command[0].ends_with(b".RENEW")), "{variant:?}: {seen:?}");
    own.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_learns_of_any_loss_of_its_hold() {
    let (server, client) = start().await;
    for variant in Variant::ALL {
        for (how, words) in [
            (Lost::Broken, vec![variant.command("BREAK"), "k".to_owned()]),
            (Lost::Deleted, vec!["DEL".to_owned(), "k".to_owned()]),
            (Lost::Deleted, vec!["UNLINK".to_owned(), "k".to_owned()]),
            (Lost::Deleted, vec!["SET".to_owned(), "k".to_owned(), "v".to_owned()]),
            (Lost::Deleted, vec!["PEXPIRE".to_owned(), "k".to_owned(), "1".to_owned()]),
            (Lost::Flushed, vec!["FLUSHDB".to_owned()]),
            (Lost::Flushed, vec!["FLUSHALL".to_owned()]),
            (Lost::Flushed, vec!["FLUSHALL".to_owned(), "ASYNC".to_owned()]),
        ] {
            let lock = variant.lock(&client, "k").owner("me");
            let guard = lock.acquire().await.unwrap();
            let lost = tokio::spawn(guard.lost());
            assert_eq!(guard.lost_now(), None);
            let start = Instant::now();
            server.cmd(&words).ok();
            let said = tokio::time::timeout(SOON, lost).await.map(Result::unwrap);
            assert_eq!(said, Ok(how), "{variant:?} {words:?}");
            assert!(start.elapsed() < SOON);
            assert_eq!(guard.lost_now(), Some(how));
            drop(guard);
            server.cmd(&["DEL", "k"]).ok();
        }
        server.left_over_check();
    }
}

/// The runtime is gone, the guard is not: there are no renewals any more.
#[test]
fn a_stopped_runtime_keeps_nothing_alive() {
    let server = Server::start();
    std::thread::scope(|scope| {
        let all = Variant::ALL.map(|variant| {
            scope.spawn({
                let server = &server;
                move || stop_runtime(server, variant)
            })
        });
        for variant in all {
            variant.join().unwrap();
        }
    });
    server.left_over_check();
}

fn stop_runtime(server: &Server, variant: Variant) {
    let key = &variant.key();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard: Guard = runtime.block_on(async {
        let client = short(&server.url()).await;
        variant.lock(&client, key).acquire().await.unwrap()
    });
    std::thread::sleep(LEASE);
    assert_eq!(guard.lost_now(), None, "while it runs, it is renewed");
    let lost = guard.lost();
    let stopped = Instant::now();
    runtime.shutdown_timeout(SOON);
    let mut next = server.client();
    next.cmd(&args![variant.command("ACQUIRE"), key, "next", "BLOCK", 60_000]).int();
    let waited = stopped.elapsed();
    assert!(waited < LEASE + Duration::from_secs(10), "{variant:?}: free after {waited:?}");
    // Another runtime can still wait for it.
    let other = tokio::runtime::Runtime::new().unwrap();
    let heard = other.block_on(async { tokio::time::timeout(SOON, lost).await });
    assert_eq!(heard.ok(), guard.lost_now(), "{variant:?}");
    assert!(guard.lost_now().is_some(), "{variant:?}");
    drop(guard);
    next.cmd(&args![variant.command("RELEASE"), key, "next"]).ok();
}

/// A forgotten guard is a hold for as long as its client lives: afterwards, the lock is free at the end of the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_gone_keeps_nothing_alive() {
    let server = Server::start();
    let client = short(&server.url()).await;
    let guard = client.lock("k").acquire().await.unwrap();
    drop(client);
    // The guard keeps what it needs.
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(guard.lost_now(), None);
    assert_eq!(Variant::ALL[0].holds(&server, "k"), 1);
    guard.release().await.unwrap();
    server.left_over_check();
}

/// Work that never yields blocks a thread of the runtime, not the renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_thread_does_not_lose_the_lock() {
    let server = Server::start();
    let client = short(&server.url()).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn({
        let stop = stop.clone();
        async move {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(guard.lost_now(), None);
    stop.store(true, Ordering::Relaxed);
    busy.await.unwrap();
    guard.release().await.unwrap();
    server.left_over_check();
}

/// Work that never yields also keeps requests from being written.
#[tokio::test]
async fn a_request_behind_a_computation_has_time_for_its_reply() {
    const LIMIT: Duration = Duration::from_secs(1);
    let server = Server::start();
    let builder = Client::builder().response_timeout(LIMIT).retry_for(LIMIT);
    let client = builder.connect(&server.url()).await.unwrap();
    let lock = client.lock("k");
    lock.acquire().await.unwrap().release().await.unwrap();
    for _ in 0..4 {
        let work = async {
            let end = Instant::now() + LIMIT + Duration::from_millis(100);
            while Instant::now() < end {}
        };
        let (guard, ()) = tokio::join!(lock.try_acquire(), work);
        guard.unwrap().expect("free").release().await.unwrap();
    }
    server.left_over_check();
}

/// One round trip renews a thousand holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_cost_one_round_trip_per_period() {
    const HOLDS: usize = 1_000;
    const PERIODS: u32 = 3;
    let lease = Duration::from_secs(6);
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::builder().lease(lease).connect(&proxy.url()).await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..HOLDS {
        let lock = client.lock(format!("k{n}"));
        tasks.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
    }
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(within("an acquire", task).await.unwrap());
    }
    let renewals = || usize::try_from(proxy.requests("DLOCK.RENEW")).unwrap();
    // From just after one round to just after another.
    let first = renewals();
    until("a round", || renewals() >= first + HOLDS && renewals() % HOLDS == first % HOLDS).await;
    let (start, before, trips) = (Instant::now(), renewals(), proxy.round_trips());
    until("some rounds", || renewals() >= before + HOLDS * PERIODS as usize).await;
    let (trips, took) = (proxy.round_trips() - trips, start.elapsed());
    assert!(took > lease / 3 * (PERIODS - 1), "{PERIODS} rounds in {took:?}");
    // On a busy machine the proxy gets a pipeline in pieces, and counts each that ends with a frame.
    assert!(trips <= u64::from(PERIODS) * 10, "{trips} round trips in {PERIODS} periods");
    assert!(guards.iter().all(|guard| guard.lost_now().is_none()));
    assert_eq!(server.info_number("dlock", "held_locks"), 1_000);
    drop(guards);
    server.left_over_check();
}

/// Guards of one hold, of one owner: each knows the lease that another one sets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_of_one_hold_know_of_each_others_leases() {
    let server = Arc::new(Server::start());
    let client = short(&server.url()).await;
    for_each_variant(|variant| share(server.clone(), client.clone(), variant)).await;
    server.left_over_check();
}

async fn share(server: Arc<Server>, client: Client, variant: Variant) {
    let key = &variant.key();
    let lock = variant.lock(&client, key).owner("me");
    let believe = |guard: &Guard, when: &str| {
        let asked = Instant::now();
        let believed = guard.valid_for();
        let rest = number(&variant.info(&server, key), "ttl-ms");
        let rest = Duration::from_millis(u64::try_from(rest).unwrap() + 1) + asked.elapsed();
        assert!(believed <= rest, "{variant:?} {when}: {believed:?} believed, {rest:?} left");
    };
    // A long lease outside, renewals of a short one inside.
    let outer = lock.clone().fixed_lease(Duration::from_secs(20)).acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    let start = Instant::now();
    while start.elapsed() < LEASE * 2 {
        assert_eq!((outer.lost_now(), inner.lost_now()), (None, None), "{variant:?}");
        believe(&outer, "outside");
        believe(&inner, "inside");
        tokio::time::sleep(LEASE / 10).await;
    }
    inner.release().await.unwrap();
    believe(&outer, "alone");
    outer.release().await.unwrap();
    // A watched one outside, shortened by hand inside.
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    inner.renew(LEASE / 2).await.unwrap();
    believe(&outer, "after the renewal by hand");
    believe(&inner, "after the renewal by hand");
    inner.release().await.unwrap();
    let start = Instant::now();
    while start.elapsed() < LEASE && outer.lost_now().is_none() {
        believe(&outer, "later");
        tokio::time::sleep(LEASE / 20).await;
    }
    drop(outer);
    until("the release", || variant.is_free(&server, key)).await;
}

/// A watched hold with a shorter lease than the client's is renewed in time: after `renew`, and of an election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_lease_is_renewed_more_often() {
    let server = Server::start();
    let client = Client::builder().lease(LEASE * 2).connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    guard.renew(LEASE).await.unwrap();
    let leadership = client.election("e").lease(LEASE).campaign().await.unwrap();
    let permit = client.semaphore("s").limit(1).acquire().await.unwrap();
    permit.renew(LEASE).await.unwrap();
    let start = Instant::now();
    while start.elapsed() < LEASE * 4 {
        let lost = [guard.lost_now(), leadership.lost_now(), permit.lost_now()];
        assert_eq!(lost, [None; 3], "after {:?}", start.elapsed());
        for key in ["k", "e"] {
            let left = number(&server.cmd(&["DLOCK.INFO", key]), "ttl-ms");
            if key == "k" && start.elapsed() < LEASE * 2 {
                // The grant itself lasts longer.
                assert!(left > 0);
                continue;
            }
            assert!((1..=3000).contains(&left), "{key} has {left} ms left");
        }
        tokio::time::sleep(LEASE / 10).await;
    }
    // A longer one is renewed as the client's.
    guard.renew(LEASE * 30).await.unwrap();
    assert!(guard.valid_for() > LEASE * 20);
    let short = client.election("short").lease(Duration::from_millis(29)).campaign().await;
    assert_eq!(short.unwrap_err().kind(), ErrorKind::Invalid);
    drop((guard, leadership, permit));
    server.left_over_check();
}
