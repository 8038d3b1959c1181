//! Semaphores under load: never more permits out than the capacity, and no owner starves, in spite of connection
//! faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    args,
    looks::{is_permit_id, queue},
    storm::{
        Certain, LONG, Meddling, Rounds, Storm, Worker, assert_happened, assert_replica_is_equal,
        is_grant,
    },
    support::{Client, Dice, Reply, Server, wait_until},
};

/// The largest capacity that there is in a storm.
const MOST: u64 = 9;

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

/// A semaphore in a storm.
struct Permits {
    certain: Certain,
    taking: Ids,
    ids: Mutex<BTreeSet<String>>,
    /// Minimum number of permits that are taken and not returned.
    taken: AtomicU64,
}

impl Rounds for Permits {
    type Notes = ();

    fn round(&self, worker: &mut Worker<'_, ()>, name: &str) -> usize {
        let is_granted = if worker.number.is_multiple_of(8) {
            self.take(worker, name)
        } else {
            self.acquire(worker, name)
        };
        usize::from(is_granted)
    }
}

impl Permits {
    /// Permits without a lease: they do not end by themselves, so no connection is killed here.
    fn take(&self, worker: &mut Worker<'_, ()>, name: &str) -> bool {
        let n = 1 + worker.dice.below(3);
        let block = 1 + worker.dice.below(100);
        let repeating = self.taking.take(worker.number);
        let reply = worker.main.cmd(&args!["DSEM.TAKE", "s", n, "BLOCK", block, "REQID", name]);
        if !is_grant(&reply, &["LIMIT "]) {
            return false;
        }
        assert_eq!(reply.int(), 1);
        let again = worker.second.cmd(&args!["DSEM.TAKE", "s", n, "REQID", name]);
        assert_eq!(again, reply, "a repeat");
        drop(repeating);
        let out = self.taken.fetch_add(n, Relaxed) + n;
        assert!(out <= MOST, "{out} permits are taken");
        worker.pause(1_000);
        self.taken.fetch_sub(n, Relaxed);
        self.taking.give();
        let back = args!["DSEM.GIVE", "s", n, "REQID", format!("{name} back")];
        worker.second.cmd(&back).int();
        true
    }

    fn acquire(&self, worker: &mut Worker<'_, ()>, owner: &str) -> bool {
        let dice = &mut worker.dice;
        let mut meddling = Meddling::pick(dice);
        let is_short = meddling.may_lose_the_answer() || dice.one_in(5);
        let lease = if is_short { 1 + dice.below(25) } else { LONG };
        // A call for many permits must neither be overtaken nor starve the others.
        let count = if dice.one_in(10) { 4 } else { 1 + dice.below(3) };
        let is_bound = dice.one_in(5);
        if is_bound && meddling == Meddling::Repeat {
            // It would move the binding to its connection.
            meddling = Meddling::Not;
        }
        let mut call = args!["DSEM.ACQUIRE", "s", owner, "COUNT", count, "PX", lease];
        call.extend(args!["BLOCK", 1 + dice.below(150), "REQID", "r"]);
        if is_bound {
            call.extend(args!["BIND", 0]);
        }
        if dice.one_in(20) {
            call.extend(args!["QUEUE", 100]);
        }
        let until = Instant::now() + Duration::from_millis(lease);
        let replies = worker.ask(&call, meddling);
        // The second copy of a call may come after the end of a short lease.
        let refusals: &[_] = if is_short { &["LIMIT ", "SPENT "] } else { &["LIMIT "] };
        let granted = replies.iter().filter(|reply| is_grant(reply, refusals));
        let got: BTreeSet<String> = granted.map(Reply::text).collect();
        assert!(got.len() <= 1 || is_short, "a repeat was answered another id: {got:?}");
        for id in &got {
            assert!(is_permit_id(id) && self.ids.lock().unwrap().insert(id.clone()), "{id}");
            if !is_bound {
                self.certain.add(id, "", count, until);
            }
            worker.pause(1_000);
            self.certain.forget(id, &[""]);
            if is_bound && worker.dice.one_in(3) {
                // Its bound permits are back at once.
                worker.hang_up();
            } else if !is_short || worker.dice.one_in(2) {
                // Other connections close, too, but a short lease expires by itself.
                let back = worker.second.cmd(&["DSEM.RELEASE", "s", id]);
                if let Value::ServerError(_) = back {
                    let may_be_over = is_bound || Instant::now() >= until;
                    assert!(back.error().starts_with("NOTHELD ") && may_be_over, "{}", back.show());
                }
            }
        }
        if got.is_empty() {
            // Its place, if it has one, or a grant that nobody was told of.
            worker.second.cmd(&["DSEM.RELEASE", "s", owner, "REQID", "r"]);
        }
        !got.is_empty()
    }
}

