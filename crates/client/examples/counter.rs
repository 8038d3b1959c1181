//! Ten tasks add 1 to a plain counter in Redis a thousand times each, under one lock. They read and write it in two
//! steps: without the lock most additions would be lost.
//!
//! ```text
//! cargo run --example counter -- redis://127.0.0.1:6379/
//! ```

use std::error::Error;
use std::time::Instant;

use dlock_client::Client;
use redis::AsyncCommands;
use tokio::task::JoinSet;

const TASKS: i64 = 10;
const TIMES: i64 = 1_000;
const COUNTER: &str = "example:counter";

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = url();
    let client = Client::connect(&url).await?;
    let redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let () = redis.clone().set(COUNTER, 0).await?;

    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        // All tasks share the connections: a clone of a client or of a handle is only a reference.
        let lock = client.lock("example:counter:lock");
        let mut redis = redis.clone();
        tasks.spawn(async move {
            for _ in 0..TIMES {
                // Released at the end of the work. A lost lock is an error, and ends the work.
                lock.with(|_| async {
                    let value: i64 = redis.get(COUNTER).await?;
                    let () = redis.set(COUNTER, value + 1).await?;
                    Ok::<(), Failure>(())
                })
                .await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let time = start.elapsed().as_secs_f64();

    let counted: i64 = redis.clone().get_del(COUNTER).await?;
    let rate = f64::from(u32::try_from(counted)?) / time;
    println!("{TASKS} tasks, {TIMES} times each: {counted} in {time:.2} s, {rate:.0} per second");
    if counted == TASKS * TIMES { Ok(()) } else { Err("additions were lost".into()) }
}

/// From the command line, else from the environment.
fn url() -> String {
    let given = std::env::args().nth(1).or_else(|| std::env::var("DLOCK_URL").ok());
    given.unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned())
}
