//! The settings: how to set them, their ranges, their effects.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{
    args,
    support::{Family, Profile, Reply, SOON, Server, each, module_path, wait_until},
    test_both_families_at_once,
};

test_both_families_at_once! {
    the_default_lease_is_that_of_the_moment
    waiters_are_limited
    a_lock_stays_closed_after_a_hold_that_was_not_given_back
    in_the_quarantine_after_a_start_nothing_new_is_granted
}

/// Name, default, smallest and largest value.
const NUMBERS: [(&str, i64, i64, i64); 17] = [
    ("dlock.default-lease-ms", 30_000, 1, 31_536_000_000),
    ("dlock.fair-grace-ms", 5_000, 0, 86_400_000),
    ("dlock.max-waiters-per-key", 10_000, 0, 100_000_000),
    ("dlock.max-holds-per-key", 10_000, 1, 2_147_483_647),
    ("dlock.max-keys-per-call", 4_096, 1, 262_144),
    ("dlock.max-waiters", 1_000_000, 0, 100_000_000),
    ("dlock.deadlock-recheck-ms", 1_000, 0, 3_600_000),
    ("dlock.restart-quarantine-ms", 0, 0, 31_536_000_000),
    ("dlock.lock-delay-ms", 0, 0, 31_536_000_000),
    ("dlock.claim-ms", 30_000, 10_000, 86_400_000),
    ("dlock.max-token-lead-ms", 60_000, 0, 31_536_000_000),
    ("dlock.request-memory-ms", 60_000, 0, 86_400_000),
    ("dlock.request-memory-max", 1_000_000, 0, 100_000_000),
    ("dlock.log-max-len", 128, 0, 10_000),
    ("dlock.log-wait-ms", 10_000, 0, 31_536_000_000),
    ("dlock.log-hold-ms", 0, 0, 31_536_000_000),
    ("dlock.record-level", 1, 1, 1),
];
const SWITCH: &str = "dlock.deadlock-detection";

fn get(server: &Server, name: &str) -> String {
    server.cmd(&["CONFIG", "GET", name]).field(name).text()
}

fn set(server: &Server, name: &str, value: &str) -> redis::Value {
    server.cmd(&["CONFIG", "SET", name, value])
}

#[test]
fn values_are_taken_within_their_range() {
    let server = Server::start();
    let shown = server.cmd(&["CONFIG", "GET", "dlock.*"]).pairs();
    assert_eq!(shown.len(), NUMBERS.len() + 1);
    for (name, default, min, max) in NUMBERS {
        assert_eq!(get(&server, name), default.to_string());
        for value in [min, max] {
            set(&server, name, &value.to_string()).ok();
            assert_eq!(get(&server, name), value.to_string());
        }
        for bad in
            [&(min - 1).to_string(), &(max + 1).to_string(), "x", "", "1.5", "99999999999999999999"]
        {
            let error = set(&server, name, bad).error();
            assert!(error.starts_with("ERR CONFIG SET failed") && error.contains(name), "{error}");
            assert_eq!(get(&server, name), max.to_string(), "{bad}");
        }
    }
    assert_eq!(get(&server, SWITCH), "yes");
    set(&server, SWITCH, "no").ok();
    assert!(set(&server, SWITCH, "maybe").error().starts_with("ERR CONFIG SET failed"));
    assert_eq!(get(&server, SWITCH), "no");
}

#[test]
fn config_rewrite_keeps_them() {
    let mut server = Server::with(&["dlock.lock-delay-ms", "11"])
        .module_args(&[
            "fair-grace-ms",
            "22",
            "dlock.max-waiters",
            "33",
            "max-waiters-per-key",
            "44",
        ])
        .and(&["dlock.max-waiters-per-key", "55"])
        .start();
    let expected = [
        ("dlock.lock-delay-ms", "11"),
        ("dlock.fair-grace-ms", "22"),
        ("dlock.max-waiters", "33"),
        // The configuration overrides the arguments of loadmodule.
        ("dlock.max-waiters-per-key", "55"),
        ("dlock.default-lease-ms", "30000"),
    ];
    for (name, value) in expected {
        assert_eq!(get(&server, name), value, "{name}");
    }
    set(&server, "dlock.default-lease-ms", "66").ok();
    set(&server, "dlock.lock-delay-ms", "0").ok();
    set(&server, SWITCH, "no").ok();
    server.cmd(&["CONFIG", "REWRITE"]).ok();
    server.restart();
    for (name, value) in
        [("dlock.default-lease-ms", "66"), ("dlock.lock-delay-ms", "0"), (SWITCH, "no")]
    {
        assert_eq!(get(&server, name), value, "{name}");
    }
    for (name, value) in &expected[1..4] {
        assert_eq!(get(&server, name), *value, "{name}");
    }
}

