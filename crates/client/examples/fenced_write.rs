//! A receiver that refuses late writes: it remembers the largest fencing token and compares.
//! `cargo run --example fenced_write -- redis://127.0.0.1:6379/`
use dlock_client::Client;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Writes the value unless a later holder has written. Any store with a compare-and-set can do this.
const WRITE: &str = "
    if tonumber(redis.call('HGET', KEYS[1], 'token') or '0') > tonumber(ARGV[1]) then return 0 end
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
    return 1";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut write = async |token: u64, value: &str| {
        let mut eval = redis::cmd("EVAL");
        eval.arg(WRITE).arg(1).arg("example:file").arg(token).arg(value);
        eval.query_async::<bool>(&mut redis).await
    };
    // Alice stalls (a long garbage collection); her lease runs out, and bob gets the lock.
    let lock = client.lock("example:file:lock").fixed_lease(std::time::Duration::from_millis(50));
    let alice = lock.acquire().await?;
    let bob = lock.acquire().await?;
    println!("bob writes: {}", write(bob.token(), "of bob").await?);
    println!("alice, who is late, writes: {}", write(alice.token(), "of alice").await?);
    // The file has compared the tokens: a lock that ended early changes nothing.
    bob.release().await?;
    redis::cmd("DEL").arg("example:file").exec_async(&mut redis).await?;
    Ok(client.close().await?)
}
