//! Forged messages on the client's channel.

use std::time::Duration;

use dlock_client::{Client, Wait};
use dlock_testing::{Reply as _, Server};
use tokio::task::JoinHandle;

use crate::support::{number, until, within};

/// Waits in the background; true once it is granted.
fn in_background<T: Send + 'static>(
    call: impl Future<Output = Result<T, dlock_client::Error>> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(async move { call.await.unwrap() })
}

/// Forges messages to the waiter for `k`; it must continue to wait, and ask the server.
async fn forge<T>(server: &Server, family: &str, id: &str, waiting: &JoinHandle<T>) {
    let info = format!("{family}.INFO");
    until("the place", || number(&server.cmd(&[&info, "k"]), "waiters") == 1).await;
    // All that a forger can know: the owner, from WAITERS, and nearby ids.
    let rows = server.cmd(&[&format!("{family}.WAITERS"), "k"]).items();
    let owner = rows[0].field("owner").text();
    let length = owner.len();
    let channels = server.cmd(&["PUBSUB", "CHANNELS", "dlock:notify:*"]).items();
    assert_eq!(channels.len(), 1);
    let channel = channels[0].text();
    let mut forger = server.client();
    forger.cmd(&["AUTH", "forger", "secret"]).ok();
    let other = "0123456789abcdef0123456789abcdef";
    for text in [
        // In the format of older servers.
        format!("granted 0 {id} {length} {owner} k"),
        format!("granted 0 {id} {length} {owner} 0  k"),
        format!("granted 0 {id} {length} {owner} 32 {other} k"),
        format!("granted 0 {id} {length} {owner} {length} {owner} k"),
    ] {
        forger.cmd(&["PUBLISH", &channel, &text]).int();
    }
    // This one is heard after them. Every wait asks then: only the server knows.
    let acquire = format!("{family}.ACQUIRE");
    let before = server.calls(&acquire);
    forger.cmd(&["PUBLISH", "dlock:notify", "flushed 0"]).int();
    until("the server to be asked", || server.calls(&acquire) > before).await;
    assert!(!waiting.is_finished(), "a forged message was believed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_message_grants_nothing() {
    let server = Server::start();
    let rules =
        ["on", ">secret", "resetkeys", "resetchannels", "&dlock:notify*", "-@all", "+publish"];
    server.cmd(&[&["ACL", "SETUSER", "forger"][..], &rules].concat()).ok();
    let queue = Duration::from_mins(10);
    let client =
        Client::builder().queue(queue).wait(Wait::Queue).connect(&server.url()).await.unwrap();
    // Larger than any token before, and the token of the current hold.
    let largest = "9007199254740991";
    for fair in [false, true] {
        let family = if fair { "DFAIR" } else { "DLOCK" };
        let lock = if fair { client.fair_lock("k") } else { client.lock("k") };
        let held = server.cmd(&[&format!("{family}.ACQUIRE"), "k", "h", "EX", "600"]).int();
        for token in [largest.to_owned(), held.to_string()] {
            let waiting = in_background({
                let lock = lock.clone();
                async move { lock.acquire().await }
            });
            forge(&server, family, &token, &waiting).await;
            waiting.abort();
            let info = format!("{family}.INFO");
            until("it to leave", || number(&server.cmd(&[&info, "k"]), "waiters") == 0).await;
        }
        // The real message is believed.
        let waiting = in_background(async move { lock.acquire().await });
        forge(&server, family, largest, &waiting).await;
        server.cmd(&[&format!("{family}.RELEASE"), "k", "h"]).int();
        let guard = within("the grant", waiting).await.unwrap();
        assert!(guard.token() > held.cast_unsigned());
        guard.release().await.unwrap();
    }
    for write in [false, true] {
        let lock = client.rw_lock("k");
        let lock = if write { lock.write() } else { lock.read() };
        server.cmd(&["DRW.ACQUIRE", "k", "h", "WRITE", "EX", "600"]).int();
        let waiting = in_background(async move { lock.acquire().await });
        forge(&server, "DRW", largest, &waiting).await;
        server.cmd(&["DRW.RELEASE", "k", "h", "WRITE"]).int();
        within("the grant", waiting).await.unwrap().release().await.unwrap();
    }
    // Any client that knows the id of a permit can renew it: a forged message must not cause that either.
    let permit = server.cmd(&["DSEM.ACQUIRE", "k", "h", "LIMIT", "1", "EX", "600"]).text();
    let semaphore = client.semaphore("k");
    let waiting = in_background(async move { semaphore.acquire().await });
    forge(&server, "DSEM", &permit, &waiting).await;
    assert_eq!(server.calls("DSEM.RENEW"), 0);
    server.cmd(&["DSEM.RELEASE", "k", &permit]).int();
    within("the grant", waiting).await.unwrap().release().await.unwrap();
    server.left_over_check();
}
