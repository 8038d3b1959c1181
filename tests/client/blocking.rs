//! The blocking API: the same locks, for programs without tokio.

use std::thread;
use std::time::Duration;

use dlock_client::blocking::Client;
use dlock_client::{Error, ErrorKind, Lost};
use dlock_quorum::blocking::QuorumLock;
use dlock_testing::{Reply as _, Server, wait_until};

use crate::support::loss_of;

fn connect(server: &Server) -> Client {
    Client::connect(&server.url()).unwrap()
}

#[test]
fn each_handle_takes_and_gives_back() {
    let server = Server::start();
    let client = connect(&server);

    for lock in [client.lock("l"), client.fair_lock("f"), client.rw_lock("r").write()] {
        let guard = lock.acquire().unwrap();
        assert!(lock.try_acquire().unwrap().is_none());
        assert!(lock.acquire_timeout(Duration::from_millis(10)).unwrap().is_none());
        lock.check(guard.token()).unwrap();
        guard.release().unwrap();
    }
    let readers = client.rw_lock("r").read();
    let both = (readers.acquire().unwrap(), readers.try_acquire().unwrap().unwrap());
    drop(both);
    let writing = readers.acquire().unwrap().upgrade().unwrap();
    assert!(readers.try_acquire().unwrap().is_none());
    writing.downgrade().unwrap().release().unwrap();

    let semaphore = client.semaphore("s").limit(2).count(2);
    let permits = semaphore.acquire().unwrap();
    assert!(semaphore.try_acquire().unwrap().is_none());
    assert!(!permits.permit_id().is_empty());
    permits.release().unwrap();
    assert!(client.semaphore("counter").init(2).unwrap());
    assert!(client.semaphore("counter").take(2).unwrap());
    assert!(!client.semaphore("counter").take_timeout(1, Duration::from_millis(10)).unwrap());
    assert_eq!(client.semaphore("counter").give(1).unwrap(), 1);
    assert_eq!(client.semaphore("counter").drain().unwrap(), 1);
    assert_eq!(client.semaphore("counter").resize(5).unwrap(), 3);
    assert_eq!(client.semaphore("counter").resize_by(-1).unwrap(), 2);
    server.cmd(&["DEL", "counter"]);

    let latch = client.latch("c");
    assert!(latch.init(1).unwrap());
    assert!(!latch.wait_timeout(Duration::from_millis(10)).unwrap());
    assert_eq!(latch.remaining().unwrap(), Some(1));
    assert_eq!(latch.count_down(1).unwrap(), 0);
    latch.wait().unwrap();

    let all = client.multi_lock(["a", "b"]).acquire().unwrap();
    assert_eq!(all.tokens().len(), 2);
    assert!(client.any_lock(["a", "b"]).try_acquire().unwrap().is_none());
    all.release().unwrap();
    let one = client.striped_lock("stripe", 2).acquire().unwrap();
    assert!(one.key().starts_with(b"{stripe}:"));
    drop(one);
    server.left_over_check();
}

#[test]
fn threads_take_turns() {
    let server = Server::start();
    let client = connect(&server);
    let mut counter = server.client();
    counter.cmd(&["SET", "n", "0"]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let lock = client.lock("l");
                let mut plain = server.client();
                for _ in 0..50 {
                    let guard = lock.acquire().unwrap();
                    let n: i64 = plain.cmd(&["GET", "n"]).text().parse().unwrap();
                    plain.cmd(&["SET", "n", &(n + 1).to_string()]);
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(counter.cmd(&["GET", "n"]).text(), "200");
    counter.cmd(&["DEL", "n"]);
    server.left_over_check();
}

#[test]
fn a_dropped_guard_has_given_back_even_if_it_was_the_last_of_its_client() {
    let server = Server::start();
    let guard = connect(&server).lock("l").acquire().unwrap();
    assert!(!guard.valid_for().is_zero());
    drop(guard);
    assert!(server.cmd(&["DLOCK.INFO", "l"]).is_null());
    server.left_over_check();
}

#[test]
fn a_hold_that_is_broken_is_lost() {
    let server = Server::start();
    let client = connect(&server);
    let guard = client.lock("l").acquire().unwrap();
    assert_eq!(guard.wait_lost(Duration::from_millis(10)).unwrap(), None);
    server.cmd(&["DLOCK.BREAK", "l"]);
    assert_eq!(guard.wait_lost(Duration::from_secs(20)).unwrap(), Some(Lost::Broken));
    assert_eq!(guard.lost_now(), Some(Lost::Broken));
    loss_of(guard.release());
    server.left_over_check();
}

#[test]
fn holds_stay_alive_while_the_program_does_something_else() {
    let server = Server::start();
    let lease = Duration::from_secs(2);
    let builder = dlock_client::Client::builder().lease(lease);
    let client = Client::connect_with(builder, &server.url()).unwrap();
    let guard = client.lock("l").acquire().unwrap();
    let held = || server.cmd(&["DLOCK.INFO", "l"]).field("held-ms").int();
    wait_until("three leases have passed", || held() > 6_000);
    assert_eq!(guard.lost_now(), None);
    guard.release().unwrap();
    server.left_over_check();
}

#[test]
fn inside_a_runtime_it_refuses_instead_of_blocking_it() {
    let server = Server::start();
    let client = connect(&server);
    let guard = client.lock("l").acquire().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let error = client.lock("m").try_acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        // The end of a client must not stop the runtime either.
        drop(guard);
        drop(client);
    });
    wait_until("it was given back, or has ended with its connection's client", || {
        server.cmd(&["CLIENT", "LIST"]).text().lines().count() == 1
    });
}

