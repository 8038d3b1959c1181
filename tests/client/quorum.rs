//! The quorum lock on real servers. The model test (`crates/models`) shows that its algorithm is
//! correct for every order of events; these tests show that the client and the servers match the model.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, ErrorKind, Lost};
use dlock_quorum::{QuorumGuard, QuorumLock};
use dlock_testing::{Dice, Fault, Proxy, Reply as _, Server, wait_until};

use crate::support::{PATIENCE, loss_of, quick, until, within};

/// For servers whose wall clocks differ by hours.
const LEAD: [&str; 2] = ["dlock.max-token-lead-ms", "86400000"];

const DURABLE: [&str; 6] =
    ["appendonly", "yes", "appendfsync", "always", "auto-aof-rewrite-percentage", "0"];

fn servers(n: usize) -> Vec<Server> {
    (0..n).map(|_| Server::with(&DURABLE).start()).collect()
}

/// A client of each server, with this default lease.
async fn clients(servers: &[Server], lease: Duration) -> Vec<Client> {
    let mut clients = Vec::new();
    for server in servers {
        let builder = Client::builder().lease(lease).retry_for(Duration::from_secs(2));
        clients.push(builder.connect(&server.url()).await.unwrap());
    }
    clients
}

fn is_held(server: &Server, key: &str) -> bool {
    server.cmd(&["DLOCK.INFO", key]) != redis::Value::Nil
}

/// Whether the hold on that server has that token.
fn has_token(server: &Server, key: &str, token: u64) -> bool {
    server.cmd(&["DLOCK.CHECK", key, &token.to_string()]) == redis::Value::Int(1)
}

