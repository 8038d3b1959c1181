//! Calls from scripts, functions and transactions, with a holder and with waiters, blocked and queued.

use std::time::{Duration, Instant};

use redis::Value;

use crate::{
    args,
    scene::{Scene, assert_prompt, assert_silent},
    support::{Client, Family, Heard, LIMIT, Reply, SOON, Server, wait_until},
    test_both_families,
};

test_both_families! {
    a_transaction_does_not_wait_but_has_a_connection
    every_release_in_a_transaction_hands_on
}

/// Runs for half a second, then executes its arguments. Not every server has a clock for scripts: the script reads
/// how long the lock `clock` has been held. The server polls its sockets after a number of instructions, hence the
/// loop.
const BUSY: &str = "
    local function ms() return redis.call('DLOCK.INFO', 'clock')[14] end
    local from = ms()
    while ms() < from + 500 do for _ = 1, 10000 do end end
    return redis.call(unpack(ARGV))";

#[test]
fn timed_events_during_a_script_happen_at_its_end() {
    // Once a second the server would check everything anyway.
    let server =
        Server::with(&["busy-reply-threshold", "20", "hz", "1", "dynamic-hz", "no"]).start();
    let mut was_busy = false;
    assert_prompt(|| {
        server.cmd(&["DLOCK.ACQUIRE", "clock", "h"]).int();
        server.cmd(&["DLOCK.ACQUIRE", "other", "h"]).int();
        let mut scene = Scene::set_with_lease(&server, "k", 300);
        let (mut curious, mut script) = (server.client(), server.client());
        let mut patient = server.client();
        patient.send(&["DLOCK.ACQUIRE", "other", "patient", "BLOCK", "300"]);
        scene.holder.cmd(&["DLOCK.RENEW", "k", "h"]).int();

        script.send(&["EVAL", BUSY, "1", "unrelated", "SET", "unrelated", "v"]);
        // During the script the server polls its sockets, including the module's alarm.
        while script.hear(Duration::ZERO) == Heard::Nothing {
            curious.send(&["PING"]);
            let answer = curious.reply(LIMIT);
            was_busy |=
                matches!(&answer, Value::ServerError(_) if answer.error().starts_with("BUSY "));
        }
        let end = Instant::now();
        assert!(patient.reply(SOON).is_null());
        let token = scene.first.reply(SOON).int();
        let late = end.elapsed();
        assert!(token > scene.token);
        assert_eq!(scene.messages.next_text(), scene.message("expired"));
        server.cmd(&["DEL", "unrelated", "clock", "other"]).ok();
        scene.play_out(token);
        late
    });
    assert!(was_busy, "the server never looked at its sockets during the script");
}

#[test]
fn a_lease_that_ends_during_a_script_is_over_in_it() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "clock", "h"]).int();
    let mut scene = Scene::set_with_lease(&server, "k", 400);
    let token = scene.token.to_string();
    let late = server.cmd(&["EVAL", BUSY, "1", "k", "DLOCK.CHECK", "k", &token]).error();
    assert!(late.starts_with("STALE "), "{late}");
    let token = scene.first_is_granted();
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    scene.take_turns(token);

    let mut scene = Scene::set_with_lease(&server, "k", 400);
    assert!(server.cmd(&["EVAL", BUSY, "1", "k", "DLOCK.ACQUIRE", "k", "barger"]).is_null());
    let token = scene.first_is_granted();
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    server.cmd(&["DEL", "clock"]).ok();
    scene.play_out(token);
}

