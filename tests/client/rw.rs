//! Read-write locks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use dlock_client::{Client, ErrorKind, Lock, Lost, Wait};
use dlock_testing::Reply as _;

use crate::places::Place;
use crate::support::{WAITS, number, start_on, until, within};

on_both! {
    readers_share_and_a_writer_does_not,
    an_owner_goes_up_and_down,
    a_guard_goes_up_and_down,
    a_guard_keeps_its_options_up_and_down,
    a_cancelled_writer_lets_the_readers_pass,
    a_break_loses_all_holds,
    writers_are_alone_under_load,
    the_modes_of_one_owner_are_told_apart,
}

fn both(client: &Client, wait: Wait) -> (Lock, Lock) {
    let lock = client.rw_lock("k");
    (lock.read().wait(wait), lock.write().wait(wait))
}

fn waiters(server: &impl Place) -> i64 {
    number(&server.cmd(&["DRW.INFO", "k"]), "waiters")
}

fn is_free(server: &impl Place) -> bool {
    server.cmd(&["DRW.INFO", "k"]).is_null()
}

fn waiting(lock: &Lock) -> tokio::task::JoinHandle<dlock_client::Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

async fn readers_share_and_a_writer_does_not<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let (read, write) = both(&client, wait);
        let one = read.acquire().await.unwrap();
        let two = read.try_acquire().await.unwrap().unwrap();
        assert!(two.token() > one.token());
        assert!(write.try_acquire().await.unwrap().is_none());
        assert!(write.acquire_timeout(Duration::from_millis(30)).await.unwrap().is_none());

        // The release of its place goes on in the background.
        until("the place to go", || waiters(&server) == 0).await;

        // Order of arrival: a reader behind a writer waits.
        let writer = waiting(&write);
        until("the writer's place", || waiters(&server) == 1).await;
        assert!(read.try_acquire().await.unwrap().is_none());
        let readers = [waiting(&read), waiting(&read)];
        until("the readers' places", || waiters(&server) == 3).await;
        one.release().await.unwrap();
        drop(two);
        let writer = within("the writer", writer).await.unwrap();
        assert_eq!(waiters(&server), 2);
        read.check(writer.token()).await.unwrap();
        writer.release().await.unwrap();
        // They come together.
        let mut both = Vec::new();
        for reader in readers {
            both.push(within("a reader", reader).await.unwrap());
        }
        assert_eq!(server.cmd(&["DRW.INFO", "k"]).field("readers").items().len(), 2);
        drop(both);
        until("the end", || is_free(&server)).await;
        server.left_over_check();
    }
}

async fn an_owner_goes_up_and_down<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let (read, write) = both(&client, wait);
        let (mine, my_write) = (read.clone().owner("me"), write.clone().owner("me"));
        let reading = mine.acquire().await.unwrap();
        let writing = my_write.try_acquire().await.unwrap().expect("the only reader goes up");
        assert!(read.try_acquire().await.unwrap().is_none());
        writing.release().await.unwrap();
        let guest = read.try_acquire().await.unwrap().expect("the writer went down");

        // Two readers that upgrade would wait for each other.
        let upgrade = waiting(&my_write);
        until("the upgrader's place", || waiters(&server) == 1).await;
        let other = read.clone().owner("other").try_acquire().await.unwrap();
        assert!(other.is_none(), "a reader behind an upgrader waits");
        let guest_owner = guest.owner().to_vec();
        let second = write.clone().owner(guest_owner);
        let acquire = second.acquire_timeout(Duration::from_secs(5));
        let error = within("the second upgrade", acquire).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock);
        guest.release().await.unwrap();
        let writing = within("the upgrade", upgrade).await.unwrap();
        drop((writing, reading));
        until("the end", || is_free(&server)).await;
        server.left_over_check();
    }
}

async fn a_guard_goes_up_and_down<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let (read, write) = both(&client, wait);
        let writing = read.acquire().await.unwrap().upgrade().await.unwrap();
        assert!(read.try_acquire().await.unwrap().is_none());
        let (owner, token) = (writing.owner().to_vec(), writing.token());
        let reading = writing.downgrade().await.unwrap();
        assert_eq!(reading.owner(), owner);
        assert!(reading.token() > token);
        let guest = read.try_acquire().await.unwrap().expect("the writer went down");

        let upgrade = tokio::spawn(reading.upgrade());
        until("the upgrader's place", || waiters(&server) == 1).await;
        // Its hold ends with the error, so the first one writes.
        let error = within("the second upgrade", guest.upgrade()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock);
        let writing = within("the upgrade", upgrade).await.unwrap().unwrap();
        writing.release().await.unwrap();

        // A reader whose hold ended meanwhile is no writer: others may have written.
        let (reading, guest) = (read.acquire().await.unwrap(), read.acquire().await.unwrap());
        let owner = reading.owner().to_vec();
        let upgrade = tokio::spawn(reading.upgrade());
        until("the upgrader's place", || waiters(&server) == 1).await;
        assert_eq!(server.cmd(&[&b"DRW.RELEASE"[..], b"k", &owner, b"READ"]).int(), 0);
        guest.release().await.unwrap();
        let error = within("the upgrade", upgrade).await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");

        let error = write.acquire().await.unwrap().upgrade().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let error = client.lock("l").acquire().await.unwrap().downgrade().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        until("the end", || is_free(&server)).await;
        server.left_over_check();
    }
}

