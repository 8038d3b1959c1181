//! What a network and a server can do to a client: replies that are lost, connections that are cut, black holes, servers that hang,
//! die and come back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dlock_client::{Client, Guard, Lost, Released, Wait};
use dlock_testing::{Blocked, Cut, Fault, Proxy, Reply as _, Server, Way, args};
use tokio::task::JoinHandle;

use crate::support::{
    Dice, PATIENCE, Variant, WAITS, for_each_variant, number, quick, until, within,
};

const FAULTS: [Fault; 4] =
    [Fault::LoseRequest, Fault::LoseReply, Fault::HalfOpen, Fault::StallReply];

/// How long a blocked call asks for at a time: what gets stuck is noticed so much later.
const SLICE: Duration = Duration::from_millis(300);

/// The case that makes a resent ACQUIRE dangerous, and its kin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_reply_is_lost_counts_once() {
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
    // By name, too: a second count would show.
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
        // A reply that was kept comes late and harms nobody.
        proxy.flow();
        let lost = proxy.once(&variant.command("RELEASE"), fault);
        let released = within(&case, guard.release()).await.unwrap();
        assert!(matches!(released, Released::Gone | Released::Remaining(0)), "{case}");
        assert_eq!(lost.fired(), 1, "{case}");
        assert!(variant.is_free(&server, &key), "{case}");
        proxy.flow();
    }
}

/// The repeat of a call that was granted long ago, and whose reply got stuck, does not begin the lease anew.
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
            let lock = variant.lock(&client, &key).lease(lease);
            let guard = within("the acquire", lock.acquire()).await.unwrap();
            assert_eq!(stuck.fired(), 1);
            let believed = guard.valid_for();
            let rest = number(&variant.info(&server, &key), "ttl-ms");
            assert!(
                believed <= Duration::from_millis(u64::try_from(rest).unwrap() + 20),
                "{variant:?}: {believed:?} believed, {rest} ms left"
            );
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
    let guard = within("both", both.try_acquire()).await.unwrap().unwrap();
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

/// A RELEASE whose reply is lost, and renewals before, with and after it: the lock is free and stays free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_watchdog_renews_a_released_lock() {
    let lease = Duration::from_millis(600);
    let server = Server::start();
    let mut dice = Dice::seeded(21);
    let mut cases = Vec::new();
    for variant in Variant::ALL {
        for fault in FAULTS {
            let proxy = Proxy::to(&server);
            // Around the moment of a renewal.
            let moment = lease / 3 - Duration::from_millis(10) + dice.millis(20);
            let by_hand = dice.roll(2) == 0;
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

/// Somebody else, straight at the server, waits for the lock; when was it granted?
fn next(server: &Server, variant: Variant, key: &str) -> JoinHandle<(Instant, Blocked)> {
    let mut waiting = server.block(&args![variant.command("ACQUIRE"), key, "next", "BLOCK", 0]);
    tokio::task::spawn_blocking(move || {
        waiting.expect_reply(PATIENCE).int();
        (Instant::now(), waiting)
    })
}

/// A task that notes how and when the hold was lost.
fn watch(guard: &Guard) -> JoinHandle<(Lost, Instant)> {
    let lost = guard.lost();
    tokio::spawn(async move { (lost.await, Instant::now()) })
}

/// The holder knows that its lease is over before anybody else can hold the lock: behind a black hole, and when the server hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_expires_is_lost_before_another_has_it() {
    let lease = Duration::from_secs(4);
    let (healthy, hangs) = (Server::start(), Server::start());
    let mut cases = Vec::new();
    for variant in Variant::ALL {
        for own_lease in [false, true] {
            for hole in [None, Some(Way::ToServer), Some(Way::ToClient)] {
                let server = if hole.is_none() { &hangs } else { &healthy };
                let proxy = Proxy::to(server);
                let client = Client::builder().lease(lease).connect(&proxy.url()).await.unwrap();
                let case = format!("{variant:?} own lease {own_lease} hole {hole:?}");
                let lock = variant.lock(&client, &case);
                let lock = if own_lease { lock.lease(lease) } else { lock };
                let guard = within("the acquire", lock.acquire()).await.unwrap();
                let lost = watch(&guard);
                let granted = next(server, variant, &case);
                if let Some(way) = hole {
                    proxy.stall(way);
                }
                cases.push((case, lost, granted, proxy, guard));
            }
        }
    }
    // It goes on after everybody's lease.
    hangs.freeze();
    tokio::time::sleep(lease + Duration::from_millis(500)).await;
    hangs.thaw();
    for (case, lost, granted, proxy, guard) in cases {
        let (how, lost) = within(&format!("lost() of {case}"), lost).await.unwrap();
        let (granted, next) = within(&format!("the next of {case}"), granted).await.unwrap();
        assert_eq!(how, Lost::Expired, "{case}");
        assert!(lost < granted, "{case}: lost() came {:?} after the grant", lost - granted);
        assert_eq!(guard.lost_now(), Some(Lost::Expired));
        drop((next, guard));
        proxy.heal();
    }
}

/// As the storm goes on, ten tasks add to a plain counter under one lock, reading and writing it apart, and straight at the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_exact_in_a_storm_of_faults() {
    let mut dice = Dice::seeded(31);
    let servers: Vec<_> = Variant::ALL.map(|variant| (variant, Server::start())).into();
    let storms: Vec<_> = servers
        .into_iter()
        .map(|(variant, server)| {
            tokio::spawn(storm(variant, server, Dice::from(dice.roll(u64::MAX))))
        })
        .collect();
    for storm in storms {
        within("a storm", storm).await.unwrap();
    }
}