#[test]
fn check_stops_a_script_unless_the_token_is_current() {
    const WRITE: &str =
        "redis.call('DLOCK.CHECK', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1]) return 1";
    let server = Server::start();
    let mut scene = Scene::set(&server, "k");
    let write = |token: i64| server.cmd(&args!["EVAL", WRITE, 2, "k", "guarded", token]);
    let written = || server.cmd(&["GET", "guarded"]);
    for wrong in [scene.token - 1, scene.token + 1, 1] {
        assert!(write(wrong).error().starts_with("STALE "));
        assert!(written().is_null());
    }
    assert_eq!(write(scene.token).int(), 1);
    assert_eq!(written().text(), scene.token.to_string());
    scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int();
    let token = scene.first_is_granted();
    assert!(write(scene.token).error().starts_with("STALE "));
    assert_eq!(write(token).int(), 1);
    server.cmd(&["DEL", "guarded"]).ok();
    scene.play_out(token);
}

/// Ways of a call whose connection is unknown.
pub const FOREIGN: [&str; 3] = ["EVAL", "FCALL", "EVAL in MULTI"];

/// Makes `call`, which names key `k`, in that way.
#[track_caller]
pub fn call_by(how: &str, client: &mut Client, call: &str) -> Value {
    let script = if how == "FCALL" {
        ["FCALL", "run", "1", "k"]
    } else {
        ["EVAL", "return redis.call(unpack(ARGV))", "1", "k"]
    };
    let script: Vec<&str> = script.into_iter().chain(call.split(' ')).collect();
    if how == "EVAL in MULTI" {
        let script = script.iter().map(|word| word.as_bytes().to_vec()).collect();
        let replies = client.pipeline(&[args!["MULTI"], script, args!["EXEC"]]);
        return replies[2].items()[0].clone();
    }
    client.cmd(&script)
}

/// A server with the function that [`call_by`] calls.
pub fn with_function() -> Server {
    let server = Server::start();
    let library = "#!lua name=lib\nredis.register_function('run', function(keys, args) return redis.call(unpack(args)) end)";
    server.cmd(&["FUNCTION", "LOAD", library]).ok();
    server
}

#[test]
fn a_script_does_not_wait_and_has_no_connection() {
    let server = with_function();
    for how in FOREIGN {
        println!("{how}");
        let mut scene = Scene::set(&server, "k");
        let mut client = server.client();
        assert!(call_by(how, &mut client, "DLOCK.ACQUIRE k x BLOCK 0").is_null());
        assert!(call_by(how, &mut client, "DLOCK.ACQUIRE k x BLOCK 1000 REQID r").is_null());
        for (call, option) in [
            ("DLOCK.ACQUIRE k x QUEUE 1000", "QUEUE"),
            ("DLOCK.ACQUIRE k x QUEUE 1000 BLOCK 0", "QUEUE"),
            ("DLOCK.ACQUIRE k x BIND 0", "BIND"),
            ("DLOCK.ACQUIRE k h BIND 0", "BIND"),
            ("DLOCK.RENEW k h BIND 0", "BIND"),
        ] {
            let refusal = call_by(how, &mut client, call).error();
            let wanted = format!("ERR {option} cannot be used in a script");
            assert!(refusal.starts_with(&wanted), "{call}: {refusal}");
        }
        scene.assert_all_wait();
        // Commands without a connection work as usual: re-entry, renewal, release and hand-off.
        assert_eq!(call_by(how, &mut client, "DLOCK.ACQUIRE k h BLOCK 0").int(), scene.token);
        assert_eq!(call_by(how, &mut client, "DLOCK.RENEW k h PX 60000").int(), scene.token);
        let info = scene.holder.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!((info.field("holds").int(), info.field("bound-client").int()), (2, 0));
        assert_eq!(call_by(how, &mut client, "DLOCK.RELEASE k h ALL").int(), 0);
        let token = scene.first_is_granted();
        drop(client);
        scene.play_out(token);
    }
}

#[test]
fn a_script_cannot_end_anybodys_call() {
    let server = with_function();
    for how in FOREIGN {
        let mut scene = Scene::set(&server, "k");
        let call = format!("DLOCK.UNBLOCK {}", scene.first.id());
        call_by(how, &mut server.client(), &call).error();
        scene.assert_all_wait();
        scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int();
        let token = scene.first_is_granted();
        scene.play_out(token);
    }
}