#[test]
fn wrong_arguments_of_loadmodule_stop_the_start() {
    for (words, said) in [
        (&["no-such-setting", "1"][..], "unknown setting 'no-such-setting'"),
        (&["max-waiters"], "setting 'max-waiters' needs a value"),
        (
            &["max-waiters", "1", "dlock.max-waiters", "2"],
            "setting 'dlock.max-waiters' given twice",
        ),
        (
            &["default-lease-ms", "0"],
            "default-lease-ms must be an integer between 1 and 31536000000, not '0'",
        ),
        (
            &["max-waiters", "%s%n"],
            "max-waiters must be an integer between 0 and 100000000, not '%s%n'",
        ),
        (&["deadlock-detection", "1"], "deadlock-detection must be yes or no, not '1'"),
    ] {
        let log = Server::with(&[]).module_args(words).try_start().expect_err("wrong arguments");
        assert!(log.contains(&format!("dlock cannot be loaded: {said}")), "{words:?}: {log}");
    }
    let log = Server::with(&["dlock.max-waiters", "-1"]).try_start().expect_err("a wrong setting");
    assert!(log.contains("dlock.max-waiters") || log.contains("max-waiters"), "{log}");
}

#[test]
fn the_module_can_be_loaded_into_a_running_server() {
    let other = Server::start();
    let modules = other.cmd(&["MODULE", "LIST"]).items();
    let module = modules.iter().find(|module| module.field("name").text() == "dlock");
    let path = module.expect("it is listed").field("path").text();
    let server = Server::with(&[]).without_module().start();
    let load = [
        "MODULE",
        "LOADEX",
        &path,
        "CONFIG",
        "dlock.max-waiters",
        "7",
        "ARGS",
        "default-lease-ms",
        "40",
    ];
    server.cmd(&load).ok();
    assert_eq!(get(&server, "dlock.max-waiters"), "7");
    let start = Instant::now();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let mut waiter = server.post(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    waiter.expect_reply(SOON).int();
    assert!(start.elapsed() >= Duration::from_millis(40));
    // A module with key types cannot be unloaded.
    assert!(server.cmd(&["MODULE", "UNLOAD", "dlock"]).error().starts_with("ERR "));
    wait_until("the second lease to end", || server.keys() == 0);
}

/// Unlike MODULE LOADEX with CONFIG, which ends Valkey 9.1.2 then.
#[test]
fn a_misspelt_setting_of_module_load_loads_nothing() {
    let path = module_path(Profile::Dev);
    let path = path.to_str().expect("a path of text");
    for name in ["redis-7.0", "redis-8.2", "valkey-9.1"] {
        let server = Server::of(name).without_module().start();
        for setting in [["max-waitres", "7"], ["max-waiters", "many"]] {
            let load = ["MODULE", "LOAD", path, setting[0], setting[1]];
            assert!(server.cmd(&load).error().contains("Error loading"), "{name}");
            assert!(server.log().contains("dlock cannot be loaded: "), "{name}");
        }
        server.cmd(&["MODULE", "LOAD", path, "max-waiters", "7"]).ok();
        assert_eq!(get(&server, "dlock.max-waiters"), "7", "{name}");
    }
}

/// CONFIG REWRITE writes a `loadmodule` line into the main file. It replaces a line there; a line of an included file
/// stays, too, so that the next start loads the module twice, which no server survives.
#[test]
fn a_loadmodule_line_of_the_main_file_survives_a_rewrite() {
    for name in ["redis-7.0", "redis-8.2", "valkey-9.1"] {
        let mut server = Server::of(name).start();
        for _ in 0..2 {
            server.cmd(&["CONFIG", "REWRITE"]).ok();
            server.restart();
        }
        let file = server.config_file();
        let text = fs::read_to_string(&file).expect("the configuration");
        let line = text.lines().find(|line| line.starts_with("loadmodule ")).expect("the module");
        assert_eq!(text.matches("loadmodule ").count(), 1, "{name}");

        let included = server.dir().join("dlock.conf");
        fs::write(&included, line).expect("another file");
        let include = format!("include {}", included.display());
        fs::write(&file, text.replace(line, &include)).expect("the configuration");
        server.restart();
        server.cmd(&["CONFIG", "REWRITE"]).ok();
        server.kill9();
        let log = server.try_start_again().expect_err("the module is loaded twice");
        assert!(log.contains("dlock cannot be loaded: it is loaded already"), "{name}: {log}");
    }
}

fn the_default_lease_is_that_of_the_moment(family: Family) {
    let server = family.start();
    for (set_to, calls) in [(30_000, 2), (1_000_000, 2)] {
        set(&server, "dlock.default-lease-ms", &set_to.to_string()).ok();
        for _ in 0..calls {
            server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
        }
        assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("lease-ms").int(), set_to);
        server.cmd(&["DLOCK.RELEASE", "k", "a", "ALL"]).ok();
    }
    // A waiter has the default lease at the time of its request; a renewal uses that of its hold.
    server.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "70000"]).ok();
    server.cmd(&["DLOCK.RENEW", "k", "a"]).ok();
    assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("lease-ms").int(), 70_000);
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    set(&server, "dlock.default-lease-ms", "5000").ok();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    waiter.expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("lease-ms").int(), 1_000_000);
    server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    server.left_over_check();
}

