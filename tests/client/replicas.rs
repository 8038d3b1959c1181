//! Holds that replicas confirm, and the scene for which there are such: a primary that is cut off and goes on.

use std::time::{Duration, Instant};

use dlock_client::{Client, ErrorKind, Guard, Lost};
use dlock_testing::{Reply as _, SOON, Server};
use redis::Value;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{Variant, quick, until, within};

const LEASE: Duration = Duration::from_millis(1_200);

/// The settings of a server of the profile, and a short time without replicas.
const SERVER: [&str; 6] = [
    "min-replicas-to-write",
    "1",
    "min-replicas-max-lag",
    "2",
    "dlock.restart-quarantine-ms",
    "1200",
];

async fn profile(server: &Server) -> Client {
    quick().lease(LEASE).holds_through_failover(1).connect(&server.url()).await.unwrap()
}

/// The next quarantine of the server lasts so long: clients refuse longer leases.
fn set_quarantine(server: &Server, ms: &str) {
    server.client().cmd(&["CONFIG", "SET", "dlock.restart-quarantine-ms", ms]).ok();
}

/// A synchronized replica confirms nothing before its first acknowledgement, up to a second later.
async fn until_confirmed(server: &Server, replicas: i64) {
    let mut client = server.client();
    let all = || {
        // Refused without replicas.
        let written = [&["SET", "probe", ""][..], &["DEL", "probe"]].map(|call| client.cmd(call));
        let confirmed = client.cmd(&["WAIT", &replicas.to_string(), "50"]).int();
        !written.iter().any(|reply| matches!(reply, Value::ServerError(_))) && confirmed >= replicas
    };
    until("the replicas", all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_no_replica_has_does_not_count() {
    let server = Server::start();
    set_quarantine(&server, "6000");
    // On a busy machine replicas answer late.
    let patient = Client::builder().lease(Duration::from_secs(6)).holds_through_failover(1);
    let client = patient.connect(&server.url()).await.unwrap();
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        for error in [
            within("the acquire", lock.acquire_timeout(LEASE)).await.unwrap_err(),
            within("the try", lock.try_acquire()).await.unwrap_err(),
        ] {
            let expected = ErrorKind::Replicas { acknowledged: 0, wanted: 1 };
            assert_eq!(error.kind(), expected, "{variant:?}: {error}");
        }
        until("it to be given back", || variant.is_free(&server, "k")).await;
    }
    // The arrival of the replica begins none, and clients refuse a server without one.
    set_quarantine(&server, "0");
    let replica = Server::with(&[]).replica_of(&server).start();
    until_confirmed(&server, 1).await;
    set_quarantine(&server, "6000");
    for variant in Variant::ALL {
        let lock = variant.lock(&client, "k");
        let holder = within("the acquire", lock.acquire()).await.unwrap();
        assert_eq!(variant.holds(&replica, "k"), 1, "{variant:?}");
        // After a wait, too: no replica has the grant of a waiter while it is stopped.
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire_timeout(LEASE * 2).await }
        });
        until("the place", || variant.waiters(&server, "k") == 1).await;
        replica.freeze();
        within("the release", holder.release()).await.unwrap();
        let error = within("the waiter", waiting).await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Replicas { .. }), "{variant:?}: {error}");
        replica.thaw();
        until("it to be given back", || variant.is_free(&server, "k")).await;
        until_confirmed(&server, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_no_replica_has_does_not_count() {
    let server = Server::start();
    let replica = Server::with(&[]).replica_of(&server).start();
    until_confirmed(&server, 1).await;
    set_quarantine(&server, "30000");
    let client = profile(&server).await;
    let loose = quick().lease(LEASE).connect(&server.url()).await.unwrap();
    let guard = within("the acquire", client.lock("k").acquire()).await.unwrap();
    let other = within("the acquire", loose.lock("other").acquire()).await.unwrap();
    // Renewals count while the replica has them.
    let start = Instant::now();
    until("two leases", || start.elapsed() > LEASE * 2).await;
    assert_eq!(guard.lost_now(), None);
    replica.freeze();
    let start = Instant::now();
    assert_eq!(within("lost()", guard.lost()).await, Lost::Expired);
    assert!(start.elapsed() <= LEASE + Duration::from_millis(500), "{:?}", start.elapsed());
    assert_eq!(other.lost_now(), None, "without the setting renewals count at once");
    let error = within("a renewal", guard.renew(LEASE)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    replica.thaw();
    drop((guard, other));
    // And a renewal by hand.
    until_confirmed(&server, 1).await;
    let lock = client.lock("k").fixed_lease(Duration::from_secs(20));
    let guard = within("the acquire", lock.acquire()).await.unwrap();
    within("the renewal", guard.renew(Duration::from_secs(30))).await.unwrap();
    assert!(guard.valid_for() > Duration::from_secs(25));
    replica.freeze();
    let error = within("the renewal", guard.renew(Duration::from_secs(50))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Replicas { .. }), "{error}");
    assert!(guard.valid_for() <= Duration::from_secs(30));
    replica.thaw();
    within("the release", guard.release()).await.unwrap();
}

/// The links of a primary to its replicas go silent, without an end. One is promoted and gets the other one. The old
/// primary goes on, and its holder renews there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_at_a_primary_that_was_cut_off_stops_before_the_next_begins() {
    let cut = Cut::start().await;
    let holder = profile(&cut.primary).await;
    let guard = within("the acquire", holder.lock("before").acquire()).await.unwrap();
    let promoted = cut.fail_over();
    let next = profile(promoted).await;
    let waiting = tokio::spawn(async move {
        let guard = within("the next", acquired(&next, "before")).await;
        (Instant::now(), guard)
    });
    within("lost()", guard.lost()).await;
    let ended = Instant::now();
    let (granted, next) = waiting.await.unwrap();
    assert_eq!(cut.primary.info("replication")["role"], "master", "it was cut off, not told");
    assert!(ended < granted, "both believed for {:?}", ended - granted);
    within("the release", next.release()).await.unwrap();
}

