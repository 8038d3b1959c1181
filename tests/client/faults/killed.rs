//! A waiter whose process was killed does not delay the waiters behind it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dlock_client::Client;
use dlock_testing::{Guarded, Reply as _, Server};

use crate::support::{Variant, number, start, until, within};

/// Environment of the child process to kill: the server's URL, and the key to wait for.
const CHILD: [&str; 2] = ["DLOCK_KILLED_URL", "DLOCK_KILLED_KEY"];
/// How long its place outlives the process.
const PLACE: Duration = Duration::from_secs(20);
const ROUNDS: usize = 8;
/// Limit for one round. On an idle machine all take a few milliseconds.
const AT_ONCE: Duration = Duration::from_millis(200);
/// Limit on any machine; less than the lifetime of the killed waiter's place.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_waiter_delays_no_other() {
    let (server, client) = start().await;
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        took.push(kill_one(&server, &client, &format!("k{round}")).await);
    }
    println!("granted after {took:?}");
    assert!(took.iter().all(|took| *took < SOON), "{took:?}");
    assert!(took.iter().any(|took| *took < AT_ONCE), "{took:?}");
    server.left_over_check();
}

/// Returns how long the next waiter waited after the release.
async fn kill_one(server: &Server, client: &Client, key: &str) -> Duration {
    let variant = Variant::ALL[0];
    let waiters = || variant.waiters(server, key);
    let holder = client.lock(key).acquire().await.unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "faults::killed::the_process_that_is_killed"])
        .env(CHILD[0], server.url())
        .env(CHILD[1], key)
        .stdout(Stdio::null());
    let mut process = Guarded::spawn(command).unwrap();
    until("the process to wait", || waiters() == 1).await;
    let behind = tokio::spawn({
        let lock = client.lock(key);
        async move { (lock.acquire().await.unwrap(), Instant::now()) }
    });
    until("the next to wait", || waiters() == 2).await;
    process.kill();
    until("the server to notice", || {
        let all = server.cmd(&["DLOCK.WAITERS", key]);
        number(&all.items()[0], "client-id") == 0
    })
    .await;
    let released = Instant::now();
    holder.release().await.unwrap();
    let (next, granted) = within("the next", behind).await.unwrap();
    next.release().await.unwrap();
    granted - released
}

/// Run by the test above, in a separate process; otherwise it does nothing.
#[test]
fn the_process_that_is_killed() {
    let [Ok(url), Ok(key)] = CHILD.map(std::env::var) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder().queue(PLACE).connect(&url).await.unwrap();
        let _ = client.lock(key).acquire().await;
    });
}
