//! DLOCK as a client sees it: holder, count, token, lease.

use std::time::{Duration, Instant};

use dlock_wire::reply::{self, LockInfo};
use redis::Value;

use crate::{
    args,
    support::{Family, Reply, SOON, Server, wait_until},
    test_both_families,
};

test_both_families! {
    only_the_holder_with_the_right_token_changes_the_hold
    info_is_a_map_with_every_field
    a_lease_ends_by_itself_and_not_early
    a_lock_is_a_key_as_any_other
}

#[test]
fn null_is_the_null_of_the_protocol() {
    // The harness treats all Nulls alike; redis-cli and the libraries do not.
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    for (hello, null) in [("2", "$-1\r\n"), ("3", "_\r\n")] {
        let mut stream = std::os::unix::net::UnixStream::connect(server.dir().join("s")).unwrap();
        let mut ask = |line: String, answer: &str| {
            use std::io::{Read as _, Write as _};
            stream.write_all(line.as_bytes()).unwrap();
            let mut bytes = vec![0; answer.len()];
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes), answer, "{line}");
        };
        if hello == "3" {
            ask("CLIENT REPLY SKIP\r\nHELLO 3\r\nECHO x\r\n".to_owned(), "$1\r\nx\r\n");
        }
        ask("DLOCK.ACQUIRE k b\r\n".to_owned(), null);
        ask("DLOCK.ACQUIRE k b BLOCK 1\r\n".to_owned(), null);
        ask("DLOCK.INFO nothing\r\n".to_owned(), null);
        ask("DLOCK.POSITION k b\r\n".to_owned(), null);
        ask("DLOCK.WAITERS k\r\n".to_owned(), "*0\r\n");
    }
}

fn only_the_holder_with_the_right_token_changes_the_hold(family: Family) {
    let server = family.start();
    let mut client = server.client();
    let token = client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let other = (token + 1).to_string();
    let digest = server.digest();
    let another = r#"NOTHELD "k" is held by another owner, not by "b""#.to_owned();
    let stale = format!(r#"NOTHELD "a" holds "k" with token {token}, not {other}"#);
    let both = "ERR REQID names one request, so it does not go with ALL".to_owned();
    let nobody = r#"NOTHELD "a" does not hold "free": nobody does"#.to_owned();
    for (call, error) in [
        (&["DLOCK.RELEASE", "k", "b"][..], &another),
        (&["DLOCK.RELEASE", "k", "b", "ALL"], &another),
        (&["DLOCK.RELEASE", "k", "b", "TOKEN", &token.to_string()], &another),
        (&["DLOCK.RENEW", "k", "b", "PX", "1"], &another),
        (&["DLOCK.FENCE", "k", "b", &other], &another),
        (&["DLOCK.RELEASE", "k", "a", "TOKEN", &other], &stale),
        (&["DLOCK.RENEW", "k", "a", "PX", "1", "TOKEN", &other], &stale),
        (&["DLOCK.RELEASE", "k", "a", "ALL", "REQID", "r"], &both),
        (&["DLOCK.RELEASE", "free", "a"], &nobody),
        (&["DLOCK.RENEW", "free", "a"], &nobody),
        (&["DLOCK.FENCE", "free", "a", &other], &nobody),
    ] {
        assert_eq!(&client.cmd(call).error(), error, "{call:?}");
    }
    assert_eq!(server.digest(), digest);
    let token = token.to_string();
    assert_eq!(client.cmd(&["DLOCK.RENEW", "k", "a", "TOKEN", &token]).int().to_string(), token);
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "a", "TOKEN", &token]).int(), 0);
    server.left_over_check();
}

#[test]
fn refusals_are_counted_by_code() {
    let server = Server::start();
    let mut client = server.client();
    let token = client.cmd(&["DLOCK.ACQUIRE", "k", "a", "REQID", "r"]).int();
    let later = (token + 1).to_string();
    assert!(client.cmd(&["DLOCK.CHECK", "k", &later]).error().starts_with("STALE "));
    client.cmd(&args!["DLOCK.CHECK", "k", token]).ok();
    for owner in ["b", "c"] {
        assert!(client.cmd(&["DLOCK.RENEW", "k", owner]).error().starts_with("NOTHELD "));
    }
    client.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "a", "REQID", "r"]).error().starts_with("SPENT "));
    let refused = ["refused_stale", "refused_notheld", "refused_spent"];
    assert_eq!(refused.map(|name| server.info_number("dlock", name)), [1, 2, 1]);
}

