//! Semaphores.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dlock_client::{Error, ErrorKind, Lost, Permit, Semaphore};
use dlock_testing::{Dice, Reply as _};

use crate::places::Place;
use crate::support::{WAITS, loss_of, number, start_on, until, within};

on_both! {
    permits_are_leased_and_given_back,
    a_semaphore_with_a_limit_makes_itself,
    permits_without_an_owner_are_counted,
    a_cancel_at_any_moment_leaves_no_permit,
    never_more_permits_than_there_are,
    one_owner_has_several_permits,
}

fn waiters(server: &impl Place) -> i64 {
    number(&server.cmd(&["DSEM.INFO", "k"]), "waiters")
}

fn waiting(semaphore: &Semaphore) -> tokio::task::JoinHandle<Permit> {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { semaphore.acquire().await.unwrap() })
}

async fn permits_are_leased_and_given_back<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let semaphore = client.semaphore("k").wait(wait);
        assert!(semaphore.init(3).await.unwrap());
        assert!(!semaphore.init(5).await.unwrap());
        let one = semaphore.acquire().await.unwrap();
        let two = semaphore.clone().count(2).try_acquire().await.unwrap().unwrap();
        assert_ne!(one.permit_id(), two.permit_id());
        let listed = server.cmd(&["DSEM.PERMITS", "k"]).items();
        assert!(listed.iter().any(|permit| permit.field("id").text() == two.permit_id()));
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        assert!(semaphore.acquire_timeout(Duration::from_millis(30)).await.unwrap().is_none());
        assert!(two.valid_for() > Duration::from_secs(29));

        // A wide request at the head is not overtaken.
        until("no place", || waiters(&server) == 0).await;
        let wide = waiting(&semaphore.clone().count(3));
        until("the wide place", || waiters(&server) == 1).await;
        let narrow = waiting(&semaphore);
        until("the narrow place", || waiters(&server) == 2).await;
        two.release().await.unwrap();
        assert_eq!(waiters(&server), 2);
        drop(one);
        let wide = within("the wide one", wide).await.unwrap();
        assert_eq!(waiters(&server), 1);
        wide.release().await.unwrap();
        let narrow = within("the narrow one", narrow).await.unwrap();
        narrow.release().await.unwrap();

        let error = semaphore.clone().count(4).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        server.cmd(&["DEL", "k"]).ok();
        server.left_over_check();
    }
}

async fn a_semaphore_with_a_limit_makes_itself<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let semaphore = client.semaphore("k").wait(wait).limit(2);
        let permits = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        let waiter = waiting(&semaphore);
        until("the place", || waiters(&server) == 1).await;
        let cancelled = waiting(&semaphore);
        until("the place", || waiters(&server) == 2).await;
        cancelled.abort();
        until("the place to go", || waiters(&server) == 1).await;
        drop(permits);
        let permit = within("the waiter", waiter).await.unwrap();
        assert_eq!(permit.lost_now(), None);
        let id = permit.permit_id();
        assert_eq!(server.cmd(&["DSEM.BREAK", "k", &id]).int(), 1);
        assert_eq!(within("lost()", permit.lost()).await, Lost::Broken);
        loss_of(permit.release().await);
        let done = semaphore.with(async |_| Ok::<_, Error>(5)).await.unwrap();
        assert_eq!(done, 5);
        server.left_over_check();
    }
}

async fn permits_without_an_owner_are_counted<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let semaphore = client.semaphore("k");
    assert!(semaphore.init(4).await.unwrap());
    assert!(semaphore.take(3).await.unwrap());
    assert!(!semaphore.take(2).await.unwrap());
    assert_eq!(semaphore.give(1).await.unwrap(), 2);
    assert_eq!(semaphore.drain().await.unwrap(), 2);
    assert_eq!(semaphore.give(4).await.unwrap(), 4);
    assert_eq!(semaphore.give(1).await.unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(semaphore.resize(2).await.unwrap(), 2);
    assert_eq!(semaphore.resize_by(-1).await.unwrap(), 1);
    assert_eq!(semaphore.resize_by(3).await.unwrap(), 4);
    assert_eq!(semaphore.drain().await.unwrap(), 4);
    assert!(!semaphore.take_timeout(1, Duration::from_millis(30)).await.unwrap());
    let taking = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.take_timeout(2, Duration::from_secs(20)).await.unwrap() }
    });
    until("the taker to wait", || waiters(&server) == 1).await;
    semaphore.give(2).await.unwrap();
    assert!(within("the taker", taking).await.unwrap());
    assert_eq!(client.semaphore("none").give(1).await.unwrap_err().kind(), ErrorKind::Invalid);
    server.cmd(&["DEL", "k"]).ok();
    server.left_over_check();
}

async fn a_cancel_at_any_moment_leaves_no_permit<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let mut dice = Dice::seeded(13);
    for wait in WAITS {
        let semaphore = client.semaphore("k").wait(wait).limit(1);
        for n in 0..60 {
            let holder = if n % 2 == 0 { Some(semaphore.acquire().await.unwrap()) } else { None };
            let limit = Duration::from_micros(dice.below(1_500));
            let cancelled = tokio::time::timeout(limit, semaphore.acquire());
            let release = async {
                if let Some(permit) = holder {
                    tokio::time::sleep(limit).await;
                    permit.release().await.unwrap();
                }
            };
            let (taken, ()) = tokio::join!(cancelled, release);
            drop(taken);
        }
        server.left_over_check();
    }
}

async fn never_more_permits_than_there_are<P: Place>() {
    const LIMIT: usize = 3;
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let semaphore = client.semaphore("k").wait(wait).limit(u32::try_from(LIMIT).unwrap());
        let inside = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..12)
            .map(|_| {
                let (semaphore, inside) = (semaphore.clone(), inside.clone());
                tokio::spawn(async move {
                    for _ in 0..30 {
                        let permit = semaphore.acquire().await.unwrap();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < LIMIT);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
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

/// Two tasks of one owner, one after the other: two permits, not one that both release.
async fn one_owner_has_several_permits<P: Place>() {
    let (server, client) = start_on::<P>().await;
    for wait in WAITS {
        let semaphore = client.semaphore("k").wait(wait).limit(2);
        let holders = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
        let mine = semaphore.clone().owner("me");
        let first = waiting(&mine);
        until("the place", || waiters(&server) == 1).await;
        drop(holders);
        let first = within("the first", first).await.unwrap();
        let second = within("the second", mine.acquire()).await.unwrap();
        assert_ne!(first.permit_id(), second.permit_id(), "{wait:?}");
        until("two permits", || number(&server.cmd(&["DSEM.INFO", "k"]), "leased") == 2).await;
        drop((first, second));
        server.left_over_check();
    }
}
