//! Lost replies: every operation counts once, and a released hold does not come back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dlock_client::Client;
use dlock_testing::{Dice, Fault, Proxy, Reply as _, Server};

use super::FAULTS;
use crate::support::{Variant, WAITS, for_each_variant, number, quick, until, within};

/// Time slice of a blocked call: a stuck reply is noticed after it.
const SLICE: Duration = Duration::from_millis(300);

/// The case that makes a resent ACQUIRE dangerous, and similar ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_with_a_lost_reply_counts_once() {
    let server = Arc::new(Server::start());
    let mut cases = Vec::new();
    for variant in Variant::ALL {
        for fault in FAULTS {
            for waits in [false, true] {
                cases.push(tokio::spawn(lose_one(server.clone(), variant, fault, waits)));
            }
        }
    }
    for case in cases {
        within("a case", case).await.unwrap();
    }
    server.left_over_check();
}

async fn lose_one(server: Arc<Server>, variant: Variant, fault: Fault, waits: bool) {
    let case = format!("{variant:?} {fault:?} {waits}");
    let proxy = Proxy::to(&server);
    let client = quick().queue(SLICE).connect(&proxy.url()).await.unwrap();
    let straight = Client::connect(&server.url()).await.unwrap();
    // With a name, too: a second count would be visible.
    for owner in [None, Some("me")] {
        let key = format!("{case} {owner:?}");
        let mut lock = variant.lock(&client, &key);
        if let Some(owner) = owner {
            lock = lock.owner(owner);
        }
        let holder =
            if waits { Some(variant.lock(&straight, &key).acquire().await.unwrap()) } else { None };
        let lost = proxy.once(&variant.command("ACQUIRE"), fault);
        let acquiring = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap() }
        });
        if let Some(holder) = holder {
            until("the place", || variant.waiters(&server, &key) == 1).await;
            holder.release().await.unwrap();
        }
        let guard = within(&case, acquiring).await.unwrap();
        assert_eq!(lost.fired(), 1, "{case}");
        assert_eq!(variant.holds(&server, &key), 1, "{case}");
        let info = variant.info(&server, &key);
        assert_eq!(info.field("owner").bytes(), guard.owner(), "{case}");
        // A delayed reply arrives late and does no harm.
        proxy.flow();
        let lost = proxy.once(&variant.command("RELEASE"), fault);
        within(&case, guard.release()).await.unwrap();
        assert_eq!(lost.fired(), 1, "{case}");
        assert!(variant.is_free(&server, &key), "{case}");
        proxy.flow();
    }
}

/// The repeat of a call that was granted long ago, and whose reply got stuck, does not restart the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_counts_from_the_request_that_was_granted() {
    let server = Arc::new(Server::start());
    let lease = Duration::from_secs(3);
    for_each_variant(|variant| {
        let server = server.clone();
        async move {
            let proxy = Proxy::to(&server);
            let client = Client::builder()
                .response_timeout(Duration::from_millis(400))
                .queue(Duration::from_millis(400))
                .connect(&proxy.url())
                .await
                .unwrap();
            let key = variant.key();
            let stuck = proxy.once(&variant.command("ACQUIRE"), Fault::StallReply);
            let lock = variant.lock(&client, &key).fixed_lease(lease);
            let guard = within("the acquire", lock.acquire()).await.unwrap();
            assert_eq!(stuck.fired(), 1);
            let (asked, believed) = (Instant::now(), guard.valid_for());
            let rest = number(&variant.info(&server, &key), "ttl-ms");
            let rest = Duration::from_millis(u64::try_from(rest).unwrap() + 1) + asked.elapsed();
            assert!(believed <= rest, "{variant:?}: {believed:?} believed, {rest:?} left");
            drop(guard);
            until("the release", || variant.is_free(&server, &key)).await;
        }
    })
    .await;
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_and_latches_count_once_too() {
    let server = Arc::new(Server::start());
    let cases = FAULTS.map(|fault| {
        let server = server.clone();
        tokio::spawn(async move {
            let proxy = Proxy::to(&server);
            let client = quick().queue(SLICE).response_timeout(SLICE);
            let client = client.connect(&proxy.url()).await.unwrap();
            count_permits(&server, &proxy, &client, fault).await;
            count_all(&server, &proxy, &client, fault).await;
        })
    });
    for case in cases {
        within("a case", case).await.unwrap();
    }
    server.left_over_check();
}

