//! What one ACL user does to the others of a server.

use redis::Value;

use crate::{
    args,
    support::{Client, Reply, Server, wait_until},
};

/// A connection of the ACL user `name` with these rights.
fn user(server: &Server, name: &str, rules: &[&str]) -> Client {
    server.cmd(&[&["ACL", "SETUSER", name, "reset", "on", "nopass"], rules].concat()).ok();
    let mut client = server.client();
    client.cmd(&["AUTH", name, "x"]).ok();
    client
}

#[test]
fn ids_without_a_request_erase_nobodys_retry_protection() {
    const MOST: i64 = 1_600;
    let server = Server::start();
    server.cmd(&args!["CONFIG", "SET", "dlock.request-memory-max", MOST]).ok();
    let mut other = user(&server, "other", &["~other:*", "+@all"]);
    other.cmd(&["DLOCK.ACQUIRE", "other:k", "a", "REQID", "request"]).int();
    assert_eq!(other.cmd(&["DLOCK.RELEASE", "other:k", "a", "REQID", "request"]).int(), 0);
    let unknown = other.cmd(&["DLOCK.RELEASE", "other:k", "a", "REQID", "lost"]).error();
    assert!(unknown.starts_with("UNKNOWN "), "{unknown}");
    let mut mal = user(&server, "mal", &["~mal:*", "+dlock.release"]);
    let releases: Vec<_> =
        (0..MOST * 2).map(|n| args!["DLOCK.RELEASE", "mal:k", "m", "REQID", n]).collect();
    releases.chunks(1_000).for_each(|calls| drop(mal.pipeline(calls)));
    let remembered = server.info_number("dlock", "requests_remembered");
    assert!(remembered <= MOST + MOST / 16, "{remembered} are remembered");
    for id in ["request", "lost"] {
        let copy = other.cmd(&["DLOCK.ACQUIRE", "other:k", "a", "REQID", id]);
        assert!(copy.error().starts_with("SPENT "), "{id}: {copy:?}");
    }
    assert_eq!(other.cmd(&["DLOCK.RELEASE", "other:k", "a", "REQID", "request"]).int(), 0);
    server.left_over_check();
}

#[test]
fn the_text_of_a_deadlock_names_no_key_that_the_caller_may_not_read() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE mal:k m").int();
    server.ask("DLOCK.ACQUIRE mal:l b").int();
    server.ask("DLOCK.ACQUIRE secret:k owner-c").int();
    let _c = server.wait("DLOCK.ACQUIRE mal:k owner-c BLOCK 0");
    let _b = server.wait("DLOCK.ACQUIRE secret:k b BLOCK 0");
    server.wait_blocked(2);
    let calls = ["DLOCK.ACQUIRE", "mal:l", "m", "BLOCK", "0"];
    let all = r#"DEADLOCK this call would wait forever: "m" waits for "mal:l", "b" waits for "secret:k", "owner-c" waits for "mal:k""#;
    let mut mal = user(&server, "mal", &["~mal:*", "+dlock.acquire"]);
    let some = r#"DEADLOCK this call would wait forever: "m" waits for "mal:l", "owner-c" waits for "mal:k", through 1 key that this answer may not name"#;
    assert_eq!(mal.cmd(&calls).error(), some);
    let mut reader = user(&server, "reader", &["~mal:*", "%R~secret:*", "+dlock.acquire"]);
    assert_eq!(reader.cmd(&calls).error(), all);
    let mut writer = user(&server, "writer", &["~mal:*", "%W~secret:*", "+dlock.acquire"]);
    assert_eq!(writer.cmd(&calls).error(), some);
    assert_eq!(server.cmd(&calls).error(), all);
    server.cmd(&["FLUSHALL"]).ok();
    server.wait_blocked(0);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

