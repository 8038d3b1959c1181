//! Exactly one holder (or only readers), growing tokens and strict order of arrival, while waiters are interfered with
//! in every way.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on stops here and says why"
)]

use dlock_core::value::lock::Lock;
use redis::Value;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::{
    args,
    records::decode,
    storm::{
        Certain, LONG, Meddling, Rounds, Storm, Worker, assert_happened, assert_replica_is_equal,
        is_grant,
    },
    support::{Blocked, Family, Kind, ReplicaTap, Reply, SOON, Server, wait_until},
    test_both_families,
};

test_both_families! {
    two_hundred_connections_over_one_lock
    two_hundred_connections_over_fifty_locks
    waiters_are_served_in_the_order_in_which_they_came
}

/// The writer of a resource that refuses tokens older than the newest it has seen.
const FENCED_WRITE: &str = "redis.call(ARGV[2] .. '.CHECK', KEYS[1], ARGV[1])
    if (tonumber(redis.call('GET', KEYS[2]) or '0')) > tonumber(ARGV[1]) then return redis.error_reply('OLD token') end
    return redis.call('SET', KEYS[2], ARGV[1])";

/// What a writer takes, and all readers together may take.
const ALL: u64 = 1_000;

/// Locks in a storm: `DLOCK`, `DFAIR` or `DRW`.
struct Locks {
    family: &'static str,
    certain: Vec<Certain>,
}

struct Wish<'a> {
    lock: usize,
    key: String,
    owner: &'a str,
    /// Other locks than read-write locks have writers only.
    mode: &'static str,
    lease: u64,
    is_bound: bool,
    /// Its requests have an id: their mode.
    has_id: bool,
}

impl Rounds for Locks {
    /// Every granted token, with the lock and the owner.
    type Notes = Vec<(u64, String, String)>;

    /// Requests a lock, interferes, works under the lock, and perhaps releases it.
    fn round(&self, worker: &mut Worker<'_, Self::Notes>, owner: &str) -> usize {
        let before = worker.notes.len();
        let dice = &mut worker.dice;
        let lock = dice.index(self.certain.len());
        let is_short = dice.one_in(5);
        let mut wish = Wish {
            lock,
            key: format!("k{lock}"),
            owner,
            mode: if self.is_rw() && !dice.one_in(3) { "READ" } else { "WRITE" },
            lease: if is_short { 1 + dice.below(25) } else { LONG },
            is_bound: dice.one_in(5),
            has_id: !dice.one_in(4),
        };
        let is_held = self.attempt(worker, &wish);
        // Some readers upgrade to write, and some of those fail: two cannot both upgrade.
        if is_held && wish.mode == "READ" && worker.dice.one_in(3) {
            wish.mode = "WRITE";
            self.attempt(worker, &wish);
        }
        if is_held && wish.is_bound && worker.dice.one_in(3) {
            // Its bound holds end at once.
            worker.hang_up();
        } else if !is_short || worker.dice.one_in(2) {
            // A short lease may expire by itself; a long one would delay all other workers.
            self.let_go(worker, &wish);
        }
        worker.notes.len() - before
    }
}

impl Locks {
    fn is_rw(&self) -> bool {
        self.family == "DRW"
    }

    fn call(&self, verb: &str, wish: &Wish<'_>) -> Vec<Vec<u8>> {
        let mut call = args![format!("{}.{verb}", self.family), wish.key, wish.owner];
        if self.is_rw() {
            call.extend(args![wish.mode]);
        }
        call
    }