#[test]
fn a_script_that_may_only_read_reads() {
    let server = Server::start();
    let mut scene = Scene::set(&server, "k");
    let read = "return redis.call(unpack(ARGV))";
    let refusal = server.cmd(&["EVAL_RO", read, "1", "k", "DLOCK.RELEASE", "k", "h"]).error();
    assert!(refusal.starts_with("ERR "), "{refusal}");
    assert_eq!(server.cmd(&["EVAL_RO", read, "1", "k", "DLOCK.POSITION", "k", "last"]).int(), 3);
    scene.assert_all_wait();
    scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int();
    let token = scene.first_is_granted();
    scene.play_out(token);
}

fn a_transaction_does_not_wait_but_has_a_connection(family: Family) {
    let server = family.start();
    let mut scene = Scene::set(&server, "k");
    let mut client = server.client();
    let id = i64::try_from(client.id()).expect("a small number");
    let replies = client.pipeline(&[
        args!["MULTI"],
        args!["DLOCK.ACQUIRE", "k", "x", "BLOCK", 0],
        args!["DLOCK.POSITION", "k", "x"],
        args!["DLOCK.ACQUIRE", "k", "x", "BLOCK", 0, "QUEUE", 60_000],
        args!["DLOCK.POSITION", "k", "x"],
        args!["DLOCK.ACQUIRE", "l", "x", "BLOCK", 0, "BIND", 0],
        args!["DLOCK.ACQUIRE", "m", "x", "BIND", 0],
        args!["DLOCK.RENEW", "m", "x", "BIND", 0],
        args!["EXEC"],
    ]);
    let replies = replies.last().expect("nine").items();
    let shown: Vec<String> = replies.iter().map(Reply::show).collect();
    assert!(replies[0].is_null() && replies[1].is_null() && replies[2].is_null(), "{shown:?}");
    assert_eq!(replies[3].int(), 4);
    assert_eq!(replies[5], replies[6]);
    for key in ["l", "m"] {
        assert_eq!(server.cmd(&["DLOCK.INFO", key]).field("bound-client").int(), id);
    }
    assert_eq!(server.cmd(&["DLOCK.WAITERS", "k"]).items()[3].field("client-id").int(), id);
    // The connection loses its holds at once, its place later; another connection may take the place over.
    drop(client);
    wait_until("the ties to be cut", || server.cmd(&["EXISTS", "l", "m"]).int() == 0);
    assert!(server.cmd(&["DLOCK.RELEASE", "k", "x"]).is_null());
    assert_silent(&server, &mut scene.first);
    assert_eq!(scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    let token = scene.first_is_granted();
    scene.play_out(token);
}

/// A lock that is handed off several times within one transaction, each time to the first waiter.
fn every_release_in_a_transaction_hands_on(family: Family) {
    let server = family.start();
    let mut scene = Scene::set(&server, "k");
    let replies = server.client().pipeline(&[
        args!["MULTI"],
        args!["DLOCK.RELEASE", "k", "h"],
        args!["DLOCK.BREAK", "k"],
        args!["DLOCK.RELEASE", "k", "queued"],
        args!["DLOCK.POSITION", "k", "last"],
        args!["EXEC"],
    ]);
    let replies: Vec<i64> = replies[5].items().iter().map(Reply::int).collect();
    assert_eq!(replies, [0, 1, 0, 0]);
    let first = scene.first.reply(SOON).int();
    let last = scene.last.reply(SOON).int();
    assert!(scene.token < first && first < last);
    assert!(scene.messages.next_text().starts_with("granted 0 "));
    assert_eq!(scene.first.hear(Duration::ZERO), Heard::Nothing);
    scene.last.cmd(&["DLOCK.RELEASE", "k", "last"]).int();
    scene.messages.assert_none();
    server.left_over_check();
}
