//! What handles tell about the state of the server.

use dlock_client::blocking;
use dlock_testing::{Reply as _, Server};

use crate::support::start;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_tell_whether_and_by_whom_they_are_held() {
    let (server, client) = start().await;
    for lock in [client.lock("l"), client.fair_lock("f"), client.rw_lock("w").write()] {
        assert!(!lock.is_locked().await.unwrap());
        assert_eq!(lock.holder().await.unwrap(), None);
        let guard = lock.clone().owner("me").label("worker 7").acquire().await.unwrap();
        assert!(lock.is_locked().await.unwrap());
        let holder = lock.holder().await.unwrap().expect("held");
        assert_eq!(
            (holder.owner.as_slice(), holder.label.as_slice()),
            (&b"me"[..], &b"worker 7"[..])
        );
        assert_eq!((holder.token, holder.holds), (guard.token(), 1));
        assert!(holder.left <= holder.lease && holder.left > guard.valid_for() / 2);
    }
    let rw = client.rw_lock("rw");
    assert!(!rw.is_locked().await.unwrap() && rw.holders().await.unwrap().is_empty());
    let task = client.owner("writer").rw_lock("rw");
    let writer = task.write().acquire().await.unwrap();
    assert!(rw.write().is_locked().await.unwrap() && !rw.read().is_locked().await.unwrap());
    let downgraded = task.read().acquire().await.unwrap();
    writer.release().await.unwrap();
    let second = client.owner("reader").rw_lock("rw").read().acquire().await.unwrap();
    assert!(!rw.write().is_locked().await.unwrap() && rw.read().is_locked().await.unwrap());
    let mut owners: Vec<_> =
        rw.holders().await.unwrap().into_iter().map(|holder| holder.owner).collect();
    owners.sort();
    assert_eq!(owners, [b"reader", b"writer"]);
    assert!(rw.is_locked().await.unwrap());
    drop((downgraded, second));
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphores_and_latches_tell_what_is_left() {
    let (server, client) = start().await;
    let semaphore = client.semaphore("s");
    assert_eq!(semaphore.available().await.unwrap(), 0);
    assert_eq!(semaphore.clone().limit(3).available().await.unwrap(), 3);
    let two = semaphore.clone().limit(3).count(2).acquire().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 1);
    assert_eq!(semaphore.resize(1).await.unwrap(), -1);
    assert_eq!(semaphore.available().await.unwrap(), -1);
    two.release().await.unwrap();

    let latch = client.latch("latch");
    assert!(latch.is_open().await.unwrap());
    latch.init(1).await.unwrap();
    assert!(!latch.is_open().await.unwrap());
    latch.count_down(1).await.unwrap();
    assert!(latch.is_open().await.unwrap());
    server.cmd(&["DEL", "s"]);
    server.left_over_check();
}

#[test]
fn threads_can_ask_too() {
    let server = Server::start();
    let client = blocking::Client::connect(&server.url()).unwrap();
    let lock = client.lock("l");
    assert!(!lock.is_locked().unwrap());
    let guard = lock.acquire().unwrap();
    assert_eq!(lock.holder().unwrap().map(|holder| holder.token), Some(guard.token()));
    drop(guard);
    let rw = client.rw_lock("rw");
    let guard = rw.read().acquire().unwrap();
    assert!(rw.is_locked().unwrap());
    assert_eq!(rw.holders().unwrap().len(), 1);
    drop(guard);
    assert_eq!(client.semaphore("s").limit(4).available().unwrap(), 4);
    assert!(client.latch("latch").is_open().unwrap());
    assert!(server.cmd(&["DLOCK.INFO", "l"]).is_null());
    server.left_over_check();
}