/// A majority lock is acquired, kept and released; one server down changes nothing, two are reported.
#[test]
fn a_quorum_is_locked_without_a_runtime_of_ones_own() {
    let mut servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let lease = Duration::from_secs(3);
    let lock = || {
        let client = |server: &Server| {
            let builder = dlock_client::Client::builder().lease(lease);
            Client::connect_with(builder.retry_for(Duration::from_secs(1)), &server.url()).unwrap()
        };
        QuorumLock::new(servers.iter().map(client), "k").label("by hand")
    };
    let (one, two) = (lock(), lock());
    let guard = one.acquire().unwrap();
    assert_eq!(guard.key(), b"k");
    assert!(two.try_acquire().unwrap().is_none());
    assert!(two.acquire_timeout(Duration::from_millis(50)).unwrap().is_none());
    let held = |server: &Server| {
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        if info.is_null() { 0 } else { info.field("held-ms").int() }
    };
    wait_until("two leases to pass", || servers.iter().filter(|s| held(s) > 6_000).count() >= 2);
    assert_eq!(guard.lost_now(), None);
    assert!(guard.valid_for() > Duration::ZERO);
    let token = guard.token();
    guard.release().unwrap();

    servers[0].kill9();
    // The last handle: its hold is released before the drop returns.
    let last = one.fixed_lease(Duration::from_mins(1));
    let guard = last.acquire_timeout(Duration::from_secs(20)).unwrap().unwrap();
    assert!(guard.token() > token);
    drop(last);
    drop(guard);
    for server in &servers[1..] {
        wait_until("it to be given back", || server.cmd(&["DLOCK.INFO", "k"]).is_null());
    }
    let guard = two.acquire_timeout(Duration::from_secs(20)).unwrap().unwrap();
    for server in &servers[1..] {
        server.cmd(&["DLOCK.BREAK", "k"]).int();
    }
    assert_eq!(guard.wait_lost(Duration::from_secs(20)).unwrap(), Some(Lost::Refused));
    loss_of(guard.release());
    servers[1].kill9();
    let error = two.try_acquire().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoQuorum { wanted: 2, .. }), "{error:?}");
    servers[2].left_over_check();
    let none = QuorumLock::new(Vec::new(), "k").try_acquire().unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Invalid);
}

/// A thread of a runtime may block, too.
#[test]
fn it_works_inside_spawn_blocking() {
    let server = Server::start();
    for mut runtime in
        [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()]
    {
        let runtime = runtime.enable_all().build().unwrap();
        let url = server.url();
        runtime.block_on(async move {
            let work = tokio::task::spawn_blocking(move || {
                let client = Client::connect(&url).unwrap();
                let lock = client.lock("l");
                let guard = lock.acquire().unwrap();
                assert!(lock.acquire_timeout(Duration::from_millis(20)).unwrap().is_none());
                guard.release().unwrap();
                assert!(lock.with(|guard| Ok::<_, Error>(guard.token() > 0)).unwrap());
                drop(lock.acquire().unwrap());
                let quorum = QuorumLock::new([client], "q");
                quorum.acquire().unwrap().release().unwrap();
            });
            work.await.unwrap();
        });
    }
    server.left_over_check();
}

/// A guard that is dropped in asynchronous code releases in the background, even though its client ends.
#[test]
fn the_end_of_a_client_waits_for_releases_in_the_background() {
    let server = Server::start();
    let proxy = dlock_testing::Proxy::to(&server);
    let client = Client::connect(&proxy.url()).unwrap();
    let guard = client.lock("l").acquire().unwrap();
    drop(client);
    // Slow enough for the runtime to end first.
    proxy.delay(dlock_testing::Way::ToServer, Duration::from_millis(50));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(guard) });
    wait_until("it to be given back", || server.cmd(&["DLOCK.INFO", "l"]).is_null());
    wait_until("its connections to end", || proxy.open() == 0);
    server.left_over_check();
}

/// Waiting threads get an error and leave no place behind; holds are released.
#[test]
fn closing_ends_the_waits_of_other_threads() {
    let server = Server::start();
    let client = connect(&server);
    let held = client.fair_lock("f").acquire().unwrap();
    server.cmd(&["DLOCK.ACQUIRE", "l", "holder", "EX", "300"]).int();
    let (lock, all) = (client.lock("l"), client.multi_lock(["l", "m"]));
    let waits = [
        thread::spawn(move || lock.acquire().map(drop)),
        thread::spawn(move || all.acquire().map(drop)),
    ];
    let waiters = || server.cmd(&["DLOCK.INFO", "l"]).field("waiters").int();
    wait_until("both to wait", || waiters() == 2);
    client.close().unwrap();
    client.close().unwrap();
    for wait in waits {
        assert_eq!(wait.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(held.lost_now(), Some(Lost::Closed));
    loss_of(held.release());
    wait_until("no place to be left", || waiters() == 0);
    assert!(server.cmd(&["DFAIR.INFO", "f"]).is_null());
    assert_eq!(client.lock("l").acquire().unwrap_err().kind(), ErrorKind::Closed);
    server.cmd(&["DLOCK.RELEASE", "l", "holder"]).int();
    drop(client);
    server.left_over_check();
}
