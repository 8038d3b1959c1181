//! A leader that works only while it holds a lock.
//!
//! Given a name, this is one instance: it waits to become the leader, works until it is told to stop (its input ends)
//! or the lock is lost, and then waits again. Without a name it shows two of them: the first leads, is killed in the
//! middle of its work, and the second takes over.
//!
//! ```text
//! cargo run --example leader -- redis://127.0.0.1:6379/
//! cargo run --example leader -- redis://127.0.0.1:6379/ alice
//! ```

use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, Instant};

use dlock_client::{Client, ErrorKind, Hold};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

/// How long nobody leads at most after a leader has died.
const LEASE: Duration = Duration::from_secs(1);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = url();
    match std::env::args().nth(2) {
        Some(name) => instance(&url, &name).await,
        None => show(&url).await,
    }
}

/// One instance. Any number of them may run, on any machine.
async fn instance(url: &str, name: &str) -> Result<(), Failure> {
    let client = Client::builder().lease(LEASE).connect(url).await?;
    let lock = client.lock("example:leader").label(name);
    let (stopped, stop) = watch::channel(false);
    tokio::spawn(async move {
        let mut input = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut input).await;
        stopped.send_replace(true);
    });
    println!("{name} stands by");
    loop {
        // The work is cancelled when the hold is lost: it never goes on beside that of the next leader.
        match lock.with(|hold| lead(name, hold, stop.clone())).await {
            // Nothing of this instance is left that the next leader would have to wait for.
            Ok(()) => return Ok(client.close().await?),
            Err(error) if matches!(error.kind(), ErrorKind::Lost { .. }) => {
                println!("{name} leads no more");
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What only the leader does.
async fn lead(
    name: &str,
    hold: Hold,
    mut stop: watch::Receiver<bool>,
) -> Result<(), dlock_client::Error> {
    println!("{name} leads, with token {}", hold.token());
    let stop = stop.wait_for(|stop| *stop);
    let work = async {
        loop {
            // Here it would do its work, and pass the token on to the code that writes the result.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = work => {}
        _ = stop => println!("{name} resigns"),
    }
    Ok(())
}

/// Two instances as processes of their own.
async fn show(url: &str) -> Result<(), Failure> {
    let (mut alice, mut alice_says) = start(url, "alice")?;
    let first = hear(&mut alice_says, "leads, with token").await?;
    let (mut bob, mut bob_says) = start(url, "bob")?;
    hear(&mut bob_says, "stands by").await?;

    alice.kill().await?;
    let killed = Instant::now();
    let second = hear(&mut bob_says, "leads, with token").await?;
    println!("bob took over {} ms after alice was killed", killed.elapsed().as_millis());
    if token(&second)? <= token(&first)? {
        return Err("the token of the second leader is not larger".into());
    }

    // The end of its input: it resigns, which frees the lock at once.
    drop(bob.stdin.take());
    hear(&mut bob_says, "resigns").await?;
    if bob.wait().await?.success() { Ok(()) } else { Err("bob failed".into()) }
}

fn start(url: &str, name: &str) -> Result<(Child, Lines<BufReader<ChildStdout>>), Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([url, name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    Ok((child, BufReader::new(output).lines()))
}

/// Passes on what an instance says, up to the line that has these words.
async fn hear(says: &mut Lines<BufReader<ChildStdout>>, words: &str) -> Result<String, Failure> {
    while let Some(line) = says.next_line().await? {
        println!("{line}");
        if line.contains(words) {
            return Ok(line);
        }
    }
    Err(format!("the instance ended before it said '{words}'").into())
}

fn token(line: &str) -> Result<u64, Failure> {
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

/// From the command line, else from the environment.
fn url() -> String {
    let given = std::env::args().nth(1).or_else(|| std::env::var("DLOCK_URL").ok());
    given.unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned())
}
