//! Holds bound to a connection (`bind`): after a disconnect the client assumes the shortened lease, and binds again
//! where possible.

use std::{
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use dlock_client::{Client, Guard, Lost, MultiGuard, Permit};
use dlock_testing::{Cut, Nodes, Proxy, Reply as _, SOON, Server, Way, args};

use crate::support::{Variant, number, quick, until, within};

/// The lease of these holds after their connection is lost.
const REST: Duration = Duration::from_secs(4);
const LEASE: Duration = Duration::from_mins(1);
/// Number of concurrent tasks, so that in any order of events some task comes last.
const MANY: usize = 40;

/// Any kind of hold.
enum Held {
    One(Guard),
    Permit(Permit),
    All(MultiGuard),
}

impl Held {
    fn valid_for(&self) -> Duration {
        match self {
            Held::One(guard) => guard.valid_for(),
            Held::Permit(permit) => permit.valid_for(),
            Held::All(guard) => guard.valid_for(),
        }
    }
}

fn ttl(server: &Server, key: &str) -> i64 {
    number(&server.cmd(&["DLOCK.INFO", key]), "ttl-ms")
}

/// Ends the client's shared connection at the server; earlier replies are still in the proxy.
fn hang_up_on_listeners(server: &Server) {
    assert_eq!(server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).int(), 1);
}

/// A bound hold counts from when its request was sent, not from when the call began to look for the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_after_a_long_search_for_the_server_is_certain() {
    let bind = Duration::from_millis(500);
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let builder = quick().retry_for(bind * 6).response_timeout(bind * 6);
    let client = builder.connect(&proxy.url()).await.unwrap();
    proxy.refuse();
    proxy.cut(Cut::Reset);
    // From now on the client knows that its connection is gone: nothing is sent over it.
    assert!(client.lock("other").try_acquire().await.is_err());
    let calls = ["now", "queued"].map(|key| {
        let lock = client.lock(key).bind(bind);
        tokio::spawn(async move {
            let guard = if key == "now" {
                lock.try_acquire().await
            } else {
                lock.acquire().await.map(Some)
            };
            let guard = guard.unwrap().unwrap();
            (guard.lost_now(), guard.valid_for())
        })
    });
    tokio::time::sleep(bind * 2).await;
    proxy.heal();
    for call in calls {
        let (lost, valid_for) = within("the grant", call).await.unwrap();
        assert_eq!(lost, None);
        assert!(!valid_for.is_zero());
    }
}

/// The server answers a renewal and closes the connection: the client gets both at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answered_renewal_does_not_undo_the_cut_of_its_connection() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let lock = |key: &str| client.lock(key).fixed_lease(LEASE / 6).bind(REST);
    let canary = lock("canary").fixed_lease(LEASE).acquire().await.unwrap();
    let mut guards = Vec::new();
    for n in 0..MANY {
        guards.push(lock(&format!("k{n}")).acquire().await.unwrap());
    }
    proxy.refuse();
    proxy.stall(Way::ToClient);
    let renewals = guards.into_iter().map(|guard| {
        tokio::spawn(async move {
            guard.renew(LEASE).await.unwrap();
            guard
        })
    });
    let renewals: Vec<_> = renewals.collect();
    let lease = i64::try_from(LEASE.as_millis() / 2).unwrap();
    until("all to be renewed", || (0..MANY).all(|n| ttl(&server, &format!("k{n}")) > lease)).await;
    // The only worker is blocked until all of that has arrived.
    let (blocked, free) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let both = (blocked.clone(), free.clone());
    tokio::spawn(async move {
        both.0.wait();
        both.1.wait();
    });
    blocked.wait();
    hang_up_on_listeners(&server);
    // It has arrived when this returns.
    proxy.flow();
    free.wait();
    let mut guards = Vec::new();
    for renewal in renewals {
        guards.push(within("a renewal", renewal).await.unwrap());
    }
    until("the loss to be noticed", || canary.valid_for() <= REST).await;
    for guard in &guards {
        assert!(guard.valid_for() <= REST, "{guard:?}");
    }
    proxy.accept();
    drop((guards, canary));
    server.left_over_check();
}

