//! INFO: the version, and how long waits and holds last.

use std::collections::BTreeMap;

use crate::support::{Reply, SOON, Server, wait_until};

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
