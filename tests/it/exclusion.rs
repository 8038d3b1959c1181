//! Exactly one holder, growing tokens and strict order of arrival, while waiters are interfered with in every way.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on stops here and says why"
)]

use std::{
    collections::HashMap,
    panic::resume_unwind,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use dlock_core::resource::Lock;
use redis::Value;

use crate::{
    args,
    records::decode,
    support::{
        Blocked, Client, Dice, Family, Heard, Kind, LIMIT, ReplicaTap, Reply, SOON, Server,
        wait_until,
    },
    test_both_families,
};

test_both_families! {
    two_hundred_connections_over_one_lock
    two_hundred_connections_over_fifty_locks
    waiters_are_served_in_the_order_in_which_they_came
}

/// The writer of a resource that refuses tokens older than the newest it has seen.
const FENCED_WRITE: &str = "redis.call('DLOCK.CHECK', KEYS[1], ARGV[1])
    if (tonumber(redis.call('GET', KEYS[2]) or '0')) > tonumber(ARGV[1]) then return redis.error_reply('OLD token') end
    return redis.call('SET', KEYS[2], ARGV[1])";

/// Minimum number of grants in a storm.
const ENOUGH: usize = 150;

/// The certain holder of a lock, and until when: from the reply until the end of a lease that began with the request.
type Certain = Mutex<Option<(String, Instant)>>;

/// One of two hundred workers: a connection for requests, and a second one that interferes.
struct Worker<'a> {
    server: &'a Server,
    locks: &'a [Certain],
    name: usize,
    dice: Dice,
    main: Client,
    second: Client,
    /// Every granted token, with the lock and the owner.
    grants: Vec<(u64, usize, String)>,
}

