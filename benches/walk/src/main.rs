//! Takes a lock for `scripts/walks`: once to open the connection, and once more for each line on standard input. For
//! `scripts/instructions`: empty turns, as `dlock-walk URL queue|block|with|free TURNS` says.

use std::error::Error;
use std::io::stdin;

use dlock_client::{Client, Wait};
use tokio::task::JoinSet;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().ok_or("name the URL of a server")?;
    // One thread, so that the caller and the connection make one sequence. It reads a line between two acquires, so
    // that nothing else runs meanwhile.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if let (Some(how), Some(count)) = (words.next(), words.next()) {
            return Ok(turns(&url, &how, count.parse()?).await?);
        }
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

/// That number of turns with nothing between acquire and release: of ten tasks that wait for each other, or of one.
async fn turns(url: &str, how: &str, count: usize) -> Result<(), dlock_client::Error> {
    let wait = if how == "block" { Wait::Blocking } else { Wait::Queue };
    let client = Client::builder().wait(wait).connect(url).await?;
    let tasks = if matches!(how, "queue" | "block") { 10 } else { 1 };
    let (mut all, works) = (JoinSet::new(), how == "with");
    for _ in 0..tasks {
        let lock = client.lock("walk");
        all.spawn(async move {
            for _ in 0..count / tasks {
                if works {
                    lock.with(async |_| Ok::<_, dlock_client::Error>(())).await?;
                } else {
                    lock.acquire().await?.release().await?;
                }
            }
            Ok::<_, dlock_client::Error>(())
        });
    }
    while let Some(Ok(done)) = all.join_next().await {
        done?;
    }
    client.close().await
}