fn waiters_are_limited(family: Family) {
    let server = family
        .with(&["dlock.max-waiters-per-key", "2", "dlock.max-waiters", "3"])
        .and(&["dlock.fair-grace-ms", "0"])
        .start();
    for key in ["k", "l", "m"] {
        server.cmd(&["DLOCK.ACQUIRE", key, "a"]).ok();
    }
    let mut client = server.client();
    let blocked = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    client.cmd(&["DLOCK.ACQUIRE", "k", "c", "QUEUE", "60000"]).ok();
    for option in ["BLOCK", "QUEUE"] {
        let error = client.cmd(&["DLOCK.ACQUIRE", "k", "d", option, "60000"]).error();
        assert_eq!(error, "LIMIT 2 callers wait already (dlock.max-waiters-per-key)");
    }
    // A repeated request adds no waiter, and a call that need not wait is none.
    assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "c", "QUEUE", "60000"]).is_null());
    assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "d"]).is_null());
    client.cmd(&["DLOCK.ACQUIRE", "free", "d", "BLOCK", "0"]).int();
    client.cmd(&["DLOCK.ACQUIRE", "l", "b", "QUEUE", "60000"]).ok();
    let error = client.cmd(&["DLOCK.ACQUIRE", "m", "b", "BLOCK", "60000"]).error();
    assert_eq!(error, "LIMIT 3 callers wait already (dlock.max-waiters)");
    blocked.hang_up();
    wait_until("a place to be free", || {
        let info = server.info("dlock");
        (info["waiters_blocked"].as_str(), info["waiters_queued"].as_str()) == ("0", "2")
    });
    assert!(client.cmd(&["DLOCK.ACQUIRE", "m", "b", "QUEUE", "60000"]).is_null());
    set(&server, "dlock.max-waiters", "0").ok();
    let error = client.cmd(&["DLOCK.ACQUIRE", "k", "e", "BLOCK", "0"]).error();
    assert_eq!(error, "LIMIT 3 callers wait already (dlock.max-waiters)");
    drop(client);
    server.cmd(&["FLUSHALL"]).ok();
    for (key, owner) in [("k", "c"), ("l", "b"), ("m", "b")] {
        // NOTHELD: the flush has ended its place.
        let _ = server.cmd(&["DLOCK.RELEASE", key, owner]);
    }
    server.left_over_check();
}

