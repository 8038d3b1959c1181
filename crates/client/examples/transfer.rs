//! Moves money between two accounts. Both locks are taken together, so two transfers in opposite directions never wait
//! for each other. `cargo run --example transfer -- redis://127.0.0.1:6379/`
use dlock_client::Client;
use redis::AsyncCommands as _;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Redis = redis::aio::MultiplexedConnection;

async fn transfer(client: &Client, mut redis: Redis, from: &str, to: &str) -> Result<(), Failure> {
    let both = client.multi_lock([format!("{from}:lock"), format!("{to}:lock")]);
    let work = both.with(|_| async {
        let balance: i64 = redis.get(from).await?;
        if balance >= 10 {
            redis.decr::<_, _, ()>(from, 10).await?;
            redis.incr::<_, _, ()>(to, 10).await?;
        }
        Ok(())
    });
    work.await
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let (a, b) = ("{example}:a", "{example}:b");
    redis.mset::<_, _, ()>(&[(a, 100), (b, 100)]).await?;
    for _ in 0..20 {
        tokio::try_join!(
            transfer(&client, redis.clone(), a, b),
            transfer(&client, redis.clone(), b, a)
        )?;
    }
    let sum: Vec<i64> = redis.mget(&[a, b]).await?;
    println!("40 transfers, {} and {} are {} together", sum[0], sum[1], sum[0] + sum[1]);
    redis.del::<_, ()>(&[a, b]).await?;
    Ok(client.close().await?)
}