async fn storm(variant: Variant, server: Server, mut dice: Dice) {
    let proxy = Arc::new(Proxy::to(&server));
    let client = quick().connect(&proxy.url()).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicUsize::new(0));
    let plain = redis::Client::open(server.url()).unwrap();
    let plain = plain.get_multiplexed_async_connection().await.unwrap();
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let lock = variant.lock(&client, "k");
            let (mut plain, over, done) = (plain.clone(), over.clone(), done.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    // Errors are allowed in a storm, if they are said and nothing was done.
                    let Ok(guard) = within("an acquire", lock.acquire()).await else { continue };
                    let n: Option<usize> =
                        redis::cmd("GET").arg("n").query_async(&mut plain).await.unwrap();
                    tokio::task::yield_now().await;
                    let n = n.unwrap_or(0) + 1;
                    redis::cmd("SET").arg("n").arg(n).exec_async(&mut plain).await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(guard.lost_now(), None, "a lease of 30 s");
                    if n.is_multiple_of(2) {
                        drop(guard);
                    } else {
                        let _ = within("a release", guard.release()).await;
                    }
                }
            })
        })
        .collect();
    for _ in 0..50 {
        strike(&proxy, variant, &mut dice).await;
        tokio::time::sleep(dice.millis(30)).await;
    }
    proxy.heal();
    proxy.cut(Cut::Reset);
    let before = done.load(Ordering::SeqCst);
    until("work after the storm", || done.load(Ordering::SeqCst) > before + 20).await;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        within("a task", task).await.unwrap();
    }
    let done = done.load(Ordering::SeqCst);
    println!("{variant:?}: {done} times, {} connections", proxy.accepted());
    assert_eq!(server.cmd(&["GET", "n"]).text(), done.to_string(), "{variant:?}");
    server.cmd(&["DEL", "n"]).ok();
    server.left_over_check();
}

/// One fault, at random.
async fn strike(proxy: &Proxy, variant: Variant, dice: &mut Dice) {
    let verb = ["ACQUIRE", "ACQUIRE", "RELEASE", "RELEASE", "CANCEL", "RENEW"];
    let verb = variant.command(verb[usize::try_from(dice.roll(6)).unwrap()]);
    match dice.roll(10) {
        0 => proxy.cut(Cut::Fin),
        1 => proxy.cut(Cut::Reset),
        2 => proxy.cut(Cut::HalfOpen),
        3 => proxy.delay(Way::BOTH[usize::try_from(dice.roll(2)).unwrap()], dice.millis(15)),
        4 => {
            proxy.refuse();
            proxy.cut(Cut::Reset);
            tokio::time::sleep(dice.millis(60)).await;
            proxy.accept();
        }
        5 => {
            proxy.stall_all();
            tokio::time::sleep(dice.millis(100)).await;
            if dice.roll(2) == 0 {
                proxy.cut(Cut::Reset);
            }
            proxy.flow();
        }
        6 => {
            let way = Way::BOTH[usize::try_from(dice.roll(2)).unwrap()];
            proxy.cut_after(way, usize::try_from(1 + dice.roll(400)).unwrap());
        }
        n => {
            let fault = FAULTS[usize::try_from(n + dice.roll(4)).unwrap() % FAULTS.len()];
            proxy.once(&verb, fault);
        }
    }
}

