//! What the server reports late: removed values that were never indexed, removals that a child process must know, and
//! connections that are gone.

use crate::{
    args,
    support::{Client, Reply, SOON, Server, wait_until},
};

/// Sends these commands in one write. None of them fails.
#[track_caller]
fn send_all(client: &mut Client, calls: &[Vec<Vec<u8>>]) {
    for reply in client.pipeline(calls) {
        reply.ok();
    }
}

#[test]
fn unblock_does_not_end_the_call_of_another_client() {
    let server = Server::start();
    server.ask("DFAIR.ACQUIRE busy A").int();
    server.ask("DLOCK.ACQUIRE x A").int();
    let mut v = server.client();
    let calls: Vec<Vec<Vec<u8>>> = (0..30_000)
        .map(|n| args!["DLOCK.ACQUIRE", format!("b{n}"), "v", "BIND", "60000"])
        .collect();
    send_all(&mut v, &calls);
    let id = v.id().to_string();
    v.send(&["DFAIR.ACQUIRE", "busy", "v", "BLOCK", "0"]);
    server.wait_blocked(1);
    drop(v);
    wait_until("the end of the blocked call", || server.blocked_clients() == 0);
    assert_eq!(server.ask("DFAIR.CANCEL busy v").int(), 1);
    let mut other = server.wait("DLOCK.ACQUIRE x B BLOCK 0");
    assert_eq!(server.cmd(&["DLOCK.UNBLOCK", &id, "ERROR"]).int(), 0);
    other.assert_no_reply();
    server.ask("DLOCK.RELEASE x A").ok();
    other.expect_reply(SOON).int();
    server.ask("FLUSHALL").ok();
    other.hang_up();
    server.left_over_check();
}

#[test]
fn the_last_count_of_a_hold_ends_with_a_grant_that_could_not_be_sent() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE b X").int();
    server.ask("DLOCK.ACQUIRE a o").int();
    let mut waiting = server.wait("DLOCK.MACQUIRE 2 a b o BLOCK 0");
    let id = waiting.id().to_string();
    let calls = [
        args!["MULTI"],
        args!["DLOCK.RELEASE", "b", "X"],
        args!["DLOCK.RELEASE", "a", "o"],
        args!["CLIENT", "KILL", "ID", id],
        args!["EXEC"],
    ];
    send_all(&mut server.client(), &calls);
    waiting.expect_closed_without_reply();
    wait_until("the grants to be taken back", || server.keys() == 0);
    server.left_over_check();
}

#[test]
fn a_cycle_that_closes_right_after_a_large_flush_is_found() {
    let server = Server::start();
    let names = (0..200_000).map(|n| format!("many{n}").into_bytes());
    let call = [b"DLOCK.MACQUIRE".to_vec(), b"200000".to_vec()].into_iter().chain(names);
    server.cmd(&call.chain([b"Z".to_vec()]).collect::<Vec<_>>()).ok();
    let [mut a, mut b, mut c] = [server.client(), server.client(), server.client()];
    let calls = [
        args!["FLUSHALL"],
        args!["DLOCK.ACQUIRE", "k1", "A"],
        args!["DLOCK.ACQUIRE", "k2", "B"],
        args!["DLOCK.ACQUIRE", "k3", "C"],
    ];
    send_all(&mut c, &calls);
    a.send(&["DLOCK.ACQUIRE", "k2", "A", "BLOCK", "0"]);
    server.wait_blocked(1);
    b.send(&["DLOCK.ACQUIRE", "k3", "B", "BLOCK", "0"]);
    server.wait_blocked(2);
    let refusal = c.cmd(&["DLOCK.ACQUIRE", "k1", "C", "BLOCK", "0"]).error();
    assert!(refusal.starts_with("DEADLOCK "), "{refusal}");
    drop((a, b));
    server.ask("FLUSHALL").ok();
    server.left_over_check();
}
