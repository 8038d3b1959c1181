//! INFO: the version, and how long waits and holds last.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::{Family, Reply, SOON, Server, wait_until};

/// The names and numbers of a field: `one=1,two=2`.
fn numbers(field: &str) -> Vec<(&str, u64)> {
    let pairs = field.split(',').map(|pair| pair.split_once('=').expect("a name and a number"));
    pairs.map(|(name, number)| (name, number.parse().expect("a number"))).collect()
}

fn figures(info: &BTreeMap<String, String>, name: &str) -> BTreeMap<String, u64> {
    numbers(&info[name]).into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
}

#[test]
fn the_fields_are_there_from_the_start_and_in_order() {
    let server = Server::start();
    let text = server.cmd(&["INFO", "dlock"]).text();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("# dlock_keys"));
    assert_eq!(lines.next(), Some(concat!("dlock_version:", env!("CARGO_PKG_VERSION"))));
    let latency: Vec<&str> = lines.skip_while(|line| *line != "# dlock_latency").collect();
    let series =
        ["lock_waited", "fair_waited", "rw_waited", "sem_waited", "latch_waited", "lock_held"]
            .into_iter()
            .chain(["fair_held", "rw_held", "sem_held"]);
    let lines = series.flat_map(|name| {
        [
            format!("dlock_{name}:count=0,sum=0,p50=0,p99=0,p99.9=0,max=0"),
            format!(
                "dlock_{name}_buckets:100=0,250=0,500=0,1000=0,2500=0,5000=0,10000=0,25000=0,50000=0,100000=0,\
                 250000=0,500000=0,1000000=0,2500000=0,5000000=0,10000000=0,30000000=0,60000000=0,300000000=0,\
                 900000000=0,3600000000=0,inf=0"
            ),
        ]
    });
    let expected: Vec<String> = ["# dlock_latency".to_owned()].into_iter().chain(lines).collect();
    assert_eq!(latency, expected);
    let alone = server.cmd(&["INFO", "dlock_latency"]).text();
    assert_eq!(alone.lines().collect::<Vec<_>>(), latency);
}

/// Number of waits.
const WAITS: u64 = 300;

/// The time that this share (in percent) of the sorted times does not exceed.
fn percentile(sorted: &[Duration], share: usize) -> Duration {
    sorted[(sorted.len() * share).div_ceil(100).saturating_sub(1)]
}

#[track_caller]
fn assert_near(shown_us: u64, real: Duration, what: &str) {
    let real = u64::try_from(real.as_micros()).expect("a short time");
    let error = shown_us.abs_diff(real);
    assert!(error * 10 <= real, "{what}: INFO shows {shown_us} us, the client measured {real} us");
}

/// Each wait ends with the lease of a holder, 100 ms to 1 s after its start.
#[test]
fn percentiles_are_those_that_the_client_measures() {
    for (family, name) in [(Family::Lock, "lock"), (Family::Fair, "fair")] {
        let server = Server::start();
        let acquire = format!("{}.ACQUIRE", family.name());
        let mut times: Vec<(Duration, Duration)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WAITS)
                .map(|n| {
                    let (server, acquire) = (&server, &acquire);
                    scope.spawn(move || {
                        let mut client = server.client();
                        let lease = 100 + n * 900 / WAITS;
                        let key = format!("key:{n}");
                        let granted = Instant::now();
                        client.cmd(&[acquire, &key, "holder", "PX", &lease.to_string()]).int();
                        let asked = Instant::now();
                        client.send(&[acquire, &key, "waiter", "BLOCK", "0"]);
                        client.reply(SOON).int();
                        (asked.elapsed(), granted.elapsed())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a wait")).collect()
        });
        let info = server.info("dlock_latency");
        let waited = figures(&info, &format!("{name}_waited"));
        let held = figures(&info, &format!("{name}_held"));
        assert_eq!((waited["count"], held["count"]), (WAITS, WAITS));
        times.sort_unstable();
        let waits: Vec<Duration> = times.iter().map(|(wait, _)| *wait).collect();
        let mut holds: Vec<Duration> = times.iter().map(|(_, hold)| *hold).collect();
        holds.sort_unstable();
        for (share, field) in [(50, "p50"), (99, "p99"), (100, "max")] {
            assert_near(waited[field], percentile(&waits, share), field);
            assert_near(held[field], percentile(&holds, share), field);
        }
        let sum: Duration = waits.iter().sum();
        assert_near(waited["sum"], sum, "sum");
        let buckets = numbers(&info[&format!("{name}_waited_buckets")]);
        assert!(buckets.iter().is_sorted_by_key(|(_, count)| count));
        assert_eq!(buckets.last(), Some(&("inf", WAITS)));
        let within: BTreeMap<&str, u64> = buckets.into_iter().collect();
        let short = waits.iter().filter(|wait| wait.as_millis() <= 500).count() as u64;
        assert!(within["500000"].abs_diff(short) <= WAITS / 10, "{short} of {within:?}");
    }
}

#[test]
fn every_family_counts_its_waits_and_holds() {
    let server = Server::start();
    let count = |name: &str| figures(&server.info("dlock_latency"), name)["count"];
    server.ask("DRW.ACQUIRE none a READ BLOCK 0").int();
    // A grant at once is no wait.
    assert_eq!((count("rw_waited"), count("rw_held")), (0, 0));
    for (hold, wait, release, name) in [
        ("DRW.ACQUIRE r a WRITE", "DRW.ACQUIRE r b READ BLOCK 0", "DRW.RELEASE r a WRITE", "rw"),
        ("DSEM.ACQUIRE s a LIMIT 1", "DSEM.ACQUIRE s b BLOCK 0", "DSEM.BREAK s PERMIT", "sem"),
        ("DLATCH.INIT l 1", "DLATCH.AWAIT l BLOCK 0", "DLATCH.COUNTDOWN l", "latch"),
        ("DLOCK.ACQUIRE k a", "DLOCK.MACQUIRE 2 k j b BLOCK 0", "DLOCK.RELEASE k a", "lock"),
    ] {
        let permit = server.ask(hold);
        let mut waiter = server.wait(wait);
        let release = if name == "sem" {
            release.replace("PERMIT", &permit.text())
        } else {
            release.to_owned()
        };
        server.ask(&release).ok();
        waiter.expect_reply(SOON).ok();
        assert_eq!(count(&format!("{name}_waited")), 1, "{name}");
        if name != "latch" {
            assert_eq!(count(&format!("{name}_held")), 1, "{name}");
        }
    }
    // A wait that timed out was not granted.
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "20"]);
    assert!(waiter.expect_reply(SOON).is_null());
    assert_eq!(count("lock_waited"), 1);
    wait_until("nobody to wait", || server.info_number("dlock_waits", "waiters_blocked") == 0);
}