fn info_is_a_map_with_every_field(family: Family) {
    let server = family.start();
    let mut holding = server.client3();
    let call =
        ["DLOCK.ACQUIRE", "k", "a", "PX", "40000", "BIND", "5", "LABEL", "x y", "REQID", "1"];
    let token = holding.cmd(&call).int();
    holding.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "1", "BIND", "0"]).ok();
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    let flat = server.cmd(&["DLOCK.INFO", "k"]);
    let map = holding.cmd(&["DLOCK.INFO", "k"]);
    assert!(matches!(flat, Value::Array(_)), "{}", flat.show());
    assert!(matches!(map, Value::Map(_)), "{}", map.show());
    for info in [flat, map] {
        let names: Vec<String> = info.pairs().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, reply::names(LockInfo::FIELDS));
        let kind = family.name().to_lowercase();
        for (field, value) in [("kind", kind.as_str()), ("owner", "a"), ("label", "x y")] {
            assert_eq!(info.field(field).text(), value, "{field}");
        }
        let client = i64::try_from(holding.id()).unwrap();
        for (field, value) in [
            ("token", token),
            ("holds", 2),
            ("lease-ms", 40_000),
            ("bound-client", client),
            ("waiters", 1),
        ] {
            assert_eq!(info.field(field).int(), value, "{field}");
        }
        let (left, held) = (info.field("ttl-ms").int(), info.field("held-ms").int());
        assert!((30_000..=40_000).contains(&left) && held < 10_000, "{left} {held}");
    }
    wait_until("time to pass", || server.cmd(&["DLOCK.INFO", "k"]).field("held-ms").int() >= 5);
    holding.cmd(&["DLOCK.RELEASE", "k", "a", "ALL"]).ok();
    waiter.expect_reply(SOON).int();
    server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    server.left_over_check();
}

fn a_lease_ends_by_itself_and_not_early(family: Family) {
    let server = family.start();
    for lease in [1, 20, 150] {
        let start = Instant::now();
        server.cmd(&args!["DLOCK.ACQUIRE", "k", "a", "PX", lease]).ok();
        let mut waiter = server.post(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
        waiter.expect_reply(SOON).int();
        assert!(start.elapsed() >= Duration::from_millis(lease), "{:?}", start.elapsed());
        server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    }
    // Also without waiters and readers.
    server.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "1"]).ok();
    wait_until("the key to go", || server.keys() == 0);
    assert!(server.info_number("dlock", "expiries") >= 3);
    server.left_over_check();
}

fn a_lock_is_a_key_as_any_other(family: Family) {
    let server = family.start();
    server.cmd(&["SET", "text", "x"]).ok();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    assert_eq!(server.cmd(&["TYPE", "k"]).text(), family.key_type());
    let scan = server.cmd(&["SCAN", "0", "COUNT", "100", "TYPE", family.key_type()]);
    assert_eq!(scan.items()[1].show(), "[\"k\"]");
    let small = server.cmd(&["MEMORY", "USAGE", "k"]).int();
    server.cmd(&args!["DLOCK.ACQUIRE", "k", "a", "LABEL", "x".repeat(256)]).ok();
    let large = server.cmd(&["MEMORY", "USAGE", "k"]).int();
    assert!((1..500).contains(&small) && large >= small + 256, "{small} {large}");
    assert_eq!(server.cmd(&["OBJECT", "ENCODING", "k"]).text(), "raw");
    assert!(server.cmd(&["OBJECT", "IDLETIME", "k"]).int() < 60);
    // A lease is not the time to live of the key: that would depend on the wall clock.
    assert_eq!(server.cmd(&["PTTL", "k"]).int(), -1);
    assert_eq!(server.cmd(&["TOUCH", "k"]).int(), 1);
    assert_eq!(server.cmd(&["DEL", "k", "text"]).int(), 2);
    server.left_over_check();
}
