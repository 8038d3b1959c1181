//! DLOCK as a client sees it: holder, count, token, lease.

use std::time::{Duration, Instant};

use dlock_wire::reply::{self, LockInfo};
use redis::Value;

use crate::{
    args,
    support::{Client, Family, Reply, SOON, Server, wait_until},
    test_both_families,
};

test_both_families! {
    a_free_lock_is_granted_and_a_held_one_is_not
    re_entry_counts_and_keeps_the_token
    re_entry_extends_the_lease_and_never_shortens_it
    only_the_holder_with_the_right_token_changes_the_hold
    a_resent_request_counts_nothing
    a_hold_remembers_its_last_eight_requests
    renew_restarts_the_lease
    a_hold_is_broken_by_force
    info_is_a_map_with_every_field
    a_lease_ends_by_itself_and_not_early
    a_lock_is_a_key_as_any_other
}

/// The fields `owner holds waiters` of INFO.
fn holder(server: &Server, key: &str) -> String {
    let info = server.cmd(&["DLOCK.INFO", key]);
    if info.is_null() {
        return "nothing".to_owned();
    }
    format!(
        "{} {} {}",
        info.field("owner").text(),
        info.field("holds").int(),
        info.field("waiters").int()
    )
}

fn a_free_lock_is_granted_and_a_held_one_is_not(family: Family) {
    let server = family.start();
    for mut client in [server.client(), server.client3()] {
        let token = client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
        assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "b"]).is_null());
        assert_eq!(client.cmd(&["DLOCK.ACQUIRE", "other", "b"]).int().signum(), 1);
        assert_eq!(client.cmd(&["TYPE", "k"]).text(), family.key_type());
        assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 0);
        assert!(client.cmd(&["DLOCK.INFO", "k"]).is_null());
        assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "b"]).int() > token);
        assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0);
        assert_eq!(client.cmd(&["DLOCK.RELEASE", "other", "b"]).int(), 0);
    }
    server.left_over_check();
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

fn re_entry_counts_and_keeps_the_token(family: Family) {
    let server = family.start();
    let mut client = server.client();
    let token = client.cmd(&["DLOCK.ACQUIRE", "k", "a", "LABEL", "one"]).int();
    // Any connection may act for the owner.
    assert_eq!(server.cmd(&["DLOCK.ACQUIRE", "k", "a", "LABEL", "two"]).int(), token);
    assert_eq!(client.cmd(&["DLOCK.ACQUIRE", "k", "a", "BLOCK", "0"]).int(), token);
    assert_eq!(holder(&server, "k"), "a 3 0");
    assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("label").text(), "two");
    assert_eq!(
        client.cmd(&["DLOCK.ACQUIRE", "k", "a", "NOREENTRY"]).error(),
        r#"REENTRY "a" already holds "k""#
    );
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 2);
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 1);
    assert_eq!(client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int(), token);
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "a", "ALL"]).int(), 0);
    assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "a", "NOREENTRY"]).int() > token);
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 0);
    server.left_over_check();
}

fn re_entry_extends_the_lease_and_never_shortens_it(family: Family) {
    let server = family.start();
    let mut client = server.client();
    client.cmd(&["DLOCK.ACQUIRE", "k", "a", "EX", "100"]).ok();
    let lease = |client: &mut Client| {
        let info = client.cmd(&["DLOCK.INFO", "k"]);
        (info.field("lease-ms").int(), info.field("ttl-ms").int())
    };
    client.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "50"]).ok();
    let (length, left) = lease(&mut client);
    assert!(length == 100_000 && (90_000..=100_000).contains(&left), "{length} {left}");
    client.cmd(&["DLOCK.ACQUIRE", "k", "a", "EX", "500"]).ok();
    let (length, left) = lease(&mut client);
    assert!(length == 500_000 && (490_000..=500_000).contains(&left), "{length} {left}");
    client.cmd(&["DLOCK.BREAK", "k"]).ok();
    server.left_over_check();
}

