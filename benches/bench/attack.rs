//! Sixteen connections that each send their worst load, and a victim that takes and releases a lock of its own 200
//! times a second: its times beside those of a victim of a plain server with equally large calls.

use std::{
    net::Shutdown,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::{
    meter::CpuMeter,
    report::{self, Table},
    stats::Sample,
    support::{Reply as _, Server},
    wire::{Batch, Wire},
};

/// Length of a round on each server.
const TIME: Duration = Duration::from_secs(20);

/// Rounds on each server; `DLOCK_ROUNDS` overrides it.
fn rounds() -> usize {
    std::env::var("DLOCK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

const ATTACKERS: usize = 16;

/// Holds or waiters of one key.
const MANY: usize = 10_000;

/// Keys in one call. The call itself takes about a millisecond per 1,000 keys, independent of its consequences.
const WIDE: usize = 2_000;

/// Commands in one write. The server executes all of them before it serves another connection.
const AT_ONCE: usize = 10;

/// The goal for the ratio of the times that 99.9 % of the turns do not exceed.
const AIM: f64 = 2.0;

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

const DEEDS: [(&str, Deed); 11] = [
    ("readers behind a writer", readers),
    ("waiters of a semaphore", waiters),
    ("a chain of owners", chain),
    ("permits, all of one owner or such that lapse", permits),
    ("a call for very many keys goes", wide_call),
    ("connections with bound holds", disconnects),
    ("RENAME of a fair lock", rename),
    ("RESTORE of permits", restore),
    ("UNLINK of many locks", removals),
    ("FLUSHDB and SWAPDB of other databases", databases),
    ("RELEASE of requests that never were", releases),
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

/// All permits of one owner, each with a request id; then as many of another semaphore that expire together.
fn permits(at: &mut Attacker<'_>) {
    let (key, other) = (at.key.clone(), format!("{}:other", at.key));
    at.once(&["DSEM.INIT", &key, "200000"], b":1");
    at.once(&["DSEM.INIT", &other, "200000"], b":1");
    at.each(MANY, &PERMIT, |key, n| {
        words(&["DSEM.ACQUIRE", key, "one", "PX", LONG_MS, "REQID", &n.to_string()])
    });
    at.each(MANY, &PERMIT, |key, n| {
        words(&["DSEM.ACQUIRE", &format!("{key}:other"), &owner(key, n), "PX", "1000"])
    });
    thread::sleep(Duration::from_secs(1));
    at.once(&["UNLINK", &key, &other], b":2");
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
    // On a busy machine the wait may end before this sees it.
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end
        && at.server.cmd(&["DLOCK.POSITION", &name(WIDE / 2), &waiter]).is_null()
    {
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

fn removals(at: &mut Attacker<'_>) {
    at.each(MANY, &[b":"], |key, n| {
        words(&["DLOCK.ACQUIRE", &owner(key, n), "o", "PX", LONG_MS, "REQID", "r"])
    });
    unlink_all(at);
}

fn unlink_all(at: &mut Attacker<'_>) {
    let mut call = words(&["UNLINK"]);
    call.extend((0..MANY).map(|n| owner(&at.key, n)));
    at.wire.run(&Batch::of(&call, b":"));
}

fn databases(at: &mut Attacker<'_>) {
    at.each(MANY, &[b"+OK"], |_, n| match n % 4 {
        0 => words(&["SELECT", "5"]),
        1 => words(&["SET", "k", "x"]),
        2 => words(&["SWAPDB", "5", "6"]),
        _ => words(&["FLUSHDB"]),
    });
    at.once(&["SELECT", "0"], b"+OK");
}

fn releases(at: &mut Attacker<'_>) {
    at.each(MANY, &[b"-UNKNOWN"], |key, n| {
        words(&["DLOCK.RELEASE", key, "o", "REQID", &n.to_string()])
    });
}

/// The same on a plain server: a hash with as many fields, and as many keys.
fn plain(at: &mut Attacker<'_>) {
    let (key, other) = (at.key.clone(), format!("{}:other", at.key));
    at.each(MANY, &[b"+OK"], |key, n| words(&["SET", &owner(key, n), "o", "PX", LONG_MS]));
    unlink_all(at);
    at.each(MANY, &[b":1"], |key, n| words(&["HSET", key, &owner(key, n), LONG_MS]));
    at.once(&["RENAME", &key, &other], b"+OK");
    let payload = at.server.cmd(&["DUMP", &other]).bytes();
    let call: [&[u8]; 4] = [b"RESTORE", key.as_bytes(), b"0", &payload];
    at.server.cmd(&call).ok();
    at.once(&["UNLINK", &key, &other], b":2");
}

/// A turn of the victim: it takes its lock, and releases it.
type Victim = [(&'static [&'static str], &'static [u8]); 2];

const OURS: Victim = [
    (&["DLOCK.ACQUIRE", "victim", "v", "PX", "10000"], b":"),
    (&["DLOCK.RELEASE", "victim", "v"], b":0"),
];

const PLAIN: Victim =
    [(&["SET", "victim", "v", "NX", "PX", "10000"], b"+OK"), (&["DEL", "victim"], b":1")];

/// The times of the victim's turns in milliseconds, the part of a core that the server used, and the count of each
/// deed.
struct Attack {
    turns: Sample,
    cpu: f64,
    done: Vec<u64>,
}

fn attack(server: &Server, deeds: &[Deed], victim: Victim) -> Attack {
    let meter = CpuMeter::of(server.pid());
    let (begun, used) = (Instant::now(), meter.read());
    let end = begun + TIME;
    let done: Vec<AtomicU64> = deeds.iter().map(|_| AtomicU64::new(0)).collect();
    let turns = thread::scope(|scope| {
        for n in 0..ATTACKERS {
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
        let turns = turns(server, victim, end);
        (turns, meter.read().saturating_sub(used).as_secs_f64() / begun.elapsed().as_secs_f64())
    });
    let (turns, cpu) = turns;
    Attack { turns, cpu, done: done.iter().map(|done| done.load(Relaxed)).collect() }
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

/// A turn every five milliseconds. A turn that waits for the one before it counts from when it was due: a stall lasts
/// as long for every client that would have sent a request in it.
fn turns(server: &Server, victim: Victim, end: Instant) -> Sample {
    let mut wire = Wire::connect(server);
    let calls = victim.map(|(words, answer)| Batch::of(words, answer));
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
        for call in &calls {
            wire.run(call);
        }
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
    let rounds: Vec<[Attack; 2]> = (0..rounds())
        .map(|_| {
            let ours = Server::with(&settings).release().start();
            let ours = attack(&ours, &deeds, OURS);
            let theirs = Server::with(&settings).without_module().start();
            [ours, attack(&theirs, &[plain], PLAIN)]
        })
        .collect();
    let times = |at: usize| rounds.iter().map(|round| round[0].done[at]).sum::<u64>();
    let counts: Vec<String> =
        wanted.iter().enumerate().map(|(at, (name, _))| format!("{name} {}", times(at))).collect();
    let mut table = Table::new(
        "A victim while sixteen connections send their worst load",
        format!(
            "The victim takes and releases a lock of its own every 5 ms (plain server: SET NX, DEL); a turn counts \
             from when it was due. {} rounds of {} s; sixteen connections repeat one of these each, with {MANY} \
             holds or waiters of a key, {AT_ONCE} commands in one write: {}. The plain server: sixteen connections \
             that set and unlink {MANY} keys, and make hashes of {MANY} fields, rename, dump, restore and unlink them \
             ({} times). The threads of the attackers run at the lowest \
             priority, because on two cores they would delay the victim themselves.",
            rounds.len(),
            TIME.as_secs(),
            counts.join(", "),
            rounds.iter().map(|round| round[1].done[0]).sum::<u64>(),
        ),
        ["a turn of the victim", "server without dlock"],
    );
    let both = |of: &dyn Fn(&Attack) -> f64| {
        [0, 1].map(|who| Sample::new(rounds.iter().map(|round| of(&round[who])).collect()))
    };
    for percent in [50.0, 99.0, 99.9, 100.0] {
        let [ours, theirs] = both(&|attack| attack.turns.percentile(percent));
        let ratios = rounds.iter().map(|[ours, theirs]| {
            ours.turns.percentile(percent) / theirs.turns.percentile(percent)
        });
        let ratio = Sample::new(ratios.collect()).percentile(50.0);
        let is_aim = (percent - 99.9).abs() < f64::EPSILON;
        let aim = if is_aim { report::at_most(ratio, AIM, "times") } else { String::new() };
        let name = if percent < 100.0 { format!("p{percent}") } else { "worst".to_owned() };
        table.row(&name, ours.show("ms"), theirs.show("ms"), aim);
    }
    let [ours, theirs] = both(&|attack| attack.cpu * 100.0);
    table.row("the server's CPU", ours.show("%"), theirs.show("%"), String::new());
    table
}
