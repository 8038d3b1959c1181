//! Semaphores under load: never more permits out than the capacity, and no owner starves, in spite of connection
//! faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    args,
    story::{is_permit_id, queue},
    support::{Client, Dice, Heard, Kind, LIMIT, Reply, Server, wait_until},
};

/// The largest capacity that there is in a storm.
const MOST: i64 = 9;
/// Minimum number of grants in a storm.
const ENOUGH: usize = 300;
/// Dice values for a connection that dies, is given up by its client, and for a call that leaves a place behind.
const DIES: std::ops::RangeInclusive<u64> = 5..=GIVES_UP;
const GIVES_UP: u64 = 8;
const LEAVES_A_PLACE: u64 = 9;
const LONG: u64 = 20_000;

/// Number of permits that are certain to be out, and until when: from the reply until the end of a lease that began
/// with the request.
#[derive(Default)]
struct Certain(Mutex<BTreeMap<String, (i64, Instant)>>);

impl Certain {
    #[track_caller]
    fn add(&self, id: &str, count: i64, until: Instant) {
        let mut out = self.0.lock().unwrap();
        out.insert(id.to_owned(), (count, until));
        let now = Instant::now();
        let sum: i64 = out.values().filter(|(_, until)| *until > now).map(|(count, _)| count).sum();
        assert!(sum <= MOST, "{sum} permits are out: {out:?}");
    }

    fn remove(&self, id: &str) {
        self.0.lock().unwrap().remove(id);
    }
}

/// The semaphore remembers its last 64 request ids, and a thread may be delayed for long. So while a TAKE is not
/// repeated, the number of new ids is limited: 15 for TAKEs, and for each of the 24 other threads one request in
/// flight and one GIVE.
#[derive(Default)]
struct Ids {
    /// Number of ids so far, and the number at which each unrepeated request began.
    asked: Mutex<(usize, BTreeMap<usize, usize>)>,
    repeated: Condvar,
}

/// From a TAKE until the reply to its repeat.
struct Repeating<'a>(&'a Ids, usize);

impl Ids {
    const MOST_AHEAD: usize = 15;

    fn take(&self, name: usize) -> Repeating<'_> {
        let asked = self.asked.lock().unwrap();
        let is_ahead = |(asked, open): &mut (usize, BTreeMap<usize, usize>)| {
            open.values().any(|at| *asked - at >= Self::MOST_AHEAD)
        };
        let mut asked = self.repeated.wait_while(asked, is_ahead).unwrap();
        asked.0 += 1;
        let at = asked.0;
        asked.1.insert(name, at);
        Repeating(self, name)
    }

    fn give(&self) {
        self.asked.lock().unwrap().0 += 1;
    }
}

impl Drop for Repeating<'_> {
    fn drop(&mut self) {
        self.0.asked.lock().unwrap().1.remove(&self.1);
        self.0.repeated.notify_all();
    }
}

struct Worker<'a> {
    server: &'a Server,
    certain: &'a Certain,
    taking: &'a Ids,
    ids: &'a Mutex<BTreeSet<String>>,
    /// Minimum number of permits that are taken and not returned.
    taken: &'a AtomicI64,
    name: usize,
    dice: Dice,
    main: Client,
    second: Client,
}

