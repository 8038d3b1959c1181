//! Several locks at once, and any one of several.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use dlock_client::{Client, Error, ErrorKind, Lost, MultiLock};
use dlock_testing::{Dice, Proxy, Reply as _, SOON, Server};

use crate::places::Place;
use crate::support::{loss_of, number, start_on, until, within};

on_both! {
    all_keys_or_none,
    several_are_renewed_together_or_lost,
    a_cancelled_wait_for_several_leaves_nothing,
    a_long_wait_does_not_eat_the_lease,
    opposite_orders_do_not_block_each_other,
    any_one_of_several,
    bad_keys_are_refused_before_anything_is_sent,
    a_guard_of_a_named_owner_gives_back_its_own,
}

fn waiters(server: &impl Place, key: &str) -> i64 {
    number(&server.cmd(&["DLOCK.INFO", key]), "waiters")
}

fn is_free(server: &impl Place, key: &str) -> bool {
    server.cmd(&["DLOCK.INFO", key]).is_null()
}

async fn all_keys_or_none<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let both = client.multi_lock(["a", "b"]);
    let guard = both.try_acquire().await.unwrap().unwrap();
    for (key, token) in [("a", guard.tokens()[0]), ("b", guard.tokens()[1])] {
        assert_eq!(server.cmd(&["DLOCK.CHECK", key, &token.to_string()]).int(), 1);
    }
    assert!(guard.valid_for() > Duration::from_secs(15));
    assert!(client.multi_lock(["b", "c"]).try_acquire().await.unwrap().is_none());
    assert!(is_free(&server, "c"));
    let waited = client.multi_lock(["c", "b"]).acquire_timeout(Duration::from_millis(40)).await;
    assert!(waited.unwrap().is_none());
    until("its places to go", || is_free(&server, "c")).await;
    guard.release().await.unwrap();

    // Another owner holds one of them.
    let single = client.lock("b").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let both = both.clone();
        async move { both.acquire().await.unwrap() }
    });
    until("the place", || waiters(&server, "b") == 1).await;
    single.release().await.unwrap();
    let guard = within("both", waiting).await.unwrap();
    server.cmd(&["DLOCK.BREAK", "a"]).ok();
    assert_eq!(within("lost()", guard.lost()).await, Lost::Broken);
    let lost = Instant::now();
    drop(guard);
    until("the other one to be given back", || is_free(&server, "b")).await;
    assert!(lost.elapsed() < SOON, "given back after {:?}", lost.elapsed());
    server.left_over_check();
}

async fn several_are_renewed_together_or_lost<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let lease = Duration::from_secs(5);
    let both = client.multi_lock(["a", "b"]).fixed_lease(lease);
    let guard = both.try_acquire().await.unwrap().unwrap();
    guard.renew(Duration::from_mins(1)).await.unwrap();
    assert!(guard.valid_for() > Duration::from_secs(40));
    for key in ["a", "b"] {
        assert!(number(&server.cmd(&["DLOCK.INFO", key]), "ttl-ms") > 40_000);
    }
    assert_eq!(guard.renew(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Invalid);
    // One of them is lost, and the client does not know it: then all are.
    let silent =
        client.multi_lock(["c", "d"]).fixed_lease(lease).owner("me").acquire().await.unwrap();
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "c", "me"]).int(), 0);
    let refused = silent.renew(Duration::from_mins(1)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.key()), (ErrorKind::NotHeld, Some(&b"c"[..])));
    assert_eq!(silent.lost_now(), Some(Lost::Refused));
    drop(silent);
    guard.release().await.unwrap();
    until("the other one to be given back", || is_free(&server, "d")).await;
    server.left_over_check();
}

async fn a_cancelled_wait_for_several_leaves_nothing<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let mut dice = Dice::seeded(14);
    let both = client.multi_lock(["a", "b"]);
    let any = client.any_lock(["a", "b"]);
    for n in 0..120 {
        let holder =
            if n % 2 == 0 { Some(client.lock("b").acquire().await.unwrap()) } else { None };
        let limit = Duration::from_micros(dice.below(1_500));
        let cancelled = async {
            if n % 4 < 2 {
                drop(tokio::time::timeout(limit, both.acquire()).await);
            } else {
                drop(tokio::time::timeout(limit, any.acquire()).await);
            }
        };
        let release = async {
            if let Some(guard) = holder {
                tokio::time::sleep(limit).await;
                guard.release().await.unwrap();
            }
        };
        tokio::join!(cancelled, release);
    }
    server.left_over_check();
}

