//! Single flight while runners die, lose their lease, and servers restart: the work is done at least once, no two runs
//! are under way at the same time, and every waiting call is answered.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlock_client::{Client, Error, ErrorKind, Hold, Lock, Once};
use dlock_testing::{Guarded, Proxy, Reply as _, Server};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::{PATIENCE, number, quick, until, within};

const KEY: &str = "cache:report";
/// Calls of each client.
const CALLS: usize = 25;
const LEASE: Duration = Duration::from_secs(2);
/// Environment of the child process to kill: the server's URL, and the milliseconds of its binding, if any.
const CHILD: [&str; 2] = ["DLOCK_RUNNER_URL", "DLOCK_RUNNER_BIND"];

/// One run of the work.
#[derive(Clone, Copy, Debug)]
struct Run {
    token: u64,
    begun: Instant,
    /// When its last step was over: it had done the work, or was dropped.
    ended: Option<Instant>,
}

/// The runs, and the receiver of what they write.
#[derive(Clone, Default)]
struct Runs {
    all: Arc<Mutex<Vec<Run>>>,
    /// The tokens of the writes, as the receiver got them.
    written: Arc<Mutex<Vec<u64>>>,
    /// Calls that were made, and that have begun.
    made: Arc<AtomicUsize>,
    called: Arc<AtomicUsize>,
}

impl Runs {
    /// Records that a run begins; it ends when the returned guard is dropped.
    fn begin(&self, token: u64) -> Running {
        let mut all = self.all.lock().unwrap();
        all.push(Run { token, begun: Instant::now(), ended: None });
        Running { all: self.all.clone(), at: all.len() - 1 }
    }

    fn count(&self) -> usize {
        self.all.lock().unwrap().len()
    }

    /// The work: it waits until it may go on, and writes. A receiver refuses a write after one with a larger token.
    async fn work(self, hold: Hold, mut may_go_on: watch::Receiver<bool>) -> Result<(), Error> {
        let _running = self.begin(hold.token());
        let _ = may_go_on.wait_for(|may| *may).await;
        let mut written = self.written.lock().unwrap();
        if written.last().is_none_or(|last| *last < hold.token()) {
            written.push(hold.token());
        }
        Ok(())
    }

    /// One call of the work.
    fn call(&self, lock: &Lock, gate: &Gate) -> JoinHandle<Result<Once<()>, Error>> {
        let (lock, runs, may_go_on) = (lock.clone(), self.clone(), gate.subscribe());
        self.made.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            runs.called.fetch_add(1, Ordering::SeqCst);
            let work = |hold| runs.clone().work(hold, may_go_on);
            within("a call", lock.run_once(work)).await
        })
    }

    /// Calls of each of these clients that all wait for the run in force, at that server.
    async fn crowd(&self, server: &Server, clients: &[&Client], gate: &Gate) -> Crowd {
        let lock = |n: usize| clients[n % clients.len()].lock(KEY);
        let calls = CALLS * clients.len();
        let crowd = (0..calls).map(|n| self.call(&lock(n), gate)).collect();
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        until("all calls", || count(&self.called) == count(&self.made)).await;
        let observers = || number(&server.cmd(&["DLOCK.INFO", KEY]), "observers");
        until("each client to observe the run", || {
            usize::try_from(observers()).is_ok_and(|n| n == clients.len())
        })
        .await;
        Crowd(crowd)
    }

    /// At least one run has written; tokens rise from run to run and from write to write.
    fn check_tokens(&self, what: &str) {
        let all = self.all.lock().unwrap().clone();
        let written = self.written.lock().unwrap().clone();
        println!("{what}: {} runs, {} have written", all.len(), written.len());
        assert!(!written.is_empty(), "{what}: computed");
        assert!(written.is_sorted_by(|a, b| a < b), "{what}: {written:?}");
        assert!(all.is_sorted_by(|a, b| a.token < b.token), "{what}: {all:?}");
    }

    /// The same, and no run begins before the last one has ended.
    fn check(&self, what: &str) {
        self.check_tokens(what);
        let all = self.all.lock().unwrap().clone();
        let follows = |a: &Run, b: &Run| a.ended.is_some_and(|ended| ended <= b.begun);
        assert!(all.is_sorted_by(follows), "{what}: two runs at the same time: {all:?}");
    }
}

struct Running {
    all: Arc<Mutex<Vec<Run>>>,
    at: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.lock().unwrap()[self.at].ended = Some(Instant::now());
    }
}

/// Lets all runs go on, also later ones.
type Gate = watch::Sender<bool>;

/// Calls that wait.
struct Crowd(Vec<JoinHandle<Result<Once<()>, Error>>>);

impl Crowd {
    /// Each call is answered: by its own run, or because another one ran. Returns how many ran.
    async fn answered(self) -> usize {
        let mut ran = 0;
        for call in self.0 {
            match call.await.unwrap() {
                Ok(Once::Ran(())) => ran += 1,
                Ok(Once::AnotherRan(_)) => {}
                Err(error) => panic!("a waiting call fails: {:?} {error}", error.kind()),
            }
        }
        ran
    }
}

