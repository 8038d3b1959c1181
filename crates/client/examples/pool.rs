//! Workers that share a service which takes five calls at a time and five in a tenth of a second: a semaphore with
//! five permits, each of which is kept for the call and at least for that tenth.
//!
//! The workers may be in any number of processes, on any machine; here they are tasks.
//!
//! ```text
//! cargo run --example pool -- redis://127.0.0.1:6379/
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dlock_client::Client;
use tokio::task::JoinSet;

const WORKERS: u32 = 20;
const JOBS: u32 = 60;
const CALLS: u32 = 5;
const WINDOW: Duration = Duration::from_millis(100);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let client = Client::connect(&url()).await?;
    // Made on first use; it goes with the last permit.
    let service = client.semaphore("example:pool").limit(CALLS);
    let jobs = Arc::new(AtomicU32::new(JOBS));

    let start = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (service, jobs) = (service.clone(), jobs.clone());
        workers.spawn(async move {
            let mut begun = Vec::new();
            while jobs
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok()
            {
                let at = service
                    .with(|_| async {
                        let at = Instant::now();
                        tokio::join!(call(), tokio::time::sleep(WINDOW));
                        Ok::<_, Failure>(at)
                    })
                    .await?;
                begun.push(at);
            }
            Ok::<_, Failure>(begun)
        });
    }
    let mut begun = Vec::new();
    while let Some(of_worker) = workers.join_next().await {
        begun.extend(of_worker??);
    }
    let time = start.elapsed().as_secs_f64();

    begun.sort();
    let most = begun.iter().map(|at| begun_within(&begun, *at)).max().unwrap_or(0);
    println!(
        "{} jobs of {WORKERS} workers in {time:.2} s, at most {most} begun within {} ms",
        begun.len(),
        WINDOW.as_millis()
    );
    if most <= CALLS as usize { Ok(()) } else { Err("too many calls at a time".into()) }
}

/// The service that must not be called too often.
async fn call() {
    tokio::time::sleep(Duration::from_millis(30)).await;
}

fn begun_within(begun: &[Instant], from: Instant) -> usize {
    begun.iter().filter(|at| (from..from + WINDOW).contains(at)).count()
}

/// From the command line, else from the environment.
fn url() -> String {
    let given = std::env::args().nth(1).or_else(|| std::env::var("DLOCK_URL").ok());
    given.unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned())
}
