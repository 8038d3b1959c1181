//! Failovers by Sentinel under load: callers see retries or clear errors, never a hang.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dlock_client::{Client, Lost, Wait};
use dlock_testing::{Reply as _, SOON, Sentinels, Server};

use crate::support::{PATIENCE, Variant, quick, until, within};

const TASKS: usize = 16;

/// Maximum lifetime of a failover's leftovers.
const LEASE: Duration = Duration::from_secs(3);
/// Much longer than a failover.
const LONG: Duration = Duration::from_mins(1);

/// Tasks that acquire and release locks until they are stopped.
struct Load {
    over: Arc<AtomicBool>,
    done: Arc<Vec<AtomicUsize>>,
    errors: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(client: &Client) -> Load {
        let over = Arc::new(AtomicBool::new(false));
        let errors = Arc::new(AtomicUsize::new(0));
        let done: Arc<Vec<AtomicUsize>> =
            Arc::new((0..TASKS).map(|_| AtomicUsize::new(0)).collect());
        // The largest token of each lock: a later grant has a larger one, across all failures.
        let tokens: Arc<Vec<AtomicU64>> = Arc::new((0..8).map(|_| AtomicU64::new(0)).collect());
        let tasks = (0..TASKS)
            .map(|n| {
                let lock = Variant::ALL[n % 4].lock(client, &format!("k{}", n % 8));
                let (over, done, errors) = (over.clone(), done.clone(), errors.clone());
                let tokens = tokens.clone();
                tokio::spawn(async move {
                    while !over.load(Ordering::Relaxed) {
                        match within("an acquire", lock.acquire()).await {
                            Ok(guard) => {
                                let token = guard.token();
                                let before = tokens[n % 8].fetch_max(token, Ordering::SeqCst);
                                assert!(before < token, "token {token} after {before}");
                                let _ = within("a release", guard.release()).await;
                                done[n].fetch_add(1, Ordering::SeqCst);
                            }
                            Err(error) => {
                                println!("{:?}: {error}", error.kind());
                                errors.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    }
                })
            })
            .collect();
        Load { over, done, errors, tasks }
    }

    /// Returns when every task has acquired a lock several times from now on.
    async fn goes_on(&self) {
        let before: Vec<_> = self.done.iter().map(|n| n.load(Ordering::SeqCst)).collect();
        let all = || {
            let now = self.done.iter().map(|n| n.load(Ordering::SeqCst));
            now.zip(&before).all(|(now, &before)| now > before + 3)
        };
        until("every task to go on", all).await;
    }

    async fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            within("a task", task).await.unwrap();
        }
        println!("{} errors", self.errors.load(Ordering::SeqCst));
    }
}

fn pair() -> (Server, Server) {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    (primary, replica)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_was_ordered() {
    let (primary, replica) = pair();
    let sentinels = Sentinels::start(3, &primary, 1);
    let client = quick().lease(LEASE).connect(&sentinels.url()).await.unwrap();
    let load = Load::start(&client);
    load.goes_on().await;
    // A hold that was replicated survives the failover.
    let holder = quick().lease(LONG).connect(&sentinels.url()).await.unwrap();
    let lock = holder.lock("held").replicas(1, SOON);
    let guard = within("the acquire", lock.acquire()).await.unwrap();
    within("the full lease", guard.renew(LONG)).await.unwrap();
    let start = Instant::now();
    tokio::task::block_in_place(|| sentinels.failover());
    // Until then the old primary considers itself primary. Holds on the promoted replica end with their leases.
    tokio::task::block_in_place(|| sentinels.wait_replica(&primary));
    load.goes_on().await;
    println!("all went on {:?} after the order", start.elapsed());
    assert_eq!(guard.lost_now(), None);
    replica.forget_connection();
    assert_eq!(Variant::ALL[0].holds(&replica, "held"), 1);
    within("a release", guard.release()).await.unwrap();
    load.stop().await;
    replica.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_dies() {
    let (mut primary, replica) = pair();
    let sentinels = Sentinels::start(3, &primary, 1);
    let client = quick().lease(LEASE).connect(&sentinels.url()).await.unwrap();
    let load = Load::start(&client);
    load.goes_on().await;
    let dead = Some(primary.port());
    let start = Instant::now();
    primary.kill9();
    tokio::task::block_in_place(|| sentinels.wait_primary_other_than(dead));
    load.goes_on().await;
    println!("all went on {:?} after the death", start.elapsed());
    load.stop().await;
    replica.forget_connection();
    replica.left_over_check();
}

/// The old primary hangs: it closes and refuses nothing, and has the lock in its memory. Its hold is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs() {
    let (primary, replica) = pair();
    let sentinels = Sentinels::start(1, &primary, 1);
    let client = quick().lease(LEASE).connect(&sentinels.url()).await.unwrap();
    let load = Load::start(&client);
    load.goes_on().await;
    // The remaining lease is longer than the failover, even on a busy machine.
    let holder = quick().lease(LONG).connect(&sentinels.url()).await.unwrap();
    let guard = within("the acquire", holder.lock("held").acquire()).await.unwrap();
    within("the full lease", guard.renew(LONG)).await.unwrap();
    primary.wait_replica_synced(&replica);
    primary.freeze();
    let start = Instant::now();
    tokio::task::block_in_place(|| sentinels.wait_primary_other_than(Some(primary.port())));
    load.goes_on().await;
    println!("all went on {:?} after the freeze", start.elapsed());
    assert_eq!(guard.lost_now(), None, "the replica had it");
    within("a release", guard.release()).await.unwrap();
    load.stop().await;
    primary.thaw();
    replica.forget_connection();
    replica.left_over_check();
}

/// A grant that was not replicated is lost in the failover; its holder learns it from the first renewal, not the
/// last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_a_failover_lost_is_lost() {
    let (mut primary, replica) = pair();
    let sentinels = Sentinels::start(1, &primary, 1);
    let client = quick().lease(LONG).retry_for(PATIENCE).connect(&sentinels.url()).await.unwrap();
    // The replica hangs and is cut off during the grant.
    replica.freeze();
    primary.cmd(&["CLIENT", "KILL", "TYPE", "replica"]).ok();
    let guard = within("the acquire", client.lock("k").acquire()).await.unwrap();
    // The failover may outlast the lease that a wait asks for.
    within("the full lease", guard.renew(LONG)).await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("k").wait(Wait::Queue);
        async move { lock.acquire().await.unwrap() }
    });
    until("the place", || Variant::ALL[0].waiters(&primary, "k") == 1).await;
    primary.kill9();
    replica.thaw();
    let killed = Instant::now();
    let how = within("lost()", guard.lost()).await;
    println!("{how:?} {:?} after the death", killed.elapsed());
    assert_eq!(how, Lost::Refused);
    assert!(killed.elapsed() < LONG - Duration::from_secs(5), "not by the end of the lease");
    let next = within("the waiter", waiting).await.unwrap();
    next.release().await.unwrap();
    drop((guard, sentinels));
    replica.forget_connection();
    replica.left_over_check();
}
