//! A loss is a loss, and names the reason and the keys; what nobody can know is neither a success nor a loss.

use std::time::Duration;

use dlock_client::{Client, Error, ErrorKind, Lost, MultiGuard, MultiLock, Once};
use dlock_testing_server::FakeServer;
use tokio::time::sleep;

use crate::start;

fn both(client: &Client, owner: Option<&str>) -> MultiLock {
    let both = client.multi_lock(["a", "b"]);
    match owner {
        Some(owner) => both.owner(owner),
        None => both,
    }
}

fn keys(error: &Error) -> Vec<&[u8]> {
    error.keys().collect()
}

fn finished(reason: Lost) -> ErrorKind {
    ErrorKind::Lost { reason, finished: true }
}

async fn is_free(server: &FakeServer, key: &str) -> bool {
    !server.client().await.unwrap().lock(key).is_locked().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn several_locks_of_which_one_was_lost_are_lost() {
    let (server, client) = start().await;
    for owner in [None, Some("me")] {
        // The message comes before the release.
        let guard: MultiGuard = both(&client, owner).acquire().await.unwrap();
        server.break_lock("b");
        assert_eq!(guard.lost().await, Lost::Broken);
        let error = guard.release().await.unwrap_err();
        assert_eq!((error.kind(), keys(&error)), (finished(Lost::Broken), vec![&b"b"[..]]));
        assert!(is_free(&server, "a").await, "{owner:?}");

        // It comes too late for the work: only the reply to the release says so.
        let done =
            both(&client, owner).with(async |_| Ok::<_, Error>(server.break_lock("b"))).await;
        let error = done.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Lost { finished: true, .. }),
            "{owner:?}: {error}"
        );
        assert_eq!(keys(&error), [b"b"], "{owner:?}");

        let guard = both(&client, owner).acquire().await.unwrap();
        server.break_lock("a");
        let error = guard.release().await.unwrap_err();
        assert_eq!(keys(&error), [b"a"], "{owner:?}");
        assert!(is_free(&server, "b").await, "{owner:?}");

        both(&client, owner).acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_lost_a_part_is_cancelled_and_its_error_names_the_key() {
    let (server, client) = start().await;
    for owner in [None, Some("me")] {
        let all = both(&client, owner);
        let work = all.with(async |_| {
            server.break_lock("b");
            std::future::pending::<Result<(), Error>>().await
        });
        let error = work.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost { reason: Lost::Broken, finished: false });
        assert_eq!(error.to_string(), "an operator broke the hold (key \"b\")");

        // Without a message: the renewal is refused for one part.
        let guard = both(&client, owner).acquire().await.unwrap();
        server.set_unavailable(true);
        server.break_lock("b");
        server.set_unavailable(false);
        assert_eq!(guard.lost().await, Lost::Refused);
        let error = guard.with(async |_| Ok::<_, Error>(())).await.unwrap_err();
        assert_eq!(keys(&error), [b"b"], "{owner:?}");
    }
}

/// Threads have the same.
#[test]
fn several_locks_of_threads_are_lost_too() {
    let server = FakeServer::start();
    let client = server.blocking_client().unwrap();
    let all = client.multi_lock(["a", "b"]);
    let error = all.with(|_| Ok::<_, Error>(server.break_lock("b"))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { finished: true, .. }), "{error}");
    assert_eq!(keys(&error), [b"b"]);
    let guard = all.acquire().unwrap();
    server.break_lock("a");
    let error = guard.release().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { finished: true, .. }), "{error}");
    assert_eq!(keys(&error), [b"a"]);
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_loss_is_in_the_error() {
    let (server, client) = start().await;
    let lock = client.lock("k").fixed_lease(Duration::from_secs(1));
    let end: [(Lost, &dyn Fn()); 3] = [
        (Lost::Broken, &|| assert_eq!(server.break_lock("k"), 1)),
        (Lost::Deleted, &|| assert!(server.delete("k"))),
        (Lost::Expired, &|| ()),
    ];
    for (reason, end) in end {
        let guard = lock.acquire().await.unwrap();
        end();
        assert_eq!(guard.lost().await, reason);
        // Here an expiry comes before that at the server.
        sleep(Duration::from_millis(100)).await;
        let error = guard.release().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (finished(reason), Some(&b"k"[..])));
    }
}

