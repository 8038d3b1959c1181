//! What the server reports late: removed values that were never indexed, removals that a child process must know, and
//! connections that are gone.

use crate::{
    args,
    requests::refused,
    support::{Client, Reply, SOON, Server, wait_until},
};

/// Sends these commands in one write. None of them fails.
#[track_caller]
fn send_all(client: &mut Client, calls: &[Vec<Vec<u8>>]) {
    for reply in client.pipeline(calls) {
        reply.ok();
    }
}

/// Holds `count` locks of `owner`, named `prefix` and a number, each by a request of its own id.
fn hold_many(server: &Server, prefix: &str, owner: &str, count: usize, more: &[&str]) {
    let call = |n: usize| {
        let (key, id) = (format!("{prefix}{n}"), format!("r{n}"));
        let call = args!["DLOCK.ACQUIRE", key, owner, "REQID", id];
        call.into_iter().chain(more.iter().map(|arg| arg.as_bytes().to_vec())).collect()
    };
    let calls: Vec<Vec<Vec<u8>>> = (0..count).map(call).collect();
    send_all(&mut server.client(), &calls);
}

/// The command for all of these keys.
fn for_all(command: &str, prefix: &str, count: usize) -> Vec<Vec<u8>> {
    let names = (0..count).map(|n| format!("{prefix}{n}").into_bytes());
    [command.as_bytes().to_vec()].into_iter().chain(names).collect()
}

