//! Guards of one named owner that share a hold of the server.

use std::time::Duration;

use dlock_client::Wait;
use dlock_testing::Server;

use crate::support::{number, start};

const LONG: Duration = Duration::from_hours(1);
const SHORT: Duration = Duration::from_mins(1);

fn left(server: &Server) -> Duration {
    let ms = number(&server.cmd(&["DLOCK.INFO", "k"]), "ttl-ms");
    Duration::from_millis(ms.try_into().unwrap())
}

/// A grant that is bound after a wait on a dedicated connection is renewed at once, and a renewal sets the end for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_acquire_with_a_shorter_lease_does_not_shorten_the_hold() {
    let (server, client) = start().await;
    let lock = client.lock("k").owner("o");
    let long = lock.clone().lease(LONG).acquire().await.unwrap();
    let short = lock.lease(SHORT).bind(LONG).wait(Wait::Blocking).acquire().await.unwrap();
    let (counted_on, left) = (long.valid_for(), left(&server));
    assert!(counted_on <= left, "{counted_on:?} of {left:?}");
    assert!(short.valid_for() <= SHORT);
    assert!(counted_on > SHORT, "{counted_on:?}");
    short.release().await.unwrap();
    long.release().await.unwrap();
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_with_several_locks() {
    let (server, client) = start().await;
    let long = client.lock("k").owner("o").lease(LONG).acquire().await.unwrap();
    let both = client.multi_lock(["k", "l"]).owner("o").lease(SHORT).bind(LONG);
    let short = both.acquire().await.unwrap();
    let (counted_on, left) = (long.valid_for(), left(&server));
    assert!(counted_on <= left, "{counted_on:?} of {left:?}");
    short.release().await.unwrap();
    long.release().await.unwrap();
    server.left_over_check();
}
