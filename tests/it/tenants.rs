//! What one ACL user does to the others of a server.

use crate::{
    args,
    support::{Client, Reply, Server},
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
    assert_eq!(other.cmd(&["DLOCK.RELEASE", "other:k", "a", "REQID", "release"]).int(), 0);
    assert_eq!(other.cmd(&["DLOCK.CANCEL", "other:k", "a", "REQID", "lost"]).int(), 0);
    let mut mal = user(&server, "mal", &["~mal:*", "+dlock.cancel", "+dlock.release"]);
    for verb in ["DLOCK.CANCEL", "DLOCK.RELEASE"] {
        let calls: Vec<_> = (0..MOST * 2)
            .map(|n| args![verb, "mal:k", "m", "REQID", format!("{verb}{n}")])
            .collect();
        calls.chunks(1_000).for_each(|calls| drop(mal.pipeline(calls)));
    }
    let remembered = server.info_number("dlock", "requests_remembered");
    assert!(remembered <= MOST + MOST / 16, "{remembered} are remembered");
    for id in ["request", "lost"] {
        let copy = other.cmd(&["DLOCK.ACQUIRE", "other:k", "a", "REQID", id]);
        assert!(copy.error().starts_with("SPENT "), "{id}: {copy:?}");
    }
    assert_eq!(other.cmd(&["DLOCK.RELEASE", "other:k", "a", "REQID", "release"]).int(), 0);
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
    let some = r#"DEADLOCK this call would wait forever: "m" waits for "mal:l", "owner-c" waits for "mal:k", through 1 key that you may not read"#;
    assert_eq!(mal.cmd(&calls).error(), some);
    let mut reader = user(&server, "reader", &["~mal:*", "%R~secret:*", "+dlock.acquire"]);
    assert_eq!(reader.cmd(&calls).error(), all);
    let mut writer = user(&server, "writer", &["~mal:*", "%W~secret:*", "+dlock.acquire"]);
    assert_eq!(writer.cmd(&calls).error(), some);
    assert_eq!(server.cmd(&calls).error(), all);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

#[test]
fn repeats_of_an_event_push_nothing_out_of_the_log() {
    let server = Server::start();
    let mut broken = |key: &str| {
        server.cmd(&["DLOCK.ACQUIRE", key, "a"]).int();
        server.cmd(&["DLOCK.BREAK", key]).int();
    };
    broken("other");
    (0..130).for_each(|_| broken("mal"));
    assert_eq!(server.cmd(&["DLOCK.LOG", "LEN"]).int(), 2);
    let log = server.client3().cmd(&["DLOCK.LOG", "GET"]);
    let entry = |at: usize| (log.at(at).field("key").text(), log.at(at).field("count").int());
    assert_eq!([entry(0), entry(1)], [("mal".to_owned(), 130), ("other".to_owned(), 1)]);
    assert!(log.at(0).field("first-ms").int() <= log.at(0).field("time-ms").int());
    server.left_over_check();
}
