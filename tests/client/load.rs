//! Many tasks and many holds of one client. The long versions print figures: `cargo test --test client -- --ignored
//! --nocapture soak`.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use dlock_client::{Client, Guard};
use dlock_testing::{Proxy, Reply as _, Server, Way};

use crate::support::{until, within};

/// A load takes longer than a call.
const LOAD_LIMIT: Duration = Duration::from_mins(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_tasks_wait_on_one_connection() {
    wait_in_order(5_000, 100, &Server::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: minutes; prints the server's memory per waiter and the time"]
async fn soak_a_hundred_thousand_tasks_wait_on_one_connection() {
    wait_in_order(100_000, 1_000, &Server::with(&[]).release().start()).await;
}

/// `tasks` tasks wait for `locks` locks over one connection; all are served, in the server's order.
async fn wait_in_order(tasks: usize, locks: usize, server: &Server) {
    let proxy = Proxy::to(server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let connections = proxy.accepted();
    let mut holders = Vec::new();
    for n in 0..locks {
        holders.push(client.lock(format!("k{n}")).acquire().await.unwrap());
    }
    let memory = || server.info_number("memory", "used_memory");
    let before = memory();
    let grants: Arc<Vec<Mutex<Vec<usize>>>> =
        Arc::new((0..locks).map(|_| Mutex::default()).collect());
    let start = Instant::now();
    let all: Vec<_> = (0..tasks)
        .map(|n| {
            let lock = client.lock(format!("k{}", n % locks)).label(n.to_string());
            let grants = grants.clone();
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                grants[n % locks].lock().unwrap().push(n);
                guard.release().await.unwrap();
            })
        })
        .collect();
    let waiting = || server.info_number("dlock", "waiters_queued");
    let all_waiting = i64::try_from(tasks).unwrap();
    let asked = Instant::now();
    while waiting() != all_waiting {
        assert!(asked.elapsed() < LOAD_LIMIT, "{} of {tasks} places", waiting());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (queued, per_waiter) = (start.elapsed(), (memory() - before) / all_waiting);
    // The order in which the server has them.
    let order: Vec<Vec<usize>> = (0..locks)
        .map(|n| {
            let places = server.cmd(&["DLOCK.WAITERS", &format!("k{n}")]).items();
            places.iter().map(|place| place.field("label").text().parse().unwrap()).collect()
        })
        .collect();
    let start = Instant::now();
    drop(holders);
    for task in all {
        tokio::time::timeout(LOAD_LIMIT, task).await.expect("a waiter hangs").unwrap();
    }
    println!(
        "{tasks} tasks, {locks} locks: queued in {queued:?}, {per_waiter} bytes of the server per waiter, served in {:?}",
        start.elapsed()
    );
    assert_eq!(proxy.accepted(), connections, "one connection, and the same one");
    for (n, (granted, order)) in grants.iter().zip(&order).enumerate() {
        let granted = granted.lock().unwrap();
        assert_eq!(granted.len(), order.len(), "k{n}");
        assert!(*granted == *order, "k{n}: {granted:?} instead of {order:?}");
    }
    server.left_over_check();
}

/// Processor time that this process has used, user and system.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program may contain blanks: fields count from its end.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    // A tick is 10 ms on every Linux that there is.
    Duration::from_millis(ticks * 10)
}

/// Ten thousand holds, ten minutes: at most one round trip per renewal period, under 2 % of a core.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: ten minutes; prints round trips and processor time"]
async fn soak_ten_thousand_holds_are_kept_alive() {
    const HOLDS: usize = 10_000;
    let minutes = std::env::var("DLOCK_MINUTES").ok().and_then(|m| m.parse().ok()).unwrap_or(10);
    let time = Duration::from_mins(minutes);
    let server = Server::with(&[]).release().start();
    let proxy = Proxy::to(&server);
    let url = proxy.url();
    // Processor time is measured without the proxy in the process: with a second client, directly at the server.
    let counted = Client::connect(&url).await.unwrap();
    let guards = hold(&counted, "a", HOLDS / 10).await;
    // There are no waiters, so there is no heartbeat either.
    let pings = || proxy.requests("PING");
    let (trips, beats, start) = (proxy.round_trips(), pings(), Instant::now());
    let periods = |start: Instant| start.elapsed().as_secs() / 10 + 1;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let (trips, beats) = (proxy.round_trips() - trips, pings() - beats);
    println!(
        "through the proxy: {trips} round trips in {} periods, {beats} of them PING",
        periods(start)
    );
    assert!(trips <= periods(start));
    drop(guards);
    until("all to be given back", || server.info_number("dlock", "held_locks") == 0).await;
    drop((counted, proxy));

    let client = Client::connect(&server.url()).await.unwrap();
    let guards = hold(&client, "b", HOLDS).await;
    let renewals = || server.calls("DLOCK.RENEW");
    let (cpu, calls, start) = (processor_time(), renewals(), Instant::now());
    while start.elapsed() < time {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(guards.iter().all(|guard| guard.lost_now().is_none()));
    }
    let (cpu, took) = (processor_time() - cpu, start.elapsed());
    let share = cpu.as_secs_f64() / took.as_secs_f64() * 100.0;
    let calls = renewals() - calls;
    println!(
        "{HOLDS} holds, {took:?}: {calls} renewals, {cpu:?} of processor time, {share:.2} % of a core"
    );
    assert!(share < 2.0, "{share:.2} % of a core");
    assert_eq!(server.info_number("dlock", "held_locks"), i64::try_from(HOLDS).unwrap());
    drop(guards);
    until("all to be given back", || server.info_number("dlock", "held_locks") == 0).await;
    server.left_over_check();
}

async fn hold(client: &Client, name: &str, holds: usize) -> Vec<Guard> {
    let mut guards = Vec::with_capacity(holds);
    for n in 0..holds {
        guards.push(client.lock(format!("{name}{n}")).acquire().await.unwrap());
    }
    guards
}

/// More than the buffer of the connection holds by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_requests_share_a_slow_connection() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    proxy.delay(Way::ToServer, Duration::from_millis(50));
    let tries = (0..400).map(|n| {
        let lock = client.lock(format!("k{n}"));
        tokio::spawn(async move { lock.try_acquire().await })
    });
    let tries: Vec<_> = tries.collect();
    let mut guards = Vec::new();
    for one in tries {
        guards.push(within("a try", one).await.unwrap().unwrap().unwrap());
    }
    proxy.heal();
    for guard in guards {
        within("a release", guard.release()).await.unwrap();
    }
    server.left_over_check();
}