fn a_lock_stays_closed_after_a_hold_that_was_not_given_back(family: Family) {
    let server = family.with(&["dlock.lock-delay-ms", "2000"]).start();
    each(&["expired", "unclaimed", "broken", "disconnected"], |&key| {
        let mut holder = server.client();
        match key {
            "expired" => assert!(holder.cmd(&["DLOCK.ACQUIRE", key, "a", "PX", "1000"]).int() > 0),
            "unclaimed" => {
                server.cmd(&["DLOCK.ACQUIRE", key, "first"]).int();
                let place = ["DLOCK.ACQUIRE", key, "a", "QUEUE", "1000", "PX", "1"];
                assert!(holder.cmd(&place).is_null());
                server.cmd(&["DLOCK.RELEASE", key, "first"]).int();
            }
            _ => assert!(holder.cmd(&["DLOCK.ACQUIRE", key, "a", "BIND", "0"]).int() > 0),
        }
        let mut waiter = server.block(&["DLOCK.ACQUIRE", key, "b", "BLOCK", "0"]);
        let start = Instant::now();
        match key {
            "broken" => assert_eq!(server.cmd(&["DLOCK.BREAK", key]).int(), 1),
            "disconnected" => drop(server.cmd(&args!["CLIENT", "KILL", "ID", holder.id()]).ok()),
            _ => {}
        }
        wait_until("the lock to be closed", || {
            server.cmd(&["DLOCK.INFO", key]).field("owner").text().is_empty()
        });
        let info = server.cmd(&["DLOCK.INFO", key]);
        assert!((0..=2_000).contains(&info.field("ttl-ms").int()), "{}", info.show());
        for (field, value) in [("holds", 0), ("token", 0), ("lease-ms", 0), ("waiters", 1)] {
            assert_eq!(info.field(field).int(), value, "{}", info.show());
        }
        assert!(server.cmd(&["DLOCK.ACQUIRE", key, "a"]).is_null());
        assert!(server.cmd(&["DLOCK.RENEW", key, "a"]).error().starts_with("NOTHELD "));
        assert_eq!(server.cmd(&["DLOCK.BREAK", key]).int(), 0);
        waiter.expect_reply(SOON).int();
        assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
        server.cmd(&["DLOCK.RELEASE", key, "b"]).ok();
    });
    // Not after these ends.
    set(&server, "dlock.lock-delay-ms", "3600000").ok();
    let mut client = server.client();
    client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    client.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    client.cmd(&["DEL", "k"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    // A closed lock has a key: DEL opens it, first for the waiter.
    client.cmd(&["DLOCK.BREAK", "k"]).ok();
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    assert_eq!(client.cmd(&["DEL", "k"]).int(), 1);
    waiter.expect_reply(SOON).int();
    client.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    server.left_over_check();
}

fn in_the_quarantine_after_a_start_nothing_new_is_granted(family: Family) {
    let mut server = family.with(&["appendonly", "yes", "appendfsync", "always"]).start();
    server.cmd(&["DLOCK.ACQUIRE", "known", "a", "EX", "500"]).ok();
    set(&server, "dlock.restart-quarantine-ms", "3600000").ok();
    // It applies to starts: the setting alone closes nothing.
    server.cmd(&["DLOCK.ACQUIRE", "gone", "a"]).int();
    server.cmd(&["DLOCK.RELEASE", "gone", "a"]).ok();
    set(&server, "dlock.restart-quarantine-ms", "5000").ok();
    server.cmd(&["CONFIG", "REWRITE"]).ok();
    server.kill9();
    let start = Instant::now();
    server.start_again();
    let error = server.cmd(&["DLOCK.ACQUIRE", "new", "b"]).error();
    let left = error
        .strip_prefix("QUARANTINE ")
        .and_then(|rest| {
            rest.strip_suffix(" ms until this server grants again (dlock.restart-quarantine-ms)")
        })
        .unwrap_or_else(|| panic!("{error}"));
    assert!((1..=5_000).contains(&left.parse::<u64>().unwrap()), "{left}");
    assert!(server.info_number("dlock", "quarantine_left_ms") > 0);
    // Known holds continue, as far as no new grant is needed.
    assert!(server.cmd(&["DLOCK.ACQUIRE", "known", "b"]).is_null());
    let token = server.cmd(&["DLOCK.ACQUIRE", "known", "a"]).int();
    assert_eq!(server.cmd(&["DLOCK.RENEW", "known", "a"]).int(), token);
    assert_eq!(server.cmd(&args!["DLOCK.FENCE", "known", "a", token + 1]).int(), token + 1);
    let mut client = server.client();
    let mut next = server.block(&["DLOCK.ACQUIRE", "known", "c", "BLOCK", "0"]);
    let mut hasty = server.post(&["DLOCK.ACQUIRE", "new", "d", "BLOCK", "1"]);
    let mut patient = server.block(&["DLOCK.ACQUIRE", "new", "e", "BLOCK", "0"]);
    assert!(client.cmd(&["DLOCK.ACQUIRE", "new2", "f", "QUEUE", "60000"]).is_null());
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "known", "a"]).int(), 1);
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "known", "a"]).int(), 0);
    assert!(hasty.expect_reply(SOON).is_null());
    // Free, with a queue.
    let info = server.cmd(&["DLOCK.INFO", "known"]);
    assert_eq!((info.field("owner").text(), info.field("waiters").int()), (String::new(), 1));
    // Two calls in one write: the quarantine ends during the first, and the second call is behind the waiters.
    let late = server.client().pipeline(&[
        args!["DEBUG", "SLEEP", "5.1"],
        args!["DLOCK.ACQUIRE", "known", "x"],
        args!["DLOCK.ACQUIRE", "new", "x"],
    ]);
    assert!(late[1].is_null() && late[2].is_null(), "{late:?}");
    for waiter in [&mut next, &mut patient] {
        waiter.expect_reply(SOON).int();
        assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
    }
    client.cmd(&["DLOCK.ACQUIRE", "new2", "f"]).int();
    assert_eq!(server.info_number("dlock", "quarantine_left_ms"), 0);
    for (key, owner) in [("known", "c"), ("new", "e"), ("new2", "f")] {
        assert_eq!(server.cmd(&["DLOCK.RELEASE", key, owner]).int(), 0);
    }
    server.left_over_check();
}

