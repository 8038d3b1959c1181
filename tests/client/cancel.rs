//! Futures that are dropped early, at every possible point, leave nothing on the server.

use std::{pin::pin, task::Poll, time::Duration};

use dlock_client::{Client, Wait};
use dlock_quorum::QuorumLock;

use crate::places::Place;
use crate::support::{number, start_on, until, within};

on_both! {
    a_call_that_is_dropped_at_any_of_its_awaits_leaves_nothing,
    ten_thousand_tasks_that_are_aborted_leave_nothing,
}

/// Polls a call at most `times` times, then drops it. None: it was not done by then.
async fn polled<F: Future>(times: usize, call: F) -> Option<F::Output> {
    let mut call = pin!(call);
    let mut left = times;
    let done = std::future::poll_fn(|context| {
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    done.await
}

const KINDS: [&str; 13] = [
    "queue",
    "block",
    "fair",
    "read",
    "write",
    "named",
    "bound",
    "replicas",
    "permit",
    "all",
    "all named",
    "any",
    "quorum",
];

/// Acquires and releases: either may be dropped in progress.
async fn come_and_go(client: Client, kind: &str) {
    let lock = match kind {
        "queue" => client.lock("k"),
        "block" => client.lock("k").wait(Wait::Blocking),
        "fair" => client.fair_lock("k"),
        "read" => client.rw_lock("k").read(),
        "write" => client.rw_lock("k").write(),
        "named" => client.lock("k").owner("me"),
        "bound" => client.lock("k").bind(Duration::from_secs(20)),
        "replicas" => client.lock("k").replicas(1, Duration::from_millis(1)),
        "permit" => {
            let permit = client.semaphore("k").limit(1).acquire().await.unwrap();
            permit.release().await.unwrap();
            return;
        }
        "all" | "all named" => {
            let mut all = client.multi_lock(["k", "l"]);
            if kind == "all named" {
                all = all.owner("me");
            }
            all.acquire().await.unwrap().release().await.unwrap();
            return;
        }
        "any" => client.any_lock(["k"]).acquire().await.map(|_| client.lock("m")).unwrap(),
        _ => {
            let guard = QuorumLock::new([client], "k").acquire().await.unwrap();
            guard.release().await.unwrap();
            return;
        }
    };
    // With too few replicas it waits for more of them.
    if let Ok(Some(guard)) = lock.acquire_timeout(Duration::from_millis(50)).await {
        guard.renew(Duration::from_secs(40)).await.unwrap();
        guard.release().await.unwrap();
    }
}

async fn a_call_that_is_dropped_at_any_of_its_awaits_leaves_nothing<P: Place>() {
    let mut tests = Vec::new();
    for kind in KINDS {
        tests.push(tokio::spawn(async move {
            let (server, client) = start_on::<P>().await;
            let mut most = 0;
            for contended in [false, true] {
                for times in 1..=14 {
                    let holder = if contended { Some(hold(&client, kind).await) } else { None };
                    let call = polled(times, Box::pin(come_and_go(client.clone(), kind)));
                    let release = async {
                        // Long enough for most calls to have a place; none is granted.
                        tokio::time::sleep(Duration::from_millis(4)).await;
                        drop(holder);
                    };
                    let (done, ()) = within(kind, async { tokio::join!(call, release) }).await;
                    if done.is_none() {
                        most = times;
                    }
                    tokio::task::block_in_place(|| server.left_over_check());
                }
            }
            println!("{kind}: dropped after up to {most} polls");
            assert!(most > 1, "{kind}");
        }));
    }
    for test in tests {
        within("all kinds", test).await.unwrap();
    }
}

/// A hold that blocks every kind of lock.
async fn hold(client: &Client, kind: &str) -> Box<dyn std::any::Any + Send> {
    match kind {
        "fair" => Box::new(client.fair_lock("k").acquire().await.unwrap()),
        "read" | "write" => Box::new(client.rw_lock("k").write().acquire().await.unwrap()),
        "permit" => Box::new(client.semaphore("k").limit(1).acquire().await.unwrap()),
        _ => Box::new(client.lock("k").acquire().await.unwrap()),
    }
}

/// A program that stops working all at once.
async fn ten_thousand_tasks_that_are_aborted_leave_nothing<P: Place>() {
    const TASKS: usize = 10_000;
    let server = P::new();
    // All requests are sent at once, and debug builds answer slowly.
    let client = server.connect(Client::builder().response_timeout(Duration::from_mins(1))).await;
    let holder = client.lock("k").acquire().await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..TASKS {
        let lock = match n % 4 {
            0 => client.lock(format!("free {n}")),
            1 if n < 800 => client.lock("k").wait(Wait::Blocking),
            _ => client.lock("k"),
        };
        tasks.push(tokio::spawn(async move {
            let _guard = lock.acquire().await.unwrap();
            std::future::pending::<()>().await;
        }));
    }
    let waiters = |server: &P| number(&server.cmd(&["DLOCK.INFO", "k"]), "waiters");
    // Some are waiting, some hold, some have not sent their request yet.
    until("half to wait", || waiters(&server) > 3_000).await;
    for task in &tasks {
        task.abort();
    }
    for task in tasks {
        assert!(within("a task", task).await.unwrap_err().is_cancelled());
    }
    until("the places to go", || waiters(&server) == 0).await;
    holder.release().await.unwrap();
    server.left_over_check();
}