fn only_the_holder_with_the_right_token_changes_the_hold(family: Family) {
    let server = family.start();
    let mut client = server.client();
    let token = client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let other = (token + 1).to_string();
    let digest = server.digest();
    let another = r#"NOTHELD "k" is held by another owner, not by "b""#.to_owned();
    let stale = format!(r#"NOTHELD "a" holds "k" with token {token}, not {other}"#);
    let nobody = r#"NOTHELD "a" does not hold "free": nobody does"#.to_owned();
    for (call, error) in [
        (&["DLOCK.RELEASE", "k", "b"][..], &another),
        (&["DLOCK.RELEASE", "k", "b", "ALL", "REQID", "r"], &another),
        (&["DLOCK.RELEASE", "k", "b", "TOKEN", &token.to_string()], &another),
        (&["DLOCK.RENEW", "k", "b", "PX", "1"], &another),
        (&["DLOCK.FENCE", "k", "b", &other], &another),
        (&["DLOCK.RELEASE", "k", "a", "TOKEN", &other], &stale),
        (&["DLOCK.RENEW", "k", "a", "PX", "1", "TOKEN", &other], &stale),
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

fn a_resent_request_counts_nothing(family: Family) {
    let server = family.start();
    let (mut first, mut second) = (server.client(), server.client());
    let token = first.cmd(&["DLOCK.ACQUIRE", "k", "a", "REQID", "1", "PX", "50000"]).int();
    // Requests the lost reply on another connection; the lease of the repeat is ignored.
    for again in [
        &["DLOCK.ACQUIRE", "k", "a", "REQID", "1"][..],
        &["DLOCK.ACQUIRE", "k", "a", "REQID", "1", "EX", "90000", "NOREENTRY"],
        &["DLOCK.ACQUIRE", "k", "a", "REQID", "1", "BLOCK", "0"],
    ] {
        assert_eq!(second.cmd(again).int(), token, "{again:?}");
        assert_eq!(holder(&server, "k"), "a 1 0", "{again:?}");
    }
    assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("lease-ms").int(), 50_000);
    assert_eq!(first.cmd(&["DLOCK.ACQUIRE", "k", "a", "REQID", "2"]).int(), token);
    assert_eq!(first.cmd(&["DLOCK.ACQUIRE", "k", "a", "REQID", "3"]).int(), token);
    assert_eq!(holder(&server, "k"), "a 3 0");
    assert_eq!(first.cmd(&["DLOCK.RELEASE", "k", "a", "REQID", "r1"]).int(), 2);
    assert_eq!(second.cmd(&["DLOCK.RELEASE", "k", "a", "REQID", "r1"]).int(), 2);
    assert_eq!(second.cmd(&["DLOCK.RELEASE", "k", "a", "ALL", "REQID", "r1"]).int(), 2);
    assert_eq!(first.cmd(&["DLOCK.RELEASE", "k", "a", "REQID", "r2"]).int(), 1);
    assert_eq!(first.cmd(&["DLOCK.RELEASE", "k", "a", "REQID", "r3"]).int(), 0);
    assert_eq!(second.cmd(&["DLOCK.RELEASE", "k", "a", "REQID", "r3"]).int(), 0);
    let gone = second.cmd(&["DLOCK.ACQUIRE", "k", "a", "REQID", "1"]).error();
    assert!(gone.starts_with("SPENT "), "{gone}");
    let next = first.cmd(&["DLOCK.ACQUIRE", "k", "a", "REQID", "new"]).int();
    assert!(next > token);
    assert_eq!(holder(&server, "k"), "a 1 0");
    assert_eq!(first.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 0);
    server.left_over_check();
}

fn a_hold_remembers_its_last_eight_requests(family: Family) {
    let server = family.start();
    let mut client = server.client();
    let mut acquire = |id: usize| {
        client.cmd(&args!["DLOCK.ACQUIRE", "k", "a", "REQID", format!("r{id}")]).ok();
        client.cmd(&["DLOCK.INFO", "k"]).field("holds").int()
    };
    for id in 1..=9 {
        assert_eq!(acquire(id), i64::try_from(id).unwrap());
    }
    for id in 2..=9 {
        assert_eq!(acquire(id), 9, "r{id} is known");
    }
    assert_eq!(acquire(1), 10, "r1 is forgotten");
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    server.left_over_check();
}

fn renew_restarts_the_lease(family: Family) {
    let server = family.start();
    let mut client = server.client();
    let token = client.cmd(&["DLOCK.ACQUIRE", "k", "a", "EX", "50"]).int();
    for (options, lease) in [
        (&["EX", "200"][..], 200_000),
        (&["PX", "20000"], 20_000),
        // Without a lease: the hold's current one, as it was last set.
        (&[], 20_000),
        (&["PX", "31536000000"], 31_536_000_000),
    ] {
        let call = [&["DLOCK.RENEW", "k", "a"], options].concat();
        assert_eq!(client.cmd(&call).int(), token);
        let info = client.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("lease-ms").int(), lease);
        let left = info.field("ttl-ms").int();
        assert!((lease - 10_000..=lease).contains(&left), "{left} of {lease}");
        assert_eq!(info.field("holds").int(), 1);
    }
    client.cmd(&["DLOCK.RENEW", "k", "a", "PX", "1"]).ok();
    wait_until("the lease to end", || holder(&server, "k") == "nothing");
    server.left_over_check();
}

fn a_hold_is_broken_by_force(family: Family) {
    let server = family.start();
    let mut client = server.client();
    assert_eq!(client.cmd(&["DLOCK.BREAK", "k"]).int(), 0);
    client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    assert_eq!(client.cmd(&["DLOCK.BREAK", "k"]).int(), 1);
    let token = waiter.expect_reply(SOON).int();
    assert!(client.cmd(&["DLOCK.RELEASE", "k", "a"]).error().starts_with("NOTHELD "));
    assert_eq!(client.cmd(&args!["DLOCK.CHECK", "k", token]).int(), 1);
    assert_eq!(client.cmd(&["DLOCK.BREAK", "k"]).int(), 1);
    assert_eq!(client.cmd(&["DLOCK.BREAK", "k"]).int(), 0);
    server.left_over_check();
}

fn info_is_a_map_with_every_field(family: Family) {
    let server = family.start();
    let mut holding = server.client3();
    let call =
        ["DLOCK.ACQUIRE", "k", "a", "PX", "40000", "BIND", "5", "LABEL", "x y", "REQID", "1"];
    let token = holding.cmd(&call).int();
    holding.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "1"]).ok();
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
