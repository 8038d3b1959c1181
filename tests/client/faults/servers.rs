//! Servers that hang, die, come back, and are replaced.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dlock_client::{Lost, Wait};
use dlock_testing::{Proxy, Reply as _, Server};

use super::watch;
use crate::support::{Variant, WAITS, loss_of, number, quick, until, within};

/// A server that comes back without its data: holders learn it, waiters request again, all are served.
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
        loss_of(guard.release().await);
        server.left_over_check();
    }
}

/// A server that comes back with its data: the hold still exists.
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
        within("a release", guard.release()).await.unwrap();
        let guard = within("the waiter", waiting).await.unwrap();
        assert!(guard.token() > token);
        drop(guard);
    }
    server.left_over_check();
}

/// Crashes, delays and restarts of the server under load: each call ends, and afterwards all tasks continue.
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

/// Idle dedicated connections lead to the old server: once the shared connection leads elsewhere, they are not used.
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

/// The server closes connections at which nothing happens (its setting `timeout`), or something between does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_died_at_rest_cost_no_acquire() {
    const TASKS: usize = 12;
    let server = Server::start();
    let client = quick().retry_for(Duration::from_millis(300)).wait(Wait::Blocking);
    let client = client.connect(&server.url()).await.unwrap();
    let lock = client.lock("k");
    let contended = async || {
        let holder = lock.acquire().await.unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
            })
            .collect();
        let waiters = || number(&server.cmd(&["DLOCK.INFO", "k"]), "waiters");
        until("the places", || waiters() == i64::try_from(TASKS).unwrap()).await;
        holder.release().await.unwrap();
        for task in tasks {
            within("a turn", task).await.unwrap().unwrap();
        }
    };
    contended().await;
    // The shared connection listens to messages.
    assert!(server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).int() >= 8);
    contended().await;
    server.left_over_check();
}
