//! DLOCK and DFAIR without faults, with both wait strategies.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dlock_client::{Client, Error, ErrorKind, Lost};
use dlock_testing::{Dice, Proxy, Reply as _, SOON, Server, Way, args};

use crate::places::Place;
use crate::support::{Variant, loss_of, start, start_on, until, within};

on_both! {
    a_lock_is_taken_and_given_back,
    waiters_are_served_in_order,
    a_wait_with_a_limit_ends_by_it,
    a_cancelled_wait_leaves_no_place,
    a_cancel_at_any_moment_leaves_nothing,
    a_named_owner_that_gives_up_and_asks_again_is_served,
    a_dropped_guard_is_released_in_the_background,
    with_works_under_the_lock_and_is_cancelled_when_it_is_lost,
    an_owner_by_name_re_enters,
    a_named_owner_re_enters_an_announced_grant,
    an_inner_guard_that_expired_gives_back_its_own_count_only,
    the_release_of_a_lost_hold_says_so,
    a_cycle_is_refused_and_a_place_is_taken_over,
}

async fn a_lock_is_taken_and_given_back<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let other = server.client().await;
    for variant in Variant::ALL {
        println!("{variant:?}");
        let lock = variant.lock(&client, "k").label("of a test");
        let guard = lock.try_acquire().await.unwrap().unwrap();
        let info = variant.info(&server, "k");
        assert_eq!((guard.key(), info.field("holds").int()), (&b"k"[..], 1));
        assert_eq!(info.field("owner").bytes(), guard.owner());
        assert_eq!(info.field("token").int(), i64::try_from(guard.token()).unwrap());
        assert_eq!(info.field("label").text(), "of a test");
        assert_eq!(guard.lost_now(), None);
        let valid = guard.valid_for();
        assert!(valid > Duration::from_secs(15) && valid < Duration::from_secs(30), "{valid:?}");

        assert!(variant.lock(&other, "k").try_acquire().await.unwrap().is_none());
        // Another acquire of the same client is another owner.
        assert!(lock.try_acquire().await.unwrap().is_none());
        let token = guard.token();
        lock.check(token).await.unwrap();
        let hold = guard.hold();
        guard.release().await.unwrap();
        assert!(variant.is_free(&server, "k"));
        assert_eq!(lock.check(token).await.unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(hold.token(), token);

        let guard = variant.lock(&other, "k").acquire().await.unwrap();
        assert!(guard.token() > token);
        guard.release().await.unwrap();
        server.left_over_check();
    }
}

async fn waiters_are_served_in_order<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        let guard = lock.acquire().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for n in 0..20 {
            let (lock, order) = (lock.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                order.lock().unwrap().push((n, guard.token()));
                guard.release().await.unwrap();
            }));
            until("the place in the queue", || variant.waiters(&server, "k") == n + 1).await;
        }
        guard.release().await.unwrap();
        for task in tasks {
            within("a waiter", task).await.unwrap();
        }
        let order = order.lock().unwrap().clone();
        assert!(order.iter().map(|&(n, _)| n).eq(0..20), "{variant:?}: {order:?}");
        assert!(order.is_sorted_by_key(|&(_, token)| token));
        server.left_over_check();
    }
}

async fn a_wait_with_a_limit_ends_by_it<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        let guard = lock.acquire_timeout(SOON).await.unwrap().unwrap();
        for millis in [0, 1, 80] {
            let limit = Duration::from_millis(millis);
            let start = Instant::now();
            // On a busy machine the server may not answer in so short a time.
            match lock.acquire_timeout(limit).await {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                Ok(granted) => assert!(granted.is_none(), "{variant:?}"),
            }
            assert!(start.elapsed() >= limit && start.elapsed() < SOON, "{:?}", start.elapsed());
            until("its place to go", || variant.waiters(&server, "k") == 0).await;
        }
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire_timeout(Duration::from_secs(20)).await }
        });
        until("the place in the queue", || variant.waiters(&server, "k") == 1).await;
        guard.release().await.unwrap();
        let guard = within("the waiter", waiting).await.unwrap().unwrap().unwrap();
        guard.release().await.unwrap();
        // Beyond the range of any clock.
        drop(lock.acquire_timeout(Duration::MAX).await.unwrap().unwrap());
        server.left_over_check();
    }
}

async fn a_cancelled_wait_leaves_no_place<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        let guard = lock.acquire().await.unwrap();
        let waiter = |lock: &dlock_client::Lock| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        };
        let first = waiter(&lock);
        until("the first place", || variant.waiters(&server, "k") == 1).await;
        let second = waiter(&lock);
        until("the second place", || variant.waiters(&server, "k") == 2).await;
        first.abort();
        until("the first place to go", || variant.waiters(&server, "k") == 1).await;
        guard.release().await.unwrap();
        let guard = within("the second waiter", second).await.unwrap().unwrap();
        drop(guard);
        server.left_over_check();
    }
}

