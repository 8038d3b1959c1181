//! Waiters that die with a place in the queue: the waiters behind them are served, and a free lock stays free.

use std::time::{Duration, Instant};

use crate::{
    args,
    looks::queue,
    support::{Client, Reply, SOON, Server, wait_until},
};

/// Long enough to notice a grant to a dead waiter.
const QUEUE_MS: &str = "60000";
/// Longer than a hand-off, shorter than the place of a dead waiter.
const AT_ONCE: Duration = Duration::from_secs(20);

/// The requested lock, and its release.
struct Lock {
    family: &'static str,
    key: &'static str,
    /// Arguments of the holder, of the dead waiters and of the waiter behind them.
    holds: &'static str,
    dies: &'static str,
    waits: &'static str,
}

const fn lock(
    family: &'static str,
    key: &'static str,
    [holds, dies, waits]: [&'static str; 3],
) -> Lock {
    Lock { family, key, holds, dies, waits }
}

const LOCKS: [Lock; 6] = [
    lock("DLOCK", "k", ["", "", ""]),
    lock("DRW", "rw", ["WRITE", "WRITE", "WRITE"]),
    lock("DRW", "rw", ["WRITE", "READ", "WRITE"]),
    lock("DRW", "rw", ["WRITE", "WRITE", "READ"]),
    lock("DRW", "rw", ["READ", "WRITE", "WRITE"]),
    lock("DSEM", "s", ["COUNT 2", "COUNT 2", "COUNT 1"]),
];

impl Lock {
    fn ask(&self, owner: &str, how: &str, more: &[&str]) -> Vec<String> {
        let verb = format!("{}.ACQUIRE", self.family);
        let limit = if self.family == "DSEM" { "LIMIT 2" } else { "" };
        let words = [&verb, self.key, owner, how, limit];
        let words = words.into_iter().chain(more.iter().copied()).flat_map(|word| word.split(' '));
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    fn release(&self, server: &Server, owner: &str, how: &str, id: &redis::Value) {
        let verb = format!("{}.RELEASE", self.family);
        if self.family == "DSEM" {
            server.cmd(&args![verb, self.key, id.text()]).int();
        } else {
            let mode = if how.is_empty() { None } else { Some(how) };
            let call = args![verb, self.key, owner];
            assert_eq!(server.cmd(&[call, args![mode.as_slice()]].concat()).int(), 0);
        }
    }

    fn name(&self) -> String {
        format!("{} {} / {} / {}", self.family, self.holds, self.dies, self.waits)
    }

    /// Number of waiters without a connection.
    fn dead(&self, server: &Server) -> usize {
        let rows = server.cmd(&args![format!("{}.WAITERS", self.family), self.key]).items();
        rows.iter().filter(|row| row.field("client-id").int() == 0).count()
    }
}

/// Two waiters that die.
fn doomed(server: &Server, lock: &Lock, options: &[&str]) -> Vec<Client> {
    let wait = |owner| {
        let call = lock.ask(owner, lock.dies, options);
        if options.contains(&"BLOCK") {
            return server.block(&call).into_client();
        }
        let mut client = server.client();
        assert!(client.cmd(&call).is_null());
        client
    };
    ["dead1", "dead2"].map(wait).into()
}

/// The server cannot distinguish a killed process from one that closes its connection.
#[test]
fn the_next_waiter_gets_the_lock_of_dead_waiters() {
    for options in [&["QUEUE", QUEUE_MS][..], &["BLOCK", "0", "QUEUE", QUEUE_MS]] {
        for lock in LOCKS {
            let what = format!("{}, {options:?}", lock.name());
            let server = Server::start();
            let held = server.cmd(&lock.ask("holder", lock.holds, &[])).ok();
            let dead = doomed(&server, &lock, options);
            let mut next = server.block(&lock.ask("next", lock.waits, &["BLOCK", "0"]));
            drop(dead);
            wait_until("the server to know that they are gone", || lock.dead(&server) == 2);
            let begun = Instant::now();
            lock.release(&server, "holder", lock.holds, &held);
            let got = next.expect_reply(SOON).ok();
            assert!(begun.elapsed() < AT_ONCE, "{what}: {:?}", begun.elapsed());
            assert_eq!(queue(&server, lock.family, lock.key), ["dead1", "dead2"], "{what}");
            // The second owner is back: it has its place, and the first one does not block it.
            let mut back = server.client();
            assert!(
                back.cmd(&lock.ask("dead2", lock.dies, &["QUEUE", QUEUE_MS])).is_null(),
                "{what}"
            );
            let position = args![format!("{}.POSITION", lock.family), lock.key, "dead1"];
            assert_eq!(server.cmd(&position).int(), 1, "{what}");
            lock.release(&server, "next", lock.waits, &got);
            let claimed = back.cmd(&lock.ask("dead2", lock.dies, &[])).ok();
            assert!(!claimed.is_null(), "{what}");
            lock.release(&server, "dead2", lock.dies, &claimed);
            // A lock without other waiters is free for any owner.
            let taken = server.cmd(&lock.ask("other", lock.holds, &[])).ok();
            assert!(!taken.is_null(), "{what}");
            lock.release(&server, "other", lock.holds, &taken);
            let first =
                server.post(&lock.ask("dead1", lock.dies, &["BLOCK", "0"])).expect_reply(SOON).ok();
            lock.release(&server, "dead1", lock.dies, &first);
            assert_eq!(queue(&server, lock.family, lock.key), [""; 0], "{what}");
            drop(back);
            server.left_over_check();
        }
    }
}

/// Release and death happen in one turn: the grant was made and cannot be sent.
#[test]
fn a_grant_that_cannot_be_sent_goes_on_and_the_place_stays() {
    for lock in LOCKS {
        let what = lock.name();
        let server = Server::start();
        let held = server.cmd(&lock.ask("holder", lock.holds, &[])).ok();
        let doomed = server.block(&lock.ask("dead", lock.dies, &["BLOCK", "0", "QUEUE", QUEUE_MS]));
        let mut next = server.block(&lock.ask("next", lock.waits, &["BLOCK", "0"]));
        let mut release = args![format!("{}.RELEASE", lock.family), lock.key];
        if lock.family == "DSEM" {
            release.extend(args![held.text()]);
        } else {
            release.extend(args!["holder"]);
            release.extend(
                lock.holds.split(' ').filter(|word| !word.is_empty()).flat_map(|word| args![word]),
            );
        }
        let replies =
            server.client().pipeline(&[release, args!["CLIENT", "KILL", "ID", doomed.id()]]);
        assert_eq!(replies[1].int(), 1);
        let got = next.expect_reply(SOON).ok();
        assert_eq!(queue(&server, lock.family, lock.key), ["dead"], "{what}");
        assert_eq!(lock.dead(&server), 1, "{what}");
        lock.release(&server, "next", lock.waits, &got);
        let mut back = server.client();
        let taken = back.cmd(&lock.ask("dead", lock.dies, &["QUEUE", QUEUE_MS])).ok();
        assert!(!taken.is_null(), "{what}: it is free, without waiters in front");
        lock.release(&server, "dead", lock.dies, &taken);
        assert_eq!(server.info_number("dlock", "grants_in_flight"), 0);
        drop((back, doomed));
        server.left_over_check();
    }
}

#[test]
fn a_free_lock_is_free_whatever_crowd_has_died() {
    const DEAD: usize = 2_000;
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder"]).int();
    let mut crowd = server.client();
    let calls: Vec<_> = (0..DEAD)
        .map(|n| args!["DLOCK.ACQUIRE", "k", format!("o{n}"), "QUEUE", QUEUE_MS])
        .collect();
    assert!(crowd.pipeline(&calls).iter().all(Reply::is_null));
    drop(crowd);
    wait_until("the server to know that they are gone", || {
        let first = server.cmd(&["DLOCK.WAITERS", "k", "COUNT", "1"]).items();
        first[0].field("client-id").int() == 0
    });
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "holder"]).int(), 0);
    let mut client = server.client();
    let pair = [args!["DLOCK.ACQUIRE", "k", "alive"], args!["DLOCK.RELEASE", "k", "alive"]];
    let pairs: Vec<_> = (0..1_000).flat_map(|_| pair.clone()).collect();
    let replies = client.pipeline(&pairs);
    assert!(replies.chunks(2).all(|pair| pair[0].int() > 0 && pair[1].int() == 0));
    let give_up =
        |call: &Vec<Vec<u8>>| vec![b"DLOCK.RELEASE".to_vec(), call[1].clone(), call[2].clone()];
    let replies = client.pipeline(&calls.iter().map(give_up).collect::<Vec<_>>());
    assert!(replies.iter().all(Reply::is_null), "all kept their places");
    server.left_over_check();
}
