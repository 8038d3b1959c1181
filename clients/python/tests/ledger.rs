//! Tasks of the Rust client for ledger.py: `ledger url recorder tasks locks lease-ms`, until they are killed.
use dlock_client::{Client, Released};
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, recorder, tasks, locks, lease] = words.as_slice() else {
        return Err("ledger url recorder tasks locks lease-ms".into());
    };
    let (tasks, locks): (usize, usize) = (tasks.parse()?, locks.parse()?);
    let lease = Duration::from_millis(lease.parse()?);
    let client = Client::connect(url).await?;
    let recorder = redis::Client::open(recorder.as_str())?.get_multiplexed_async_connection().await?;
    let script = std::env::var("LEDGER_SCRIPT")?;
    let workers = (0..tasks).map(|task| {
        let (client, script) = (client.clone(), script.clone());
        let mut recorder = recorder.clone();
        tokio::spawn(async move {
            for turn in task.. {
                let key = format!("ledger:{}", turn % locks);
                let mut note = async |event: &str, token: u64| {
                    let mut eval = redis::cmd("EVAL");
                    eval.arg(&script).arg(1).arg(&key).arg(event).arg(token).arg("rust");
                    eval.query_async::<bool>(&mut recorder).await
                };
                let Ok(hold) = client.lock(&key).lease(lease).acquire().await else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let token = hold.token();
                let began = note("start", token).await?;
                tokio::time::sleep(Duration::from_millis(1)).await;
                let ended = note("end", token).await?;
                let stood = matches!(hold.release().await, Ok(Released::Remaining(_)));
                let result = if !stood { "lost" } else if began && ended { "turn" } else { "overlap" };
                note(result, token).await?;
            }
            Ok::<(), Failure>(())
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await??;
    }
    Ok(())
}
