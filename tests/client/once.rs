//! Single flight: of those who want the same work done, one does it and the others wait for the end.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dlock_client::{Client, Error, ErrorKind, Hold, Lock, Once};
use dlock_testing::{Reply as _, Sentinels, Server};
use tokio::sync::Notify;

use crate::places::Place;
use crate::support::{number, quick, start, start_on, until, within};

on_both! {
    when_the_run_fails_the_next_call_runs,
    a_lost_hold_cancels_the_run_and_another_runs,
    a_wait_for_the_runs_of_others_has_its_time,
    a_call_that_is_dropped_is_no_run,
}

/// The runs of one piece of work, as its receiver sees them.
#[derive(Clone, Default)]
struct Runs {
    begun: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    last_token: Arc<AtomicU64>,
    tokens: Arc<Mutex<Vec<u64>>>,
}

impl Runs {
    fn begin(&self, hold: &Hold) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.tokens.lock().unwrap().push(hold.token());
    }

    /// A late write of an earlier runner would be refused here.
    fn finish(&self, hold: &Hold) {
        let before = self.last_token.fetch_max(hold.token(), Ordering::SeqCst);
        assert!(before < hold.token(), "two runs wrote with the same token");
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    fn counts(&self) -> (usize, usize) {
        (self.begun.load(Ordering::SeqCst), self.done.load(Ordering::SeqCst))
    }
}

/// An error of the work.
#[derive(Debug)]
struct Failed(String);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed(error.to_string())
    }
}

