//! Faults of networks and servers: lost replies, cut connections, black holes, and servers that hang, die and return.

mod finished;
mod flight;
mod killed;
mod paused;
mod replies;
mod servers;
mod silence;
mod storm;

use std::time::Instant;

use dlock_client::{Guard, Lost};
use dlock_testing::Fault;
use tokio::task::JoinHandle;

const FAULTS: [Fault; 4] =
    [Fault::LoseRequest, Fault::LoseReply, Fault::HalfOpen, Fault::StallReply];

/// A task that records how and when the hold was lost.
fn watch(guard: &Guard) -> JoinHandle<(Lost, Instant)> {
    let lost = guard.lost();
    tokio::spawn(async move { (lost.await, Instant::now()) })
}