impl Worker<'_> {
    /// Runs until the time is over; on a busy machine, until enough has happened.
    fn run(mut self, until: Instant, granted: &AtomicUsize) -> Vec<(u64, usize, String)> {
        let mut round = 0;
        while Instant::now() < until
            || (granted.load(Relaxed) < ENOUGH && Instant::now() < until + LIMIT)
        {
            let before = self.grants.len();
            self.round(&format!("w{}.{round}", self.name));
            granted.fetch_add(self.grants.len() - before, Relaxed);
            round += 1;
        }
        self.grants
    }

    /// One attempt: requests the lock, interferes, works under the lock, and perhaps releases it.
    fn round(&mut self, owner: &str) {
        let lock = usize::try_from(self.dice.below(self.locks.len() as u64)).unwrap();
        let key = format!("k{lock}");
        let interference = self.dice.below(100);
        let is_short = self.dice.below(10) == 0 || (85..95).contains(&interference);
        let lease = if is_short { 1 + self.dice.below(25) } else { 20_000 };
        let block = 1 + self.dice.below(150);
        let mut call =
            args!["DLOCK.ACQUIRE", &key, owner, "PX", lease, "BLOCK", block, "REQID", "r"];
        let is_bound = interference >= 85 && self.dice.below(2) == 0;
        if is_bound {
            call.extend(args!["BIND", 0]);
        }
        if interference >= 95 {
            call.extend(args!["QUEUE", 100]);
        }
        let sent = Instant::now();
        self.main.send(&call);
        thread::sleep(Duration::from_micros(self.dice.below(4_000)));
        let (first, again) = self.interfere(interference, &call);
        let tokens: Vec<u64> =
            [first, again].into_iter().flatten().filter_map(|reply| token(&reply)).collect();
        self.grants.extend(tokens.iter().map(|&token| (token, lock, owner.to_owned())));
        if let Some(&token) = tokens.last() {
            let until = sent + Duration::from_millis(lease);
            self.work(lock, &key, owner, token, until, is_bound);
        }
        if interference >= 95 {
            self.second.cmd(&["DLOCK.CANCEL", &key, owner]).ok();
        }
        // A short lease may expire by itself; a long one would delay all other workers.
        if !is_short || self.dice.below(2) == 0 {
            let call = args!["DLOCK.RELEASE", &key, owner, "ALL", "REQID", "end"];
            for _ in 0..=self.dice.below(2) {
                let reply = self.second.cmd(&call);
                assert!(reply == Value::Int(0) || reply.error().starts_with("NOTHELD "));
            }
        }
        // A blocked call gets exactly one reply: the next reply is that to the next call.
        assert_eq!(self.main.cmd(&["ECHO", owner]).text(), owner);
    }

    /// Interferes with the waiting call. Returns its reply, if any, and that to a repeat on the second connection.
    fn interfere(&mut self, what: u64, call: &[Vec<u8>]) -> (Option<Value>, Option<Value>) {
        let id = self.main.id().to_string();
        let mode = ["TIMEOUT", "ERROR"][usize::try_from(self.dice.below(2)).unwrap()];
        let mut again = None;
        match what {
            40..50 if mode == "ERROR" => drop(self.second.cmd(&["DLOCK.UNBLOCK", &id, mode]).ok()),
            40..50 => drop(self.second.cmd(&["DLOCK.UNBLOCK", &id]).ok()),
            50..60 if Kind::of_binary().client_unblock_is_safe() => {
                self.second.cmd(&["CLIENT", "UNBLOCK", &id, mode]).ok();
            }
            60..75 => again = Some(self.second.cmd(call)),
            75..90 => {
                self.second.cmd(&["CLIENT", "KILL", "ID", &id]).ok();
                let answered = match self.main.hear(LIMIT) {
                    Heard::Reply(reply) => Some(reply),
                    _ => None,
                };
                self.main.expect_closed();
                self.main = self.server.client();
                return (answered, None);
            }
            90..95 => {
                self.main = self.server.client();
                return (None, None);
            }
            _ => {}
        }
        (Some(self.main.reply(LIMIT)), again)
    }

    /// Work of a holder while it is sure of the lock.
    fn work(
        &mut self,
        lock: usize,
        key: &str,
        owner: &str,
        token: u64,
        until: Instant,
        is_bound: bool,
    ) {
        if !is_bound && Instant::now() < until {
            let mut certain = self.locks[lock].lock().unwrap();
            if let Some((other, end)) = certain.as_ref() {
                assert!(*end <= Instant::now(), "{other} and {owner} both hold {key}");
            }
            *certain = Some((owner.to_owned(), until));
        }
        let guard = format!("guard:{key}");
        let script = FENCED_WRITE.replace("DLOCK", self.server.family().name());
        let written = self.second.cmd(&args!["EVAL", script, 2, key, guard, token]);
        if let Value::ServerError(_) = written {
            let error = written.error();
            assert!(
                error.starts_with("STALE ") && (is_bound || Instant::now() >= until),
                "{error}"
            );
        }
        let mut certain = self.locks[lock].lock().unwrap();
        certain.take_if(|(holder, _)| holder == owner);
    }
}

/// The token in a reply to ACQUIRE; checks that any other reply is possible for such a call.
pub fn token(reply: &Value) -> Option<u64> {
    match reply {
        Value::Int(token) => Some(u64::try_from(*token).unwrap()),
        Value::Nil => None,
        other => {
            let error = other.error();
            // SPENT: a repeat of a granted request whose short lease has expired since.
            let possible = ["UNBLOCKED ", "MOVING ", "REPLACED ", "SPENT "];
            assert!(possible.iter().any(|code| error.starts_with(code)), "{error}");
            None
        }
    }
}

