//! Settings that many read and few change: readers share the lock, a writer has it alone.
//! `cargo run --example read_mostly -- redis://127.0.0.1:6379/`
use dlock_client::Client;
use redis::AsyncCommands as _;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let settings = client.rw_lock("example:settings");

    // Two keys that belong together: no reader sees one without the other.
    let writer = settings.write().acquire().await?;
    redis.set::<_, _, ()>("example:settings:host", "db-2").await?;
    redis.set::<_, _, ()>("example:settings:port", 5433).await?;
    writer.release().await?;

    let one = settings.read().acquire().await?;
    let two = settings.read().acquire().await?;
    let host: String = redis.get("example:settings:host").await?;
    let port: u16 = redis.get("example:settings:port").await?;
    println!("two readers at a time see {host}:{port}");
    assert!(settings.write().try_acquire().await?.is_none());
    one.release().await?;
    two.release().await?;
    redis.del::<_, ()>(&["example:settings:host", "example:settings:port"]).await?;
    Ok(client.close().await?)
}
