//! Acquires a free lock for `scripts/walks`: once to open the connection, and once more after a line on standard input.

use std::error::Error;
use std::io::stdin;

use dlock_client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name the URL of a server")?;
    // One thread, so that the caller and the connection make one sequence. It reads a line between the two acquires, so
    // that nothing else runs meanwhile.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(&url).await?;
        let lock = client.lock("walk");
        lock.acquire().await?.release().await?;
        println!("ready");
        stdin().read_line(&mut String::new())?;
        lock.acquire().await?.release().await?;
        Ok(client.close().await?)
    })
}
