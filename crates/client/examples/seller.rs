//! Sells pieces of one stock until none is left, beside sellers in Python and Node: see `examples/shop`.
//! `cargo run --example seller -- redis://127.0.0.1:6379/`
use std::time::Duration;

use dlock_client::Client;
use redis::AsyncCommands as _;

const PAYMENT: Duration = Duration::from_millis(2);
/// A seller that is killed holds the others up for at most this time.
const LEASE: Duration = Duration::from_secs(3);
const SELL: &str = include_str!("../../../examples/shop/sell.lua");

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sells a piece under the lock with that token. None: no piece is left.
async fn sell(shop: &redis::Client, token: u64) -> Result<Option<u32>, Failure> {
    let mut shop = shop.get_multiplexed_async_connection().await?;
    let left: u32 = shop.hget("shop", "left").await?;
    if left == 0 {
        return Ok(None);
    }
    tokio::time::sleep(PAYMENT).await;
    let mut sale = redis::cmd("EVAL");
    sale.arg(SELL).arg(2).arg("shop").arg("shop:sales").arg(token).arg(left).arg("rust");
    Ok(Some(sale.query_async(&mut shop).await?))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let lock = Client::builder().lease(LEASE).connect(&url).await?.lock("shop:lock");
    let shop = redis::Client::open(url)?;
    let mut sold = 0;
    loop {
        match lock.with(async |hold| sell(&shop, hold.token()).await).await {
            Ok(Some(pieces)) => sold += pieces,
            Ok(None) => break,
            // The lock was lost, or a connection: look at the stock again.
            Err(error) => eprintln!("again: {error}"),
        }
    }
    println!("sold {sold}");
    Ok(())
}
