//! Starts a test run when all of its workers are ready.
//! `cargo run --example barrier -- redis://127.0.0.1:6379/`
use dlock_client::Client;
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url).await?;
    let ready = client.latch("example:ready");
    ready.init(5).await?;
    let mut workers = JoinSet::new();
    for _ in 0..5 {
        let ready = ready.clone();
        workers.spawn(async move {
            // Get ready, say so, and wait for the others.
            ready.count_down(1).await?;
            ready.wait().await?;
            Ok::<_, Failure>(())
        });
    }
    let mut started = 0;
    while let Some(worker) = workers.join_next().await {
        worker??;
        started += 1;
    }
    println!("{started} workers started together");
    Ok(client.close().await?)
}
