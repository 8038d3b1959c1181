//! What a network and a server can do to a client: replies that are lost, connections that are cut, black holes, servers that hang,
//! die and come back.

mod finished;
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

/// A task that notes how and when the hold was lost.
fn watch(guard: &Guard) -> JoinHandle<(Lost, Instant)> {
    let lost = guard.lost();
    tokio::spawn(async move { (lost.await, Instant::now()) })
}