fn storm(family: Family, locks: usize, seed: u64) {
    println!("{family:?}, seed {seed}");
    // Few of the killed workers return: their places must not delay the others.
    let server = family.with(&["dlock.fair-grace-ms", "30"]).start();
    let mut tap = ReplicaTap::attach(&server);
    let certain: Vec<Certain> = (0..locks).map(|_| Certain::default()).collect();
    let until = Instant::now() + Duration::from_millis(2_500);
    let granted = AtomicUsize::new(0);
    let grants: Vec<(u64, usize, String)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..200)
            .map(|name| {
                let worker = Worker {
                    server: &server,
                    locks: &certain,
                    name,
                    dice: Dice::new((seed << 16) + name as u64 + 1),
                    main: server.client(),
                    second: server.client(),
                    grants: Vec::new(),
                };
                scope.spawn(|| worker.run(until, &granted))
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    for lock in 0..locks {
        server.cmd(&["DEL", &format!("guard:k{lock}")]).ok();
    }
    let history = history(&tap.commands(&server));
    assert!(grants.len() >= ENOUGH, "only {} grants", grants.len());
    for (token, lock, owner) in grants {
        assert_eq!(history.get(&token), Some(&(format!("k{lock}"), owner)), "token {token}");
    }
    let info = server.info("dlock");
    let counted = |field: &str| info[field].parse::<usize>().unwrap();
    let granted = counted("grants_at_once") + counted("grants_after_waiting");
    assert_eq!(history.len(), granted, "{info:?}");
    for outcome in ["grants_after_waiting", "timeouts", "expiries", "releases", "replaced"] {
        assert!(counted(outcome) > 0, "{outcome} did not happen: {info:?}");
    }
    server.left_over_check();
}

/// Every grant of the server, by token, from its replication stream, which has the true order.
fn history(commands: &[Vec<Vec<u8>>]) -> HashMap<u64, (String, String)> {
    let mut grants = HashMap::new();
    let mut last = 0;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for command in commands.iter().filter(|command| command[0] == b"DLOCK.APPLY") {
        let (state, _) = decode(&command[2]);
        let Lock::Held(hold) = state.lock() else { continue };
        let grant = (text(&command[1]), text(&hold.owner));
        if let Some(known) = grants.get(&hold.token) {
            assert_eq!(known, &grant, "one token for two holds");
            continue;
        }
        assert!(hold.token > last, "token {} came after {last}", hold.token);
        last = hold.token;
        grants.insert(hold.token, grant);
    }
    grants
}

fn two_hundred_connections_over_one_lock(family: Family) {
    storm(family, 1, 7);
}

fn two_hundred_connections_over_fifty_locks(family: Family) {
    storm(family, 50, 11);
}

#[test]
#[ignore = "soak"]
fn soak_many_storms() {
    for seed in 100..130 {
        let family = Family::ALL[usize::from(seed % 2 == 1)];
        storm(family, 1 + usize::try_from(seed % 60).unwrap(), seed);
    }
}

fn waiters_are_served_in_the_order_in_which_they_came(family: Family) {
    const WAITERS: usize = 200;
    let server = family.with(&["dlock.fair-grace-ms", "0"]).start();
    let mut last = server.cmd(&["DLOCK.ACQUIRE", "k", "holder"]).int();
    let ask = |n: usize| {
        let mut call =
            args!["DLOCK.ACQUIRE", "k", format!("o{n}"), "BIND", 0, "EX", 1_000, "BLOCK"];
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
                assert!(waiter.expect_reply(SOON).error().starts_with("UNBLOCKED "));
            }
            13 => {
                assert_eq!(server.cmd(&args!["DLOCK.CANCEL", "k", format!("o{n}")]).int(), 1);
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
    let mut owner = "holder".to_owned();
    for (turn, (n, name)) in stayed.into_iter().zip(names).enumerate() {
        let before = server.blocked_clients();
        // All ways for a hold to end.
        match turn % 5 {
            0 => drop(server.cmd(&["DLOCK.RELEASE", "k", &owner]).ok()),
            1 => drop(server.cmd(&["DLOCK.RENEW", "k", &owner, "PX", "1"]).ok()),
            2 => assert_eq!(server.cmd(&["DLOCK.BREAK", "k"]).int(), 1),
            3 => assert_eq!(server.cmd(&["DEL", "k"]).int(), 1),
            _ => drop(server.cmd(&args!["CLIENT", "KILL", "ID", holder.id()]).ok()),
        }
        let mut next = waiting[n].take().unwrap();
        let token = next.expect_reply(SOON).int();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("owner").text(), name);
        assert_eq!(server.blocked_clients(), before - 1, "only {name} was woken");
        owner = name;
        holder = next.into_client();
    }
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", &owner]).int(), 0);
    server.left_over_check();
}