/// Looks at the semaphore from outside.
struct Watch {
    client: Client,
    dice: Dice,
    out: i64,
    capacity: i64,
    looks: usize,
}

impl Watch {
    /// Reads INFO and PERMITS in one step, and sometimes changes the capacity. Permits out never exceed the capacity;
    /// while they do after a reduction, they only decrease.
    fn look(&mut self) {
        let mut calls = vec![args!["MULTI"], args!["DSEM.INFO", "s"], args!["DSEM.PERMITS", "s"]];
        let resized = self.looks.is_multiple_of(7).then(|| 2 + self.dice.below(8));
        calls.extend(resized.map(|to| args!["DSEM.RESIZE", "s", to]));
        calls.push(args!["EXEC"]);
        let replies = self.client.pipeline(&calls).pop().unwrap().items();
        let number = |field: &str| replies[0].field(field).int();
        let permits = replies[1].items();
        let listed: i64 = permits.iter().map(|permit| permit.field("count").int()).sum();
        let ids: BTreeSet<String> =
            permits.iter().map(|permit| permit.field("id").text()).collect();
        assert_eq!(ids.len(), permits.len());
        // Time advances between two calls of a transaction, too: leases may end.
        assert!(listed <= number("leased"), "{listed} listed: {}", replies[0].show());
        let Watch { out, capacity, .. } = *self;
        assert_eq!(number("capacity"), capacity);
        let now = number("leased") + number("taken");
        assert_eq!(number("available"), capacity - now, "{}", replies[0].show());
        assert!(now <= capacity.max(out), "{now} of {capacity} are out, {out} were");
        self.out = now;
        if let Some(to) = resized {
            let to = i64::try_from(to).unwrap();
            // Permits that came back earlier may have been granted before; a reduction revokes none.
            let left = replies[2].int();
            let possible = (to - now.max(capacity)).min(0)..=to;
            assert!(possible.contains(&left), "{left} left of {to}, {now} of {capacity} were out");
            (self.out, self.capacity) = (to - left, to);
        }
        self.looks += 1;
    }
}

fn storm(seed: u64) {
    let server = Server::start();
    let replica = Server::with(&[]).replica_of(&server).start();
    server.cmd(&args!["DSEM.INIT", "s", MOST]).int();
    let rounds = Permits {
        certain: Certain::new(MOST),
        taking: Ids::default(),
        ids: Mutex::default(),
        taken: AtomicU64::new(0),
    };
    let capacity = i64::try_from(MOST).unwrap();
    let (client, dice) = (server.client(), Dice::new(seed));
    let mut watch = Watch { client, dice, out: 0, capacity, looks: 0 };
    let lasts = Duration::from_millis(2_500);
    let storm = Storm { server: &server, seed, workers: 200, lasts, enough: 300 };
    storm.blow(&rounds, || watch.look());
    let outcomes = ["grants_after_waiting", "timeouts", "expiries", "disconnected"];
    assert_happened(&server, &outcomes);
    // All of them are back; bound ones and short leases take a moment.
    server.cmd(&args!["DSEM.RESIZE", "s", MOST]).int();
    wait_until("every permit to be back", || {
        let info = server.cmd(&["DSEM.INFO", "s"]);
        info.field("available").int() == capacity && info.field("waiters").int() == 0
    });
    assert_replica_is_equal(&server, &replica);
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
