//! Options of a lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dlock_client::{Client, Error, ErrorKind, Lost, Wait};
use dlock_quorum::QuorumLock;
use dlock_testing::{Fault, Proxy, Reply as _, SOON, Server, args};

use crate::places::Place;
use crate::support::{Variant, for_each_variant, number, quick, start_on, until, within};

on_both! {
    a_fixed_lease_is_not_renewed,
    a_timeout_ends_the_wait_and_not_the_work,
    dedicated_connections_have_a_limit,
}

async fn a_fixed_lease_is_not_renewed<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lease = Duration::from_millis(1_500);
        let guard = variant.lock(&client, "k").fixed_lease(lease).acquire().await.unwrap();
        assert_eq!(number(&variant.info(&server, "k"), "lease-ms"), 1_500);
        assert!(guard.valid_for() < lease);
        assert_eq!(within("lost()", guard.lost()).await, Lost::Expired);
        until("the lock to be free", || variant.is_free(&server, "k")).await;
        // A manual renewal extends it, and shortens nothing.
        let guard = variant.lock(&client, "k").fixed_lease(lease).acquire().await.unwrap();
        guard.renew(Duration::from_secs(4)).await.unwrap();
        assert!(guard.valid_for() > lease);
        assert!(number(&variant.info(&server, "k"), "ttl-ms") > 1_500);
        guard.renew(Duration::from_millis(800)).await.unwrap();
        assert!(guard.valid_for() > lease);
        assert_eq!(within("lost()", guard.lost()).await, Lost::Expired);
        drop(guard);
        server.left_over_check();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_unless_it_is_fixed() {
    /// Long enough that a machine that stalls for a second does not end it.
    const LEASE: Duration = Duration::from_secs(2);
    let (server, client) = start_on::<Server>().await;
    macro_rules! holds {
        ($key:literal, $option:ident) => {{
            let lock = client.lock($key).fixed_lease(LEASE).$option(LEASE);
            let permit = client.semaphore(concat!($key, ":s")).limit(1).$option(LEASE);
            let several = client.multi_lock([concat!($key, ":m")]).$option(LEASE);
            let any = client.any_lock([concat!($key, ":a")]).$option(LEASE);
            let quorum = QuorumLock::new([client.clone()], concat!($key, ":q")).$option(LEASE);
            let all = async {
                tokio::try_join!(
                    lock.acquire(),
                    permit.acquire(),
                    several.acquire(),
                    any.acquire(),
                    quorum.acquire()
                )
            };
            within("all", all).await.unwrap()
        }};
    }
    macro_rules! lost {
        ($holds:expr) => {{
            let (a, b, c, d, e) = $holds;
            [a.lost_now(), b.lost_now(), c.lost_now(), d.lost_now(), e.lost_now()]
        }};
    }
    let renewed = holds!("renewed", lease);
    let fixed = holds!("fixed", fixed_lease);
    assert_eq!(number(&server.cmd(&["DLOCK.INFO", "renewed"]), "lease-ms"), 2_000);
    tokio::time::sleep(LEASE * 5 / 2).await;
    assert_eq!(lost!(&renewed), [None; 5]);
    assert_eq!(lost!(&fixed), [Some(Lost::Expired); 5]);
    drop((renewed, fixed));
    server.left_over_check();
}