    /// Requests the lock, interferes, and works under the lock if it was granted.
    fn attempt(
        &self,
        worker: &mut Worker<'_, Vec<(u64, String, String)>>,
        wish: &Wish<'_>,
    ) -> bool {
        let mut meddling = Meddling::pick(&mut worker.dice);
        if wish.is_bound && meddling == Meddling::Repeat {
            // It would move the binding to its connection.
            meddling = Meddling::Not;
        }
        let dice = &mut worker.dice;
        // After its connection was given up, no owner would release the grant.
        let lease = if meddling == Meddling::GiveUp { 1 + dice.below(25) } else { wish.lease };
        let mut call = self.call("ACQUIRE", wish);
        call.extend(args!["PX", lease, "BLOCK", 1 + dice.below(150)]);
        if wish.has_id {
            call.extend(args!["REQID", wish.mode]);
        }
        if wish.is_bound {
            call.extend(args!["BIND", 0]);
        }
        if dice.one_in(20) {
            call.extend(args!["QUEUE", 100]);
        }
        let until = Instant::now() + Duration::from_millis(wish.lease);
        let replies = worker.ask(&call, meddling);
        // SPENT: a repeat of a granted request whose short lease has expired since.
        let errors = if self.is_rw() { &["SPENT ", "DEADLOCK "][..] } else { &["SPENT "] };
        let granted = replies.iter().filter(|reply| is_grant(reply, errors));
        let tokens: Vec<u64> = granted.map(|token| u64::try_from(token.int()).unwrap()).collect();
        let grant = |&token: &u64| (token, wish.key.clone(), wish.owner.to_owned());
        worker.notes.extend(tokens.iter().map(grant));
        let Some(&token) = tokens.last() else { return false };
        self.work(worker, wish, (token, until));
        true
    }

    /// Work of a holder while it is sure of the lock.
    fn work<N>(&self, worker: &mut Worker<'_, N>, wish: &Wish<'_>, grant: (u64, Instant)) {
        let (token, until) = grant;
        let certain = &self.certain[wish.lock];
        let takes = if wish.mode == "READ" { 1 } else { ALL };
        if !wish.is_bound {
            certain.add(wish.owner, wish.mode, takes, until);
        }
        let checked = if wish.mode == "READ" {
            worker.second.cmd(&args!["DRW.CHECK", wish.key, token])
        } else {
            let guard = format!("guard:{}", wish.key);
            let call = args!["EVAL", FENCED_WRITE, 2, wish.key, guard, token, self.family];
            worker.second.cmd(&call)
        };
        if let Value::ServerError(_) = checked {
            let error = checked.error();
            let may_be_over = wish.is_bound || Instant::now() >= until;
            assert!(error.starts_with("STALE ") && may_be_over, "{error}");
        }
        // It may keep its other mode.
        if worker.dice.one_in(2) {
            worker.pause(2_000);
        }
        if wish.lease < LONG {
            certain.forget(wish.owner, &[wish.mode]);
        }
    }

    fn let_go<N>(&self, worker: &mut Worker<'_, N>, wish: &Wish<'_>) {
        let modes = ["READ", "WRITE"];
        self.certain[wish.lock].forget(wish.owner, &modes);
        for mode in if self.is_rw() { &modes[..] } else { &modes[1..] } {
            let mut call = self.call("RELEASE", &Wish { mode, key: wish.key.clone(), ..*wish });
            let nothing: &[&str] = if wish.has_id {
                call.extend(args!["REQID", mode]);
                &["LOST ", "UNKNOWN "]
            } else {
                call.extend(args!["ALL"]);
                &["NOTHELD "]
            };
            let reply = worker.second.cmd(&call);
            let had_none = |text: &str| nothing.iter().any(|code| text.starts_with(code));
            let is_over = reply == Value::Int(0) || reply.is_null() || had_none(&reply.error());
            assert!(is_over, "{}", reply.show());
            if !wish.has_id {
                continue;
            }
            for _ in 0..worker.dice.below(2) {
                assert_eq!(worker.second.cmd(&call), reply, "a copy of RELEASE");
            }
        }
    }
}

