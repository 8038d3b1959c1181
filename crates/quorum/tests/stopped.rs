//! Work under the lock, whose process is stopped for longer than the lease.
// A test stops where it cannot go on.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::time::Duration;

use dlock_client::{Client, Error, ErrorKind, Lost};
use dlock_quorum::QuorumLock;
use dlock_testing::Server;

/// Longer than what a quorum of one asks for at least.
const LEASE: Duration = Duration::from_millis(150);

/// As a process that is stopped for longer than the lease: the clock runs on, and no timer fires.
async fn work(steps: &Cell<u32>) -> Result<(), Error> {
    tokio::time::pause();
    std::thread::sleep(LEASE * 2);
    for _ in 0..1_000 {
        steps.set(steps.get() + 1);
        // No driver is polled: the task is ready again at once.
        let mut polled = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            let is_ready = std::mem::replace(&mut polled, true);
            if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
    Ok(())
}

#[tokio::test]
async fn no_step_begins_after_the_lease_whether_or_not_a_timer_fires() {
    let server = Server::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = QuorumLock::new([client], "k").fixed_lease(LEASE);
    let steps = Cell::new(0);
    // On a busy machine a grant may come too late for any work.
    let done = loop {
        let done = lock.with(|_| work(&steps)).await;
        if steps.get() > 0 {
            break done;
        }
    };
    tokio::time::resume();
    let lost = ErrorKind::Lost { reason: Lost::Expired, finished: false };
    assert_eq!(done.unwrap_err().kind(), lost);
    assert_eq!(steps.get(), 1, "the step in which the process was stopped");
    server.left_over_check();
}
