//! Single flight and elections while the test steps time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock_client::{Client, Error, ErrorKind, Lost, Once};
use dlock_testing_server::FakeServer;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::{start, until};

const HOUR: Duration = Duration::from_hours(1);

/// A call whose work takes an hour.
fn call(client: &Client, begun: &Arc<AtomicUsize>) -> JoinHandle<Result<Once<()>, Error>> {
    let (lock, begun) = (client.lock("report"), begun.clone());
    tokio::spawn(async move {
        let work = lock.run_once(|_| async {
            begun.fetch_add(1, Ordering::SeqCst);
            sleep(HOUR).await;
            Ok::<_, Error>(())
        });
        work.await
    })
}

/// Whether each client that waits for the end of the run does so.
fn is_observed_by(server: &FakeServer, clients: usize) -> bool {
    let reply = server.command(&["DLOCK.INFO", "report"]);
    String::from_utf8_lossy(&reply).contains(&format!("observers\r\n:{clients}\r\n"))
}

#[tokio::test(start_paused = true)]
async fn one_run_of_an_hour_answers_all_calls() {
    let (server, client) = start().await;
    let other = server.client().await.unwrap();
    let begun = Arc::default();
    let start = Instant::now();
    let first = call(&client, &begun);
    until("the run", || begun.load(Ordering::SeqCst) == 1).await;
    let others = [&client, &other].map(|client| [(); 50].map(|()| call(client, &begun)));
    until("the other client to wait", || is_observed_by(&server, 1)).await;
    assert_eq!(first.await.unwrap().unwrap(), Once::Ran(()));
    for (calls, result) in others.into_iter().zip([Some(()), None]) {
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), Once::AnotherRan(result));
        }
    }
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    assert!(start.elapsed() < HOUR + Duration::from_mins(1), "{:?}", start.elapsed());
}

/// An outage that outlasts the lease: the runner is told, and one of the waiting calls runs.
#[tokio::test(start_paused = true)]
async fn an_outage_loses_the_run_and_another_call_runs() {
    let (server, client) = start().await;
    // It waits for longer than the outage.
    let patient = Client::builder().retry_for(Duration::from_mins(5));
    let other = server.connect(patient).await.unwrap();
    let begun = Arc::default();
    let first = call(&client, &begun);
    until("the run", || begun.load(Ordering::SeqCst) == 1).await;
    let others = [call(&other, &begun), call(&other, &begun)];
    until("the other client to wait", || is_observed_by(&server, 1)).await;
    server.set_unavailable(true);
    let error = first.await.unwrap().unwrap_err();
    let reason = Lost::Expired;
    assert_eq!(error.kind(), ErrorKind::Lost { reason, finished: false });
    server.set_unavailable(false);
    let [one, two] = others;
    assert_eq!(one.await.unwrap().unwrap(), Once::Ran(()));
    assert_eq!(two.await.unwrap().unwrap(), Once::AnotherRan(Some(())));
    assert_eq!(begun.load(Ordering::SeqCst), 2);
}

/// A leader is followed when its machine dies, and when the server loses its data; an observer sees each of them.
#[tokio::test(start_paused = true)]
async fn leaders_follow_each_other_through_faults() {
    let (server, client) = start().await;
    let next = server.client().await.unwrap();
    let [a, b] = [(&client, "a"), (&next, "b")].map(|(c, name)| c.election("e").value(name));
    let mut leaders = server.client().await.unwrap().election("e").observe();
    let first = a.campaign().await.unwrap();
    let seen = leaders.next().await.unwrap();
    assert_eq!((seen.value.as_slice(), seen.token), (&b"a"[..], first.token()));
    sleep(HOUR).await;
    assert_eq!(first.lost_now(), None);

    let second = tokio::spawn({
        let b = b.clone();
        async move { b.campaign().await.unwrap() }
    });
    until("the candidate", || crate::waiters(&server, "e") == 1).await;
    server.restart();
    let second = second.await.unwrap();
    assert_eq!(first.lost().await, Lost::Refused);
    let seen = leaders.next().await.unwrap();
    assert_eq!((seen.value.as_slice(), seen.token), (&b"b"[..], second.token()));

    server.break_lock("e");
    assert_eq!(second.lost().await, Lost::Broken);
    let third = a.campaign().await.unwrap();
    assert!(first.token() < second.token() && second.token() < third.token());
    assert_eq!(leaders.next().await.unwrap().token, third.token());
    third.resign().await.unwrap();
    assert_eq!(a.leader().await.unwrap(), None);
}