/// A storm of `workers` connections over `locks` locks.
pub fn storm(family: &'static str, workers: usize, locks: usize, seed: u64) {
    let speaking = Family::ALL.into_iter().find(|other| other.name() == family);
    // Few of the killed workers return: their places must not delay the others.
    let setup = speaking.unwrap_or(Family::Lock).with(&["dlock.fair-grace-ms", "30"]);
    let server = setup.start();
    let replica = Server::with(&[]).replica_of(&server).start();
    let mut tap = ReplicaTap::attach(&server);
    let rounds = Locks { family, certain: (0..locks).map(|_| Certain::new(ALL)).collect() };
    let lasts = Duration::from_millis(2_500);
    let storm = Storm { server: &server, seed, workers, lasts, enough: 150 };
    let grants = storm.blow(&rounds, || {});
    for lock in 0..locks {
        server.cmd(&["DEL", &format!("guard:k{lock}")]).ok();
    }
    if !rounds.is_rw() {
        // A place whose grace ends late lets the next one in: then the counters are ahead of the stream.
        let waiters = ["waiters_blocked", "waiters_queued"];
        wait_until("the last grant", || {
            waiters.iter().all(|field| server.info_number("dlock", field) == 0)
        });
        let (history, entered) = history(&tap.commands(&server));
        for (token, key, owner) in grants.into_iter().flatten() {
            assert_eq!(history.get(&token), Some(&(key, owner)), "token {token}");
        }
        let counted = |field| usize::try_from(server.info_number("dlock", field)).unwrap();
        let granted = counted("grants_at_once") + counted("grants_after_waiting");
        assert_eq!(history.len() + entered, granted);
    }
    let outcomes =
        ["grants_after_waiting", "timeouts", "expiries", "releases", "replaced", "disconnected"];
    assert_happened(&server, &outcomes);
    assert_replica_is_equal(&server, &replica);
    server.left_over_check();
}

/// Every grant of the server, by token, from its replication stream, which has the true order; and the number of
/// re-entries.
fn history(commands: &[Vec<Vec<u8>>]) -> (HashMap<u64, (String, String)>, usize) {
    let (mut grants, mut counts) = (HashMap::new(), HashMap::new());
    let (mut last, mut entered) = (0, 0);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for command in commands.iter().filter(|command| command[0] == b"DLOCK.APPLY") {
        let (state, _) = decode(&command[2]);
        let Lock::Held(hold) = state.lock() else { continue };
        let grant = (text(&command[1]), text(&hold.owner));
        let before = counts.insert(hold.token, hold.count);
        entered += usize::from(before.is_some_and(|before| before < hold.count));
        if let Some(known) = grants.get(&hold.token) {
            assert_eq!(known, &grant, "one token for two holds");
            continue;
        }
        assert!(hold.token > last, "token {} came after {last}", hold.token);
        last = hold.token;
        grants.insert(hold.token, grant);
    }
    (grants, entered)
}

fn two_hundred_connections_over_one_lock(family: Family) {
    storm(family.name(), 200, 1, 7);
}

fn two_hundred_connections_over_fifty_locks(family: Family) {
    storm(family.name(), 200, 50, 11);
}

#[test]
fn a_hundred_connections_over_one_rw_lock() {
    storm("DRW", 100, 1, 3);
}

#[test]
fn a_hundred_connections_over_twenty_rw_locks() {
    storm("DRW", 100, 20, 5);
}

#[test]
#[ignore = "soak"]
fn soak_many_storms() {
    for (seed, family) in (100..145).zip(["DLOCK", "DFAIR", "DRW"].into_iter().cycle()) {
        storm(family, 200, 1 + usize::try_from(seed % 60).unwrap(), seed);
    }
}

