//! A shop sells 5,000 pieces to 200 buyers who come at once, without selling one twice: first with one lock for the
//! whole stock, then with the stock on 120 shelves, each with a lock of its own.
//!
//! A sale reads the stock, takes the money (which takes a millisecond) and writes the stock. With one lock, one buyer
//! pays at a time. With shelves, a buyer takes any that is free.
//!
//! ```text
//! cargo run --example shop -- redis://127.0.0.1:6379/
//! ```

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dlock_client::Client;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig};
use tokio::task::JoinSet;

const PIECES: u32 = 5_000;
const BUYERS: u32 = 200;
const SHELVES: u32 = 120;
const PAYMENT: Duration = Duration::from_millis(1);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = url();
    let client = Client::connect(&url).await?;
    // At the opening the server has two hundred requests for 120 locks each before it: the usual half second may be
    // too short for an answer.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    let redis = redis::Client::open(url)?;
    let mut redis = redis.get_multiplexed_async_connection_with_config(&patient).await?;

    let lock = client.lock("example:shop");
    let stock = stock_of(b"example:shop");
    let () = redis.set(&stock, PIECES).await?;
    let buy = |mut redis: MultiplexedConnection| {
        let (lock, stock) = (lock.clone(), stock.clone());
        async move {
            let mut bought = 0;
            loop {
                let sold = lock.with(|_| sell(&mut redis, &stock)).await?;
                if !sold {
                    return Ok(bought);
                }
                bought += 1;
            }
        }
    };
    let alone = open(&redis, "one lock", buy).await?;

    let keys: BTreeSet<Vec<u8>> = (0..SHELVES).map(|n| shelf(n).into_bytes()).collect();
    for n in 0..SHELVES {
        let share = PIECES / SHELVES + u32::from(n < PIECES % SHELVES);
        let () = redis.set(stock_of(shelf(n).as_bytes()), share).await?;
    }
    let with_stock = Arc::new(Mutex::new(keys.clone()));
    let buy = |mut redis: MultiplexedConnection| {
        let (client, with_stock) = (client.clone(), with_stock.clone());
        async move {
            let mut bought = 0;
            let mut lock = client.striped_lock("example:shop", SHELVES);
            loop {
                let guard = lock.acquire().await?;
                let shelf = guard.key().to_vec();
                let stock = stock_of(&shelf);
                let sold = guard.with(|_| sell(&mut redis, &stock)).await?;
                if sold {
                    bought += 1;
                    continue;
                }
                // Nobody needs to look at this shelf again.
                let left = {
                    let mut left = with_stock.lock().unwrap_or_else(PoisonError::into_inner);
                    left.remove(&shelf);
                    left.clone()
                };
                if left.is_empty() {
                    return Ok(bought);
                }
                lock = client.any_lock(left);
            }
        }
    };
    let striped = open(&redis, "120 stripes", buy).await?;
    println!("{:.1} times as fast with stripes", striped / alone);

    let stocks: Vec<Vec<u8>> = keys.iter().map(|key| stock_of(key)).chain([stock]).collect();
    let left: Vec<u32> = redis.mget(&stocks).await?;
    let () = redis.del(&stocks).await?;
    if left.iter().sum::<u32>() == 0 { Ok(()) } else { Err("pieces are left".into()) }
}

/// The key of the lock of a shelf, as `striped_lock` makes it.
fn shelf(n: u32) -> String {
    format!("{{example:shop}}:{n}")
}

fn stock_of(lock: &[u8]) -> Vec<u8> {
    [lock, b":stock"].concat()
}

/// Sells one piece; false: there is none. Only for who has the lock.
async fn sell(redis: &mut MultiplexedConnection, stock: &[u8]) -> Result<bool, Failure> {
    let pieces: u32 = redis.get(stock).await?;
    let Some(rest) = pieces.checked_sub(1) else { return Ok(false) };
    tokio::time::sleep(PAYMENT).await;
    let () = redis.set(stock, rest).await?;
    Ok(true)
}

/// Lets all buyers in at once; each buys until nothing is left. Answers how many pieces were sold in a second.
async fn open<F>(
    redis: &MultiplexedConnection,
    how: &str,
    buy: impl Fn(MultiplexedConnection) -> F,
) -> Result<f64, Failure>
where
    F: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    let start = Instant::now();
    let mut buyers = JoinSet::new();
    for _ in 0..BUYERS {
        buyers.spawn(buy(redis.clone()));
    }
    let mut sold = 0;
    while let Some(bought) = buyers.join_next().await {
        sold += bought??;
    }
    let rate = f64::from(sold) / start.elapsed().as_secs_f64();
    println!("{how}: {sold} of {PIECES} sold to {BUYERS} buyers, {rate:.0} per second");
    if sold == PIECES { Ok(rate) } else { Err("not every piece was sold once".into()) }
}

/// From the command line, else from the environment.
fn url() -> String {
    let given = std::env::args().nth(1).or_else(|| std::env::var("DLOCK_URL").ok());
    given.unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned())
}
