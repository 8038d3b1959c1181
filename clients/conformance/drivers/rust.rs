//! The driver of the Rust client. README.md describes the protocol.

use std::{
    collections::{BTreeSet, HashMap},
    io::BufRead as _,
    pin::Pin,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dlock_client::{Client, Error, ErrorKind, Hold, Lock, MultiHold, Once, PermitHold};
use tokio::task::JoinHandle;

type Releasing = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A hold of any kind.
struct Held {
    is_lost: Box<dyn Fn() -> bool + Send>,
    release: Box<dyn FnOnce() -> Releasing + Send>,
    /// Reports the loss.
    watcher: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    clients: HashMap<String, Client>,
    /// Tasks that acquire.
    tasks: HashMap<String, JoinHandle<()>>,
    held: HashMap<String, Held>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The words `name=value` of a command.
type Options = HashMap<String, String>;

fn time(options: &Options, name: &str) -> Option<Duration> {
    options.get(name)?.parse().ok().map(Duration::from_millis)
}

/// Sets what the words of a command name.
macro_rules! set {
    ($what:ident, $options:expr, $($name:literal => $setter:ident),*) => {
        $(if let Some(time) = time(&$options, $name) {
            $what = $what.$setter(time);
        })*
    };
}

/// A handle with the options that all handles have.
macro_rules! configured {
    ($handle:expr, $options:expr) => {{
        let mut handle = $handle;
        set!(handle, $options, "fixed" => fixed_lease, "max-hold" => max_hold, "bind" => bind);
        if let Some(owner) = $options.get("owner") {
            handle = handle.owner(owner);
        }
        handle
    }};
}

/// Acquires in the background.
macro_rules! acquire {
    ($task:expr, $handle:expr, $options:expr, $token:expr) => {{
        let (task, wait) = ($task.clone(), time(&$options, "wait"));
        let handle = configured!($handle, $options);
        let acquiring = tokio::spawn(async move {
            let granted = match wait {
                None => handle.acquire().await.map(Some),
                Some(Duration::ZERO) => handle.try_acquire().await,
                Some(time) => handle.acquire_timeout(time).await,
            };
            match granted {
                Ok(Some(guard)) => {
                    // Before a command about the hold can be read.
                    let mut state = state();
                    let (hold, lost, name) = (guard.hold(), guard.lost(), task.clone());
                    println!("{task} granted {}", $token(&hold));
                    let watcher = tokio::spawn(async move {
                        lost.await;
                        println!("{name} lost");
                    });
                    let is_lost = Box::new(move || hold.lost_now().is_some());
                    let release = Box::new(move || Box::pin(guard.release()) as _);
                    state.held.insert(task, Held { is_lost, release, watcher });
                }
                Ok(None) => println!("{task} not-acquired"),
                Err(error) => println!("{task} {}", failed(&error)),
            }
        });
        state().tasks.insert($task, acquiring);
    }};
}

fn lock(client: &Client, mode: &str, key: &str) -> Option<Lock> {
    Some(match mode {
        "lock" => client.lock(key),
        "fair" => client.fair_lock(key),
        "read" => client.rw_lock(key).read(),
        "write" => client.rw_lock(key).write(),
        _ => return None,
    })
}

fn tokens(hold: &MultiHold) -> String {
    hold.tokens().iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn failed(error: &Error) -> String {
    format!("failed {:?}", error.kind()).to_uppercase().replacen("FAILED", "failed", 1)
}

async fn open(name: String, url: String, options: Options) {
    let mut builder = Client::builder();
    set!(builder, options, "lease" => lease, "queue" => queue, "retry-for" => retry_for,
            "response-timeout" => response_timeout);
    if let Some(replicas) = options.get("replicas").and_then(|n| n.parse().ok()) {
        builder = builder.holds_through_failover(replicas);
    }
    match builder.connect(&url).await {
        Ok(client) => {
            state().clients.insert(name.clone(), client);
            println!("{name} opened");
        }
        Err(error) => println!("{name} {}", failed(&error)),
    }
}

fn acquire(task: String, client: &Client, mode: &str, key: &str, options: &Options) {
    match (mode, lock(client, mode, key)) {
        (_, Some(lock)) => acquire!(task, lock, options, Hold::token),
        ("semaphore", _) => {
            let mut semaphore = client.semaphore(key);
            if let Some(limit) = options.get("limit").and_then(|n| n.parse().ok()) {
                semaphore = semaphore.limit(limit);
            }
            acquire!(task, semaphore, options, PermitHold::permit_id);
        }
        ("multi", _) => acquire!(task, client.multi_lock(key.split(',')), options, tokens),
        ("any", _) => acquire!(task, client.any_lock(key.split(',')), options, Hold::token),
        _ => println!("{task} unsupported {mode}"),
    }
}

async fn release(task: String, held: Held) {
    held.watcher.abort();
    let _ = held.watcher.await;
    match (held.release)().await {
        Ok(()) => println!("{task} released"),
        Err(error) if matches!(error.kind(), ErrorKind::Lost { .. }) => println!("{task} was-lost"),
        Err(_) => println!("{task} unknown"),
    }
}

/// The form that ends the work when the hold is lost, or that which runs it once.
async fn run(task: String, lock: Lock, work: Duration, is_once: bool, wait: Option<Duration>) {
    let name = task.clone();
    let work = move |hold: Hold| async move {
        println!("{name} granted {}", hold.token());
        tokio::time::sleep(work).await;
        Ok::<_, Error>(())
    };
    let lock = wait.map_or(lock.clone(), |time| lock.timeout(time));
    let worked =
        if is_once { lock.run_once(work).await } else { lock.with(work).await.map(Once::Ran) };
    match worked.map_err(|error| (error.kind(), failed(&error))) {
        Ok(Once::Ran(())) => println!("{task} finished"),
        Ok(Once::AnotherRan(_)) => println!("{task} not-run"),
        Err((ErrorKind::NotAcquired, _)) => println!("{task} not-acquired"),
        Err((ErrorKind::Lost { .. }, _)) => println!("{task} lost"),
        Err((ErrorKind::ReleaseUnknown, _)) => println!("{task} unknown"),
        Err((_, failed)) => println!("{task} {failed}"),
    }
}

/// What one of `waiters` does. Of a run: whether it ran here, and its value.
async fn waiter(client: Client, key: String, options: Options) -> Result<(bool, u64), Error> {
    match options.get("as").map(String::as_str) {
        Some("once") => {
            let work = |hold: Hold| async move {
                tokio::time::sleep(time(&options, "work").unwrap_or_default()).await;
                Ok::<_, Error>(hold.token())
            };
            return Ok(match client.lock(&key).run_once(work).await? {
                Once::Ran(value) => (true, value),
                Once::AnotherRan(value) => (false, value.unwrap_or_default()),
            });
        }
        Some("await") => client.latch(&key).wait().await?,
        Some(_) => drop(client.multi_lock(key.split(',')).acquire().await?.release().await?),
        None => drop(client.lock(&key).acquire().await?.release().await?),
    }
    Ok((false, 0))
}

async fn waiters(task: String, client: Client, count: usize, key: String, options: Options) {
    let one = || waiter(client.clone(), key.clone(), options.clone());
    let all: Vec<_> = (0..count).map(|_| tokio::spawn(one())).collect();
    let (mut ran, mut values) = (0, BTreeSet::new());
    for waiter in all {
        let Ok(Ok((is_here, value))) = waiter.await else {
            return println!("{task} failed");
        };
        ran += usize::from(is_here);
        values.insert(value);
    }
    let is_run = options.get("as").is_some_and(|what| what == "once");
    println!(
        "{task} done{}",
        if is_run { format!(" {ran} {}", values.len()) } else { String::new() }
    );
}

async fn command(line: &str) -> Option<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let name = words.get(1).copied().unwrap_or("driver").to_owned();
    let options: Options = words
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let client = || state().clients.get(*words.get(2)?).cloned();
    match *words.as_slice() {
        ["open", _, url, ..] => drop(tokio::spawn(open(name, url.to_owned(), options))),
        ["acquire", _, _, mode, key, ..] => acquire(name, &client()?, mode, key, &options),
        ["check", ..] => {
            let is_lost = (state().held.get(&name)?.is_lost)();
            println!("{name} is {}", if is_lost { "lost" } else { "held" });
        }
        ["release", ..] => {
            let held = state().held.remove(&name)?;
            tokio::spawn(release(name, held));
        }
        ["cancel", ..] => {
            let task = state().tasks.remove(&name)?;
            task.abort();
            let is_cancelled = task.await.is_err_and(|error| error.is_cancelled());
            println!("{name} {}", if is_cancelled { "cancelled" } else { "too-late" });
        }
        [verb @ ("run" | "once"), _, _, mode, key, ..] => {
            let lock = configured!(lock(&client()?, mode, key)?, options);
            let (work, wait) = (time(&options, "work")?, time(&options, "wait"));
            tokio::spawn(run(name, lock, work, verb == "once", wait));
        }
        ["await", _, _, key, ..] => {
            let (latch, wait) = (client()?.latch(key), time(&options, "wait"));
            tokio::spawn(async move {
                let opened = match wait {
                    None => latch.wait().await.map(|()| true),
                    Some(time) => latch.wait_timeout(time).await,
                };
                let opened = opened.map(|is_open| if is_open { "open" } else { "not-open" });
                println!("{name} {}", opened.map_or_else(|error| failed(&error), str::to_owned));
            });
        }
        ["waiters", _, _, count, key, ..] => {
            let count = count.parse().ok()?;
            tokio::spawn(waiters(name, client()?, count, key.to_owned(), options));
        }
        ["close", ..] => {
            let client = state().clients.get(&name)?.clone();
            tokio::spawn(async move {
                let closed = client.close().await;
                println!("{name} {}", if closed.is_ok() { "closed" } else { "failed UNAVAILABLE" });
            });
        }
        ["suspend"] => println!("driver ready"),
        ["quit"] => std::process::exit(0),
        _ => println!("{name} unsupported {}", words[0]),
    }
    Some(())
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    while let Some(line) = lines.recv().await {
        if command(&line).await.is_none() {
            println!("driver failed to understand: {line}");
        }
    }
}