impl Worker<'_> {
    fn run(mut self, stop: &AtomicBool, granted: &AtomicUsize) {
        let mut round = 0;
        while !stop.load(Relaxed) {
            let name = format!("w{}.{round}", self.name);
            let got =
                if self.name.is_multiple_of(8) { self.take(&name) } else { self.acquire(&name) };
            granted.fetch_add(usize::from(got), Relaxed);
            // A blocked call gets exactly one reply: the next reply is that to the next call.
            assert_eq!(self.main.cmd(&["ECHO", &name]).text(), name);
            round += 1;
        }
    }

    /// Permits without a lease: they do not end by themselves, so no connection is killed here.
    fn take(&mut self, name: &str) -> bool {
        let n = 1 + self.dice.below(3);
        let block = 1 + self.dice.below(100);
        let repeating = self.taking.take(self.name);
        let reply = self.main.cmd(&args!["DSEM.TAKE", "s", n, "BLOCK", block, "REQID", name]);
        if !is_granted(&reply) {
            return false;
        }
        let again = self.second.cmd(&args!["DSEM.TAKE", "s", n, "REQID", name]);
        assert_eq!(again, reply, "a repeat");
        drop(repeating);
        let n = i64::try_from(n).unwrap();
        let out = self.taken.fetch_add(n, Relaxed) + n;
        assert!(out <= MOST, "{out} permits are taken");
        thread::sleep(Duration::from_micros(self.dice.below(1_000)));
        self.taken.fetch_sub(n, Relaxed);
        self.taking.give();
        let back = self.second.cmd(&args!["DSEM.GIVE", "s", n, "REQID", format!("{name} back")]);
        back.int();
        true
    }

    fn acquire(&mut self, owner: &str) -> bool {
        let what = self.dice.below(20);
        // A connection that is given up or killed may miss the reply to its grant.
        let is_short = DIES.contains(&what) || self.dice.below(5) == 0;
        let lease = if is_short { 1 + self.dice.below(25) } else { LONG };
        // A call for all permits must neither be overtaken nor starve the others.
        let count = if self.dice.below(10) == 0 { 4 } else { 1 + self.dice.below(3) };
        let is_bound = self.dice.below(5) == 0;
        let block = 1 + self.dice.below(150);
        let mut call = args!["DSEM.ACQUIRE", "s", owner, "COUNT", count, "PX", lease];
        call.extend(args!["BLOCK", block, "REQID", "r"]);
        if is_bound {
            call.extend(args!["BIND", 0]);
        }
        if what == LEAVES_A_PLACE {
            call.extend(args!["QUEUE", 100]);
        }
        let until = Instant::now() + Duration::from_millis(lease);
        self.main.send(&call);
        thread::sleep(Duration::from_micros(self.dice.below(4_000)));
        let replies = self.interfere(what, &call);
        let got: BTreeSet<String> =
            replies.iter().filter(|reply| is_granted(reply)).map(Reply::text).collect();
        assert!(got.len() <= 1 || is_short, "a repeat was answered another id: {got:?}");
        for id in &got {
            assert!(is_permit_id(id) && self.ids.lock().unwrap().insert(id.clone()), "{id}");
            if !is_bound {
                self.certain.add(id, i64::try_from(count).unwrap(), until);
            }
            thread::sleep(Duration::from_micros(self.dice.below(1_000)));
            self.certain.remove(id);
            if is_bound && self.dice.below(3) == 0 {
                // The connection closes, and its bound permits are back at once.
                self.main = self.server.client();
            } else if !is_short || self.dice.below(2) == 0 {
                // Other connections close, too, but a short lease expires by itself.
                let back = self.second.cmd(&["DSEM.RELEASE", "s", id]);
                if let Value::ServerError(_) = back {
                    let may_be_over = is_bound || Instant::now() >= until;
                    assert!(back.error().starts_with("NOTHELD ") && may_be_over, "{}", back.show());
                }
            }
        }
        self.second.cmd(&["DSEM.CANCEL", "s", owner]).int();
        !got.is_empty()
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
}

/// Checks that any other reply is possible for such a call.
fn is_granted(reply: &Value) -> bool {
    match reply {
        Value::Int(1) | Value::BulkString(_) => true,
        Value::Nil => false,
        other => {
            let error = other.error();
            let expected = ["UNBLOCKED ", "MOVING ", "REPLACED ", "LIMIT "];
            assert!(expected.iter().any(|code| error.starts_with(code)), "{error}");
            false
        }
    }
}

/// Reads INFO and PERMITS in one step, and sometimes changes the capacity. Permits out never exceed the capacity;
/// while they do after a reduction, they only decrease.
fn watch(server: &Server, dice: &mut Dice, until: Instant) -> usize {
    let mut client = server.client();
    let (mut out, mut capacity, mut looks) = (0, MOST, 0);
    while Instant::now() < until {
        let mut calls = vec![args!["MULTI"], args!["DSEM.INFO", "s"], args!["DSEM.PERMITS", "s"]];
        let resized = (looks % 7 == 0).then(|| 2 + i64::try_from(dice.below(8)).unwrap());
        calls.extend(resized.map(|to| args!["DSEM.RESIZE", "s", to]));
        calls.push(args!["EXEC"]);
        let replies = client.pipeline(&calls).pop().unwrap().items();
        let number = |field: &str| replies[0].field(field).int();
        let permits = replies[1].items();
        let listed: i64 = permits.iter().map(|permit| permit.field("count").int()).sum();
        let ids: BTreeSet<String> =
            permits.iter().map(|permit| permit.field("id").text()).collect();
        assert_eq!(ids.len(), permits.len());
        // Time advances between two calls of a transaction, too: leases may end.
        assert!(listed <= number("leased"), "{listed} listed: {}", replies[0].show());
        assert_eq!(number("capacity"), capacity);
        let now = number("leased") + number("taken");
        assert_eq!(number("available"), capacity - now, "{}", replies[0].show());
        assert!(now <= capacity.max(out), "{now} of {capacity} are out, {out} were");
        out = now;
        if let Some(to) = resized {
            // Permits that came back earlier may have been granted before; a reduction revokes none.
            let left = replies[2].int();
            let possible = (to - out.max(capacity)).min(0)..=to;
            assert!(possible.contains(&left), "{left} left of {to}, {out} of {capacity} were out");
            (out, capacity) = (to - left, to);
        }
        looks += 1;
    }
    client.cmd(&args!["DSEM.RESIZE", "s", MOST]).int();
    looks
}

