//! Faults at random while work goes on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use dlock_testing::{Cut, Dice, Proxy, Reply as _, Server, Way};

use super::FAULTS;
use crate::support::{Variant, quick, until, within};

/// Under random faults, ten tasks add to a plain counter under one lock, with separate reads and writes, directly at
/// the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_exact_in_a_storm_of_faults() {
    let mut dice = Dice::seeded(31);
    let servers: Vec<_> = Variant::ALL.map(|variant| (variant, Server::start())).into();
    let storms: Vec<_> = servers
        .into_iter()
        .map(|(variant, server)| {
            tokio::spawn(storm(variant, server, Dice::new(dice.below(u64::MAX))))
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
                    // In a storm errors are allowed if they are reported and nothing was done.
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
    let verb = ["ACQUIRE", "ACQUIRE", "RELEASE", "RELEASE", "RENEW"];
    let verb = variant.command(verb[usize::try_from(dice.below(5)).unwrap()]);
    match dice.below(10) {
        0 => proxy.cut(Cut::Fin),
        1 => proxy.cut(Cut::Reset),
        2 => proxy.cut(Cut::HalfOpen),
        3 => proxy.delay(Way::BOTH[usize::try_from(dice.below(2)).unwrap()], dice.millis(15)),
        4 => {
            proxy.refuse();
            proxy.cut(Cut::Reset);
            tokio::time::sleep(dice.millis(60)).await;
            proxy.accept();
        }
        5 => {
            proxy.stall_all();
            tokio::time::sleep(dice.millis(100)).await;
            if dice.below(2) == 0 {
                proxy.cut(Cut::Reset);
            }
            proxy.flow();
        }
        6 => {
            let way = Way::BOTH[usize::try_from(dice.below(2)).unwrap()];
            proxy.cut_after(way, usize::try_from(1 + dice.below(400)).unwrap());
        }
        n => {
            let fault = FAULTS[usize::try_from(n + dice.below(4)).unwrap() % FAULTS.len()];
            proxy.once(&verb, fault);
        }
    }
}
