//! Sells the last items of a stock, and none of them twice.
//! `cargo run --example stock -- redis://127.0.0.1:6379/`
use dlock_client::Client;
use redis::AsyncCommands as _;
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis.set::<_, _, ()>("example:stock", 5).await?;
    let mut buyers = JoinSet::new();
    for _ in 0..20 {
        let (lock, mut redis) = (client.lock("example:stock:lock"), redis.clone());
        buyers.spawn(async move {
            let buy = lock.with(|_| async {
                let left: u32 = redis.get("example:stock").await?;
                if left > 0 {
                    redis.set::<_, _, ()>("example:stock", left - 1).await?;
                }
                Ok::<_, Failure>(left > 0)
            });
            buy.await
        });
    }
    let mut sold = 0;
    while let Some(buyer) = buyers.join_next().await {
        sold += u32::from(buyer??);
    }
    println!("{sold} of 5 sold to 20 buyers");
    redis.del::<_, ()>("example:stock").await?;
    Ok(client.close().await?)
}