/// A server that comes back without its data: holders learn it, waiters ask again, all are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_waiters_outlast_a_restart() {
    for wait in WAITS {
        let mut server = Server::start();
        let client = quick().connect(&server.url()).await.unwrap();
        let lock = client.lock("k").wait(wait);
        let guard = lock.acquire().await.unwrap();
        let lost = watch(&guard);
        let waiting: Vec<_> = (0..200)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.acquire().await?.release().await })
            })
            .collect();
        let waiters = |server: &Server| number(&server.cmd(&["DLOCK.INFO", "k"]), "waiters");
        until("all places", || waiters(&server) == 200).await;
        server.kill9();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let back = Instant::now();
        server.start_again();
        let (how, _) = within("lost()", lost).await.unwrap();
        assert_eq!(how, Lost::Refused);
        for task in waiting {
            within("a waiter", task).await.unwrap().unwrap();
        }
        println!("{wait:?}: all served {:?} after the restart", back.elapsed());
        assert_eq!(guard.release().await.unwrap(), Released::Gone);
        server.left_over_check();
    }
}

/// A server that comes back with its data: the hold is still ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_outlasts_the_restart_of_a_server_that_keeps_its_data() {
    let mut server = Server::with(&["appendonly", "yes", "appendfsync", "always"]).start();
    let client = quick().connect(&server.url()).await.unwrap();
    let mut guards = Vec::new();
    for variant in Variant::ALL {
        let key = format!("{variant:?}");
        let guard = variant.lock(&client, &key).acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = variant.lock(&client, &key);
            async move { lock.acquire().await.unwrap() }
        });
        until("the place", || variant.waiters(&server, &key) == 1).await;
        guards.push((variant, key, guard, waiting));
    }
    server.kill9();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.start_again();
    for (variant, key, guard, waiting) in guards {
        until("the waiter to ask again", || variant.waiters(&server, &key) == 1).await;
        assert_eq!(guard.lost_now(), None);
        let token = guard.token();
        assert_eq!(within("a release", guard.release()).await.unwrap(), Released::Remaining(0));
        let guard = within("the waiter", waiting).await.unwrap();
        assert!(guard.token() > token);
        drop(guard);
    }
    server.left_over_check();
}

/// Ends, delays and restarts of the server under load: each call ends, and after it all go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_freezes_and_kills() {
    let mut server = Server::with(&["appendonly", "yes", "appendfsync", "always"]).start();
    let client = quick().connect(&server.url()).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let done: Arc<Vec<AtomicUsize>> = Arc::new((0..16).map(|_| AtomicUsize::new(0)).collect());
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let variant = Variant::ALL[n % 4];
            let lock = variant.lock(&client, &format!("k{}", n % 8));
            let (over, done) = (over.clone(), done.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    if let Ok(guard) = within("an acquire", lock.acquire()).await {
                        tokio::task::yield_now().await;
                        let _ = within("a release", guard.release()).await;
                        done[n].fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    for round in 0..4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if round % 2 == 0 {
            server.freeze();
            tokio::time::sleep(Duration::from_millis(800)).await;
            server.thaw();
        } else {
            server.kill9();
            tokio::time::sleep(Duration::from_millis(200)).await;
            server.start_again();
        }
        let before: Vec<_> = done.iter().map(|n| n.load(Ordering::SeqCst)).collect();
        let all = || {
            done.iter().zip(&before).all(|(now, &before)| now.load(Ordering::SeqCst) > before + 2)
        };
        until("every task to go on", all).await;
    }
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        within("a task", task).await.unwrap();
    }
    server.left_over_check();
}

