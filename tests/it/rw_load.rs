//! Read-write locks under load: no owner starves, and a writer never holds with another owner, in spite of connection
//! faults.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    args,
    exclusion::token,
    story::rw,
    support::{Client, Dice, Heard, Kind, LIMIT, Reply, Server, wait_until},
};

/// Work time under the lock: long enough that one of many always holds it.
const WORK: Duration = Duration::from_millis(3);

/// `crowd` connections take the lock in `mode` repeatedly, without a pause, until `during` has ended. Returns every
/// granted token.
fn steady(server: &Server, mode: &str, crowd: usize, during: impl FnOnce()) -> Vec<i64> {
    let stop = AtomicBool::new(false);
    let one = |name: usize| {
        let (mut client, mut tokens) = (server.client(), Vec::new());
        let owner = format!("{mode}{name}");
        while !stop.load(Relaxed) {
            tokens.push(client.cmd(&["DRW.ACQUIRE", "k", &owner, mode, "BLOCK", "0"]).int());
            thread::sleep(WORK);
            client.cmd(&["DRW.RELEASE", "k", &owner, mode]).int();
        }
        tokens
    };
    thread::scope(|scope| {
        let one = &one;
        let workers: Vec<_> = (0..crowd).map(|name| scope.spawn(move || one(name))).collect();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        stop.store(true, Relaxed);
        let tokens = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect();
        ended.unwrap_or_else(|panic| resume_unwind(panic));
        tokens
    })
}

/// One owner waits while all others take the lock in the other mode. Returns the number of others in front of it on
/// arrival, and the tokens between which it waited.
fn overtaken(crowd_mode: &str, mode: &str, rounds: usize) -> Vec<i64> {
    let server = Server::start();
    let (mut client, mut waits, mut waited) = (server.client(), Vec::new(), 0);
    let tokens = steady(&server, crowd_mode, 12, || {
        wait_until("the crowd to be at it", || {
            server.info_number("dlock", "releases") >= 12 && rw(&server, "k") != "nothing"
        });
        for _ in 0..rounds {
            // Arrival, its position and the tokens granted until then, all in one step.
            let replies = client.pipeline(&[
                args!["MULTI"],
                args!["DRW.ACQUIRE", "k", "one", mode, "QUEUE", 60_000],
                args!["DRW.POSITION", "k", "one"],
                args!["INFO", "dlock"],
                args!["EXEC"],
            ]);
            let replies = replies[4].items();
            let (position, info) = (replies[1].int(), replies[2].text());
            let last = info.lines().find_map(|line| line.strip_prefix("dlock_last_token:"));
            let from: i64 = last.unwrap().trim().parse().unwrap();
            let mut token = replies[0].clone();
            waited += usize::from(token.is_null());
            wait_until(&format!("a {mode} hold among {crowd_mode} holds"), || {
                if token.is_null() {
                    token = client.cmd(&["DRW.ACQUIRE", "k", "one", mode]);
                }
                !token.is_null()
            });
            waits.push((from, token.int(), position));
            client.cmd(&["DRW.RELEASE", "k", "one", mode]).int();
        }
    });
    server.left_over_check();
    assert!(waited > rounds / 2, "it had to wait {waited} times only");
    let in_between = |&(from, to, position): &(i64, i64, i64)| {
        let count = tokens.iter().filter(|&&token| from < token && token < to).count();
        i64::try_from(count).unwrap() - (position - 1).max(0)
    };
    waits.iter().map(in_between).collect()
}

#[test]
fn no_writer_starves_among_readers() {
    let overtaken = overtaken("READ", "WRITE", 40);
    assert!(overtaken.iter().all(|&by| by <= 0), "overtaken by: {overtaken:?}");
}

#[test]
fn no_reader_starves_among_writers() {
    let overtaken = overtaken("WRITE", "READ", 20);
    assert!(overtaken.iter().all(|&by| by <= 0), "overtaken by: {overtaken:?}");
}

/// The certain holders of a lock, by mode, and until when: from the reply until the end of a lease that began with
/// the request.
type Certain = Mutex<BTreeMap<(String, bool), Instant>>;

/// The writer of a resource that refuses tokens older than the newest it has seen.
const FENCED_WRITE: &str = "redis.call('DRW.CHECK', KEYS[1], ARGV[1])
    if (tonumber(redis.call('GET', KEYS[2]) or '0')) > tonumber(ARGV[1]) then return redis.error_reply('OLD token') end
    return redis.call('SET', KEYS[2], ARGV[1])";

/// Minimum number of grants in a storm.
const ENOUGH: usize = 300;

