//! Workers of `clients/python/tests/ledger.py`, until they are killed. Each takes turns at ten locks, and notes start
//! and steps of each turn with its token in a second server, the recorder.
//!
//! ```text
//! cargo run --example ledger -- redis://127.0.0.1:6379/ redis://127.0.0.1:6380/ 20 "$SCRIPT"
//! ```
//!
//! The script is that of `ledger.py`: it takes the notes.

use std::time::Duration;

use dlock_client::Client;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::sleep;

const LOCKS: usize = 10;
const LEASE: Duration = Duration::from_millis(1_500);
const STEP: Duration = Duration::from_millis(10);
/// As many as a lease has time for.
const STEPS: u32 = 150;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, recorder, tasks, script] = words.as_slice() else {
        return Err("usage: ledger URL RECORDER TASKS SCRIPT".into());
    };
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let recorder = redis::Client::open(recorder.as_str())?;
    let recorder = recorder.get_multiplexed_async_connection_with_config(&patient).await?;
    // The server may be down just now.
    let client = Client::builder()
        .lease(LEASE)
        .connect_retry_for(Duration::from_secs(60))
        .connect(url)
        .await?;
    let mut workers = JoinSet::new();
    for number in 0..tasks.parse()? {
        let ledger = Ledger { recorder: recorder.clone(), script: script.clone() };
        workers.spawn(work(client.clone(), ledger, number));
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn work(client: Client, mut ledger: Ledger, number: usize) -> Result<(), Failure> {
    for turn in number + 1.. {
        let key = format!("ledger:{}", turn % LOCKS);
        let ticket = ledger.note(&key, "ask", 0, 0).await?;
        let Ok(guard) = client.lock(&key).acquire().await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let token = guard.token();
        let mut is_noted = ledger.note(&key, "start", token, ticket).await? == 1;
        // Now and then so long that the hold is renewed.
        let mut left = if token % 100 == 0 { STEPS } else { 1 };
        while is_noted && left > 0 && guard.lost_now().is_none() {
            sleep(STEP).await;
            is_noted = ledger.note(&key, "step", token, 0).await? == 1;
            left -= 1;
        }
        let is_believed = guard.lost_now().is_none();
        let has_stood = guard.release().await.is_ok();
        let event = match (is_noted, has_stood) {
            (false, stood) if stood || is_believed => "overlap",
            (_, true) => "turn",
            (_, false) => "lost",
        };
        ledger.note(&key, event, token, 0).await?;
    }
    Ok(())
}

struct Ledger {
    recorder: MultiplexedConnection,
    script: String,
}

impl Ledger {
    async fn note(
        &mut self,
        key: &str,
        event: &str,
        token: u64,
        ticket: u64,
    ) -> Result<u64, Failure> {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.script).arg(1).arg(key).arg(event).arg(token).arg("rust").arg(ticket);
        Ok(command.query_async(&mut self.recorder).await?)
    }
}