fn waiters_are_served_in_the_order_in_which_they_came(family: Family) {
    const WAITERS: usize = 200;
    let server = family.with(&["dlock.fair-grace-ms", "0"]).start();
    let mut last = server.cmd(&["DLOCK.ACQUIRE", "k", "holder"]).int();
    // The lease of some of them ends.
    let is_short = |n: usize| n % 40 == 1;
    let ask = |n: usize| {
        let lease = if is_short(n) { 1_000 } else { 1_000_000 };
        let mut call =
            args!["DLOCK.ACQUIRE", "k", format!("o{n}"), "BIND", 0, "PX", lease, "BLOCK"];
        call.extend(args![if n % 20 == 3 { 3_000 } else { 0 }]);
        server.block(&call)
    };
    let mut waiting: Vec<Option<Blocked>> = (0..WAITERS).map(|n| Some(ask(n))).collect();
    // Some waiters in the middle of the queue leave, in every way; one in twenty times out by itself.
    for (n, place) in waiting.iter_mut().enumerate() {
        let Some(waiter) = place else { continue };
        let id = waiter.id();
        match n % 20 {
            3 => assert!(waiter.expect_reply(SOON).is_null()),
            5 => {
                server.cmd(&args!["CLIENT", "KILL", "ID", id]).ok();
                waiter.expect_closed_without_reply();
            }
            8 => {
                assert_eq!(server.cmd(&args!["DLOCK.UNBLOCK", id]).int(), 1);
                assert!(waiter.expect_reply(SOON).is_null());
            }
            11 => {
                assert_eq!(server.cmd(&args!["DLOCK.UNBLOCK", id, "ERROR"]).int(), 1);
                assert!(waiter.expect_reply(SOON).error().starts_with("STOPPED "));
            }
            13 => {
                assert!(server.cmd(&args!["DLOCK.RELEASE", "k", format!("o{n}")]).is_null());
                assert!(waiter.expect_reply(SOON).is_null());
            }
            16 if Kind::of_binary().client_unblock_is_safe() => {
                assert_eq!(server.cmd(&args!["CLIENT", "UNBLOCK", id]).int(), 1);
                assert!(waiter.expect_reply(SOON).is_null());
            }
            // Repeats the request on another connection, and keeps its place.
            18 => {
                let mut earlier = place.replace(ask(n)).unwrap();
                assert!(earlier.expect_reply(SOON).error().starts_with("REPLACED "));
                continue;
            }
            16 | 19 => {}
            _ => continue,
        }
        // Cases 19, and 16 where the server cannot unblock the call, disconnect here.
        *place = None;
    }
    let stayed: Vec<usize> =
        waiting.iter().enumerate().filter(|(_, place)| place.is_some()).map(|(n, _)| n).collect();
    let names: Vec<String> = stayed.iter().map(|n| format!("o{n}")).collect();
    wait_until("the queue without the waiters that left", || {
        let rows = server.cmd(&["DLOCK.WAITERS", "k"]).items();
        rows.iter().map(|row| row.field("owner").text()).eq(names.iter().cloned())
    });
    assert_eq!(server.cmd(&["DLOCK.POSITION", "k", &names[99]]).int(), 100);
    let mut holder = server.client();
    let (mut owner, mut expires) = ("holder".to_owned(), false);
    for (turn, (n, name)) in stayed.into_iter().zip(names).enumerate() {
        let before = server.blocked_clients();
        // All ways for a hold to end.
        match turn % 4 {
            _ if expires => {}
            0 => drop(server.cmd(&["DLOCK.RELEASE", "k", &owner]).ok()),
            1 => assert_eq!(server.cmd(&["DLOCK.BREAK", "k"]).int(), 1),
            2 => assert_eq!(server.cmd(&["DEL", "k"]).int(), 1),
            _ => drop(server.cmd(&args!["CLIENT", "KILL", "ID", holder.id()]).ok()),
        }
        let mut next = waiting[n].take().unwrap();
        let token = next.expect_reply(SOON).int();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("owner").text(), name);
        assert_eq!(server.blocked_clients(), before - 1, "only {name} was woken");
        (owner, expires) = (name, is_short(n));
        holder = next.into_client();
    }
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", &owner]).int(), 0);
    server.left_over_check();
}