async fn count_permits(server: &Server, proxy: &Proxy, client: &Client, fault: Fault) {
    let key = |name: &str| format!("{name} {fault:?}");
    for wait in WAITS {
        let semaphore = client.semaphore(key("s")).limit(5).wait(wait);
        let lost = proxy.once("DSEM.ACQUIRE", fault);
        let permit = within("the acquire", semaphore.acquire()).await.unwrap();
        assert_eq!(lost.fired(), 1);
        let info = server.cmd(&["DSEM.INFO", &key("s")]);
        assert_eq!(number(&info, "leased"), 1, "{fault:?} {wait:?}");
        proxy.flow();
        let lost = proxy.once("DSEM.RELEASE", fault);
        within("the release", permit.release()).await.unwrap();
        assert_eq!(lost.fired(), 1);
        proxy.flow();
    }
    let semaphore = client.semaphore(key("t"));
    semaphore.init(10).await.unwrap();
    for (verb, left) in [("TAKE", 7), ("GIVE", 8), ("RESIZE", 13), ("DRAIN", 0)] {
        let lost = proxy.once(&format!("DSEM.{verb}"), fault);
        let done = async {
            match verb {
                "TAKE" => assert!(semaphore.take(3).await.unwrap()),
                "GIVE" => assert_eq!(semaphore.give(1).await.unwrap(), 8),
                "RESIZE" => assert_eq!(semaphore.resize_by(5).await.unwrap(), 13),
                _ => assert_eq!(semaphore.drain().await.unwrap(), 13),
            }
        };
        within(verb, done).await;
        assert_eq!(lost.fired(), 1);
        let info = server.cmd(&["DSEM.INFO", &key("t")]);
        assert_eq!(number(&info, "available"), left, "{verb} {fault:?}");
        proxy.flow();
    }
    server.cmd(&["DEL", &key("t")]).ok();
}

async fn count_all(server: &Server, proxy: &Proxy, client: &Client, fault: Fault) {
    let key = |name: &str| format!("{name} {fault:?}");
    let latch = client.latch(key("l"));
    latch.init(5).await.unwrap();
    let lost = proxy.once("DLATCH.COUNTDOWN", fault);
    assert_eq!(within("the count", latch.count_down(2)).await.unwrap(), 3, "{fault:?}");
    assert_eq!(lost.fired(), 1);
    proxy.flow();
    server.cmd(&["DEL", &key("l")]).ok();

    let both = client.multi_lock([key("a"), key("b")]).owner("me");
    let lost = proxy.once("DLOCK.MACQUIRE", fault);
    let guard = within("both", both.acquire()).await.unwrap();
    assert_eq!(lost.fired(), 1);
    for key in [key("a"), key("b")] {
        assert_eq!(number(&server.cmd(&["DLOCK.INFO", &key]), "holds"), 1, "{fault:?}");
    }
    proxy.flow();
    let lost = proxy.on(1, fault, |command| command[0].ends_with(b"RELEASE"));
    within("the release", guard.release()).await.unwrap();
    assert_eq!(lost.fired(), 1);
    proxy.flow();
}