/// Longer than the lease that begins with the grant.
async fn a_long_wait_does_not_eat_the_lease<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let lease = Duration::from_secs(3);
    let holder = client.lock("a").acquire().await.unwrap();
    let wait = |lock: MultiLock| tokio::spawn(async move { lock.acquire().await.unwrap() });
    let multi = wait(client.multi_lock(["a", "b"]).fixed_lease(lease));
    until("the place", || waiters(&server, "a") == 1).await;
    tokio::time::sleep(lease * 6 / 5).await;
    holder.release().await.unwrap();
    let guard = within("both", multi).await.unwrap();
    assert_eq!(guard.lost_now(), None);
    assert!(guard.valid_for() > lease / 10, "{:?}", guard.valid_for());
    guard.release().await.unwrap();
    server.left_over_check();
}

async fn opposite_orders_do_not_block_each_other<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    let tasks: Vec<_> = (0..9)
        .map(|n| {
            let lock = client.multi_lock(orders[n % 3]);
            tokio::spawn(async move {
                for _ in 0..20 {
                    drop(lock.acquire().await.unwrap());
                }
            })
        })
        .collect();
    for task in tasks {
        within("a task", task).await.unwrap();
    }
    server.left_over_check();
}

async fn any_one_of_several<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let any = client.striped_lock("stock", 3);
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(any.try_acquire().await.unwrap().unwrap());
    }
    let keys: BTreeSet<_> = guards.iter().map(|guard| guard.key().to_vec()).collect();
    assert_eq!(keys.len(), 3);
    assert!(any.try_acquire().await.unwrap().is_none());
    let start = Instant::now();
    assert!(any.acquire_timeout(Duration::from_millis(40)).await.unwrap().is_none());
    assert!(start.elapsed() >= Duration::from_millis(40));
    let waiting = tokio::spawn({
        let any = any.clone();
        async move { any.acquire().await.unwrap() }
    });
    until("the waiter", || server.blocked_clients() == 1).await;
    let second = guards.remove(1);
    let freed = second.key().to_vec();
    second.release().await.unwrap();
    let guard = within("the waiter", waiting).await.unwrap();
    assert_eq!(guard.key(), freed);
    drop(guards.pop());
    assert_eq!(within("the work", any.with(async |_| Ok::<_, Error>(1))).await.unwrap(), 1);
    drop((guard, guards));
    server.left_over_check();
}

async fn bad_keys_are_refused_before_anything_is_sent<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let none: [&str; 0] = [];
    for keys in [&none[..], &["a", ""], &["a", "b", "a"]] {
        let error = client.multi_lock(keys).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{keys:?}");
        let error = client.any_lock(keys).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{keys:?}");
    }
    server.left_over_check();
}

/// A guard releases its own grant, not later grants to its owner.
async fn a_guard_of_a_named_owner_gives_back_its_own<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let both = client.multi_lock(["a", "b"]).owner("me");
    for drops in [false, true] {
        let before = both.try_acquire().await.unwrap().unwrap();
        server.cmd(&["DLOCK.BREAK", "a"]).int();
        assert_eq!(within("lost()", before.lost()).await, Lost::Broken);
        let after = both.try_acquire().await.unwrap().unwrap();
        let holds = |key: &str| number(&server.cmd(&["DLOCK.INFO", key]), "holds");
        assert_eq!((holds("a"), holds("b")), (1, 2));
        if drops {
            drop(before);
        } else {
            let released = before.release().await;
            assert!(released.as_ref().is_err_and(|error| error.keys().eq([b"a"])), "{released:?}");
            assert_eq!(loss_of(released), Lost::Broken);
        }
        until("its part of b to be given back", || holds("b") == 1).await;
        assert_eq!(holds("a"), 1);
        assert_eq!(after.lost_now(), None);
        for (key, token) in ["a", "b"].into_iter().zip(after.tokens()) {
            assert_eq!(server.cmd(&["DLOCK.CHECK", key, &token.to_string()]).int(), 1);
        }
        after.release().await.unwrap();
        server.left_over_check();
    }
}

/// Nor does it renew those: a hold that was broken without a message stays lost, although its owner has the key
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_of_a_named_owner_renews_its_own() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let lease = Duration::from_secs(6);
    let client = Client::builder().lease(lease).connect(&proxy.url()).await.unwrap();
    let both = client.multi_lock(["a", "b"]).owner("me");
    let before = both.try_acquire().await.unwrap().unwrap();
    proxy.swallow_messages();
    for key in ["a", "b"] {
        server.cmd(&["DLOCK.BREAK", key]).int();
    }
    let after = both.clone().fixed_lease(lease * 100).try_acquire().await.unwrap().unwrap();
    assert_eq!(within("lost()", before.lost()).await, Lost::Refused);
    for key in ["a", "b"] {
        let left = number(&server.cmd(&["DLOCK.INFO", key]), "ttl-ms");
        let left = Duration::from_millis(u64::try_from(left).unwrap() + 1);
        assert!(after.valid_for() <= left, "{:?} believed, {left:?} left", after.valid_for());
    }
    drop(before);
    after.release().await.unwrap();
    proxy.heal();
    server.left_over_check();
}
