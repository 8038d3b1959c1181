//! Flushes of the database around a grant.

use std::time::Duration;

use dlock_client::{Client, Lost};
use dlock_testing::{Fault, Proxy, Reply as _, Server, Way};

use crate::support::{until, within};

const LEASE: Duration = Duration::from_hours(1);

/// A flush before the grant makes the client verify the grant; another one comes with the reply to that, and the
/// watchdog checks all holds before this one is registered.
#[tokio::test]
async fn a_flush_that_comes_while_a_grant_is_verified_is_noticed() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let lock = client.lock("k").lease(LEASE);
    // It is lost with the message, without a request.
    let canary = client.semaphore("canary").limit(1).lease(LEASE).acquire().await.unwrap();
    proxy.stall(Way::ToServer);
    let flushes = async {
        server.cmd(&["FLUSHALL"]).ok();
        until("the first flush", || canary.lost_now() == Some(Lost::Flushed)).await;
        proxy.once("DLOCK.RENEW", Fault::StallReply);
        proxy.flow();
        until("the verification", || server.calls("DLOCK.RENEW") == 1).await;
        server.cmd(&["FLUSHALL"]).ok();
        proxy.flow();
    };
    let (guard, ()) =
        within("the acquire", async { tokio::join!(lock.try_acquire(), flushes) }).await;
    if let Some(guard) = guard.unwrap() {
        assert_eq!(within("the second flush", guard.lost()).await, Lost::Flushed);
    }
}
