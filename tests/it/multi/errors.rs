//! Refused calls for several locks: each changes nothing.

use super::{clear, picture};
use crate::{
    args,
    support::{Reply, Server},
};

const TAKERS: [&str; 2] = ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE"];
const ALL: [&str; 4] = ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE", "DLOCK.MRELEASE", "DLOCK.MRENEW"];

#[test]
fn malformed_calls_get_exact_errors() {
    let server = Server::start();
    server.ask("DLOCK.MACQUIRE 2 k1 k2 a").ok();
    let count = "ERR numkeys must be an integer between 1 and 262144";
    for name in ALL {
        for (rest, text) in [
            ("", "ERR wrong number of arguments"),
            ("1", "ERR wrong number of arguments"),
            ("1 k1", "ERR wrong number of arguments"),
            ("0 k1 a", count),
            ("-1 k1 a", count),
            ("262145 k1 a", count),
            ("1.0 k1 a", count),
            ("k1 k2 a", count),
            ("99999999999999999999 k1 a", count),
            ("2 k1 a", "ERR numkeys is 2: at least 3 arguments must follow it"),
            ("3 k1 k2 a", "ERR numkeys is 3: at least 4 arguments must follow it"),
            ("2 k1 k1 a", "ERR key \"k1\" given twice"),
            ("4 k1 k2 k3 k2 a", "ERR key \"k2\" given twice"),
            ("1 k1 k2 a", "ERR unknown option 'a'"),
            ("2 k1 k2 a NOREENTRY", "ERR unknown option 'NOREENTRY'"),
            ("2 k1 k2 a QUEUE 1000", "ERR unknown option 'QUEUE'"),
            ("2 k1 k2 a TOKEN 5", "ERR unknown option 'TOKEN'"),
            ("2 k1 k2 a ALL", "ERR unknown option 'ALL'"),
        ] {
            let call = format!("{name} {rest}");
            let refusal = server.ask(call.trim_end()).error();
            assert!(refusal.starts_with(text), "{call}: {refusal}");
        }
        let empty_key = args![name, 2, "k1", "", "a"];
        let empty_owner = args![name, 2, "k1", "k2", ""];
        let long_owner = args![name, 2, "k1", "k2", "o".repeat(257)];
        for (call, text) in [
            (empty_key, "ERR key must not be empty"),
            (empty_owner, "ERR owner must be 1 to 256 bytes"),
            (long_owner, "ERR owner must be 1 to 256 bytes"),
        ] {
            assert_eq!(server.cmd(&call).error(), text, "{name}");
        }
    }
    for name in TAKERS {
        for (options, text) in [
            ("PX 0", "ERR PX must be"),
            ("PX 5 EX 5", "ERR PX and EX exclude each other"),
            ("BLOCK -1", "ERR BLOCK must be"),
            ("BLOCK", "ERR BLOCK needs a value"),
            ("BIND x", "ERR BIND must be"),
            ("REQID a REQID b", "ERR option REQID given twice"),
        ] {
            let call = format!("{name} 2 k3 k4 b {options}");
            let refusal = server.ask(&call).error();
            assert!(refusal.starts_with(text), "{call}: {refusal}");
        }
    }
    for (name, option) in [("DLOCK.MRELEASE", "PX 5"), ("DLOCK.MRENEW", "REQID r")] {
        let refusal = server.ask(&format!("{name} 2 k1 k2 a {option}")).error();
        assert!(refusal.starts_with("ERR unknown option "), "{refusal}");
    }
    assert_eq!(picture(&server, "k1 k2 k3 k4"), "k1:a k2:a k3:- k4:-");
    clear(&server);
}

#[test]
fn more_keys_than_there_may_be_are_refused() {
    const MOST: usize = 262_144;
    let server = Server::start();
    let mut call = args!["DLOCK.MACQUIRE", MOST + 1];
    call.extend((0..=MOST).map(|n| n.to_string().into_bytes()));
    call.extend(args!["a"]);
    let refusal = server.cmd(&call).error();
    assert_eq!(refusal, "ERR numkeys must be an integer between 1 and 262144");
    assert_eq!(server.keys(), 0);
    clear(&server);
}

#[test]
fn a_key_of_another_type_among_them_stops_the_call() {
    let server = Server::start();
    let others = [
        "SET other x",
        "RPUSH other x",
        "DFAIR.ACQUIRE other o",
        "DRW.ACQUIRE other o READ",
        "DSEM.INIT other 1",
        "DLATCH.INIT other 1",
    ];
    for other in others {
        server.ask(other).ok();
        server.ask("DLOCK.MACQUIRE 2 k1 k2 a PX 60000").ok();
        for call in [
            "DLOCK.MACQUIRE 3 f1 f2 other b",
            "DLOCK.MACQUIRE 3 other f1 f2 b BLOCK 0",
            // Before the other keys are checked.
            "DLOCK.MACQUIRE 3 k1 other f1 b BLOCK 0",
            "DLOCK.MACQUIRE 3 k1 k2 other a",
            "DLOCK.ANYACQUIRE 2 k1 other b BLOCK 0",
            "DLOCK.ANYACQUIRE 2 other k1 b BLOCK 0",
            "DLOCK.MRELEASE 3 k1 other k2 a",
            "DLOCK.MRENEW 3 k1 k2 other a PX 90000",
        ] {
            let refusal = server.ask(call).error();
            assert!(refusal.starts_with("WRONGTYPE "), "{other}: {call}: {refusal}");
            assert!(refusal.contains("\"other\" "), "{other}: {call}: {refusal}");
            assert_eq!(picture(&server, "k1 k2 f1 f2"), "k1:a k2:a f1:- f2:-", "{call}");
        }
        let lease = server.cmd(&["DLOCK.INFO", "k1"]).field("lease-ms").int();
        assert_eq!(lease, 60_000);
        clear(&server);
    }
}

/// A missing key with waiters of another family belongs to that family.
#[test]
fn a_key_that_another_family_waits_for_stops_the_call() {
    let server = Server::start();
    let waiter = server.wait("DSEM.ACQUIRE other w BLOCK 0");
    for call in [
        "DLOCK.MACQUIRE 2 f1 other b",
        "DLOCK.MACQUIRE 2 other f1 b BLOCK 0",
        "DLOCK.ANYACQUIRE 1 other b BLOCK 0",
    ] {
        let refusal = server.ask(call).error();
        assert!(refusal.starts_with("WRONGTYPE "), "{call}: {refusal}");
        assert!(server.ask("DLOCK.INFO f1").is_null());
    }
    drop(waiter);
    server.left_over_check();
}

/// The text names the first key that the owner does not hold.
#[test]
fn mrenew_names_the_key_that_is_not_held() {
    let server = Server::start();
    server.ask("DLOCK.MACQUIRE 2 k1 k2 a").ok();
    server.ask("DLOCK.ACQUIRE k3 b").int();
    for (call, named) in [
        ("3 k1 k2 k3 a", "\"k3\""),
        ("3 k3 k1 k2 a", "\"k3\""),
        ("4 k1 nothing k3 k2 a", "\"nothing\""),
        ("2 k1 k2 c", "\"k1\""),
    ] {
        let refusal = server.ask(&format!("DLOCK.MRENEW {call}")).error();
        assert!(refusal.starts_with("NOTHELD ") && refusal.contains(named), "{call}: {refusal}");
    }
    clear(&server);
}
