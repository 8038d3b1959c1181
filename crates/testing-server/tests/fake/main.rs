//! The server for unit tests, under a clock that only the test moves.
// A test stops where it cannot go on.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod example;
mod faults;
mod flight;
mod loss;
mod time;

use std::time::Duration;

use dlock_client::Client;
use dlock_testing_server::FakeServer;

/// The page of the crate shows a test that runs.
#[test]
fn the_example_of_the_page_is_tested() {
    let page = include_str!("../../README.md");
    assert!(page.contains(include_str!("example.rs")), "README.md does not show example.rs");
}

/// The client of a new server.
async fn start() -> (FakeServer, Client) {
    let server = FakeServer::start();
    let client = server.client().await.unwrap();
    (server, client)
}

/// Lets other tasks run, and time pass, until `condition` holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = tokio::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_mins(1), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The waiters of a key of any family of locks.
fn waiters(server: &FakeServer, key: &str) -> usize {
    let count = |family: &str| {
        let reply = server.command(&[&format!("{family}.WAITERS"), key]);
        let text = String::from_utf8_lossy(&reply).into_owned();
        let count = text.strip_prefix('*').and_then(|rest| rest.split_once('\r'));
        count.map_or(0, |(count, _)| count.parse().unwrap())
    };
    ["DLOCK", "DFAIR", "DRW"].into_iter().map(count).sum()
}

#[tokio::test(start_paused = true)]
async fn the_log_and_the_latencies_are_those_of_the_machine() {
    let (server, client) = start().await;
    let ask = |words: &[&str]| String::from_utf8_lossy(&server.command(words)).into_owned();
    let guard = client.lock("report").acquire().await.unwrap();
    assert_eq!(server.break_lock("report"), 1);
    assert_eq!(ask(&["DLOCK.LOG", "LEN"]), ":1\r\n");
    let entries = ask(&["DLOCK.LOG", "GET"]);
    assert!(entries.contains("broken") && entries.contains("report"), "{entries}");
    let info = ask(&["INFO", "dlock_latency"]);
    assert!(info.contains("dlock_lock_held:count=1,sum="), "{info}");
    assert_eq!(ask(&["DLOCK.LOG", "RESET"]), "+OK\r\n");
    assert_eq!(ask(&["DLOCK.LOG", "LEN"]), ":0\r\n");
    drop(guard);
}
