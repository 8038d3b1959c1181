//! Flushes of the database around a grant.

use std::time::Duration;

use dlock_client::{Client, Lost};
use dlock_testing::{Fault, Proxy, Reply as _, Server, Way};

use crate::support::{until, within};

const LEASE: Duration = Duration::from_hours(1);

/// A flush before the grant makes the client ask about the hold; another one comes while the reply to that is on its
/// way.
#[tokio::test]
async fn a_flush_that_comes_while_a_grant_is_verified_is_noticed() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let lock = client.lock("k").fixed_lease(LEASE);
    // Without a hold, nobody is told of a flush.
    server.cmd(&["DLOCK.ACQUIRE", "other", "h"]).int();
    proxy.stall(Way::ToServer);
    let messages = || proxy.traffic().iter().map(|connection| connection.pushes).sum::<u64>();
    let before = messages();
    let flushes = async {
        server.cmd(&["FLUSHALL"]).ok();
        until("the first flush", || messages() > before).await;
        let stalled = proxy.once("DLOCK.RENEW", Fault::StallReply);
        proxy.flow();
        until("the verification", || stalled.fired() == 1).await;
        server.cmd(&["FLUSHALL"]).ok();
        proxy.flow();
    };
    let (guard, ()) =
        within("the acquire", async { tokio::join!(lock.try_acquire(), flushes) }).await;
    let guard = guard.unwrap().unwrap();
    assert_eq!(within("the second flush", guard.lost()).await, Lost::Flushed);
}