#[test]
fn repeats_of_an_event_push_nothing_out_of_the_log() {
    let server = Server::start();
    let broken = |key: &str| {
        server.cmd(&["DLOCK.ACQUIRE", key, "a"]).int();
        server.cmd(&["DLOCK.BREAK", key]).int();
    };
    broken("other");
    (0..130).for_each(|_| broken("mal"));
    assert_eq!(server.cmd(&["DLOCK.LOG", "LEN"]).int(), 2);
    let log = server.client3().cmd(&["DLOCK.LOG", "GET"]);
    let seen = |one: &Value| (one.field("key").text(), one.field("count").int());
    let seen: Vec<_> = log.items().iter().map(seen).collect();
    assert_eq!(seen, [("mal".to_owned(), 130), ("other".to_owned(), 1)]);
    let newest = &log.items()[0];
    assert!(newest.field("first-ms").int() <= newest.field("time-ms").int());
    server.left_over_check();
}

const DAY_MS: i64 = 86_400_000;

/// `count` places of `mal` in the queue of its key, each for a day, and without a connection.
fn take_places(server: &Server, count: i64) {
    let mut mal = user(server, "mal", &["~mal:*", "+dlock.acquire"]);
    mal.cmd(&["DLOCK.ACQUIRE", "mal:k", "holder", "PX", "86400000"]).int();
    let calls: Vec<_> =
        (0..count).map(|n| args!["DLOCK.ACQUIRE", "mal:k", n, "QUEUE", DAY_MS]).collect();
    assert!(mal.pipeline(&calls).iter().all(Reply::is_null));
}

fn places(server: &Server) -> i64 {
    server.info_number("dlock", "waiters_queued")
}

#[test]
fn one_user_does_not_block_every_wait_for_a_day() {
    let server = Server::with(&["dlock.max-waiters", "100"]).start();
    let mut other = user(&server, "other", &["~other:*", "+@all"]);
    other.cmd(&["DLOCK.ACQUIRE", "other:k", "holder"]).int();
    let wait = |client: &mut Client, owner: i64| {
        client.cmd(&args!["DLOCK.ACQUIRE", "other:k", owner, "QUEUE", DAY_MS])
    };
    let mut left = user(&server, "other", &["~other:*", "+@all"]);
    assert!(wait(&mut left, 0).is_null());
    drop(left);
    take_places(&server, 99);
    wait_until("the server to know that the connections are closed", || {
        let rows = ["other:k", "mal:k"].map(|key| server.cmd(&["DLOCK.WAITERS", key]).items());
        rows.concat().iter().all(|row| row.field("client-id").int() == 0)
    });
    for owner in 1..50 {
        assert!(wait(&mut other, owner).is_null(), "place {owner}");
    }
    assert_eq!(places(&server), 100);
    let first = other.cmd(&["DLOCK.POSITION", "other:k", "0"]);
    assert_eq!(first.int(), 1, "a place of the other user stays");
    server.cmd(&["FLUSHALL"]).ok();
    drop(other);
    wait_until("no place to be left", || {
        server.cmd(&["FLUSHALL"]).ok();
        places(&server) == 0
    });
    server.left_over_check();
}

#[test]
fn flushes_and_operators_end_places_without_a_connection() {
    let server = Server::start();
    let end = |what: &[&str]| server.cmd(&[&["DLOCK.UNBLOCK"], what].concat()).int();
    // The places that count are those whose connection is known to be closed.
    let end_all = |what: &[&str]| {
        let mut ended = 0;
        wait_until("all places to end", || {
            ended += end(what);
            places(&server) == 0
        });
        assert_eq!(ended, 20, "{what:?}");
    };
    take_places(&server, 20);
    assert_eq!(end(&["ABSENT-USER", "other"]) + end(&["ABSENT-KEY", "other"]), 0);
    end_all(&["ABSENT-USER", "mal"]);
    server.cmd(&["DEL", "mal:k"]).int();
    take_places(&server, 20);
    end_all(&["ABSENT-KEY", "mal:k"]);
    server.cmd(&["DEL", "mal:k"]).int();
    take_places(&server, 20);
    wait_until("a flush to end them", || {
        server.cmd(&["FLUSHDB"]).ok();
        places(&server) == 0
    });
    server.left_over_check();
}