/// The same without the setting of the client: that is what it is for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_setting_both_believe() {
    let cut = Cut::start().await;
    let holder = quick().lease(LEASE).connect(&cut.primary.url()).await.unwrap();
    let lock = holder.lock("k").replicas(1, SOON);
    let guard = within("the acquire", lock.acquire()).await.unwrap();
    // On a busy machine the next is granted after the old primary would have stopped to write.
    cut.primary.cmd(&["CONFIG", "SET", "min-replicas-to-write", "0"]).ok();
    let promoted = cut.fail_over();
    let next = profile(promoted).await;
    let next = within("the next", acquired(&next, "k")).await;
    assert_eq!(
        guard.lost_now(),
        None,
        "it renews at the old primary, for as long as that one writes"
    );
    cut.primary.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]).ok();
    within("lost()", guard.lost()).await;
    drop(next);
}

/// Acquires at a server that refuses writes until its replica has come.
async fn acquired(client: &Client, key: &str) -> Guard {
    loop {
        match client.lock(key).acquire().await {
            Ok(guard) => return guard,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// A primary and two replicas behind links of their own.
struct Cut {
    primary: Server,
    links: [Link; 2],
    replicas: [Server; 2],
}

impl Cut {
    async fn start() -> Self {
        let primary = Server::with(&SERVER).start();
        let links = [Link::to(&primary).await, Link::to(&primary).await];
        let replicas = links.each_ref().map(|link| {
            let replica = Server::with(&SERVER).start();
            replica.cmd(&["REPLICAOF", "127.0.0.1", &link.port.to_string()]).ok();
            replica
        });
        until_confirmed(&primary, 2).await;
        Self { primary, links, replicas }
    }

    /// The links go silent, and the first replica is promoted with the other one as its replica.
    fn fail_over(&self) -> &Server {
        for link in &self.links {
            link.is_silent.send_replace(true);
        }
        let [promoted, other] = &self.replicas;
        promoted.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
        other.cmd(&["REPLICAOF", "127.0.0.1", &promoted.port().to_string()]).ok();
        promoted
    }
}

/// Bytes between a replica and its primary, whatever they say.
struct Link {
    port: u16,
    is_silent: watch::Sender<bool>,
    accepts: tokio::task::AbortHandle,
}

impl Link {
    async fn to(primary: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, to) = (listener.local_addr().unwrap().port(), primary.port());
        let is_silent = watch::Sender::new(false);
        let silent = is_silent.subscribe();
        let accepts = tokio::spawn(async move {
            while let Ok((replica, _)) = listener.accept().await {
                let primary = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let (replica, primary) = (replica.into_split(), primary.into_split());
                tokio::spawn(pass(replica.0, primary.1, silent.clone()));
                tokio::spawn(pass(primary.0, replica.1, silent.clone()));
            }
        });
        Self { port, is_silent, accepts: accepts.abort_handle() }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

/// Passes bytes on. Once the link is silent, nothing passes, and no end either.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut silent: watch::Receiver<bool>) {
    tokio::select! {
        _ = tokio::io::copy(&mut from, &mut to) => {}
        () = until_silent(&mut silent) => while silent.changed().await.is_ok() {},
    }
}

async fn until_silent(silent: &mut watch::Receiver<bool>) {
    // An error: the link is gone, which ends it.
    let _ = silent.wait_for(|silent| *silent).await;
}