async fn clients(url: &str, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(quick().lease(LEASE).retry_for(PATIENCE).connect(url).await.unwrap());
    }
    clients
}

async fn close(clients: Vec<Client>) {
    for client in clients {
        client.close().await.unwrap();
    }
}

/// The run of the process ends with the process: by its binding, or by its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_runs_is_killed() {
    for bind_ms in ["100", "500", ""] {
        let server = Server::start();
        let (runs, gate) = (Runs::default(), Gate::new(true));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "faults::flight::the_process_to_kill"])
            .env(CHILD[0], server.url())
            .env(CHILD[1], bind_ms)
            .stdout(Stdio::null());
        let mut process = Guarded::spawn(command).unwrap();
        let info = || server.cmd(&["DLOCK.INFO", KEY]);
        until("the process to run", || !info().is_null()).await;
        let running = runs.begin(u64::try_from(info().field("token").int()).unwrap());
        let clients = clients(&server.url(), 3).await;
        let crowd = runs.crowd(&server, &[&clients[0], &clients[1], &clients[2]], &gate).await;
        // First: with a short binding, the next run may begin before the kill returns.
        drop(running);
        process.kill();
        assert!(crowd.answered().await >= 1);
        runs.check(&format!("killed, bound for '{bind_ms}' ms"));
        close(clients).await;
        server.left_over_check();
    }
}

/// Run by the test above, in a separate process; otherwise it does nothing.
#[test]
fn the_process_to_kill() {
    let [Ok(url), Ok(bind)] = CHILD.map(std::env::var) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder().lease(LEASE).connect(&url).await.unwrap();
        let mut lock = client.lock(KEY);
        if let Ok(ms) = bind.parse() {
            lock = lock.bind(Duration::from_millis(ms));
        }
        let _ = lock.run_once(|_| std::future::pending::<Result<(), Error>>()).await;
    });
}

/// The runner and other calls of its client are cut off for longer than the lease, twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runner_loses_its_lease() {
    for how in ["cut off", "stalled"] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        let (runs, hang, go_on) = (Runs::default(), Gate::new(false), Gate::new(true));
        let behind = clients(&proxy.url(), 1).await;
        let there = clients(&server.url(), 2).await;
        let first = runs.call(&behind[0].lock(KEY), &hang);
        until("the run", || runs.count() == 1).await;
        // These wait in the client of the runner; all others at the server.
        let here: Vec<_> = (0..CALLS).map(|_| runs.call(&behind[0].lock(KEY), &go_on)).collect();
        let crowd = runs.crowd(&server, &[&there[0], &there[1]], &go_on).await;
        if how == "stalled" {
            proxy.stall_all();
        } else {
            proxy.refuse();
            proxy.cut(dlock_testing::Cut::Reset);
        }
        let error = within("the first run", first).await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Lost { finished: false, .. }), "{error}");
        assert!(crowd.answered().await >= 1);
        // The calls behind the proxy have heard nothing of that.
        proxy.heal();
        Crowd(here).answered().await;
        runs.check(how);
        close(behind).await;
        close(there).await;
        server.left_over_check();
    }
}

/// A run outlasts the restart of a server that keeps its data. Otherwise it is lost: the next run has a larger token.
/// With a quarantine of the longest lease, no other run begins before the runner has stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_restarts() {
    let aof = ["appendonly", "yes", "appendfsync", "always"];
    let quarantine = ["dlock.restart-quarantine-ms", "2500"];
    for (what, settings) in [("AOF", &aof[..]), ("quarantine", &quarantine), ("nothing", &[])] {
        let mut server = Server::with(&["save", ""]).and(settings).start();
        let (runs, gate) = (Runs::default(), Gate::new(false));
        let clients = clients(&server.url(), 3).await;
        let first = runs.call(&clients[0].lock(KEY), &gate);
        until("the run", || runs.count() == 1).await;
        let here: Vec<_> = (0..CALLS).map(|_| runs.call(&clients[0].lock(KEY), &gate)).collect();
        let crowd = runs.crowd(&server, &[&clients[1], &clients[2]], &gate).await;
        server.kill9();
        server.start_again();
        if what == "AOF" {
            assert!(!server.cmd(&["DLOCK.INFO", KEY]).is_null(), "the hold is there");
        } else {
            until("the next run", || runs.count() == 2).await;
        }
        gate.send_replace(true);
        let first = within("the first run", first).await.unwrap();
        if what == "AOF" {
            assert_eq!(first.unwrap(), Once::Ran(()));
        } else {
            // A server that has forgotten everything does not know whether it got a release before it was killed.
            let error = first.unwrap_err();
            let unknown = what == "nothing" && matches!(error.kind(), ErrorKind::ReleaseUnknown);
            assert!(unknown || matches!(error.kind(), ErrorKind::Lost { .. }), "{what}: {error}");
        }
        let ran = Crowd(here).answered().await + crowd.answered().await;
        println!("{what}: {ran} more calls ran");
        if what == "nothing" {
            // The lost run ends when its client hears of it, which may be after the next has begun.
            runs.check_tokens(what);
        } else {
            runs.check(what);
        }
        close(clients).await;
        server.left_over_check();
    }
}
