//! Acquires a lock for `scripts/walks`: once to open the connection, and once more for each line on standard input.

use std::error::Error;
use std::io::stdin;

use dlock_client::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name the URL of a server")?;
    // One thread, so that the caller and the connection make one sequence. It reads a line between two acquires, so
    // that nothing else runs meanwhile.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(&url).await?;
        let lock = client.lock("walk");
        lock.acquire().await?.release().await?;
        println!("ready");
        while stdin().read_line(&mut String::new())? > 0 {
            let guard = lock.acquire().await?;
            println!("held");
            guard.release().await?;
            println!("released");
        }
        Ok(client.close().await?)
    })
}
