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
