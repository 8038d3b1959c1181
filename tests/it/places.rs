//! Waits without blocking: one connection in very many queues, or with very many places in one.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use dlock_wire::message::{Event, Message};
use redis::{PushKind, Value};

use crate::{
    args,
    queue::queue,
    restart::LATE,
    support::{Client, Family, Heard, LIMIT, Reply, Server, wait_until},
    test_both_families,
};

test_both_families! {
    ten_thousand_places_in_one_queue
    ten_thousand_places_over_five_hundred_locks
    one_place_in_each_of_three_thousand_queues
    polling_needs_no_connection_that_stays
}

/// Maximum memory of a place, in bytes. The connection of a blocked client alone needs 34 KiB.
const MOST_BYTES: i64 = 1_024;

/// Places of one connection: `depth` in each of `locks` queues.
struct Crowd {
    locks: usize,
    depth: usize,
    queue_ms: u64,
}

impl Crowd {
    fn key(lock: usize) -> String {
        format!("lock:{lock:0>5}")
    }

    /// Names as long as UUIDs, which clients use.
    fn owner(lock: usize, n: usize) -> String {
        format!("owner-{n:0>12}-of-{lock:0>14}")
    }

    fn places(&self) -> usize {
        self.locks * self.depth
    }

    /// Lets `client` request all of them, about ten thousand times a second.
    fn ask(&self, client: &mut Client) {
        let all: Vec<(usize, usize)> =
            (0..self.depth).flat_map(|n| (0..self.locks).map(move |lock| (lock, n))).collect();
        for part in all.chunks(1_000) {
            let call = |&(lock, n): &(usize, usize)| {
                let (key, owner) = (Crowd::key(lock), Crowd::owner(lock, n));
                args!["DLOCK.ACQUIRE", key, owner, "QUEUE", self.queue_ms, "NOTIFY", "mine"]
            };
            let calls: Vec<_> = part.iter().map(call).collect();
            assert!(client.pipeline(&calls).iter().all(Reply::is_null));
        }
    }

    /// Every place is granted once, in order, with a larger token; each is announced, claimed, released.
    fn work_off(&self, client: &mut Client) {
        let mut next: BTreeMap<Vec<u8>, (usize, usize)> =
            (0..self.locks).map(|lock| (Crowd::key(lock).into_bytes(), (lock, 0))).collect();
        let mut last = 0;
        for _ in 0..self.places() {
            let push = client.push(LIMIT);
            assert!(matches!(push, Value::Push { kind: PushKind::Message, .. }), "{push:?}");
            let [channel, text] = &push.items()[..] else { panic!("{push:?}") };
            assert_eq!(channel.text(), "mine");
            let text = text.bytes();
            let Some(Message::Hold { event: Event::Granted, db: 0, id, owner, key, .. }) =
                Message::parse(&text)
            else {
                panic!("{}", text.escape_ascii());
            };
            let (lock, n) = next.get_mut(key).expect("a lock of ours");
            assert_eq!(owner, Crowd::owner(*lock, *n).as_bytes());
            *n += 1;
            let token = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
            let token: i64 = token.expect("a number");
            assert!(token > last, "{token} after {last}");
            last = token;
            let replies = client.pipeline(&[
                args!["DLOCK.ACQUIRE", key, owner],
                args!["DLOCK.RELEASE", key, owner],
            ]);
            assert_eq!((replies[0].int(), replies[1].int()), (token, 0));
        }
        assert!(next.values().all(|&(_, n)| n == self.depth));
    }
}

fn used_memory(server: &Server) -> i64 {
    server.info_number("memory", "used_memory")
}

/// One connection has all places, gets a message for each, claims and releases it.
pub fn wait_for_all(server: &Server, locks: usize, depth: usize) {
    let crowd = Crowd { locks, depth, queue_ms: 600_000 };
    let (mut holder, mut waiter) = (server.client(), server.client3());
    waiter.send(&["SUBSCRIBE", "mine"]);
    waiter.push(LIMIT);
    let calls = |verb: &str| -> Vec<_> {
        (0..locks).map(|lock| args![verb, Crowd::key(lock), "holder"]).collect()
    };
    let mut acquire = calls("DLOCK.ACQUIRE");
    for call in &mut acquire {
        call.extend(args!["EX", 10_000]);
    }
    holder.pipeline(&acquire);

    let before = used_memory(server);
    crowd.ask(&mut waiter);
    let each =
        (used_memory(server) - before) / i64::try_from(crowd.places()).expect("a small number");
    println!("{:?}: {depth} places in each of {locks} queues: {each} bytes each", server.family());
    assert!(each <= MOST_BYTES, "{each} bytes for a place");
    assert_eq!(server.blocked_clients(), 0);
    let waiting = usize::try_from(server.info_number("dlock", "waiters_queued"));
    assert_eq!(waiting, Ok(crowd.places()));

    assert!(holder.pipeline(&calls("DLOCK.RELEASE")).iter().all(|left| left.int() == 0));
    crowd.work_off(&mut waiter);
    server.cmd(&["PING"]).ok();
    assert_eq!(waiter.hear(Duration::ZERO), Heard::Nothing);
    assert_eq!(server.info_number("dlock", "unclaimed"), 0);
    server.left_over_check();
}

