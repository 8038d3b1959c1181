//! Leaders in failovers by Sentinel.

use std::time::{Duration, Instant};

use dlock_testing::{Sentinels, Server};

use super::{BIND, Sampler, check_order, followed_by, leader_connection};
use crate::support::{PATIENCE, quick, until, within};

/// In order, and after the primary died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_makes_no_second_leader() {
    for dies in [false, true] {
        let mut primary = Server::start();
        let replica = Server::with(&[]).replica_of(&primary).start();
        let sentinels = Sentinels::start(3, &primary, 1);
        let connect = async || quick().retry_for(PATIENCE).connect(&sentinels.url()).await.unwrap();
        let (one, two) = (connect().await, connect().await);
        let leadership = one.election("e").campaign().await.unwrap();
        let former = Sampler::of(leadership.hold());
        let next = followed_by(&primary, &two.election("e"), "e").await;
        primary.wait_replica_synced(&replica);
        let start = Instant::now();
        if dies {
            primary.kill9();
            // Once the promoted replica answers, the leader is bound again there, or its leadership is lost.
            within("an answer", one.election("e").leader()).await.unwrap();
            drop(leadership);
        } else {
            tokio::task::block_in_place(|| sentinels.failover());
            tokio::time::sleep(BIND * 3).await;
            let bound = || leader_connection(&replica, "e") != 0;
            replica.forget_connection();
            until("the leader to be bound again", bound).await;
            assert_eq!(leadership.lost_now(), None);
            leadership.resign().await.unwrap();
        }
        let (_next, latter, since) = within("the next leader", next).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let between = check_order("failover", former, latter);
        let time = since - start;
        println!("primary dies: {dies}: next after {time:?}, {between:?} between the leaders");
    }
}

/// How long nobody leads when the primary dies: from the kill until the next leader, or until the former one leads at
/// the promoted server. The latter is what happens if the failover takes less than the `bind` of the elections.
/// benches/README.md has the figures of five failovers each (`FAILOVERS=5`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_there_is_no_leader_when_the_primary_dies() {
    for down_after in [500, 3000] {
        failovers(down_after).await;
    }
}

/// `down_after`: what Sentinel waits before it takes the primary for dead, in ms.
async fn failovers(down_after: u32) {
    const ELECTIONS: usize = 20;
    let failovers =
        std::env::var("FAILOVERS").ok().and_then(|count| count.parse().ok()).unwrap_or(1);
    let (mut times, mut kept) = (Vec::new(), 0);
    for _ in 0..failovers {
        let mut primary = Server::start();
        let replica = Server::with(&[]).replica_of(&primary).start();
        let line = format!("sentinel down-after-milliseconds locks {down_after}");
        let sentinels = Sentinels::with().and(&line).start(3, &primary, 1);
        let connect = async || quick().retry_for(PATIENCE).connect(&sentinels.url()).await.unwrap();
        let (one, two) = (connect().await, connect().await);
        let mut elections = Vec::new();
        for n in 0..ELECTIONS {
            let name = format!("e{n}");
            let leadership = one.election(&name).campaign().await.unwrap();
            let former = Sampler::of(leadership.hold());
            elections.push((
                leadership,
                former,
                followed_by(&primary, &two.election(&name), &name).await,
            ));
        }
        primary.wait_replica_synced(&replica);
        let start = Instant::now();
        primary.kill9();
        let mut outcomes = Vec::new();
        for (leadership, former, next) in elections {
            let one = one.clone();
            outcomes.push(tokio::spawn(async move {
                let lost = leadership.lost();
                // Once the promoted server answers, the hold is bound again there, or it is lost.
                one.election("any").leader().await.unwrap();
                let certain = async {
                    while leadership.hold().valid_for().is_zero() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                let is_lost = tokio::select! {
                    _ = lost => true,
                    () = certain => false,
                };
                let again = start.elapsed();
                // What is lost may be held by the promoted server: the drop releases it.
                drop(leadership);
                let (next, latter, since) = next.await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert_eq!(next.lost_now(), None);
                check_order("primary dies", former, latter);
                next.resign().await.unwrap();
                if is_lost { Err(since - start) } else { Ok(again) }
            }));
        }
        for outcome in outcomes {
            let outcome = within("a leader", outcome).await.unwrap();
            kept += usize::from(outcome.is_ok());
            times.push(outcome.unwrap_or_else(|time| time));
        }
    }
    times.sort_unstable();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "the primary dies, down-after {down_after} ms: p50 {p50:?}, p99 {p99:?} of {}, {kept} kept",
        times.len()
    );
}