/// Dice values for a connection that is given up, and for a call that leaves a place behind.
const GIVES_UP: u64 = 8;
const LEAVES_A_PLACE: u64 = 9;

struct Worker<'a> {
    server: &'a Server,
    locks: &'a [Certain],
    name: usize,
    dice: Dice,
    main: Client,
    second: Client,
    grants: usize,
}

/// The request.
struct Wish {
    lock: usize,
    key: String,
    owner: String,
    write: bool,
    lease: u64,
    bound: bool,
}

impl Wish {
    fn mode(&self) -> &'static str {
        if self.write { "WRITE" } else { "READ" }
    }
}

impl Worker<'_> {
    fn run(mut self, until: Instant, granted: &AtomicUsize) -> usize {
        let mut round = 0;
        while Instant::now() < until
            || (granted.load(Relaxed) < ENOUGH && Instant::now() < until + LIMIT)
        {
            let before = self.grants;
            self.round(&format!("w{}.{round}", self.name));
            granted.fetch_add(self.grants - before, Relaxed);
            round += 1;
        }
        self.grants
    }

    fn round(&mut self, owner: &str) {
        let lock = usize::try_from(self.dice.below(self.locks.len() as u64)).unwrap();
        let is_short = self.dice.below(5) == 0;
        let mut wish = Wish {
            lock,
            key: format!("k{lock}"),
            owner: owner.to_owned(),
            write: self.dice.below(3) == 0,
            lease: if is_short { 1 + self.dice.below(25) } else { 20_000 },
            bound: self.dice.below(5) == 0,
        };
        let held = self.attempt(&wish);
        // Some readers upgrade to write, and some of those fail: two cannot both upgrade.
        if held && !wish.write && self.dice.below(3) == 0 {
            wish.write = true;
            self.attempt(&wish);
        }
        if held && wish.bound && self.dice.below(3) == 0 {
            // The connection closes, and its bound holds end at once.
            self.main = self.server.client();
        } else if !is_short || self.dice.below(2) == 0 {
            self.forget(&wish, None);
            for mode in ["READ", "WRITE"] {
                let call = args!["DRW.RELEASE", &wish.key, owner, mode, "ALL"];
                let reply = self.second.cmd(&call);
                assert!(reply == Value::Int(0) || reply.error().starts_with("NOTHELD "));
            }
            self.second.cmd(&args!["DRW.CANCEL", &wish.key, owner]).int();
            for mode in ["READ", "WRITE"] {
                self.second.cmd(&args!["DRW.RELEASE", &wish.key, owner, mode, "ALL"]);
            }
        }
        // A blocked call gets exactly one reply: the next reply is that to the next call.
        assert_eq!(self.main.cmd(&["ECHO", owner]).text(), owner);
    }

    /// Requests the lock, interferes, and works under the lock if it was granted.
    fn attempt(&mut self, wish: &Wish) -> bool {
        let (block, what) = (1 + self.dice.below(150), self.dice.below(20));
        // After its connection was given up, no owner would release the grant.
        let lease = if what == GIVES_UP { 1 + self.dice.below(25) } else { wish.lease };
        let mut call = args!["DRW.ACQUIRE", &wish.key, &wish.owner, wish.mode()];
        call.extend(args!["PX", lease, "BLOCK", block, "REQID", wish.mode()]);
        if wish.bound {
            call.extend(args!["BIND", 0]);
        }
        if what == LEAVES_A_PLACE {
            call.extend(args!["QUEUE", 100]);
        }
        let sent = Instant::now();
        self.main.send(&call);
        thread::sleep(Duration::from_micros(self.dice.below(4_000)));
        let replies = self.interfere(what, &call);
        let token = replies.iter().rev().find_map(|reply| match reply {
            Value::ServerError(_) if reply.error().starts_with("DEADLOCK ") => None,
            reply => token(reply),
        });
        let Some(token) = token else { return false };
        self.grants += 1;
        self.work(wish, token, sent + Duration::from_millis(wish.lease));
        true
    }

    /// Interferes with the waiting call. Returns its reply, if any, and that to a repeat.
    fn interfere(&mut self, what: u64, call: &[Vec<u8>]) -> Vec<Value> {
        let id = self.main.id().to_string();
        match what {
            0 => drop(self.second.cmd(&["DLOCK.UNBLOCK", &id, "ERROR"]).ok()),
            1 => drop(self.second.cmd(&["DLOCK.UNBLOCK", &id]).ok()),
            2 if Kind::of_binary().client_unblock_is_safe() => {
                self.second.cmd(&["CLIENT", "UNBLOCK", &id]).ok();
            }
            // A repeat would move a binding to its connection.
            3 | 4 if !call.contains(&b"BIND".to_vec()) => {
                let again = self.second.cmd(call);
                return vec![self.main.reply(LIMIT), again];
            }
            5..8 => {
                self.second.cmd(&["CLIENT", "KILL", "ID", &id]).ok();
                let answered = match self.main.hear(LIMIT) {
                    Heard::Reply(reply) => vec![reply],
                    _ => Vec::new(),
                };
                self.main.expect_closed();
                self.main = self.server.client();
                return answered;
            }
            GIVES_UP => {
                self.main = self.server.client();
                return Vec::new();
            }
            _ => {}
        }
        vec![self.main.reply(LIMIT)]
    }

    /// Work of a holder while it is sure of the lock.
    fn work(&mut self, wish: &Wish, token: u64, until: Instant) {
        let now = Instant::now();
        if !wish.bound && now < until {
            let mut certain = self.locks[wish.lock].lock().unwrap();
            for ((other, writes), end) in certain.iter() {
                let is_beside = *other != wish.owner && (*writes || wish.write) && *end > now;
                assert!(!is_beside, "{other} and {} both hold {}", wish.owner, wish.key);
            }
            certain.insert((wish.owner.clone(), wish.write), until);
        }
        let checked = if wish.write {
            let guard = format!("guard:{}", wish.key);
            self.second.cmd(&args!["EVAL", FENCED_WRITE, 2, &wish.key, guard, token])
        } else {
            self.second.cmd(&args!["DRW.CHECK", &wish.key, token])
        };
        if let Value::ServerError(_) = checked {
            let error = checked.error();
            let may_be_over = wish.bound || Instant::now() >= until;
            assert!(error.starts_with("STALE ") && may_be_over, "{error}");
        }
        // It may keep its other mode.
        if self.dice.below(2) == 0 {
            thread::sleep(Duration::from_micros(self.dice.below(2_000)));
        }
        if wish.lease < 20_000 {
            self.forget(wish, Some(wish.write));
        }
    }

    /// From now on it is no longer certain that this owner holds the lock, in one mode or at all.
    fn forget(&self, wish: &Wish, mode: Option<bool>) {
        let mut certain = self.locks[wish.lock].lock().unwrap();
        certain.retain(|(owner, writes), _| {
            *owner != wish.owner || mode.is_some_and(|mode| mode != *writes)
        });
    }
}