fn ten_thousand_places_in_one_queue(family: Family) {
    wait_for_all(&family.start(), 1, 10_000);
}

fn ten_thousand_places_over_five_hundred_locks(family: Family) {
    wait_for_all(&family.start(), 500, 20);
}

fn one_place_in_each_of_three_thousand_queues(family: Family) {
    wait_for_all(&family.start(), 3_000, 1);
}

/// Ten locks have as many waiters as they may.
const MANY: usize = 100_000;

#[test]
#[ignore = "soak"]
fn soak_a_hundred_thousand_places_of_one_connection() {
    for family in Family::ALL {
        for locks in [10, 2_000, MANY] {
            let server = family.with(&[]).release().start();
            let start = Instant::now();
            wait_for_all(&server, locks, MANY / locks);
            println!("{family:?}: all over in {:.1?}", start.elapsed());
        }
    }
}

/// A closed connection, and one that hangs: all its places together cost one QUEUE.
#[test]
#[ignore = "soak"]
fn soak_a_hundred_thousand_places_are_freed() {
    const QUEUE_MS: u64 = 2_000;
    for family in Family::ALL {
        for locks in [10, 2_000, MANY] {
            let server = family.with(&[]).release().start();
            let crowd = Crowd { locks, depth: MANY / locks, queue_ms: QUEUE_MS };
            let calls = |verb: &str| -> Vec<_> {
                (0..locks).map(|lock| args![verb, Crowd::key(lock), "holder"]).collect()
            };
            let mut holder = server.client();
            holder.pipeline(&calls("DLOCK.ACQUIRE"));
            let before = used_memory(&server);
            let mut waiter = server.client();
            crowd.ask(&mut waiter);
            let start = Instant::now();
            drop(waiter);
            let left = || server.info_number("dlock", "waiters_queued");
            wait_until("the first place to go", || left() < 100_000);
            assert!(start.elapsed() >= Duration::from_millis(QUEUE_MS), "{:?}", start.elapsed());
            wait_until("the last place to go", || left() == 0);
            println!("{family:?}, {locks} locks: all gone after {:.1?}", start.elapsed());
            assert!(start.elapsed() < Duration::from_millis(QUEUE_MS) + LATE);
            let kept = used_memory(&server) - before;
            println!("{kept} bytes kept");
            holder.pipeline(&calls("DLOCK.RELEASE"));
            server.left_over_check();
        }
    }
}

/// Three owners poll repeatedly, each time over another connection, and each is served in order.
fn polling_needs_no_connection_that_stays(family: Family) {
    let server = family.start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder"]).int();
    let poll = |owner: &str| {
        let call = ["DLOCK.ACQUIRE", "k", owner, "QUEUE", "30000", "REQID", "one"];
        server.client().cmd(&call)
    };
    let owners = ["a", "b", "c"];
    for _ in 0..5 {
        assert!(owners.iter().all(|owner| poll(owner).is_null()));
        assert_eq!(queue(&server, "k"), owners);
        assert_eq!(server.blocked_clients(), 0);
    }
    server.cmd(&["DLOCK.RELEASE", "k", "holder"]).int();
    let mut last = 0;
    for (turn, owner) in owners.into_iter().enumerate() {
        // In a fair lock, owners that are not first poll in vain: the grant goes to the first one even without a
        // connection. Other locks stay free for the first poll.
        for waiting in owners.iter().skip(turn + 1).rev().filter(|_| family == Family::Fair) {
            assert!(poll(waiting).is_null());
        }
        let token = poll(owner).int();
        assert!(token > last);
        last = token;
        // A repeat of a poll whose reply was lost.
        assert_eq!(poll(owner).int(), token);
        assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("holds").int(), 1);
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", owner]).int(), 0);
    }
    server.left_over_check();
}