/// Number of late copies of the requests of [`hold_many`] that are granted.
fn granted_copies(server: &Server, prefix: &str, owner: &str, count: usize) -> usize {
    let copy =
        |n: usize| args!["DLOCK.ACQUIRE", format!("{prefix}{n}"), owner, "REQID", format!("r{n}")];
    let copies: Vec<Vec<Vec<u8>>> = (0..count).map(copy).collect();
    let replies = server.client().pipeline(&copies);
    replies.into_iter().filter(|reply| !format!("{reply:?}").contains("SPENT")).count()
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
    assert!(server.ask("DFAIR.RELEASE busy v").is_null());
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
fn the_requests_of_loaded_values_are_over_when_they_are_removed_at_once() {
    let server = Server::start();
    for prefix in ["del", "over", "rename", "lapse"] {
        hold_many(&server, prefix, "o", 200, &["PX", "600000"]);
    }
    server.ask("DLOCK.ACQUIRE moved o REQID r").int();
    server.ask("SET string v").ok();
    let mut calls = vec![args!["MULTI"], args!["DEBUG", "RELOAD"], for_all("DEL", "del", 200)];
    for n in 0..200 {
        calls.push(args!["SET", format!("over{n}"), "v"]);
        calls.push(args!["DEL", format!("over{n}")]);
        calls.push(args!["PEXPIREAT", format!("lapse{n}"), "1"]);
        calls.push(args!["SET", "string", "v"]);
        calls.push(args!["RENAME", "string", format!("rename{n}")]);
        calls.push(args!["DEL", format!("rename{n}")]);
    }
    calls.push(args!["RENAME", "moved", "there"]);
    calls.push(args!["EXEC"]);
    send_all(&mut server.client(), &calls);
    for prefix in ["del", "over", "rename", "lapse"] {
        assert_eq!(granted_copies(&server, prefix, "o", 200), 0, "{prefix}");
    }
    // This one lives on, so its request is not over.
    server.ask("DLOCK.ACQUIRE there o REQID r").int();
    server.ask("DLOCK.ACQUIRE moved o REQID r").int();
    server.ask("FLUSHALL").ok();
    server.left_over_check();
}

#[test]
fn the_requests_of_values_removed_right_after_a_full_synchronization_are_over() {
    let mut primary = Server::start();
    hold_many(&primary, "k", "o", 20_000, &["PX", "600000"]);
    let replica = Server::with(&[]).replica_of(&primary).start();
    primary.cmd(&for_all("DEL", "k", 20_000)).ok();
    crate::requests::fail_over(&mut primary, &replica);
    assert_eq!(granted_copies(&replica, "k", "o", 20_000), 0);
    replica.left_over_check();
}

#[test]
fn a_child_process_saves_the_requests_of_values_removed_in_the_same_turn() {
    let mut server = Server::start();
    hold_many(&server, "k", "o", 100, &["PX", "600000"]);
    server.ask("DLOCK.ACQUIRE from o REQID r").int();
    server.ask("DLOCK.ACQUIRE away o REQID r").int();
    let calls = [
        for_all("DEL", "k", 100),
        args!["RENAME", "from", "to"],
        args!["MOVE", "away", "1"],
        args!["BGSAVE"],
    ];
    send_all(&mut server.client(), &calls);
    wait_until("the end of the save", || {
        server.info_number("persistence", "rdb_bgsave_in_progress") == 0
    });
    server.kill9();
    server.start_again();
    assert_eq!(granted_copies(&server, "k", "o", 100), 0);
    // These live on under another name.
    for name in ["from", "away", "to"] {
        server.cmd(&["DLOCK.ACQUIRE", name, "o", "REQID", "r"]).int();
    }
    server.ask("FLUSHALL").ok();
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
fn a_place_made_by_the_command_that_finds_the_time_to_live_over_stays() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    primary.ask("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    primary.ask("DFAIR.ACQUIRE k A REQID r").int();
    let mut b = primary.wait("DFAIR.ACQUIRE k B BLOCK 0");
    let mut c = primary.client();
    // Its time is over when the last command opens it, and no other has.
    let calls = [
        args!["PEXPIRE", "k", "1"],
        args!["DEBUG", "SLEEP", "0.02"],
        args!["DFAIR.ACQUIRE", "k", "C", "QUEUE", "60000"],
    ];
    assert!(c.pipeline(&calls)[2].is_null());
    b.expect_reply(SOON).int();
    assert_eq!(primary.ask("DFAIR.POSITION k C").int(), 1);
    refused(&primary, "DFAIR.ACQUIRE k A REQID r", "SPENT");
    primary.wait_replica_synced(&replica);
    assert_eq!(primary.digest(), replica.digest());
    primary.ask("DFAIR.RELEASE k C").ok();
    primary.ask("DFAIR.RELEASE k B").ok();
    primary.left_over_check();
}

#[test]
fn a_replica_remembers_no_request_of_a_renamed_hold() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    for n in 0..20 {
        primary.cmd(&["DLOCK.ACQUIRE", "from", "o", "REQID", "r"]).int();
        let to = format!("to{n}");
        let calls = [
            args!["MULTI"],
            args!["RENAME", "from", to],
            args!["DLOCK.RENEW", to, "o"],
            args!["EXEC"],
        ];
        send_all(&mut primary.client(), &calls);
    }
    primary.wait_replica_synced(&replica);
    assert_eq!(primary.info_number("dlock", "requests_remembered"), 0);
    assert_eq!(replica.info_number("dlock", "requests_remembered"), 0);
    primary.ask("FLUSHALL").ok();
    primary.left_over_check();
}

#[test]
fn a_cycle_that_closes_right_after_a_large_flush_is_found() {
    let server = Server::with(&["dlock.max-keys-per-call", "262144"]).start();
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

#[test]
fn a_latch_that_was_opened_is_open_after_a_load() {
    let mut server = Server::with(&["appendonly", "yes", "appendfsync", "always"]).start();
    let mut calls = vec![args!["DLATCH.INIT", "k", "1"], args!["DEL", "k"]];
    for n in 0..100 {
        calls.push(args!["DLOCK.ACQUIRE", format!("l{n}"), "o"]);
        calls.push(args!["DEL", format!("l{n}")]);
    }
    calls.push(args!["DLATCH.INIT", "k", "1"]);
    calls.push(args!["DLATCH.COUNTDOWN", "k"]);
    calls.push(args!["DLATCH.INIT", "lost", "1"]);
    calls.push(args!["DEL", "lost"]);
    send_all(&mut server.client(), &calls);
    server.kill9();
    server.start_again();
    assert_eq!(server.ask("DLATCH.AWAIT k").int(), 1);
    refused(&server, "DLATCH.AWAIT lost", "BROKEN");
    server.left_over_check();
}

#[test]
fn the_await_that_finds_the_time_to_live_of_a_latch_over_gets_broken() {
    let server = Server::start();
    server.ask("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    server.ask("DLATCH.INIT k 1").int();
    let calls =
        [args!["PEXPIRE", "k", "1"], args!["DEBUG", "SLEEP", "0.02"], args!["DLATCH.AWAIT", "k"]];
    let replies = server.client().pipeline(&calls);
    assert!(format!("{:?}", replies[2]).contains("BROKEN"), "{:?}", replies[2]);
    server.left_over_check();
}

#[test]
fn a_latch_that_is_lost_while_the_server_refuses_writes_is_broken() {
    let server = Server::start();
    server.ask("DLATCH.INIT k 1").int();
    server.ask("PEXPIRE k 50").int();
    server.ask("CONFIG SET min-replicas-to-write 1").ok();
    wait_until("the end of the key", || server.keys() == 0);
    refused(&server, "DLATCH.AWAIT k", "BROKEN");
    server.ask("CONFIG SET min-replicas-to-write 0").ok();
    server.left_over_check();
}