fn storm(locks: usize, seed: u64) {
    const WORKERS: usize = 100;
    println!("seed {seed}");
    let server = Server::start();
    let replica = Server::with(&[]).replica_of(&server).start();
    let certain: Vec<Certain> = (0..locks).map(|_| Certain::default()).collect();
    let until = Instant::now() + Duration::from_secs(2);
    let granted = AtomicUsize::new(0);
    let grants: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|name| {
                let worker = Worker {
                    server: &server,
                    locks: &certain,
                    name,
                    dice: Dice::new((seed << 16) + name as u64 + 1),
                    main: server.client(),
                    second: server.client(),
                    grants: 0,
                };
                scope.spawn(|| worker.run(until, &granted))
            })
            .collect();
        let results = workers.into_iter().map(thread::ScopedJoinHandle::join);
        results.map(|grants| grants.unwrap_or_else(|panic| resume_unwind(panic))).sum()
    });
    assert!(grants >= ENOUGH, "only {grants} grants");
    let info = server.info("dlock");
    for outcome in
        ["grants_after_waiting", "timeouts", "expiries", "releases", "replaced", "disconnected"]
    {
        assert_ne!(info[outcome], "0", "{outcome} did not happen: {info:?}");
    }
    // Only bound holds of live connections, and short leases, can be left.
    for lock in 0..locks {
        server.cmd(&["DEL", &format!("guard:k{lock}")]).ok();
    }
    server.cmd(&["DRW.ACQUIRE", "left", "for the comparison", "READ"]).int();
    wait_until("the replica to be equal", || {
        server.wait_replica_synced(&replica);
        server.digest() == replica.digest()
    });
    server.cmd(&["DEL", "left"]).ok();
    server.left_over_check();
}

#[test]
fn a_hundred_connections_over_one_lock() {
    storm(1, 3);
}

#[test]
fn a_hundred_connections_over_twenty_locks() {
    storm(20, 5);
}

#[test]
#[ignore = "soak"]
fn soak_many_storms() {
    for seed in 200..220 {
        storm(1 + usize::try_from(seed % 30).unwrap(), seed);
    }
}
