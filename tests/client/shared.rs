//! Guards of one named owner that share a hold of the server.

use std::time::Duration;

use dlock_client::{Lost, Wait};
use dlock_testing::{Cut, Proxy, Server};

use crate::places::Place;
use crate::support::{number, quick, start_on, until, within};

on_both! {
    a_second_acquire_with_a_shorter_lease_does_not_shorten_the_hold,
    the_same_with_several_locks,
}

const LONG: Duration = Duration::from_hours(1);
const SHORT: Duration = Duration::from_mins(1);
/// What a bound hold has left when its connection is lost.
const REST: Duration = Duration::from_secs(2);

fn left(server: &impl Place) -> Duration {
    let ms = number(&server.cmd(&["DLOCK.INFO", "k"]), "ttl-ms");
    Duration::from_millis(ms.try_into().unwrap())
}

/// A grant that is bound after a wait on a dedicated connection is renewed at once, and a renewal sets the end for all.
async fn a_second_acquire_with_a_shorter_lease_does_not_shorten_the_hold<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let lock = client.lock("k").owner("o");
    let long = lock.clone().fixed_lease(LONG).acquire().await.unwrap();
    let short = lock.fixed_lease(SHORT).bind(LONG).wait(Wait::Blocking).acquire().await.unwrap();
    let (counted_on, left) = (long.valid_for(), left(&server));
    assert!(counted_on <= left, "{counted_on:?} of {left:?}");
    assert!(short.valid_for() <= SHORT);
    assert!(counted_on > SHORT, "{counted_on:?}");
    short.release().await.unwrap();
    long.release().await.unwrap();
    server.left_over_check();
}

async fn the_same_with_several_locks<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let long = client.lock("k").owner("o").fixed_lease(LONG).acquire().await.unwrap();
    let both = client.multi_lock(["k", "l"]).owner("o").fixed_lease(SHORT).bind(LONG);
    let short = both.acquire().await.unwrap();
    let (counted_on, left) = (long.valid_for(), left(&server));
    assert!(counted_on <= left, "{counted_on:?} of {left:?}");
    short.release().await.unwrap();
    long.release().await.unwrap();
    server.left_over_check();
}

/// The server binds a hold that all requests for it bind, and the release of one guard does not change that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_that_share_a_bound_hold_end_with_its_connection() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    let lock = client.lock("k").owner("o").bind(REST);
    let before = lock.clone().fixed_lease(LONG).acquire().await.unwrap();
    let between = lock.clone().acquire().await.unwrap();
    let after = lock.fixed_lease(LONG).acquire().await.unwrap();
    between.release().await.unwrap();
    proxy.refuse();
    proxy.cut(Cut::Reset);
    until("the end of the hold", || left(&server).is_zero()).await;
    for guard in [&before, &after] {
        assert_eq!(within("its loss", guard.lost()).await, Lost::Expired);
    }
    proxy.accept();
    drop((before, after));
    server.left_over_check();
}

/// A guard without a binding ends that of the hold: it outlives its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_without_a_binding_keeps_the_hold_of_one_with_it() {
    for binds_first in [false, true] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        let client = quick().connect(&proxy.url()).await.unwrap();
        let lock = client.lock("k").owner("o");
        let (plain, bound) = (lock.clone().fixed_lease(LONG), lock.bind(REST));
        let first = if binds_first { &bound } else { &plain };
        let second = if binds_first { &plain } else { &bound };
        let guards = [first.acquire().await.unwrap(), second.acquire().await.unwrap()];
        proxy.refuse();
        proxy.cut(Cut::Reset);
        // The other one knows only of its own requests.
        let (kept, ended) = if binds_first { (1, 0) } else { (0, 1) };
        assert_eq!(within("its loss", guards[ended].lost()).await, Lost::Expired);
        assert!(left(&server) > SHORT);
        assert_eq!(guards[kept].lost_now(), None);
        proxy.accept();
        drop(guards);
        server.left_over_check();
    }
}

/// After that, the watchdog binds it again for the longest of their leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_that_share_a_bound_hold_are_bound_again_together() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    let lock = client.lock("k").owner("o").bind(SHORT / 6);
    let long = lock.clone().fixed_lease(LONG).acquire().await.unwrap();
    let bound = lock.acquire().await.unwrap();
    proxy.refuse();
    proxy.cut(Cut::Reset);
    until("the loss to be noticed", || left(&server) <= SHORT / 6).await;
    proxy.accept();
    until("the hold to be bound again for the longer lease", || left(&server) > SHORT).await;
    let is_bound = || number(&server.cmd(&["DLOCK.INFO", "k"]), "bound-client") != 0;
    until("the hold to be bound", is_bound).await;
    assert_eq!((long.lost_now(), bound.lost_now()), (None, None));
    bound.release().await.unwrap();
    long.release().await.unwrap();
    server.left_over_check();
}
