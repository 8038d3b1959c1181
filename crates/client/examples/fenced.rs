//! Writes that Redis itself refuses when they come from a holder that has lost its lock without knowing.
//!
//! A program can be stopped at any moment, between its last look at the lock and its write. So the write carries the
//! token of the hold, and a script checks it where it writes.
//!
//! ```text
//! cargo run --example fenced -- redis://127.0.0.1:6379/
//! ```

use std::error::Error;
use std::time::Duration;

use dlock_client::Client;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, RedisError};

/// The braces put both keys into one slot of a cluster: a script can use only keys of one slot.
const LOCK: &str = "example:{account}:lock";
const BALANCE: &str = "example:{account}:balance";

/// DLOCK.CHECK stops the script unless the token is that of the hold in force.
const WRITE: &str = "\
redis.call('DLOCK.CHECK', KEYS[1], ARGV[1])
return redis.call('SET', KEYS[2], ARGV[2])";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = url();
    let client = Client::connect(&url).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;

    // The first holder is held up (a long pause of its machine, say) until its lease is over.
    let slow = client.lock(LOCK).fixed_lease(Duration::from_millis(100)).acquire().await?;
    write(&mut redis, slow.token(), 10).await?;
    println!("token {} wrote 10", slow.token());
    let how = slow.lost().await;
    println!("token {} lost the lock: {how:?}", slow.token());

    let next = client.lock(LOCK).acquire().await?;
    write(&mut redis, next.token(), 20).await?;
    println!("token {} wrote 20", next.token());

    // The first one does not know, or does not look.
    let refused = match write(&mut redis, slow.token(), 11).await {
        Ok(()) => None,
        Err(error) => error.code().map(str::to_owned),
    };
    println!("token {} wanted to write 11: {refused:?}", slow.token());
    // The script has checked each write: a lock that ended early changes nothing.
    next.release().await?;

    let balance: i64 = redis.get_del(BALANCE).await?;
    println!("the balance is {balance}");
    match (refused.as_deref(), balance) {
        (Some("STALE"), 20) => Ok(()),
        _ => Err("a write of an earlier holder came through".into()),
    }
}

async fn write(
    redis: &mut MultiplexedConnection,
    token: u64,
    balance: i64,
) -> Result<(), RedisError> {
    let mut eval = redis::cmd("EVAL");
    eval.arg(WRITE).arg(2).arg(LOCK).arg(BALANCE).arg(token).arg(balance);
    eval.query_async(redis).await
}

/// From the command line, else from the environment.
fn url() -> String {
    let given = std::env::args().nth(1).or_else(|| std::env::var("DLOCK_URL").ok());
    given.unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned())
}
