//! Silence: black holes, servers that hang, lost messages.

use std::time::{Duration, Instant};

use dlock_client::{Client, Hold, Lost, Wait};
use dlock_testing::{Blocked, Proxy, Reply as _, Server, Way, args};
use tokio::task::JoinHandle;

use super::watch;
use crate::support::{PATIENCE, Variant, until, within};

/// Maximum delay of a notification on a busy machine.
const LATE: Duration = Duration::from_secs(3);

/// A holder knows that its lease is over before any other owner can hold the lock: behind a black hole, and when the
/// server hangs.
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
                let lock = if own_lease { lock.fixed_lease(lease) } else { lock };
                let guard = within("the acquire", lock.acquire()).await.unwrap();
                let lost = watch(&guard);
                let granted = next(server, variant, &case, guard.hold());
                if let Some(way) = hole {
                    proxy.stall(way);
                }
                cases.push((case, lost, granted, proxy, guard));
            }
        }
    }
    // It continues after all leases.
    hangs.freeze();
    tokio::time::sleep(lease + Duration::from_millis(500)).await;
    hangs.thaw();
    for (case, lost, granted, proxy, guard) in cases {
        let (how, lost) = within(&format!("lost() of {case}"), lost).await.unwrap();
        let (granted, known, next) = within(&format!("the next of {case}"), granted).await.unwrap();
        assert_eq!(how, Lost::Expired, "{case}");
        assert_eq!(known, Some(Lost::Expired), "{case}: believed in when the next had it");
        // A busy machine may run the notified task after the granted one.
        let late = lost.saturating_duration_since(granted);
        assert!(late < LATE, "{case}: lost() came {late:?} after the grant");
        assert_eq!(guard.lost_now(), Some(Lost::Expired));
        drop((next, guard));
        proxy.heal();
    }
}

/// Another owner, connected directly to the server, waits for the lock. Returns when it was granted, and the holder's
/// knowledge at that time.
fn next(
    server: &Server,
    variant: Variant,
    key: &str,
    hold: Hold,
) -> JoinHandle<(Instant, Option<Lost>, Blocked)> {
    let mut waiting = server.block(&args![variant.command("ACQUIRE"), key, "next", "BLOCK", 0]);
    tokio::task::spawn_blocking(move || {
        waiting.expect_reply(PATIENCE).int();
        let known = hold.lost_now();
        (Instant::now(), known, waiting)
    })
}

/// A lost message is not a lost grant: the waiter requests again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_message_is_harmless() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let queue = Duration::from_secs(4);
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
        // Garbage on the channel does no harm.
        let channels = server.cmd(&["PUBSUB", "CHANNELS", "dlock:notify:*"]).items();
        assert_eq!(channels.len(), 1);
        let channel = channels[0].text();
        for noise in ["", "granted", "granted 0 x", "later 0 1 1 a k", "expired 7 1 1 a 0  k", "\0"]
        {
            server.cmd(&["PUBLISH", &channel, noise]).ok();
        }
        proxy.swallow_messages();
        let released = Instant::now();
        guard.release().await.unwrap();
        let guard = within("the waiter", waiting).await.unwrap();
        assert!(released.elapsed() < queue, "asks again after {:?}", released.elapsed());
        // Without a message about the break, the next renewal reports it.
        guard.renew(Duration::from_secs(20)).await.unwrap();
        server.cmd(&[&variant.command("BREAK"), "k"]).ok();
        assert!(guard.renew(Duration::from_secs(20)).await.is_err());
        assert_eq!(guard.lost_now(), Some(Lost::Refused));
        drop(guard);
        proxy.heal();
        server.left_over_check();
    }
}
