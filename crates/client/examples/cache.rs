//! A cache that many read at once and few renew: a read-write lock keeps readers from seeing it half renewed.
//!
//! The cache is two keys that belong together, a price list and its date. The task that renews it writes one after the
//! other.
//!
//! ```text
//! cargo run --example cache -- redis://127.0.0.1:6379/
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dlock_client::{Client, RwLock};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

const READERS: u32 = 20;
const READS: u32 = 50;
const RENEWALS: u32 = 20;
const PRICES: &str = "example:{cache}:prices";
const DATE: &str = "example:{cache}:date";

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = url();
    let client = Client::connect(&url).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let lock = client.rw_lock("example:{cache}");
    renew(&lock, &mut redis, 0).await?;

    let reading = Arc::new(AtomicU32::new(0));
    let together = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..READERS {
        let (lock, mut redis) = (lock.clone(), redis.clone());
        let (reading, together) = (reading.clone(), together.clone());
        tasks.spawn(async move {
            for _ in 0..READS {
                let guard = lock.read().acquire().await?;
                together.fetch_max(reading.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let prices: u32 = redis.get(PRICES).await?;
                let date: u32 = redis.get(DATE).await?;
                reading.fetch_sub(1, Ordering::SeqCst);
                // What was read counts only if the lock lasted.
                guard.release().await?;
                if prices != date {
                    return Err(format!("read prices {prices} of date {date}").into());
                }
            }
            Ok::<(), Failure>(())
        });
    }
    for version in 1..=RENEWALS {
        renew(&lock, &mut redis, version).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    println!(
        "{} reads and {RENEWALS} renewals, none was seen half; up to {} readers at once",
        READERS * READS,
        together.load(Ordering::SeqCst)
    );
    let () = redis.del(&[PRICES, DATE]).await?;
    Ok(())
}

/// Renews the cache while nobody reads it.
async fn renew(
    lock: &RwLock,
    redis: &mut MultiplexedConnection,
    version: u32,
) -> Result<(), Failure> {
    let write = lock.write();
    let work = write.with(|_| async {
        let () = redis.set(PRICES, version).await?;
        let () = redis.set(DATE, version).await?;
        Ok(())
    });
    work.await
}

/// From the command line, else from the environment.
fn url() -> String {
    let given = std::env::args().nth(1).or_else(|| std::env::var("DLOCK_URL").ok());
    given.unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned())
}
