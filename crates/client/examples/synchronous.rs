//! The same locks without async: four threads count together.
//! `cargo run --example synchronous -- redis://127.0.0.1:6379/`
use dlock_client::blocking::Client;
use redis::Commands as _;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn count(client: &Client, url: &str) -> Result<(), Failure> {
    let mut redis = redis::Client::open(url)?.get_connection()?;
    for _ in 0..25 {
        let guard = client.lock("example:count:lock").acquire()?;
        let count: u32 = redis.get::<_, Option<u32>>("example:count")?.unwrap_or(0);
        redis.set::<_, _, ()>("example:count", count + 1)?;
        guard.release()?;
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| count(&client, &url))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a panic")?)
    })?;
    let mut redis = redis::Client::open(url)?.get_connection()?;
    println!("4 threads counted to {}", redis.get_del::<_, u32>("example:count")?);
    Ok(client.close()?)
}