/// The same with grants: the connection ends before the client knows the hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_grant_with_a_connection_lost_after_the_reply_counts_for_its_binding_only() {
    // The stall takes less than half of that: otherwise the grant would be renewed before it counts.
    let rest = LEASE / 3;
    for (kind, command) in [
        ("one", "DLOCK.ACQUIRE"),
        ("permit", "DSEM.ACQUIRE"),
        ("all", "DLOCK.MACQUIRE"),
        ("any", "DLOCK.ANYACQUIRE"),
    ] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        let client = Client::builder().lease(LEASE).connect(&proxy.url()).await.unwrap();
        let canary =
            client.fair_lock("canary").fixed_lease(LEASE).bind(rest).acquire().await.unwrap();
        proxy.refuse();
        proxy.stall(Way::ToClient);
        let acquires: Vec<_> = (0..MANY)
            .map(|n| tokio::spawn(acquire(client.clone(), kind, format!("k{n}"), rest)))
            .collect();
        until("all to ask", || proxy.requests(command) == MANY as u64).await;
        until("the answers", || server.calls(command) == MANY).await;
        hang_up_on_listeners(&server);
        proxy.flow();
        let mut held = Vec::new();
        for acquire in acquires {
            held.push(within("an acquire", acquire).await.unwrap());
        }
        for held in &held {
            assert!(held.valid_for() <= rest, "{kind}: {:?}", held.valid_for());
        }
        proxy.accept();
        drop((held, canary));
        server.left_over_check();
    }
}

async fn acquire(client: Client, kind: &str, key: String, rest: Duration) -> Held {
    match kind {
        "one" => {
            let lock = client.lock(key).bind(rest);
            Held::One(lock.acquire().await.unwrap())
        }
        "permit" => {
            let semaphore = client.semaphore(key).limit(1).bind(rest);
            Held::Permit(semaphore.acquire().await.unwrap())
        }
        "all" => {
            let all = client.multi_lock([key]).bind(rest);
            Held::All(all.try_acquire().await.unwrap().unwrap())
        }
        _ => {
            let any = client.any_lock([key]).bind(rest);
            Held::One(any.try_acquire().await.unwrap().unwrap())
        }
    }
}

/// The server notices the end of the connection, the client does not, as behind a black hole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tie_counts_from_when_the_connection_was_last_known_alive() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    // Longer than the detection takes.
    let rest = Duration::from_secs(8);
    let guard = client.lock("k").fixed_lease(LEASE).bind(rest).acquire().await.unwrap();
    let mut waiting = server.block(&args!["DLOCK.ACQUIRE", "k", "next", "BLOCK", 0]);
    let hold = guard.hold();
    let next = tokio::task::spawn_blocking(move || {
        waiting.expect_reply(rest + SOON).int();
        (hold.lost_now(), waiting)
    });
    proxy.refuse();
    proxy.stall_all();
    hang_up_on_listeners(&server);
    let how = within("lost()", guard.lost()).await;
    assert_eq!(how, Lost::Expired);
    let (known, mut next) = within("the next", next).await.unwrap();
    assert_eq!(known, Some(Lost::Expired), "believed in when the next had it");
    next.client().cmd(&["DLOCK.RELEASE", "k", "next"]).ok();
    proxy.heal();
    drop(guard);
    server.left_over_check();
}