/// The first copy of a release comes, or does not, and then the server loses its memory and the hold.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_forgotten_makes_the_outcome_unknown() {
    let (server, client) = start().await;
    let forget = async || {
        // The release is sent, and its reply does not come in time.
        sleep(Duration::from_secs(4)).await;
        server.restart();
        server.set_frozen(false);
    };
    let lock = client.lock("k");
    let work = lock.with(async |_| {
        server.set_frozen(true);
        Ok::<_, Error>(17)
    });
    let (done, ()) = tokio::join!(work, forget());
    let error = done.unwrap_err();
    assert_eq!(
        (error.kind(), error.key()),
        (ErrorKind::ReleaseUnknown, Some(&b"k"[..])),
        "{error}"
    );

    let guard = both(&client, None).acquire().await.unwrap();
    server.set_frozen(true);
    let (released, ()) = tokio::join!(guard.release(), forget());
    let error = released.unwrap_err();
    assert_eq!((error.kind(), keys(&error)), (ErrorKind::ReleaseUnknown, vec![&b"a"[..], b"b"]));

    let permit = client.semaphore("s").limit(1).acquire().await.unwrap();
    server.set_frozen(true);
    let (released, ()) = tokio::join!(permit.release(), forget());
    assert_eq!(released.unwrap_err().kind(), ErrorKind::ReleaseUnknown);
}

/// Another client may have the lock after a failover: nobody confirmed that the hold lasted.
#[tokio::test(start_paused = true)]
async fn work_whose_release_no_server_answers_is_unknown() {
    let (server, client) = start().await;
    let lock = client.lock("k");
    let done = lock.with(async |_| {
        server.set_unavailable(true);
        Ok::<_, Error>(17)
    });
    let error = done.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReleaseUnknown, "{error}");
    // The error of work that failed stays what it is.
    server.set_unavailable(false);
    let failed = lock.with(async |_| {
        server.set_unavailable(true);
        Err::<(), _>(Error::clone(&error))
    });
    assert_eq!(failed.await.unwrap_err().text(), error.text());
}

/// The work was done in time, and the lease ended while the release was on its way.
#[tokio::test(start_paused = true)]
async fn an_expiry_after_the_work_is_no_loss() {
    let (server, client) = start().await;
    let lock = client.lock("k").fixed_lease(Duration::from_secs(1));
    let work = lock.with(async |_| {
        server.set_frozen(true);
        Ok::<_, Error>(17)
    });
    let thaw = async {
        sleep(Duration::from_millis(1_500)).await;
        server.set_frozen(false);
    };
    let (done, ()) = tokio::join!(work, thaw);
    // The lease outlasted the work.
    assert_eq!(done.unwrap(), 17);
}

#[tokio::test(start_paused = true)]
async fn errors_of_run_once_name_the_key() {
    let (server, client) = start().await;
    let lock = client.lock("k");
    let run = lock.run_once(async |_| {
        server.break_lock("k");
        std::future::pending::<Result<(), Error>>().await
    });
    let error = run.await.unwrap_err();
    assert_eq!(error.to_string(), "an operator broke the hold (key \"k\")");
    let late = lock.run_once(async |_| {
        server.break_lock("k");
        Ok::<_, Error>(())
    });
    let error = late.await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { finished: true, .. }), "{error}");
    assert_eq!(error.key(), Some(&b"k"[..]));
    let unknown = lock.run_once(async |_| {
        server.set_unavailable(true);
        Ok::<_, Error>(17)
    });
    let error = unknown.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReleaseUnknown);
    server.set_unavailable(false);
    let done = lock.run_once(async |_| Ok::<_, Error>(17)).await.unwrap();
    assert_eq!(done, Once::Ran(17));
}

/// Its absence is no opening: not for a task that asks from time to time, nor for one whose connection was lost.
#[tokio::test(start_paused = true)]
async fn a_latch_that_was_lost_is_not_open() {
    let (server, client) = start().await;
    let latch = client.latch("l");
    assert!(latch.is_open().await.unwrap());
    latch.init(1).await.unwrap();
    assert!(!latch.is_open().await.unwrap());
    let waiting = latch.clone();
    let waiting = tokio::spawn(async move { waiting.wait().await });
    sleep(Duration::from_secs(1)).await;
    server.set_unavailable(true);
    assert!(server.delete("l"));
    server.set_unavailable(false);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Broken);
    assert_eq!(latch.is_open().await.unwrap_err().kind(), ErrorKind::Broken);

    latch.init_for(1, Duration::from_secs(1)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(latch.is_open().await.unwrap_err().kind(), ErrorKind::Broken);

    latch.init(1).await.unwrap();
    assert_eq!(server.client().await.unwrap().latch("l").count_down(1).await.unwrap(), 0);
    assert!(latch.is_open().await.unwrap());
    latch.wait().await.unwrap();
}