/// A RELEASE with a lost reply, and renewals before, with and after it: the lock is free and stays free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_watchdog_renews_a_released_lock() {
    let lease = Duration::from_millis(600);
    let server = Server::start();
    let mut dice = Dice::seeded(21);
    let mut cases = Vec::new();
    for variant in Variant::ALL {
        for fault in FAULTS {
            let proxy = Proxy::to(&server);
            // Around the time of a renewal.
            let moment = lease / 3 - Duration::from_millis(10) + dice.millis(20);
            let by_hand = dice.below(2) == 0;
            cases.push(tokio::spawn(async move {
                let client = quick().lease(lease).connect(&proxy.url()).await.unwrap();
                let key = format!("{variant:?} {fault:?}");
                let guard = variant.lock(&client, &key).acquire().await.unwrap();
                tokio::time::sleep(moment).await;
                proxy.once(&variant.command("RENEW"), fault);
                proxy.once(&variant.command("RELEASE"), fault);
                if by_hand {
                    guard.release().await.unwrap();
                } else {
                    drop(guard);
                }
                (variant, key, proxy, client)
            }));
        }
    }
    let mut clients = Vec::new();
    for case in cases {
        clients.push(within("a case", case).await.unwrap());
    }
    for (variant, key, proxy, _) in &clients {
        until("the lock to be free", || variant.is_free(&server, key)).await;
        proxy.heal();
    }
    let start = Instant::now();
    while start.elapsed() < lease * 2 {
        for (variant, key, ..) in &clients {
            assert!(variant.is_free(&server, key), "{key} came back");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.left_over_check();
}

/// The first copy of a request was granted and its reply lost; the second is refused: the grant is returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_repeat_does_not_forget_the_first() {
    let server = Arc::new(Server::start());
    for_each_variant(|variant| {
        let server = server.clone();
        async move {
            let user = format!("{}-{:?}", variant.family(), variant.wait);
            let acl = format!("ACL SETUSER {user} on >p ~* &* +@all");
            server.cmd(&acl.split(' ').collect::<Vec<_>>()).ok();
            let proxy = Proxy::to(&server);
            let url = format!("redis://{user}:p@127.0.0.1:{}/", proxy.port());
            let client = quick().queue(SLICE).response_timeout(SLICE);
            let client = client.connect(&url).await.unwrap();
            let key = variant.key();
            let stuck = proxy.once(&variant.command("ACQUIRE"), Fault::StallReply);
            let acquiring = tokio::spawn({
                let lock = variant.lock(&client, &key);
                async move { lock.acquire().await }
            });
            until("the grant", || stuck.fired() == 1).await;
            let taken = format!("-{}", variant.command("ACQUIRE").to_lowercase());
            server.cmd(&["ACL", "SETUSER", &user, &taken]).ok();
            let error = within("the acquire", acquiring).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), dlock_client::ErrorKind::Refused, "{variant:?}: {error}");
            let refused = Instant::now();
            until("the grant to be given back", || variant.is_free(&server, &key)).await;
            let took = refused.elapsed();
            assert!(took < Duration::from_secs(15), "{variant:?}: given back after {took:?}");
        }
    })
    .await;
    server.left_over_check();
}

/// Several locks bound to the connection on which they waited: while the guard says that it has them it does, also if
/// the renewal that moves the binding is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_tied_locks_are_those_that_the_guard_names() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    for fault in FAULTS {
        let bind = Duration::from_secs(1);
        let both = client.multi_lock(["a", "b"]).bind(bind);
        let holder = client.lock("a").acquire().await.unwrap();
        let waiting = tokio::spawn(async move { both.acquire().await.unwrap() });
        until("the place", || number(&server.cmd(&["DLOCK.INFO", "a"]), "waiters") == 1).await;
        holder.release().await.unwrap();
        let guard = within("both", waiting).await.unwrap();
        let lost = proxy.once("DLOCK.RENEW", fault);
        until("the renewal", || lost.fired() == 1).await;
        let begun = Instant::now();
        while begun.elapsed() < bind * 2 && guard.lost_now().is_none() {
            for (key, token) in ["a", "b"].into_iter().zip(guard.tokens()) {
                let there = server.cmd(&["DLOCK.CHECK", key, &token.to_string()]);
                let lost = guard.lost_now();
                assert!(there == redis::Value::Int(1) || lost.is_some(), "{fault:?} {key}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        println!("{fault:?}: {:?}", guard.lost_now());
        proxy.flow();
        drop(guard);
        server.left_over_check();
    }
}
