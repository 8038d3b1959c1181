//! A thousand requests for one missing cache entry: one computes it, the others wait for the result.
//! `cargo run --example once -- redis://127.0.0.1:6379/`
use dlock_client::{Client, Once};
use redis::AsyncCommands as _;
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url).await?;
    let cache = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut requests = JoinSet::new();
    for _ in 0..1_000 {
        let (flight, mut cache) = (client.lock("example:report:flight"), cache.clone());
        requests.spawn(async move {
            if let Some(report) = cache.get::<_, Option<String>>("example:report").await? {
                return Ok::<_, Failure>((report, false));
            }
            let mut to = cache.clone();
            let compute = |_hold| async move {
                // A run may have ended between the look above and this call.
                if let Some(report) = to.get::<_, Option<String>>("example:report").await? {
                    return Ok((report, false));
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                to.set::<_, _, ()>("example:report", "42 sold").await?;
                Ok::<_, Failure>(("42 sold".to_owned(), true))
            };
            match flight.run_once(compute).await? {
                Once::Ran(found) => Ok(found),
                Once::AnotherRan(Some((report, _))) => Ok((report, false)),
                // Of another process.
                Once::AnotherRan(None) => Ok((cache.get("example:report").await?, false)),
            }
        });
    }
    let (mut served, mut computed) = (0, 0);
    while let Some(request) = requests.join_next().await {
        let (report, ran) = request??;
        served += u32::from(report == "42 sold");
        computed += u32::from(ran);
    }
    println!("{served} requests served, computed {computed} times");
    cache.clone().del::<_, ()>("example:report").await?;
    Ok(client.close().await?)
}