async fn a_guard_keeps_its_options_up_and_down<P: Place>() {
    let (lease, max_hold) = (Duration::from_secs(2), Duration::from_secs(8));
    let (server, client) = start_on::<P>().await;
    let lock = client.rw_lock("k");
    let of_it = async || {
        let [holder] = &lock.holders().await.unwrap()[..] else { panic!("one holder") };
        (holder.label.clone(), holder.lease, holder.owner.clone())
    };
    let read = lock.read().label("of a test").lease(lease).max_hold(max_hold);
    let reading = read.acquire().await.unwrap();
    let start = Instant::now();
    let before = of_it().await;
    assert_eq!((before.0.as_slice(), before.1), (&b"of a test"[..], lease));
    tokio::time::sleep(max_hold / 4).await;
    let writing = reading.upgrade().await.unwrap();
    assert_eq!(of_it().await, before);
    tokio::time::sleep(max_hold / 4).await;
    let reading = writing.downgrade().await.unwrap();
    assert_eq!(of_it().await, before);
    // The time of the first hold goes on.
    assert_eq!(within("lost()", reading.lost()).await, Lost::MaxHold);
    let held = start.elapsed();
    assert!(held > lease * 3 && held < max_hold * 11 / 8, "{held:?}");
    drop(reading);
    // A lease that nothing renews stays one.
    let reading = lock.read().fixed_lease(lease).acquire().await.unwrap();
    let writing = reading.upgrade().await.unwrap();
    assert_eq!(within("lost()", writing.lost()).await, Lost::Expired);
    drop(writing);
    server.left_over_check();
}

async fn a_cancelled_writer_lets_the_readers_pass<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let (read, write) = both(&client, wait);
        let reading = read.acquire().await.unwrap();
        let writer = waiting(&write);
        until("the writer's place", || waiters(&server) == 1).await;
        let reader = waiting(&read);
        until("the reader's place", || waiters(&server) == 2).await;
        writer.abort();
        let reader = within("the reader", reader).await.unwrap();
        drop((reading, reader));
        until("the end", || is_free(&server)).await;
        server.left_over_check();
    }
}

async fn a_break_loses_all_holds<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let (read, write) = both(&client, wait);
        let holds = [read.acquire().await.unwrap(), read.acquire().await.unwrap()];
        assert_eq!(server.cmd(&["DRW.BREAK", "k"]).int(), 2);
        for hold in &holds {
            assert_eq!(within("lost()", hold.lost()).await, Lost::Broken);
        }
        let writer = write.acquire().await.unwrap();
        server.cmd(&["DEL", "k"]).ok();
        assert_eq!(within("lost()", writer.lost()).await, Lost::Deleted);
        server.left_over_check();
    }
}

async fn writers_are_alone_under_load<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let (read, write) = both(&client, wait);
        // Readers count up, a writer subtracts a thousand.
        let inside = Arc::new(AtomicI64::new(0));
        let tasks: Vec<_> = (0..12)
            .map(|n| {
                let inside = inside.clone();
                let (lock, step) =
                    if n % 3 == 0 { (write.clone(), -1_000) } else { (read.clone(), 1) };
                tokio::spawn(async move {
                    for _ in 0..30 {
                        let guard = lock.acquire().await.unwrap();
                        let before = inside.fetch_add(step, Ordering::SeqCst);
                        assert!(before >= 0 && (step == 1 || before == 0), "{before} inside");
                        tokio::task::yield_now().await;
                        inside.fetch_sub(step, Ordering::SeqCst);
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            within("a task", task).await.unwrap();
        }
        server.left_over_check();
    }
}

/// A message about an owner's wait for reading does not apply to its wait for writing.
async fn the_modes_of_one_owner_are_told_apart<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let (read, write) = both(&client, wait);
        let holder = write.acquire().await.unwrap();
        let reading = waiting(&read.clone().owner("me"));
        until("the reader's place", || waiters(&server) == 1).await;
        holder.release().await.unwrap();
        let reading = within("the reader", reading).await.unwrap();
        // A guest keeps the same owner from writing.
        let guest = read.try_acquire().await.unwrap().unwrap();
        let upgrade = write.clone().owner("me");
        let upgrade = upgrade.acquire_timeout(Duration::from_millis(60)).await;
        assert!(upgrade.unwrap().is_none(), "{wait:?}");
        reading.release().await.unwrap();
        drop(guest);
        until("the end", || is_free(&server)).await;
        server.left_over_check();
    }
}