/// At any moment: before the request is sent, while it is in flight, after the grant and before the task sees it.
async fn a_cancel_at_any_moment_leaves_nothing<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let mut dice = Dice::seeded(11);
    for variant in Variant::ALL {
        println!("{variant:?}");
        for named in [false, true] {
            let mut lock = variant.lock(&client, "k");
            if named {
                lock = lock.owner("always me");
            }
            let busy = variant.lock(&client, "k");
            for n in 0..60 {
                let holder = if n % 2 == 0 { Some(busy.acquire().await.unwrap()) } else { None };
                let limit = Duration::from_micros(dice.below(1_500));
                let cancelled = tokio::time::timeout(limit, lock.acquire());
                let release = async {
                    if let Some(guard) = holder {
                        tokio::time::sleep(limit).await;
                        guard.release().await.unwrap();
                    }
                };
                let (taken, ()) = tokio::join!(cancelled, release);
                drop(taken);
                if named {
                    // The test below covers the next acquire of the same owner.
                    until("the end of it", || variant.is_free(&server, "k")).await;
                }
            }
            server.left_over_check();
        }
    }
}

/// A task that gives up and at once requests again under the same name must not be removed by its own cancel.
async fn a_named_owner_that_gives_up_and_asks_again_is_served<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let mut dice = Dice::seeded(12);
    for variant in Variant::ALL {
        println!("{variant:?}");
        let busy = variant.lock(&client, "k");
        let named = variant.lock(&client, "k").owner("me");
        for n in 0..25 {
            let holder = busy.acquire().await.unwrap();
            let limit = Duration::from_micros(200 + dice.below(2_000));
            assert!(tokio::time::timeout(limit, named.acquire()).await.is_err());
            let again = tokio::spawn({
                let named = named.clone();
                async move { named.acquire().await }
            });
            tokio::time::sleep(Duration::from_micros(dice.below(2_000))).await;
            holder.release().await.unwrap();
            let limit = SOON;
            let guard = tokio::time::timeout(limit, again).await;
            let guard =
                guard.unwrap_or_else(|_| panic!("{variant:?} {n}: not served in {limit:?}"));
            let guard = guard.unwrap().unwrap();
            // All messages of the first attempt have arrived by now.
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(busy.try_acquire().await.unwrap().is_none(), "{variant:?} {n}: held twice");
            assert_eq!(variant.holds(&server, "k"), 1);
            guard.release().await.unwrap();
        }
        server.left_over_check();
    }
}

async fn a_dropped_guard_is_released_in_the_background<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        drop(lock.acquire().await.unwrap());
        until("the lock to be free", || variant.is_free(&server, "k")).await;
        // During unwinding, too.
        let panicked = tokio::spawn({
            let lock = lock.clone();
            async move {
                let _guard = lock.acquire().await.unwrap();
                panic!("on purpose");
            }
        });
        assert!(panicked.await.unwrap_err().is_panic());
        until("the lock to be free", || variant.is_free(&server, "k")).await;
        // Outside the runtime, too.
        let guard = lock.acquire().await.unwrap();
        std::thread::spawn(move || drop(guard)).join().unwrap();
        until("the lock to be free", || variant.is_free(&server, "k")).await;
        // A release that is not awaited still happens.
        let guard = lock.acquire().await.unwrap();
        let release = tokio::spawn(guard.release());
        tokio::task::yield_now().await;
        release.abort();
        until("the lock to be free", || variant.is_free(&server, "k")).await;
        server.left_over_check();
    }
}

async fn with_works_under_the_lock_and_is_cancelled_when_it_is_lost<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        let done = lock.with(async |hold| {
            assert_eq!(variant.holds(&server, "k"), 1);
            Ok::<_, Error>(hold.token())
        });
        assert!(done.await.unwrap() > 0);
        assert!(variant.is_free(&server, "k"), "with returns when it is released");
        let failed = lock.with(async |_| Err::<(), Box<dyn std::error::Error>>("no".into())).await;
        assert_eq!(failed.unwrap_err().to_string(), "no");

        struct Cancelled(Arc<AtomicBool>);
        impl Drop for Cancelled {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let work = lock.with(async |_| {
            let _sign = Cancelled(cancelled.clone());
            assert_eq!(server.cmd(&[&variant.command("BREAK"), "k"]).int(), 1);
            std::future::pending::<Result<(), Error>>().await
        });
        let error = within("the work that lost its lock", work).await.unwrap_err();
        let lost = ErrorKind::Lost { reason: Lost::Broken, finished: false };
        assert_eq!(error.kind(), lost);
        assert!(cancelled.load(Ordering::SeqCst));
        server.left_over_check();
    }
}

async fn an_owner_by_name_re_enters<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let other = server.client().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k").owner("me");
        let first = lock.acquire().await.unwrap();
        let second = variant.lock(&other, "k").owner("me").try_acquire().await.unwrap().unwrap();
        assert_eq!((first.token(), variant.holds(&server, "k")), (second.token(), 2));
        let refused = lock.clone().no_reentry().try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Reentry);
        first.release().await.unwrap();
        assert_eq!(second.lost_now(), None);
        second.release().await.unwrap();
        server.left_over_check();
    }
}