/// The lock, held on all servers: a temporarily slow server is left out, so this may take several attempts.
async fn held_by_all(lock: &QuorumLock, servers: &[Server]) -> QuorumGuard {
    for _ in 0..50 {
        let guard = lock.acquire().await.unwrap();
        let everywhere = || servers.iter().all(|server| has_token(server, "k", guard.token()));
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            if everywhere() {
                return guard;
            }
        }
        drop(guard);
        servers.iter().for_each(Server::left_over_check);
    }
    panic!("never held by all servers");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_servers_have_one_token_and_nothing_is_left_after_the_release() {
    let servers = servers(5);
    let lock = QuorumLock::new(clients(&servers, Duration::from_secs(30)).await, "k");
    let mut last = 0;
    for _ in 0..5 {
        let guard = held_by_all(&lock, &servers).await;
        assert!(guard.token() > last);
        last = guard.token();
        assert!(guard.valid_for() > Duration::from_secs(25));
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(lock.acquire_timeout(Duration::from_millis(50)).await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    servers.iter().for_each(Server::left_over_check);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_guard_or_an_attempt_gives_back() {
    let servers = servers(3);
    let lock = QuorumLock::new(clients(&servers, Duration::from_secs(30)).await, "k");
    let guard = lock.acquire().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(100), lock.acquire()).await.is_err());
    drop(guard);
    servers.iter().for_each(Server::left_over_check);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_may_be_down_but_not_three() {
    let mut servers = servers(5);
    let lock = QuorumLock::new(clients(&servers, Duration::from_secs(30)).await, "k")
        .fixed_lease(Duration::from_secs(3));
    servers[1].kill9();
    servers[4].kill9();
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none(), "held, not unreachable");
    guard.release().await.unwrap();

    servers[0].kill9();
    let error = lock.try_acquire().await.unwrap_err();
    let ErrorKind::NoQuorum { granted, wanted: 3 } = error.kind() else {
        panic!("{error:?}");
    };
    assert!(granted <= 2);
    assert!(lock.acquire().await.is_err(), "it does not wait for servers");
    servers[2].left_over_check();
    servers[3].left_over_check();

    servers[0].start_again();
    let guard = lock.acquire_timeout(PATIENCE).await.unwrap();
    guard.expect("three are up again").release().await.unwrap();
}

/// A server that is down for long, and locks that come and go: no requests for it accumulate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_for_a_server_that_is_down() {
    const LOCKS: usize = 2_000;
    let minute = Duration::from_mins(1);
    let mut servers: Vec<Server> = (0..5).map(|_| Server::start()).collect();
    let mut clients = Vec::new();
    for server in &servers {
        // A RELEASE would be retried this long.
        let builder = Client::builder().lease(minute).retry_for(minute);
        clients.push(builder.connect(&server.url()).await.unwrap());
    }
    servers[2].kill9();
    // Longer than any delay of a busy machine.
    let patient = Duration::from_secs(10);
    let lock = move |key: String| QuorumLock::new(clients.clone(), key).server_timeout(patient);
    // From then on it is known to be down.
    lock("first".to_owned()).acquire().await.unwrap().release().await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let most = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..10)
        .map(|worker| {
            let lock = lock.clone();
            let most = most.clone();
            tokio::spawn(async move {
                for n in 0..LOCKS / 10 {
                    let guard = lock(format!("{worker} {n}")).acquire().await.unwrap();
                    if n % 2 == 0 {
                        guard.release().await.unwrap();
                    } else {
                        drop(guard);
                    }
                    let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
                    most.fetch_max(alive as u64, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for worker in workers {
        within("a worker", worker).await.unwrap();
    }
    println!("{LOCKS} locks, {} tasks at most, {before} before", most.load(Ordering::Relaxed));
    until("what was begun to end", || tasks() <= before + 10).await;
    servers[2].start_again();
    let guard = within("all", held_by_all(&lock("k".to_owned()), &servers)).await;
    guard.release().await.unwrap();
    servers.iter().for_each(Server::left_over_check);
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_servers_are_skipped_and_their_late_grants_released() {
    let servers = servers(5);
    let lock = QuorumLock::new(clients(&servers, Duration::from_secs(30)).await, "k");
    servers[0].freeze();
    servers[2].freeze();
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    servers[3].freeze();
    let error = lock.acquire().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoQuorum { wanted: 3, .. }), "{error:?}");
    for server in [0, 2, 3] {
        servers[server].thaw();
    }
    servers.iter().for_each(Server::left_over_check);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_keeps_it_and_a_minority_that_loses_it_does_no_harm() {
    let servers = servers(5);
    let clients = clients(&servers, Duration::from_secs(3)).await;
    let guard = held_by_all(&QuorumLock::new(clients, "k"), &servers).await;
    let token = guard.token();
    servers[0].cmd(&["DLOCK.BREAK", "k"]);
    servers[3].cmd(&["DLOCK.BREAK", "k"]);
    let start = Instant::now();
    wait_until("three leases to pass", || start.elapsed() > Duration::from_secs(9));
    assert_eq!(guard.lost_now(), None);
    assert!(has_token(&servers[1], "k", token));
    assert!(!is_held(&servers[0], "k"), "it is never acquired again");

    servers[1].cmd(&["DLOCK.BREAK", "k"]);
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    assert_eq!(lost.unwrap(), Lost::Refused);
    loss_of(guard.release().await);
    servers.iter().for_each(Server::left_over_check);
}

/// No renewal tells of it: only the replies to the release do.
#[tokio::test(flavor = "multi_thread")]
async fn work_under_a_lock_that_another_client_took_is_lost() {
    let servers = servers(3);
    let lock = QuorumLock::new(clients(&servers, Duration::from_secs(30)).await, "k");
    let lock = lock.fixed_lease(Duration::from_secs(30)).server_timeout(Duration::from_secs(5));
    for (is_flushed, first_reply_is_lost) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let proxies: Vec<_> = servers.iter().map(Proxy::to).collect();
        let mut clients = Vec::new();
        for proxy in &proxies {
            clients.push(quick().connect(&proxy.url()).await.unwrap());
        }
        let watched = QuorumLock::new(clients, "k").server_timeout(Duration::from_secs(5));
        let guard = held_by_all(&watched.fixed_lease(Duration::from_secs(30)), &servers).await;
        let is_release = |command: &[Vec<u8>]| command[0].ends_with(b"RELEASE");
        let done = guard.with(async |_| {
            servers[0].cmd(&["DLOCK.BREAK", "k"]).int();
            // A server that was flushed knows nothing of the hold.
            let end = if is_flushed { ["FLUSHALL", "SYNC"] } else { ["DLOCK.BREAK", "k"] };
            servers[1].cmd(&end);
            if first_reply_is_lost {
                for proxy in &proxies {
                    drop(proxy.on(1, Fault::LoseReply, is_release));
                }
            }
            lock.acquire().await
        });
        let error = within("the release", done).await.expect_err("two of three were lost");
        let kind = if is_flushed {
            ErrorKind::ReleaseUnknown
        } else {
            ErrorKind::Lost { reason: Lost::Refused, finished: true }
        };
        assert_eq!((error.kind(), error.key()), (kind, Some(&b"k"[..])), "{error}");
    }
    servers.iter().for_each(Server::left_over_check);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_too_few_servers_remember_is_unknown() {
    let servers = servers(3);
    let mut clients = Vec::new();
    let proxies: Vec<_> = servers.iter().map(Proxy::to).collect();
    for (server, proxy) in servers.iter().zip(&proxies) {
        server.cmd(&["CONFIG", "SET", "dlock.request-memory-ms", "0"]).ok();
        clients.push(quick().connect(&proxy.url()).await.unwrap());
    }
    let lock = QuorumLock::new(clients, "k").server_timeout(Duration::from_secs(5));
    let guard = held_by_all(&lock, &servers).await;
    let is_release = |command: &[Vec<u8>]| command[0].ends_with(b"RELEASE");
    let lost: Vec<_> =
        proxies[1..].iter().map(|proxy| proxy.on(1, Fault::LoseReply, is_release)).collect();
    let error = within("the release", guard.with(async |_| Ok::<_, Error>(17))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReleaseUnknown);
    assert!(!error.text().contains("could not be released"), "{error}");
    assert!(lost.iter().all(|lost| lost.fired() == 1));
    servers.iter().for_each(Server::left_over_check);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_its_own_ends_here_before_it_ends_there() {
    let servers = servers(3);
    let lock = QuorumLock::new(clients(&servers, Duration::from_secs(30)).await, "k");
    let start = Instant::now();
    let guard = lock.clone().fixed_lease(Duration::from_millis(500)).acquire().await.unwrap();
    assert_eq!(guard.lost().await, Lost::Expired);
    assert!(start.elapsed() >= Duration::from_millis(450), "{:?}", start.elapsed());
    assert_eq!(guard.valid_for(), Duration::ZERO);
    let next = lock.acquire().await.unwrap();
    assert!(next.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_when_the_server_with_the_fastest_clock_is_gone() {
    let mut servers: Vec<Server> =
        (0..3).map(|_| Server::with(&DURABLE).and(&LEAD).preload_wallclock().start()).collect();
    servers[0].shift_wall_clock(-3600);
    servers[2].shift_wall_clock(7200);
    let lock = QuorumLock::new(clients(&servers, Duration::from_secs(30)).await, "k");
    let ahead = held_by_all(&lock, &servers).await;
    let token = ahead.token();
    ahead.release().await.unwrap();
    servers[2].kill9();
    let guard = lock.acquire().await.unwrap();
    assert!(guard.token() > token, "{} after {token}", guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_a_server_is_in_the_text() {
    let servers = servers(3);
    for server in &servers[..2] {
        server.cmd(&["SET", "k", "something else"]);
    }
    let lock = QuorumLock::new(clients(&servers, Duration::from_secs(30)).await, "k");
    let error = lock.acquire().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoQuorum { wanted: 2, .. }), "{error:?}");
    assert!(error.text().contains("WRONGTYPE"), "{error}");
    servers[2].left_over_check();
}

#[tokio::test]
async fn options_out_of_range_are_refused() {
    let none = QuorumLock::new(Vec::new(), "k").try_acquire().await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Invalid);
    let server = Server::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = QuorumLock::new(vec![client], "k");
    let ms = Duration::from_millis;
    for wrong in [
        lock.clone().fixed_lease(ms(29)),
        lock.clone().fixed_lease(ms(100)).server_timeout(ms(50)),
        lock.clone().server_timeout(ms(0)),
        lock.clone().label("x".repeat(257)),
        lock.clone().back_off(ms(0), Duration::MAX),
        lock.clone().back_off(ms(20), ms(10)),
    ] {
        assert_eq!(wrong.try_acquire().await.unwrap_err().kind(), ErrorKind::Invalid, "{wrong:?}");
    }
    server.left_over_check();
}

/// Shared knowledge of all clients of the storm.
#[derive(Default)]
struct Common {
    /// The end of the certain hold.
    held: Mutex<Option<Instant>>,
    last: AtomicU64,
    entered: AtomicU64,
    over: AtomicBool,
}

async fn worker(lock: QuorumLock, common: Arc<Common>) {
    while !common.over.load(Ordering::SeqCst) {
        let guard = match lock.acquire_timeout(Duration::from_secs(1)).await {
            Ok(Some(guard)) => guard,
            Ok(None) => continue,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error:?}");
                continue;
            }
        };
        {
            // The others wait here, even if this thread is delayed; a thread that was delayed too long does not
            // count.
            let mut held = common.held.lock().unwrap();
            let until = Instant::now() + guard.valid_for();
            if guard.lost_now().is_some() {
                continue;
            }
            let before = held.replace(until);
            assert!(before.is_none_or(|until| until <= Instant::now()), "two holders at once");
            let last = common.last.swap(guard.token(), Ordering::SeqCst);
            assert!(guard.token() > last, "{} after {last}", guard.token());
            common.entered.fetch_add(1, Ordering::SeqCst);
        }
        tokio::time::sleep(Duration::from_millis(guard.token() % 8)).await;
        if guard.lost_now().is_none() {
            *common.held.lock().unwrap() = None;
        }
        // Every other guard is dropped, and released in the background.
        if guard.token() % 2 == 0 {
            let _ = guard.release().await;
        }
    }
}

/// Kills and restarts servers for this time; at most two are down at once.
fn havoc(servers: &mut [Server], seed: u64, time: Duration) -> u32 {
    let mut dice = Dice::new(seed);
    let (start, mut kills) = (Instant::now(), 0);
    while start.elapsed() < time {
        let first = dice.index(5);
        let second = (first + 1 + dice.index(4)) % 5;
        servers[first].kill9();
        std::thread::sleep(dice.millis(150));
        servers[second].kill9();
        std::thread::sleep(dice.millis(150));
        servers[first].start_again();
        servers[second].start_again();
        std::thread::sleep(dice.millis(300));
        kills += 2;
    }
    kills
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_holder_and_growing_tokens_while_servers_are_killed() {
    let seed = std::env::var("DLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("DLOCK_SEED={seed} repeats the choices of this storm");
    // Different clocks, so that a token that is not written back is soon followed by a smaller one.
    let servers: Vec<Server> =
        (0..5).map(|_| Server::with(&DURABLE).and(&LEAD).preload_wallclock().start()).collect();
    for (server, ahead) in servers.iter().zip([0, 600, -300, 1200, -900]) {
        server.shift_wall_clock(ahead);
    }
    let common = Arc::new(Common::default());
    let mut workers = Vec::new();
    for _ in 0..4 {
        let clients = clients(&servers, Duration::from_secs(2)).await;
        let lock = QuorumLock::new(clients, "k")
            .back_off(Duration::from_millis(2), Duration::from_millis(30));
        workers.push(tokio::spawn(worker(lock, common.clone())));
    }
    let havoc = tokio::task::spawn_blocking(move || {
        let mut servers = servers;
        let kills = havoc(&mut servers, seed, Duration::from_secs(8));
        (servers, kills)
    });
    let (servers, kills) = havoc.await.unwrap();
    until("enough grants", || common.entered.load(Ordering::SeqCst) > 20).await;
    common.over.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    let entered = common.entered.load(Ordering::SeqCst);
    println!("{entered} times held, {kills} servers killed");
    // Requests that a server executed after its RELEASE, or on both sides of its crash, last for a lease.
    servers.iter().for_each(Server::left_over_check);
}
