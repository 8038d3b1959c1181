//! Spans and events.

use std::time::Duration;

use dlock_client::{Client, Error, ErrorKind, Lost};
use dlock_testing_server::FakeServer;
use tokio::time::sleep;
use tracing::Instrument as _;

use crate::{Log, until, waiters};

#[tokio::test(start_paused = true)]
async fn a_contended_acquire_and_its_hold_are_two_spans_of_the_caller() {
    let log = Log::start();
    let server = FakeServer::start();
    let client = server.client().await.unwrap();
    let first = client.lock("door").acquire().await.unwrap();
    let lock = client.lock("door").owner("bob");
    let caller = tracing::info_span!("handler");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() }.instrument(caller));
    until("the waiter", || waiters(&server, "door") == 1).await;
    sleep(Duration::from_millis(250)).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    let token = second.token();
    sleep(Duration::from_secs(2)).await;
    second.release().await.unwrap();
    println!("{}", log.text());

    let acquire = log.line(&["handler:dlock.acquire{", &format!("dlock.token={token}")]);
    for part in [
        "otel.kind=\"client\"",
        "db.system.name=\"redis\"",
        "db.operation.name=\"DLOCK.ACQUIRE\"",
        "server.address=\"fake\"",
        "dlock.kind=\"lock\"",
        "dlock.key=\"\\\"door\\\"\"",
        "dlock.outcome=\"granted\"",
        "dlock.wait_s=0.25",
    ] {
        assert!(acquire.contains(part), "{part} in {acquire}");
    }
    let hold = log.line(&["handler:dlock.hold{", "bob"]);
    for part in [&format!("dlock.token={token}"), "dlock.outcome=\"released\"", "dlock.hold_s=2"] {
        assert!(hold.contains(part), "{part} in {hold}");
    }
    assert!(!log.text().contains("WARN"), "nothing went wrong");
}

#[tokio::test(start_paused = true)]
async fn outcomes_without_a_grant_are_told_apart() {
    let log = Log::start();
    let server = FakeServer::start();
    let client = server.client().await.unwrap();
    let guard = client.lock("door").acquire().await.unwrap();
    assert!(client.lock("door").try_acquire().await.unwrap().is_none());
    log.line(&["dlock.acquire{", "dlock.outcome=\"not_granted\""]);

    let dropped = tokio::time::timeout(Duration::from_secs(1), client.lock("door").acquire()).await;
    assert!(dropped.is_err());
    until("the end of the span", || !log.lines(&["dlock.outcome=\"cancelled\""]).is_empty()).await;

    assert_eq!(client.lock("").acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    let failed = log.line(&["dlock.acquire{", "dlock.outcome=\"invalid\""]);
    assert!(failed.contains("error.type=\"invalid\"") && failed.contains("ERROR"), "{failed}");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_a_warning_in_its_span_and_work_under_a_hold_is_inside_it() {
    let log = Log::start();
    let server = FakeServer::start();
    let client = server.client().await.unwrap();
    let lock = client.lock("door");
    let work = lock.with(|hold| async move {
        tracing::info!("working");
        hold.lost().await;
        Ok::<_, Error>(())
    });
    let (worked, ()) = tokio::join!(work, async {
        until("the hold", || !log.lines(&["working"]).is_empty()).await;
        assert_eq!(server.break_lock(b"door"), 1);
    });
    assert!(worked.is_err());
    log.line(&["INFO", "dlock.hold{", "working"]);
    log.line(&["WARN", "dlock.hold{", "hold lost: an operator broke", "reason=\"broken\""]);
    let hold = log.line(&["dlock.hold{", "close", "dlock.outcome=\"lost\""]);
    assert!(hold.contains("error.type=\"broken\""), "{hold}");
}

#[tokio::test(start_paused = true)]
async fn hostile_names_break_no_line() {
    let log = Log::start();
    let server = FakeServer::start();
    let client = server.client().await.unwrap();
    let key = b"a\nERROR fake line \x1b[2J\xff";
    let guard = client.lock(key).owner(key).acquire().await.unwrap();
    let lost = guard.lost();
    assert_eq!(server.break_lock(key), 1);
    assert_eq!(lost.await, Lost::Broken);
    drop(guard);
    let text = log.text();
    assert!(!text.contains('\x1b') && !text.lines().any(|line| line.starts_with("ERROR fake")));
    log.line(&["WARN", "hold lost", r"\\n"]);
}

#[tokio::test(start_paused = true)]
async fn outages_reconnects_and_late_renewals_are_events() {
    let log = Log::start();
    let server = FakeServer::start();
    let client = Client::builder().lease(Duration::from_secs(30));
    let client = server.connect(client).await.unwrap();
    log.line(&["DEBUG", "connected"]);
    let guard = client.lock("door").acquire().await.unwrap();
    // The first renewal asks for the full lease.
    sleep(Duration::from_secs(4)).await;
    server.set_unavailable(true);
    sleep(Duration::from_secs(18)).await;
    log.line(&["WARN", "the connection is lost"]);
    log.line(&["WARN", "cannot connect", "error.type=\"unavailable\""]);
    server.set_unavailable(false);
    sleep(Duration::from_secs(5)).await;
    log.line(&["INFO", "connected again"]);
    let late = log.line(&["WARN", "dlock.hold{", "late renewal"]);
    assert!(late.contains("lease_ms=30000"), "{late}");
    assert_eq!(guard.lost_now(), None);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_failed_in_the_background_is_a_warning() {
    let log = Log::start();
    let server = FakeServer::start();
    let client = server.client().await.unwrap();
    let guard = client.lock("door").acquire().await.unwrap();
    server.set_unavailable(true);
    drop(guard);
    until("the warning", || !log.lines(&["a release in the background failed"]).is_empty()).await;
    log.line(&["WARN", "a release in the background failed", "door", "error.type=\"unavailable\""]);
}