/// Also directly after a grant by message: the next acquire of the same owner is a second count, not the claim of the
/// first one.
async fn a_named_owner_re_enters_an_announced_grant<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k").owner("me");
        let busy = variant.lock(&client, "k");
        let holder = busy.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap() }
        });
        until("the place", || variant.waiters(&server, "k") == 1).await;
        holder.release().await.unwrap();
        let first = within("the waiter", waiting).await.unwrap();
        let refused = lock.clone().no_reentry().try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Reentry, "{variant:?}");
        let second = within("the re-entry", lock.acquire()).await.unwrap();
        assert_eq!(variant.holds(&server, "k"), 2, "{variant:?}");
        second.release().await.unwrap();
        assert!(busy.try_acquire().await.unwrap().is_none());
        first.release().await.unwrap();
        server.left_over_check();
    }
}

/// A guard releases once, whatever happened to its hold: the other guards of its owner keep theirs.
async fn an_inner_guard_that_expired_gives_back_its_own_count_only<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        for by_hand in [true, false] {
            let lock = variant.lock(&client, "k").owner("me");
            let outer = lock.acquire().await.unwrap();
            let inner =
                lock.clone().fixed_lease(Duration::from_millis(700)).acquire().await.unwrap();
            assert_eq!(within("lost()", inner.lost()).await, Lost::Expired);
            assert_eq!(variant.holds(&server, "k"), 2);
            if by_hand {
                // A loss that was told stays one.
                assert_eq!(loss_of(inner.release().await), Lost::Expired, "{variant:?}");
            } else {
                drop(inner);
            }
            until("the inner count to go", || variant.holds(&server, "k") < 2).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(variant.holds(&server, "k"), 1, "{variant:?}");
            assert_eq!(outer.lost_now(), None);
            outer.release().await.unwrap();
        }
        server.left_over_check();
    }
}

async fn the_release_of_a_lost_hold_says_so<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        let guard = lock.acquire().await.unwrap();
        server.cmd(&[&variant.command("BREAK"), "k"]).ok();
        assert_eq!(within("lost()", guard.lost()).await, Lost::Broken);
        assert_eq!(guard.lost_now(), Some(Lost::Broken));
        assert_eq!(guard.valid_for(), Duration::ZERO);
        assert!(guard.renew(Duration::from_secs(1)).await.is_err());
        loss_of(guard.release().await);
        // The server knows before the client does.
        let guard = lock.acquire().await.unwrap();
        let owner = guard.owner().to_vec();
        server.cmd(&args![variant.command("RELEASE"), "k", owner]).ok();
        loss_of(guard.release().await);
        server.left_over_check();
    }
}

async fn a_cycle_is_refused_and_a_place_is_taken_over<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for variant in Variant::ALL {
        let lock = |key: &str, owner: &str| variant.lock(&client, key).owner(owner);
        let a = lock("k1", "a").acquire().await.unwrap();
        let b = lock("k2", "b").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock("k2", "a");
            async move { lock.acquire().await }
        });
        until("the place", || variant.waiters(&server, "k2") == 1).await;
        let error = within("the cycle", lock("k1", "b").acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock);
        assert!(error.text().contains("k1"), "{error}");
        b.release().await.unwrap();
        let c = within("the waiter", waiting).await.unwrap().unwrap();
        a.release().await.unwrap();
        c.release().await.unwrap();
        server.left_over_check();
    }
}

/// Ten tasks that increment a plain counter, with separate reads and writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_under_the_lock_is_exact() {
    const TASKS: usize = 10;
    const TIMES: usize = 60;
    let (server, client) = start().await;
    for variant in Variant::ALL {
        let plain = redis::Client::open(server.url()).unwrap();
        let plain = plain.get_multiplexed_async_connection().await.unwrap();
        let start = Instant::now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (lock, mut plain) = (variant.lock(&client, "k"), plain.clone());
                tokio::spawn(async move {
                    for _ in 0..TIMES {
                        let guard = lock.acquire().await.unwrap();
                        let n: Option<usize> =
                            redis::cmd("GET").arg("n").query_async(&mut plain).await.unwrap();
                        let n = n.unwrap_or(0) + 1;
                        let set = redis::cmd("SET").arg("n").arg(n).exec_async(&mut plain).await;
                        set.unwrap();
                        drop(guard);
                    }
                })
            })
            .collect();
        for task in tasks {
            within("a task", task).await.unwrap();
        }
        println!("{variant:?}: {} times in {:?}", TASKS * TIMES, start.elapsed());
        assert_eq!(server.cmd(&["GET", "n"]).text(), (TASKS * TIMES).to_string());
        server.cmd(&["DEL", "n"]).ok();
        server.left_over_check();
    }
}

/// Its lease is over before the client knows of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_too_late_is_none() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    proxy.delay(Way::ToClient, Duration::from_millis(120));
    let lock = client.lock("k").fixed_lease(Duration::from_millis(60));
    assert!(within("a try", lock.try_acquire()).await.unwrap().is_none());
    let in_time = lock.acquire_timeout(Duration::from_millis(400));
    assert!(within("a wait", in_time).await.unwrap().is_none());
    proxy.heal();
    client.close().await.unwrap();
    server.left_over_check();
}