fn storm(seed: u64) {
    const WORKERS: usize = 200;
    println!("seed {seed}");
    let server = Server::start();
    let replica = Server::with(&[]).replica_of(&server).start();
    server.cmd(&args!["DSEM.INIT", "s", MOST]).int();
    let (certain, ids, taken) = (Certain::default(), Mutex::default(), AtomicI64::new(0));
    let (taking, stop, granted) = (Ids::default(), AtomicBool::new(false), AtomicUsize::new(0));
    let looks = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|name| {
                let worker = Worker {
                    server: &server,
                    certain: &certain,
                    taking: &taking,
                    ids: &ids,
                    taken: &taken,
                    name,
                    dice: Dice::new((seed << 16) + name as u64 + 1),
                    main: server.client(),
                    second: server.client(),
                };
                let (stop, granted) = (&stop, &granted);
                scope.spawn(move || worker.run(stop, granted))
            })
            .collect();
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let mut dice = Dice::new(seed);
            let mut looks =
                watch(&server, &mut dice, Instant::now() + Duration::from_millis(2_500));
            let patience = Instant::now() + LIMIT;
            while granted.load(Relaxed) < ENOUGH && Instant::now() < patience {
                looks += watch(&server, &mut dice, Instant::now() + Duration::from_millis(100));
            }
            looks
        }));
        stop.store(true, Relaxed);
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        looked.unwrap_or_else(|panic| resume_unwind(panic))
    });
    let granted = granted.into_inner();
    println!("{granted} grants, {looks} looks");
    assert!(granted >= ENOUGH && looks > 50, "only {granted} grants, {looks} looks");
    let info = server.info("dlock");
    for outcome in ["grants_after_waiting", "timeouts", "expiries", "replaced", "disconnected"] {
        assert_ne!(info[outcome], "0", "{outcome} did not happen: {info:?}");
    }
    // All of them are back; bound ones and short leases take a moment.
    wait_until("every permit to be back", || {
        let info = server.cmd(&["DSEM.INFO", "s"]);
        info.field("available").int() == MOST && info.field("waiters").int() == 0
    });
    wait_until("the replica to be equal", || {
        server.wait_replica_synced(&replica);
        server.digest() == replica.digest()
    });
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}

#[test]
fn never_more_permits_out_than_there_are() {
    storm(3);
}

#[test]
#[ignore = "soak"]
fn soak_many_storms() {
    for seed in 300..320 {
        storm(seed);
    }
}

/// A call for all permits among many calls for one: it is served after those that arrived before it, and no others.
#[test]
fn a_wide_request_does_not_starve() {
    const ROUNDS: usize = 25;
    let server = Server::with(&["notify-keyspace-events", "Ed"]).start();
    server.cmd(&["DSEM.INIT", "s", "4"]).int();
    let mut events = server.psubscribe(&["__keyevent@0__:dlock.acquire", "mark", "wide"]);
    let (mut client, stop) = (server.client(), AtomicBool::new(false));
    let mut positions = Vec::new();
    thread::scope(|scope| {
        for name in 0..12 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = server.client();
                while !stop.load(Relaxed) {
                    let owner = format!("o{name}");
                    let id = client.cmd(&["DSEM.ACQUIRE", "s", &owner, "BLOCK", "0"]).text();
                    thread::sleep(Duration::from_millis(2));
                    client.cmd(&["DSEM.RELEASE", "s", &id]).int();
                }
            });
        }
        let went = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..ROUNDS {
                wait_until("a crowd", || !queue(&server, "DSEM", "s").is_empty());
                let ask = args![
                    "DSEM.ACQUIRE",
                    "s",
                    "wide",
                    "COUNT",
                    4,
                    "QUEUE",
                    60_000,
                    "NOTIFY",
                    "wide"
                ];
                let replies = client.pipeline(&[
                    args!["MULTI"],
                    ask,
                    args!["DSEM.POSITION", "s", "wide"],
                    args!["PUBLISH", "mark", "here"],
                    args!["EXEC"],
                ]);
                let replies = replies[4].items();
                assert!(replies[0].is_null(), "it had to wait: {}", replies[0].show());
                positions.push(usize::try_from(replies[1].int()).unwrap());
                let mut id = Value::Nil;
                wait_until("all permits at once", || {
                    id = client.cmd(&["DSEM.ACQUIRE", "s", "wide", "COUNT", "4"]);
                    !id.is_null()
                });
                client.cmd(&["DSEM.RELEASE", "s", &id.text()]).int();
            }
        }));
        stop.store(true, Relaxed);
        went.unwrap_or_else(|panic| resume_unwind(panic));
    });
    // Between the mark and the message: the grants to earlier waiters, and its own.
    for position in positions {
        while events.next().0 != "mark" {}
        let mut grants = 0;
        loop {
            match events.next().0.as_str() {
                "wide" => break,
                "mark" => panic!("a mark before the grant"),
                _ => grants += 1,
            }
        }
        assert!(grants <= position, "{grants} grants, though it was number {position}");
    }
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}