/// A call whose work waits until it is told to go on.
fn spawn_run(
    lock: &Lock,
    runs: &Runs,
    go_on: &Arc<Notify>,
) -> tokio::task::JoinHandle<Result<Once<u64>, Error>> {
    let (lock, runs, go_on) = (lock.clone(), runs.clone(), go_on.clone());
    tokio::spawn(async move {
        lock.run_once(|hold| async move {
            runs.begin(&hold);
            go_on.notified().await;
            runs.finish(&hold);
            Ok(hold.token())
        })
        .await
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_compute_one_entry_over_one_connection() {
    let (server, client) = start().await;
    let (runs, go_on) = (Runs::default(), Arc::new(Notify::new()));
    let lock = client.lock("cache:report");
    let first = spawn_run(&lock, &runs, &go_on);
    until("the run to begin", || runs.counts().0 == 1).await;
    let before = server.info_number("clients", "connected_clients");
    let others: Vec<_> = (0..10_000).map(|_| spawn_run(&lock, &runs, &go_on)).collect();
    // Another process waits, too: with one connection for all of its tasks.
    let elsewhere = Client::connect(&server.url()).await.unwrap();
    let there = elsewhere.lock("cache:report");
    let also: Vec<_> = (0..100).map(|_| spawn_run(&there, &runs, &go_on)).collect();
    let observers = || number(&server.cmd(&["DLOCK.INFO", "cache:report"]), "observers");
    until("the other process to observe the run", || observers() == 1).await;
    let connections = server.info_number("clients", "connected_clients");
    println!("{before} connections before, {connections} with all waiting");
    // The other client's shared connection and the one on which it waits, and one of this test.
    assert!(connections <= before + 3);
    go_on.notify_one();
    let Once::Ran(token) = within("the run", first).await.unwrap().unwrap() else {
        panic!("another call ran")
    };
    for call in others {
        let once = within("a waiting call", call).await.unwrap().unwrap();
        assert_eq!(once, Once::AnotherRan(Some(token)));
    }
    for call in also {
        let once = within("a call of another process", call).await.unwrap().unwrap();
        assert_eq!(once, Once::AnotherRan(None));
    }
    assert_eq!(runs.counts(), (1, 1));
    // A call that comes later runs again.
    let again = spawn_run(&lock, &runs, &go_on);
    go_on.notify_one();
    assert!(matches!(within("a later run", again).await.unwrap().unwrap(), Once::Ran(_)));
    assert_eq!(runs.counts(), (2, 2));
    client.close().await.unwrap();
    elsewhere.close().await.unwrap();
    server.left_over_check();
}

async fn when_the_run_fails_the_next_call_runs<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let lock = client.lock("k");
    let elsewhere = server.client().await;
    let (runs, go_on) = (Runs::default(), Arc::new(Notify::new()));
    for how in ["error", "panic", "drop"] {
        let (begun, done) = runs.counts();
        let fail = Arc::new(Notify::new());
        let first = tokio::spawn({
            let (lock, runs, fail) = (lock.clone(), runs.clone(), fail.clone());
            async move {
                lock.run_once(|hold| async move {
                    runs.begin(&hold);
                    fail.notified().await;
                    assert!(how != "panic", "as intended by the test");
                    Err::<u64, Failed>(Failed("no luck".to_owned()))
                })
                .await
            }
        });
        until("the run to begin", || runs.counts().0 > begun).await;
        let here = spawn_run(&lock, &runs, &go_on);
        let there = spawn_run(&elsewhere.lock("k"), &runs, &go_on);
        let observers = || number(&server.cmd(&["DLOCK.INFO", "k"]), "observers");
        until("the other process to observe the run", || observers() == 1).await;
        if how == "drop" {
            first.abort();
        } else {
            fail.notify_one();
        }
        let failed = within("the failed run", first).await;
        match how {
            "error" => assert_eq!(failed.unwrap().unwrap_err().0, "no luck"),
            _ => assert!(failed.is_err(), "a task that ended"),
        }
        // One of the two runs, and the other waits for that. (If it was so short that the other one never saw its hold,
        // that one runs, too.)
        until("both to be answered", || {
            go_on.notify_one();
            here.is_finished() && there.is_finished()
        })
        .await;
        let ends = [here.await, there.await];
        let ran = ends
            .into_iter()
            .filter(|end| matches!(end.as_ref().unwrap().as_ref().unwrap(), Once::Ran(_)));
        let ran = ran.count();
        assert!(ran >= 1, "nobody ran after {how}");
        assert_eq!(runs.counts().1, done + ran, "after {how}");
    }
    client.close().await.unwrap();
    elsewhere.close().await.unwrap();
    server.left_over_check();
}

async fn a_lost_hold_cancels_the_run_and_another_runs<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let (runs, go_on) = (Runs::default(), Arc::new(Notify::new()));
    let first = spawn_run(&client.lock("k"), &runs, &go_on);
    until("the run to begin", || runs.counts().0 == 1).await;
    let elsewhere = server.client().await;
    let second = spawn_run(&elsewhere.lock("k"), &runs, &go_on);
    let observers = || number(&server.cmd(&["DLOCK.INFO", "k"]), "observers");
    until("the second to wait", || observers() == 1).await;
    server.cmd(&["DLOCK.BREAK", "k"]).int();
    let error = within("the first run", first).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    until("the second run", || runs.counts().0 == 2).await;
    go_on.notify_one();
    assert!(matches!(within("the second", second).await.unwrap().unwrap(), Once::Ran(_)));
    assert_eq!(runs.counts(), (2, 1));
    client.close().await.unwrap();
    elsewhere.close().await.unwrap();
    server.left_over_check();
}

async fn a_wait_for_the_runs_of_others_has_its_time<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let (runs, go_on) = (Runs::default(), Arc::new(Notify::new()));
    let first = spawn_run(&client.lock("k"), &runs, &go_on);
    until("the run to begin", || runs.counts().0 == 1).await;
    let elsewhere = server.client().await;
    for lock in [client.lock("k"), elsewhere.lock("k")] {
        let lock = lock.timeout(Duration::from_millis(30));
        let error = within("a short wait", lock.run_once(async |_| Ok::<_, Error>(()))).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NotAcquired);
    }
    go_on.notify_one();
    let _ = within("the run", first).await.unwrap().unwrap();
    let write = client.rw_lock("rw").write();
    let error = write.run_once(|_| async { Ok::<_, Error>(()) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    client.close().await.unwrap();
    elsewhere.close().await.unwrap();
    server.left_over_check();
}

/// Runs begin again and again in several clients while the servers fail over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_is_answered_through_a_failover() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let sentinels = Sentinels::start(3, &primary, 1);
    let runs = Runs::default();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let builder = quick().lease(Duration::from_secs(2)).retry_for(crate::support::PATIENCE);
        clients.push(builder.connect(&sentinels.url()).await.unwrap());
    }
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let answers = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let lock = clients[n % 3].lock("k");
            let (runs, stop, answers) = (runs.clone(), stop.clone(), answers.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let done = lock.run_once(|hold| {
                        let runs = runs.clone();
                        async move {
                            runs.begin(&hold);
                            tokio::time::sleep(Duration::from_millis(3)).await;
                            Ok::<_, Error>(hold.token())
                        }
                    });
                    match within("a call", done).await {
                        Ok(_) => {}
                        // The run here lost its hold.
                        Err(error) if matches!(error.kind(), ErrorKind::Lost { .. }) => {}
                        Err(error) => println!("{:?}: {error}", error.kind()),
                    }
                    answers.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let goes_on = async || {
        let before = answers.load(Ordering::SeqCst);
        until("all to go on", || answers.load(Ordering::SeqCst) > before + 30).await;
    };
    goes_on().await;
    tokio::task::block_in_place(|| sentinels.failover());
    tokio::task::block_in_place(|| sentinels.wait_replica(&primary));
    goes_on().await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        within("a task", task).await.unwrap();
    }
    // Each run had a token of its own.
    let tokens = runs.tokens.lock().unwrap().clone();
    let mut sorted = tokens.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), tokens.len(), "no two runs have one token");
    println!("{} runs, {} answers", tokens.len(), answers.load(Ordering::SeqCst));
    for client in clients {
        let _ = client.close().await;
    }
    replica.forget_connection();
    replica.left_over_check();
}