#[test]
fn a_grant_to_a_place_lasts_queue_but_no_longer_than_claim_ms() {
    let server = Server::with(&["dlock.claim-ms", "20000"]).start();
    let table: [(&[&str], &[&str], &[&str]); 4] = [
        (&["DLOCK.ACQUIRE", "k"], &[], &["DLOCK.RELEASE", "k", "a"]),
        (&["DFAIR.ACQUIRE", "k"], &[], &["DFAIR.RELEASE", "k", "a"]),
        (&["DRW.ACQUIRE", "k"], &["WRITE"], &["DRW.RELEASE", "k", "a", "WRITE"]),
        (&["DSEM.ACQUIRE", "k"], &["LIMIT", "1"], &["DSEM.RELEASE", "k"]),
    ];
    for (acquire, options, release) in table {
        let held = server.cmd(&[acquire, &["a"], options].concat());
        let place = [acquire, &["b"], options, &["QUEUE", "86400000", "PX", "1"]].concat();
        // A disconnected waiter is granted nothing, so this one stays connected.
        let mut waiter = server.client();
        assert!(waiter.cmd(&place).is_null());
        let mut release: Vec<String> = release.iter().map(ToString::to_string).collect();
        if acquire[0] == "DSEM.ACQUIRE" {
            release.push(held.text());
        }
        server.cmd(&release).ok();
        let left = match acquire[0] {
            "DSEM.ACQUIRE" => server.cmd(&["DSEM.PERMITS", "k"]).items()[0].field("ttl-ms").int(),
            "DRW.ACQUIRE" => server.cmd(&["DRW.INFO", "k"]).field("writer").field("ttl-ms").int(),
            name => {
                let info = name.replace("ACQUIRE", "INFO");
                server.cmd(&[info.as_str(), "k"]).field("ttl-ms").int()
            }
        };
        assert!((1..=20_000).contains(&left), "{acquire:?}: {left}");
        server.cmd(&["DEL", "k"]).ok();
    }
    server.left_over_check();
}