/// Holds without renewal are bound again, too, and keep their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_with_a_fixed_lease_is_bound_again() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().connect(&proxy.url()).await.unwrap();
    let rest = Duration::from_secs(4);
    let mut guards = Vec::new();
    for variant in Variant::ALL {
        let lock = variant.lock(&client, &variant.key()).fixed_lease(LEASE).bind(rest);
        guards.push((variant, within("the acquire", lock.acquire()).await.unwrap()));
    }
    let bound = |variant: Variant| {
        let info = variant.info(&server, &variant.key());
        number(&info, "bound-client")
    };
    let before = bound(Variant::ALL[0]);
    proxy.cut(Cut::Reset);
    for (variant, guard) in &guards {
        until("it to be bound again", || ![0, before].contains(&bound(*variant))).await;
        assert_eq!(guard.lost_now(), None, "{variant:?}");
    }
    let tied = Instant::now();
    until("the time of the binding to elapse", || tied.elapsed() > rest).await;
    for (variant, guard) in &guards {
        assert_eq!(guard.lost_now(), None, "{variant:?}");
        assert_eq!(variant.holds(&server, &variant.key()), 1, "{variant:?}");
        let left = number(&variant.info(&server, &variant.key()), "ttl-ms");
        assert!(left < i64::try_from(LEASE.as_millis()).unwrap(), "{variant:?}: {left}");
        assert!(guard.valid_for() <= Duration::from_millis(u64::try_from(left).unwrap() + 1));
    }
    drop(guards);
    server.left_over_check();
}

fn key_of(nodes: &Nodes, node: usize) -> String {
    let mut keys = (0..).map(|n| format!("k{n}"));
    keys.find(|key| nodes.owner_of(nodes.all()[0].slot(key)) == Some(node)).unwrap()
}

/// A node that dies unbinds its own holds, not those of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_unties_nothing_elsewhere() {
    let mut nodes = Nodes::with(3, &["cluster-node-timeout", "30000"]);
    let client = quick().connect(&nodes.url()).await.unwrap();
    let rest = Duration::from_secs(1);
    let mut guards = Vec::new();
    for node in 0..3 {
        let lock = client.lock(key_of(&nodes, node)).fixed_lease(LEASE).bind(rest);
        guards.push(within("the acquire", lock.acquire()).await.unwrap());
    }
    nodes.node(0).kill9();
    assert_eq!(within("lost()", guards[0].lost()).await, Lost::Expired);
    tokio::time::sleep(rest).await;
    for guard in &guards[1..] {
        assert_eq!(guard.lost_now(), None);
    }
    drop(guards);
    nodes.all()[1..].iter().for_each(Server::left_over_check);
}

/// A planned failover: the connection to the old primary stays open, but the new primary has no bindings. The client
/// learns of it by a request for a key, or by a query of the slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_bound_again_where_its_slot_went() {
    let mut nodes = Nodes::with(3, &["cluster-node-timeout", "2000"]);
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    let key = key_of(&nodes, 0);
    let rest = Duration::from_secs(40);
    // A failover pauses the server. A renewal without a timely reply would limit the effect of later ones.
    let patient = Client::builder().response_timeout(Duration::from_mins(1)).lease(LEASE);
    let client = patient.connect(&nodes.url()).await.unwrap();
    let (mut primary, mut other) = (0, replica);
    for asks in [true, false] {
        let lock = client.lock(&key).fixed_lease(LEASE).bind(rest);
        let guard = within("the acquire", lock.acquire()).await.unwrap();
        let bound =
            |node: usize| number(&nodes.all()[node].cmd(&["DLOCK.INFO", &key]), "bound-client");
        assert_ne!(bound(primary), 0);
        nodes.all()[primary].wait_replica_synced(&nodes.all()[other]);
        (primary, other) = (other, primary);
        tokio::task::block_in_place(|| nodes.fail_over(primary));
        let failover = Instant::now();
        if asks {
            let neighbour = client.lock(format!("{{{key}}}:neighbour"));
            within("the try", neighbour.try_acquire())
                .await
                .unwrap()
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        until("the binding to the new primary", || {
            assert_eq!(guard.lost_now(), None);
            bound(primary) != 0
        })
        .await;
        println!("asks: {asks}: bound again {:?} after the failover", failover.elapsed());
        assert_eq!(guard.lost_now(), None);
        within("a release", guard.release()).await.unwrap();
        nodes.all()[primary].left_over_check();
    }
}