/// A call that gives up at any moment has run nothing, whatever the server has granted to it by then.
async fn a_call_that_is_dropped_is_no_run<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let elsewhere = server.client().await;
    let mut dice = dlock_testing::Dice::seeded(12);
    for n in 0..200 {
        let key = format!("k{n}");
        let after = Duration::from_micros(dice.below(1_500));
        let lock = client.lock(&key);
        let dropped = tokio::time::timeout(
            after,
            lock.run_once(|_| std::future::pending::<Result<(), Error>>()),
        );
        let others = [client.lock(&key), elsewhere.lock(&key)].map(|lock| async move {
            within("a call", lock.run_once(|_| async { Ok::<_, Error>(()) })).await.unwrap()
        });
        let [here, there] = others;
        let (_, here, there) = tokio::join!(dropped, here, there);
        let ran = [here, there].into_iter().filter(|once| *once == Once::Ran(())).count();
        assert!(ran >= 1, "{n}: after {after:?} nothing ran, but both calls think so");
    }
    client.close().await.unwrap();
    elsewhere.close().await.unwrap();
    server.left_over_check();
}

/// Callers may run on another executor than the client.
#[test]
fn a_caller_needs_no_runtime_of_tokio() {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    fn here<T>(work: impl Future<Output = T>) -> T {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let (mut work, mut context) = (Box::pin(work), std::task::Context::from_waker(&waker));
        loop {
            match work.as_mut().poll(&mut context) {
                std::task::Poll::Ready(done) => return done,
                std::task::Poll::Pending => std::thread::park(),
            }
        }
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, client) = runtime.block_on(start());
    let lock = client.lock("k");
    assert_eq!(here(lock.run_once(|_| async { Ok::<_, Error>(7) })).unwrap(), Once::Ran(7));
    here(here(lock.acquire()).unwrap().release()).unwrap();
    here(client.close()).unwrap();
    server.left_over_check();
}
