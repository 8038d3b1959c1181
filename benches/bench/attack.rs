//! Sixteen connections that each send their worst load for a minute: the PING times of another connection meanwhile.

use std::{
    net::Shutdown,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::{
    report::{self, Table},
    stats::{Sample, digits},
    support::{Reply as _, Server},
    wire::{Batch, Wire},
};

const TIME: Duration = Duration::from_mins(1);

const ATTACKERS_PER_DEED: usize = 2;

/// Connections to the plain server, as many as with all deeds.
const ATTACKERS: usize = ATTACKERS_PER_DEED * DEEDS.len();

/// Holds or waiters of one key.
const MANY: usize = 20_000;

/// Keys in one call. The call itself takes about a millisecond per 1,000 keys, independent of its consequences.
const WIDE: usize = 2_000;

/// Commands in one write. The server executes all of them before it serves another connection.
const AT_ONCE: usize = 10;

/// The goal for 99.9 % of the PINGs, in milliseconds.
const AIM_MS: f64 = 5.0;

/// No lease and no wait ends by itself.
const LONG_MS: &str = "3600000";

/// An attacking connection, and the prefix of its keys in this round.
struct Attacker<'a> {
    server: &'a Server,
    wire: Wire,
    key: String,
}

type Deed = fn(&mut Attacker<'_>);

/// Waiters that a deed leaves behind end soon, because they count against the server's limit.
const WAIT_MS: &str = "2000";

const DEEDS: [(&str, Deed); 8] = [
    ("readers behind a writer", readers),
    ("waiters of a semaphore", waiters),
    ("a chain of owners", chain),
    ("permits, all of one owner or such that lapse", permits),
    ("a call for very many keys goes", wide_call),
    ("connections with bound holds", disconnects),
    ("RENAME of a fair lock", rename),
    ("RESTORE of permits", restore),
];

impl Attacker<'_> {
    /// Sends a command for each number; its reply has these lines.
    fn each(
        &mut self,
        count: usize,
        answer: &[&'static [u8]],
        command: impl Fn(&str, usize) -> Vec<String>,
    ) {
        let mut batch = Batch::default();
        for first in (0..count).step_by(AT_ONCE) {
            batch.clear();
            for n in first..count.min(first + AT_ONCE) {
                batch.push(&command(&self.key, n), answer[0]);
                answer[1..].iter().for_each(|line| batch.push_line(line));
            }
            self.wire.run(&batch);
        }
    }

    fn once(&mut self, words: &[&str], answer: &'static [u8]) {
        self.wire.run(&Batch::of(words, answer));
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// An owner that no other attacker uses: shared owners would wait for each other, and get DEADLOCK.
fn owner(key: &str, n: usize) -> String {
    format!("{key}:{n:020}")
}

/// The reply to a command that takes a permit: its id is on a separate line.
const PERMIT: [&[u8]; 2] = [b"$36", b""];

fn readers(at: &mut Attacker<'_>) {
    let key = at.key.clone();
    at.once(&["DRW.ACQUIRE", &key, "writer", "WRITE", "PX", LONG_MS], b":");
    at.each(MANY, &[b"$-1"], |key, n| {
        words(&["DRW.ACQUIRE", key, &owner(key, n), "READ", "PX", LONG_MS, "QUEUE", WAIT_MS])
    });
    at.once(&["DRW.RELEASE", &key, "writer", "WRITE"], b":0");
    at.once(&["UNLINK", &key], b":1");
}

fn waiters(at: &mut Attacker<'_>) {
    let key = at.key.clone();
    at.once(&["DSEM.INIT", &key, "1"], b":1");
    at.each(1, &PERMIT, |key, _| words(&["DSEM.ACQUIRE", key, "holder", "PX", LONG_MS]));
    at.each(MANY, &[b"$-1"], |key, n| {
        words(&["DSEM.ACQUIRE", key, &owner(key, n), "PX", LONG_MS, "QUEUE", WAIT_MS])
    });
    at.once(&["DSEM.RESIZE", &key, "30000"], b":");
    // Waiters of a deleted semaphore would continue to wait, and count against the server's limit.
    while at.server.cmd(&["DSEM.INFO", &key]).field("waiters").int() > 0 {
        thread::sleep(Duration::from_millis(5));
    }
    at.once(&["UNLINK", &key], b":1");
}

/// Each owner holds a lock and requests that of the next, in an order without a pattern.
fn chain(at: &mut Attacker<'_>) {
    const OWNERS: usize = 2_000;
    let prefix = at.key.clone();
    let end = format!("{prefix}:end");
    at.once(&["DLOCK.ACQUIRE", &end, "holder", "PX", LONG_MS], b":");
    at.each(OWNERS, &[b":"], |key, n| {
        words(&["DLOCK.ACQUIRE", &format!("{key}:{n}"), &owner(key, n), "PX", LONG_MS])
    });
    at.each(OWNERS, &[b"$-1"], |key, n| {
        let n = n * 1_997 % OWNERS;
        // The owner that closes the cycle gets DEADLOCK, so the last one requests another lock.
        let next = if n + 1 == OWNERS { format!("{key}:end") } else { format!("{key}:{}", n + 1) };
        words(&["DLOCK.ACQUIRE", &next, &owner(key, n), "PX", LONG_MS, "QUEUE", WAIT_MS])
    });
    let mut call = vec!["UNLINK".to_owned(), end];
    call.extend((0..OWNERS).map(|n| format!("{prefix}:{n}")));
    at.wire.run(&Batch::of(&call, b":"));
}

/// All permits of one owner, each with a request id; then as many that expire together.
fn permits(at: &mut Attacker<'_>) {
    let key = at.key.clone();
    at.once(&["DSEM.INIT", &key, "200000"], b":1");
    at.each(MANY, &PERMIT, |key, n| {
        words(&["DSEM.ACQUIRE", key, "one", "PX", LONG_MS, "REQID", &n.to_string()])
    });
    at.each(MANY, &PERMIT, |key, n| words(&["DSEM.ACQUIRE", key, &owner(key, n), "PX", "1000"]));
    thread::sleep(Duration::from_secs(1));
    at.once(&["UNLINK", &key], b":1");
}

/// One call waits for [`WIDE`] keys, then its connection closes.
fn wide_call(at: &mut Attacker<'_>) {
    let key = at.key.clone();
    let name = |n: usize| format!("{key}:{n:05}");
    at.once(&["DLOCK.ACQUIRE", &name(WIDE / 2), "holder", "PX", LONG_MS], b":");
    let mut call = words(&["DLOCK.MACQUIRE", &WIDE.to_string()]);
    call.extend((0..WIDE).map(name));
    let waiter = owner(&key, 0);
    call.extend(words(&[&waiter, "PX", LONG_MS, "BLOCK", WAIT_MS]));
    let mut one = Wire::connect(at.server);
    one.send(&Batch::of(&call, b""));
    while at.server.cmd(&["DLOCK.POSITION", &name(WIDE / 2), &waiter]).is_null() {
        thread::sleep(Duration::from_millis(1));
    }
    one.close(Shutdown::Both);
    at.once(&["UNLINK", &name(WIDE / 2)], b":1");
    // The call itself takes time, as any call with this number of keys does.
    thread::sleep(Duration::from_secs(1));
}

fn disconnects(at: &mut Attacker<'_>) {
    const CONNECTIONS: usize = 100;
    const HOLDS: usize = 50;
    for first in (0..CONNECTIONS).map(|n| n * HOLDS) {
        let one = Wire::connect(at.server);
        let own = std::mem::replace(&mut at.wire, one);
        at.each(HOLDS, &[b":"], |key, n| {
            let key = format!("{key}:{}", first + n);
            words(&["DLOCK.ACQUIRE", &key, "o", "PX", LONG_MS, "BIND", "0"])
        });
        std::mem::replace(&mut at.wire, own).close(Shutdown::Both);
    }
}

fn rename(at: &mut Attacker<'_>) {
    let (key, other) = (at.key.clone(), format!("{}:other", at.key));
    at.once(&["DFAIR.ACQUIRE", &key, "holder", "PX", LONG_MS], b":");
    at.each(MANY, &[b"$-1"], |key, n| {
        words(&["DFAIR.ACQUIRE", key, &owner(key, n), "PX", LONG_MS, "QUEUE", WAIT_MS])
    });
    at.once(&["RENAME", &key, &other], b"+OK");
    at.once(&["RENAME", &other, &key], b"+OK");
    at.once(&["UNLINK", &key], b":1");
}

fn restore(at: &mut Attacker<'_>) {
    let key = at.key.clone();
    at.once(&["DSEM.INIT", &key, "200000"], b":1");
    at.each(MANY, &PERMIT, |key, n| words(&["DSEM.ACQUIRE", key, &owner(key, n), "PX", LONG_MS]));
    let payload = at.server.cmd(&["DUMP", &key]).bytes();
    let call: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"];
    at.server.cmd(&call).ok();
    at.once(&["UNLINK", &key], b":1");
}

/// The same on a plain server: a hash with as many fields.
fn plain(at: &mut Attacker<'_>) {
    let (key, other) = (at.key.clone(), format!("{}:other", at.key));
    at.each(MANY, &[b":1"], |key, n| words(&["HSET", key, &owner(key, n), LONG_MS]));
    at.once(&["RENAME", &key, &other], b"+OK");
    let payload = at.server.cmd(&["DUMP", &other]).bytes();
    let call: [&[u8]; 4] = [b"RESTORE", key.as_bytes(), b"0", &payload];
    at.server.cmd(&call).ok();
    at.once(&["UNLINK", &key, &other], b":2");
}

/// PING times in milliseconds, and the count of each deed.
struct Attack {
    pings: Sample,
    done: Vec<u64>,
}

fn attack(server: &Server, attackers: usize, deeds: &[Deed]) -> Attack {
    let end = Instant::now() + TIME;
    let done: Vec<AtomicU64> = deeds.iter().map(|_| AtomicU64::new(0)).collect();
    let pings = thread::scope(|scope| {
        for n in 0..attackers {
            let (deed, done) = (deeds[n % deeds.len()], &done[n % deeds.len()]);
            scope.spawn(move || {
                step_back();
                let wire = Wire::connect(server);
                let mut attacker = Attacker { server, wire, key: String::new() };
                for round in 0.. {
                    if Instant::now() >= end {
                        break;
                    }
                    attacker.key = format!("attack:{n}:{round}");
                    deed(&mut attacker);
                    done.fetch_add(1, Relaxed);
                }
            });
        }
        pings(server, end)
    });
    Attack { pings, done: done.iter().map(|done| done.load(Relaxed)).collect() }
}

/// Lowers the priority of the calling thread. Real attackers run on other machines; here, they must not take a core
/// from the server or the PING.
fn step_back() {
    let thread = std::fs::read_link("/proc/thread-self").expect("the calling thread");
    let id = thread.file_name().expect("its number").to_owned();
    let renice = Command::new("renice").args(["-n", "19", "-p"]).arg(id).output();
    assert!(
        renice.is_ok_and(|done| done.status.success()),
        "renice lowers the priority of a thread"
    );
}

/// A PING every five milliseconds. A PING that waits for the one before it counts from when it was due: a stall lasts
/// as long for every client that would have sent a request in it.
fn pings(server: &Server, end: Instant) -> Sample {
    let mut wire = Wire::connect(server);
    let ping = Batch::of(&["PING"], b"+PONG");
    let mut times = Vec::new();
    let mut due = Instant::now();
    while due < end {
        due += Duration::from_millis(5);
        let now = Instant::now();
        let from = if now < due {
            thread::sleep(due - now);
            Instant::now()
        } else {
            due
        };
        wire.run(&ping);
        times.push(from.elapsed().as_secs_f64() * 1e3);
    }
    Sample::new(times)
}

pub fn run() -> Table {
    let settings = ["save", "", "maxclients", "5000"];
    // DLOCK_DEEDS='part of a name|another' selects deeds, to measure each separately.
    let only = std::env::var("DLOCK_DEEDS").unwrap_or_default();
    let is_wanted = |name: &str| only.split('|').any(|part| name.contains(part));
    let wanted: Vec<_> = DEEDS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    let deeds: Vec<Deed> = wanted.iter().map(|&(_, deed)| deed).collect();
    let ours = Server::with(&settings).release().start();
    let ours = attack(&ours, ATTACKERS_PER_DEED * deeds.len(), &deeds);
    let theirs = attack(&Server::with(&settings).without_module().start(), ATTACKERS, &[plain]);
    let counts: Vec<String> =
        wanted.iter().zip(&ours.done).map(|((name, _), n)| format!("{name} {n}")).collect();
    let mut table = Table::new(
        "PING while sixteen connections send their worst load",
        format!(
            "For {} s, two connections each repeat one of these, with {MANY} holds or waiters of a key, {AT_ONCE} \
             commands in one write: {}. The plain server: sixteen connections that make hashes of {MANY} fields, \
             rename, dump, restore and unlink them ({} times). A PING is due every 5 ms, and counts from then. The \
             threads of the attackers run at the lowest priority, because on two cores they would delay the PING \
             themselves.",
            TIME.as_secs(),
            counts.join(", "),
            theirs.done[0],
        ),
        ["PING", "server without dlock"],
    );
    for percent in [50.0, 99.0, 99.9, 100.0] {
        let (ours, theirs) = (ours.pings.percentile(percent), theirs.pings.percentile(percent));
        let is_aim = (percent - 99.9).abs() < f64::EPSILON;
        let aim = if is_aim { report::at_most(ours, AIM_MS, "ms") } else { String::new() };
        let show = |ms: f64| format!("{} ms", digits(ms));
        let name = if percent < 100.0 { format!("p{percent}") } else { "worst".to_owned() };
        table.row(&name, show(ours), show(theirs), aim);
    }
    table
}
