//! What INFO says of waits and holds is what clients measure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::{Family, Reply, SOON, Server};

/// The names and numbers of a field: `one=1,two=2`.
fn numbers(field: &str) -> Vec<(&str, u64)> {
    let pairs = field.split(',').map(|pair| pair.split_once('=').expect("a name and a number"));
    pairs.map(|(name, number)| (name, number.parse().expect("a number"))).collect()
}

fn figures(info: &BTreeMap<String, String>, name: &str) -> BTreeMap<String, u64> {
    numbers(&info[name]).into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
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
        let server = Server::with(&[]).release().start();
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
