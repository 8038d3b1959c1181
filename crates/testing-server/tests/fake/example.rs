use std::time::Duration;

use dlock_client::Error;
use dlock_testing_server::FakeServer;

#[tokio::test(start_paused = true)]
async fn another_process_takes_over_after_an_outage() -> Result<(), Error> {
    let server = FakeServer::start();
    let (alice, bob) = (server.client().await?, server.client().await?);

    // An hour of renewals, in a fraction of a second.
    let guard = alice.lock("report").acquire().await?;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(bob.lock("report").try_acquire().await?.is_none());

    // The server is gone for longer than the lease: Alice must stop.
    server.set_unavailable(true);
    guard.lost().await;
    server.set_unavailable(false);

    let next = bob.lock("report").acquire().await?;
    assert!(next.token() > guard.token());
    Ok(())
}