async fn a_timeout_ends_the_wait_and_not_the_work<P: Place>() {
    let limit = Duration::from_millis(700);
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        let soon = lock.clone().timeout(limit);
        let guard = soon.acquire().await.unwrap();
        for works in [false, true] {
            let start = Instant::now();
            let refused = if works {
                let work = soon.with(async |_| -> Result<(), Error> { panic!("not granted") });
                within("with", work).await
            } else {
                within("acquire", soon.acquire()).await.map(drop)
            };
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAcquired, "{variant:?}: {error}");
            assert_eq!(error.key(), Some(&b"k"[..]));
            assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
            until("its place to go", || variant.waiters(&server, "k") == 0).await;
        }
        // The other ways to acquire have limits of their own.
        assert!(soon.try_acquire().await.unwrap().is_none());
        assert!(soon.acquire_timeout(Duration::from_millis(80)).await.unwrap().is_none());
        guard.release().await.unwrap();
        let work = soon.with(async |hold| {
            tokio::time::sleep(limit * 3 / 2).await;
            Ok::<_, Error>(hold.lost_now())
        });
        assert_eq!(within("the work", work).await.unwrap(), None, "{variant:?}");
        server.left_over_check();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_are_not_sent() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let before = proxy.all_requests();
    let lock = client.lock("k");
    let year = Duration::from_hours(366 * 24);
    for (what, lock) in [
        ("an empty key", client.lock("")),
        ("an empty owner", lock.clone().owner("")),
        ("a long owner", lock.clone().owner([b'x'; 257])),
        ("a long label", lock.clone().label([b'x'; 257])),
        ("no lease", lock.clone().fixed_lease(Duration::ZERO)),
        ("a long lease", lock.clone().fixed_lease(year)),
        ("a lease too short to renew", lock.clone().lease(Duration::from_millis(29))),
        ("a long renewed lease", lock.clone().lease(year)),
        ("a long tie", lock.clone().bind(year)),
        ("no replicas", lock.clone().replicas(0, SOON)),
        ("replicas without a timeout", lock.clone().replicas(1, Duration::MAX)),
    ] {
        for result in [lock.try_acquire().await, lock.acquire_timeout(SOON).await] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid, "{what}");
        }
    }
    let semaphore = client.semaphore("k");
    for semaphore in [semaphore.clone().count(0), semaphore.clone().limit(0)] {
        assert_eq!(semaphore.acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(proxy.all_requests(), before);
    for bad in [
        Client::builder().lease(Duration::from_millis(5)),
        Client::builder().queue(Duration::from_millis(5)),
        Client::builder().dedicated_connections(0),
    ] {
        assert_eq!(bad.connect(&server.url()).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// Unlimited times do not panic, not even in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_out_of_range_are_refused_and_long_ones_work() {
    let server = Server::start();
    let with = |how: &str, time| match how {
        "connect_timeout" => Client::builder().connect_timeout(time),
        "response_timeout" => Client::builder().response_timeout(time),
        _ => Client::builder().retry_for(time),
    };
    for how in ["connect_timeout", "response_timeout", "retry_for"] {
        for wrong in [Duration::MAX, Duration::from_hours(365 * 24 + 1), Duration::ZERO] {
            let error = with(how, wrong).connect(&server.url()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{how} {wrong:?}");
            assert!(error.text().contains(how), "{error}");
        }
    }
    let most = Duration::from_hours(365 * 24);
    let builder = Client::builder().connect_timeout(most).response_timeout(most).retry_for(most);
    let client = builder.lease(Duration::from_secs(2)).connect(&server.url()).await.unwrap();
    let guard = client.lock("k").acquire_timeout(Duration::MAX).await.unwrap().unwrap();
    let held = || number(&server.cmd(&["DLOCK.INFO", "k"]), "held-ms");
    until("it to be renewed", || held() > 4_000).await;
    guard.release().await.unwrap();
    for wait in [Wait::Queue, Wait::Blocking] {
        let semaphore = client.semaphore("s").limit(1).wait(wait);
        semaphore.acquire_timeout(Duration::MAX).await.unwrap().unwrap().release().await.unwrap();
    }
    drop(client.multi_lock(["k"]).acquire_timeout(Duration::MAX).await.unwrap().unwrap());
    assert!(client.latch("l").wait_timeout(Duration::MAX).await.unwrap());
    let stripes = within("the stripes", client.striped_lock("k", u32::MAX).acquire()).await;
    assert_eq!(stripes.unwrap_err().kind(), ErrorKind::Invalid);
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_has_the_request_id_of_the_first() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    proxy.remember();
    let client = quick().connect(&proxy.url()).await.unwrap();
    for variant in Variant::ALL {
        for verb in ["ACQUIRE", "RELEASE"] {
            let name = variant.command(verb);
            let lost = proxy.once(&name, Fault::LoseReply);
            // For an owner with only one user, the token alone makes a release safe to repeat.
            let lock = variant.lock(&client, "k").owner("me");
            let guard = within("the acquire", lock.acquire()).await.unwrap();
            within("the release", guard.release()).await.unwrap();
            assert_eq!(lost.fired(), 1);
            let ids: Vec<_> = proxy
                .seen()
                .into_iter()
                .filter(|seen| seen.command[0] == name.as_bytes())
                .map(|seen| {
                    let at = seen.command.iter().position(|word| word == b"REQID").unwrap();
                    seen.command[at + 1].clone()
                })
                .collect();
            assert_eq!(ids.len(), 2, "{variant:?} {verb}");
            assert_eq!(ids[0], ids[1]);
        }
        server.left_over_check();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tie_cuts_the_lease_when_the_client_goes() {
    let server = Arc::new(Server::start());
    for_each_variant(|variant| tie(server.clone(), variant)).await;
    server.left_over_check();
}

async fn tie(server: Arc<Server>, variant: Variant) {
    let key = &variant.key();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    let lock = variant.lock(&client, key).bind(Duration::from_secs(3));
    let guard = within("the acquire", lock.acquire()).await.unwrap();
    assert_ne!(number(&variant.info(&server, key), "bound-client"), 0);
    // A client that reconnects in time keeps it, for longer than the time that the binding left.
    proxy.cut(dlock_testing::Cut::Reset);
    let tied = || number(&variant.info(&server, key), "ttl-ms") > 20_000;
    until("the hold to be bound again", tied).await;
    tokio::time::sleep(Duration::from_millis(3_200)).await;
    assert_eq!(guard.lost_now(), None, "{variant:?}");
    assert_eq!(variant.holds(&server, key), 1);
    // A client that does not reconnect loses it, and knows it before another owner can have it.
    proxy.refuse();
    let mut second = server.block(&args![variant.command("ACQUIRE"), key, "next", "BLOCK", 0]);
    let hold = guard.hold();
    let next = tokio::task::spawn_blocking(move || {
        second.expect_reply(SOON).int();
        (hold.lost_now(), second)
    });
    proxy.cut(dlock_testing::Cut::Reset);
    let how = within("lost()", guard.lost()).await;
    assert!(matches!(how, Lost::Expired | Lost::Disconnected), "{how:?}");
    let (known, mut second) = within("the next", next).await.unwrap();
    assert!(known.is_some(), "{variant:?}: believed in when the next had it");
    second.client().cmd(&args![variant.command("RELEASE"), key, "next"]).ok();
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_counts_when_the_replicas_have_it() {
    let server = Server::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let replica = Server::with(&[]).replica_of(&server).start();
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        let guard = within("the acquire", lock.clone().replicas(1, SOON).acquire()).await.unwrap();
        assert_eq!(variant.holds(&replica, "k"), 1, "{variant:?}");
        guard.release().await.unwrap();
        let too_many = lock.clone().replicas(2, Duration::from_millis(1_500));
        for error in [
            within("the acquire", too_many.acquire_timeout(Duration::from_secs(2)))
                .await
                .unwrap_err(),
            within("the try", too_many.try_acquire()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Replicas { acknowledged: 1, wanted: 2 }, "{error}");
        }
        until("it to be given back", || variant.is_free(&server, "k")).await;

        // After a wait, too.
        let holder = lock.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone().replicas(1, SOON);
            async move { lock.acquire().await.unwrap() }
        });
        until("the place", || variant.waiters(&server, "k") == 1).await;
        holder.release().await.unwrap();
        let guard = within("the waiter", waiting).await.unwrap();
        let owner = variant.info(&replica, "k").field("owner").bytes();
        assert_eq!(owner, guard.owner(), "{variant:?}");
        guard.release().await.unwrap();
        server.left_over_check();
    }
}

async fn dedicated_connections_have_a_limit<P: Place>() {
    let server = P::new();
    let builder = Client::builder().wait(Wait::Blocking).dedicated_connections(3);
    let client = server.connect(builder).await;
    let lock = client.lock("k");
    let guard = lock.acquire().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    until("three to wait", || server.blocked_clients() == 3).await;
    // The fourth waits in the queue, over the connection that all share.
    let fourth = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    });
    until("the fourth to wait", || Variant::ALL[0].waiters(&server, "k") == 4).await;
    assert_eq!(server.blocked_clients(), 3);
    // Calls that do not wait, and QUEUE waiters, are not affected.
    assert!(lock.try_acquire().await.unwrap().is_none());
    let queued = lock.clone().wait(Wait::Queue).acquire_timeout(Duration::from_millis(20)).await;
    assert!(queued.unwrap().is_none());
    guard.release().await.unwrap();
    for task in waiting.into_iter().chain([fourth]) {
        within("a waiter", task).await.unwrap();
    }
    within("a later one", lock.acquire()).await.unwrap().release().await.unwrap();
    server.left_over_check();
}
