//! Twenty workers share three licences of a program.
//! `cargo run --example workers -- redis://127.0.0.1:6379/`
use dlock_client::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url).await?;
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..20 {
        // The first acquire makes a semaphore of three; the last release removes it.
        let licences = client.semaphore("example:licences").limit(3);
        let (running, most) = (running.clone(), most.clone());
        workers.spawn(async move {
            let work = licences.with(|_| async {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                running.fetch_sub(1, SeqCst);
                Ok::<_, Failure>(())
            });
            work.await
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    println!("20 workers, at most {} at a time", most.load(SeqCst));
    Ok(client.close().await?)
}
