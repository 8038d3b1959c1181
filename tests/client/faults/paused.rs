//! A process that is stopped for longer than its lease, and continues.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::task::Poll;
use std::time::Duration;

use dlock_client::{Client, Error, ErrorKind, Lost};
use dlock_testing::{Guarded, Server};

use crate::support::{start, until, within};

const LEASE: Duration = Duration::from_secs(1);
const ROUNDS: u64 = 8;
/// Environment of the child process to stop: the server's URL, and the file of its counter.
const CHILD: [&str; 2] = ["DLOCK_PAUSED_URL", "DLOCK_PAUSED_FILE"];

/// The next holder has the lock when the process continues. The process only finishes the statement in which it was
/// stopped. The rest only a token can prevent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_was_stopped_does_not_go_on_beside_the_next_holder() {
    let (server, client) = start().await;
    let directory = tempfile::tempdir().unwrap();
    let mut late = 0;
    for round in 0..ROUNDS {
        let file = directory.path().join(round.to_string());
        late += stop_one(&server, &client, &file).await;
    }
    println!("{late} statements in {ROUNDS} rounds beside the next holder");
    assert!(late <= ROUNDS, "{late} statements in {ROUNDS} rounds");
    server.left_over_check();
}

/// Returns the number of late statements.
async fn stop_one(server: &Server, client: &Client, file: &Path) -> u64 {
    File::create(file).unwrap();
    let done = || std::fs::metadata(file).unwrap().len();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "faults::paused::the_process_that_is_stopped"])
        .env(CHILD[0], server.url())
        .env(CHILD[1], file)
        .stdout(Stdio::null());
    let mut process = Guarded::spawn(command).unwrap();
    until("the work to begin", || done() > 1_000).await;
    process.freeze();
    let next = within("the next holder", client.lock("k").acquire()).await.unwrap();
    let before = done();
    process.thaw();
    let mut ended = None;
    until("the process to end", || {
        ended = process.ended();
        ended.is_some()
    })
    .await;
    assert!(ended.unwrap().success(), "the work was lost, and for no other reason");
    assert_eq!(next.lost_now(), None);
    next.release().await.unwrap();
    done() - before
}

/// Run by the test above, in a separate process; otherwise it does nothing.
#[test]
fn the_process_that_is_stopped() {
    let [Ok(url), Ok(file)] = CHILD.map(std::env::var) else { return };
    let mut file = OpenOptions::new().append(true).open(file).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A task: the driver, which fires timers, is polled only occasionally next to it.
    let task = runtime.spawn(async move {
        let client = Client::builder().lease(LEASE).connect(&url).await.unwrap();
        let work = move |_| async move {
            while file.write_all(b".").is_ok() {
                short().await;
            }
            Ok::<_, Error>(())
        };
        client.lock("k").with(work).await.unwrap_err()
    });
    let error = runtime.block_on(task).unwrap();
    let ErrorKind::Lost { reason, finished: false } = error.kind() else { panic!("{error:?}") };
    assert!(matches!(reason, Lost::Expired | Lost::Refused), "{reason:?}");
}

/// An await that is ready at the next poll: no external event is needed.
async fn short() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
