//! Metrics.

use std::time::Duration;

use dlock_testing_server::FakeServer;
use tokio::time::sleep;

use crate::{Counts, until, waiters};

/// What the documentation of `describe_metrics` says of each metric.
const DESCRIBED: &str = include_str!("../../src/telemetry/describe.rs");

#[tokio::test(start_paused = true)]
async fn waits_holds_losses_renewals_and_reconnects_are_counted() {
    let (mut counts, _recorder) = Counts::start();
    let server = FakeServer::start();
    let client = server.client().await.unwrap();
    let first = client.lock("door").acquire().await.unwrap();
    assert!(client.lock("door").try_acquire().await.unwrap().is_none());
    let read = client.rw_lock("page").read().acquire().await.unwrap();
    assert!((counts.of("dlock_client_holds{kind=lock}") - 1.0).abs() < f64::EPSILON);
    assert!((counts.of("dlock_client_holds{kind=read}") - 1.0).abs() < f64::EPSILON);

    let lock = client.lock("door");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("the waiter", || waiters(&server, "door") == 1).await;
    sleep(Duration::from_secs(1)).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    let granted = "{kind=lock,outcome=granted}";
    let mut waits = counts.times(&format!("dlock_client_wait_seconds{granted}"));
    waits.sort_by(f64::total_cmp);
    assert_eq!(waits.len(), 2);
    assert!(waits[0] < 0.01 && (1.0..1.1).contains(&waits[1]), "{waits:?}");
    assert!(
        (counts.of(&format!("dlock_client_acquires_total{granted}")) - 2.0).abs() < f64::EPSILON
    );
    assert!(counts.of("dlock_client_acquires_total{kind=lock,outcome=not_granted}") > 0.0);

    // A minute of renewals.
    sleep(Duration::from_mins(1)).await;
    assert!(counts.of("dlock_client_renewals_total{outcome=accepted}") >= 5.0);
    let held = counts.times("dlock_client_hold_seconds{kind=lock}");
    assert!(held.len() == 1 && (1.0..1.1).contains(&held[0]), "{held:?}");

    server.kill_connections();
    until("a new connection", || server.connections() > 0).await;
    sleep(Duration::from_secs(1)).await;
    assert!(counts.of("dlock_client_reconnects_total{server=fake}") > 0.0);

    assert_eq!(server.break_lock(b"door"), 1);
    let _ = second.lost().await;
    assert!(counts.of("dlock_client_losses_total{kind=lock,reason=broken}") > 0.0);
    assert!(counts.of("dlock_client_holds{kind=lock}").abs() < f64::EPSILON);

    // Long enough to miss renewals, and to give up the release.
    server.set_unavailable(true);
    sleep(Duration::from_secs(18)).await;
    server.set_unavailable(false);
    sleep(Duration::from_secs(5)).await;
    assert!(counts.of("dlock_client_late_renewals_total{}") > 0.0);
    server.set_unavailable(true);
    drop(read);
    sleep(Duration::from_mins(2)).await;
    assert!(counts.of("dlock_client_failed_releases_total{}") > 0.0);

    // Every metric is described, and each described one was counted.
    for name in counts.totals.keys().chain(counts.times.keys()) {
        let (name, _) = name.split_once('{').unwrap();
        assert!(DESCRIBED.contains(&format!("| `{name}` |")), "{name} is not in the table");
    }
    for row in DESCRIBED.lines().filter_map(|line| line.strip_prefix("/// | `")) {
        let (name, _) = row.split_once('`').unwrap();
        let has = |key: &String| key.starts_with(&format!("{name}{{"));
        assert!(counts.totals.keys().chain(counts.times.keys()).any(has), "{name} was not counted");
        assert_eq!(
            DESCRIBED.matches(&format!("\"{name}\"")).count(),
            1,
            "{name} is described once"
        );
    }
}

#[test]
fn descriptions_reach_the_recorder() {
    let (counts, _recorder) = Counts::start();
    dlock_client::describe_metrics();
    metrics::counter!("dlock_client_losses_total").increment(0);
    let (_, unit, text, _) = counts.snapshots.snapshot().into_vec().pop().unwrap();
    assert_eq!((unit, text.as_deref()), (None, Some("Holds that were lost before their release")));
}
