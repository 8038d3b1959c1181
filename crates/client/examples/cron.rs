//! A nightly job that runs on three machines at the same time and shall run once.
//! `cargo run --example cron -- redis://127.0.0.1:6379/`
use dlock_client::Client;
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The machine that gets the lock does the job. It keeps the lock for longer than the clocks of the machines differ.
async fn nightly(machine: &'static str, client: Client) -> Result<bool, Failure> {
    let lock =
        client.lock("example:nightly").label(machine).fixed_lease(Duration::from_millis(200));
    let Some(guard) = lock.try_acquire().await? else { return Ok(false) };
    println!("{machine} writes the report, token {}", guard.token());
    tokio::time::sleep(guard.valid_for()).await;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let client = Client::connect(&url).await?;
    let runs = tokio::try_join!(
        nightly("alpha", client.clone()),
        nightly("beta", client.clone()),
        nightly("gamma", client.clone()),
    )?;
    let ran = [runs.0, runs.1, runs.2].into_iter().filter(|ran| *ran).count();
    println!("{ran} of 3 machines ran the job");
    Ok(client.close().await?)
}