/// A message that is lost is no grant that is lost: who waits asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_message_is_harmless() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let queue = Duration::from_millis(600);
    let client = Client::builder().queue(queue).connect(&proxy.url()).await.unwrap();
    for fair in [false, true] {
        let variant = Variant { fair, wait: Wait::Queue };
        let lock = variant.lock(&client, "k");
        let guard = lock.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap() }
        });
        until("the place", || variant.waiters(&server, "k") == 1).await;
        // Noise on the channel confuses nobody.
        let channels = server.cmd(&["PUBSUB", "CHANNELS", "dlock:notify:*"]).items();
        assert_eq!(channels.len(), 1);
        let channel = channels[0].text();
        for noise in ["", "granted", "granted 0 x", "later 0 1 1 a k", "expired 7 1 1 a k", "\0"] {
            server.cmd(&["PUBLISH", &channel, noise]).ok();
        }
        proxy.swallow_messages();
        let released = Instant::now();
        guard.release().await.unwrap();
        let guard = within("the waiter", waiting).await.unwrap();
        assert!(released.elapsed() < queue, "asks again after {:?}", released.elapsed());
        // Told by nobody that it was broken, it learns it from the next renewal at the latest.
        guard.renew(Duration::from_secs(5)).await.unwrap();
        server.cmd(&[&variant.command("BREAK"), "k"]).ok();
        assert!(guard.renew(Duration::from_secs(5)).await.is_err());
        assert_eq!(guard.lost_now(), Some(Lost::Refused));
        drop(guard);
        proxy.heal();
        server.left_over_check();
    }
}

/// The first copy of a request was granted and its reply got lost; the second one is refused: the grant is given back.
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
            assert!(took < Duration::from_secs(5), "{variant:?}: given back after {took:?}");
        }
    })
    .await;
    server.left_over_check();
}

/// Private connections at rest lead to the server of the past: after the shared one was made anew elsewhere, nothing goes there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_at_rest_do_not_outlive_the_server_they_lead_to() {
    let (old, new) = (Server::start(), Server::start());
    let proxy = Proxy::to(&old);
    let client = quick().wait(Wait::Blocking).connect(&proxy.url()).await.unwrap();
    let lock = client.lock("k");
    let guard = lock.acquire().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    until("the places", || number(&old.cmd(&["DLOCK.INFO", "k"]), "waiters") == 3).await;
    guard.release().await.unwrap();
    for task in waiting {
        within("a waiter", task).await.unwrap();
    }
    proxy.redirect(&new);
    let clients = old.cmd(&["CLIENT", "LIST"]).text();
    let shared =
        clients.lines().find(|line| line.contains(" sub=2 ")).expect("a connection that listens");
    let id = shared.split(' ').next().unwrap().trim_start_matches("id=");
    old.cmd(&["CLIENT", "KILL", "ID", id]).ok();
    until("the shared connection to the new server", || {
        new.cmd(&["CLIENT", "LIST"]).text().contains(" sub=2 ")
    })
    .await;
    for _ in 0..4 {
        let guard = within("the acquire", lock.acquire()).await.unwrap();
        assert_eq!(number(&new.cmd(&["DLOCK.INFO", "k"]), "holds"), 1);
        assert!(old.cmd(&["DLOCK.INFO", "k"]).is_null());
        guard.release().await.unwrap();
    }
    old.left_over_check();
    new.left_over_check();
}

/// Several locks tied to a connection that is lost before the tie could be moved: what is held is what the guard says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_tied_locks_are_those_that_the_guard_names() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    for fault in FAULTS {
        let both = client.multi_lock(["a", "b"]).bind(Duration::ZERO);
        let holder = client.lock("a").acquire().await.unwrap();
        let waiting = tokio::spawn(async move { both.acquire().await.unwrap() });
        until("the place", || number(&server.cmd(&["DLOCK.INFO", "a"]), "waiters") == 1).await;
        // The second one is that which moves the tie.
        let lost = proxy.once("DLOCK.MACQUIRE", fault);
        holder.release().await.unwrap();
        let guard = within("both", waiting).await.unwrap();
        assert_eq!(lost.fired(), 1);
        proxy.flow();
        if guard.lost_now().is_none() {
            for (key, token) in ["a", "b"].into_iter().zip(guard.tokens()) {
                let there = server.cmd(&["DLOCK.CHECK", key, &token.to_string()]);
                let lost = guard.lost_now();
                assert!(there == redis::Value::Int(1) || lost.is_some(), "{fault:?} {key}");
            }
        }
        drop(guard);
        server.left_over_check();
    }
}
