//! Rules common to the read-write lock, the semaphore and the latch, each with its waits.

use crate::{
    args,
    looks::{queue, rw, sem},
    scripts::{FOREIGN, call_by, with_function},
    support::{Blocked, Client, Reply, SOON, Server, wait_until, words},
};

/// Blocks every call of [`WAITS`].
const HELD: [&str; 3] = ["DRW.ACQUIRE k h WRITE", "DSEM.INIT s 1", "DLATCH.INIT l 1"];
/// Calls that then wait, each without its last argument: the timeout.
pub const WAITS: [(&str, &str); 5] = [
    ("DRW", "DRW.ACQUIRE k a READ BLOCK"),
    ("DRW", "DRW.ACQUIRE k b WRITE BLOCK"),
    ("DSEM", "DSEM.ACQUIRE s a BLOCK"),
    ("DSEM", "DSEM.TAKE s BLOCK"),
    ("DLATCH", "DLATCH.AWAIT l BLOCK"),
];

/// An owner holds all three.
pub fn hold(server: &Server) {
    for call in HELD {
        assert!(server.ask(call).int() > 0, "{call}");
    }
    assert_eq!(server.cmd(&["DSEM.TAKE", "s"]).int(), 1);
}

/// Ends all holds.
pub fn let_go(server: &Server) {
    server.cmd(&["DEL", "k", "s", "l"]).ok();
    server.left_over_check();
}

#[test]
fn a_script_does_not_wait_and_has_no_connection() {
    let server = with_function();
    hold(&server);
    for how in FOREIGN {
        println!("{how}");
        let mut client = server.client();
        for (_, call) in WAITS {
            for block in ["0", "1000"] {
                let reply = call_by(how, &mut client, &format!("{call} {block}"));
                assert!(reply.is_null(), "{call} {block}: {}", reply.show());
            }
        }
        let id = server.cmd(&["DSEM.ACQUIRE", "t", "a", "LIMIT", "1"]).text();
        for (call, option) in [
            ("DRW.ACQUIRE k x READ QUEUE 1000", "QUEUE"),
            ("DRW.ACQUIRE k x WRITE QUEUE 1000 BLOCK 0", "QUEUE"),
            ("DRW.ACQUIRE free x WRITE BIND 0", "BIND"),
            ("DRW.RENEW k h WRITE BIND 0", "BIND"),
            ("DSEM.ACQUIRE s x QUEUE 1000", "QUEUE"),
            ("DSEM.ACQUIRE free x LIMIT 1 BIND 0", "BIND"),
            (&format!("DSEM.RENEW t {id} BIND 0"), "BIND"),
        ] {
            let refusal = call_by(how, &mut client, call).error();
            let wanted = format!("ERR {option} cannot be used in a script");
            assert!(refusal.starts_with(&wanted), "{call}: {refusal}");
        }
        // Commands without a connection work as usual, including the hand-off.
        let mut waiters: Vec<Blocked> =
            WAITS.map(|(_, call)| server.wait(&format!("{call} 0"))).into();
        assert_eq!(call_by(how, &mut client, "DRW.RELEASE k h WRITE").int(), 0);
        assert_eq!(call_by(how, &mut client, "DSEM.RESIZE s 3").int(), 0);
        assert_eq!(call_by(how, &mut client, "DLATCH.COUNTDOWN l").int(), 0);
        assert_eq!(sem(&server, "s"), "0 of 3 (1 leased, 2 taken)");
        for at in [0, 2, 3, 4] {
            waiters[at].expect_reply(SOON).ok();
        }
        assert_eq!(rw(&server, "k"), "read a*1; waits b");
        assert_eq!(call_by(how, &mut client, "DRW.RELEASE k a READ").int(), 0);
        waiters[1].expect_reply(SOON).int();
        server.cmd(&["DEL", "t", "k", "s", "l"]).ok();
        hold(&server);
    }
    let read = "return redis.call(unpack(ARGV))";
    for call in ["DLATCH.AWAIT l BLOCK 0", "DRW.POSITION k h", "DSEM.INFO s"] {
        let call = [&["EVAL_RO", read, "1", "k"], &words(call)[..]].concat();
        server.cmd(&call).ok();
    }
    for call in ["DLATCH.COUNTDOWN l", "DRW.RELEASE k h WRITE", "DSEM.GIVE s"] {
        let call = [&["EVAL_RO", read, "1", "k"], &words(call)[..]].concat();
        let refusal = server.cmd(&call).error();
        assert!(refusal.starts_with("ERR "), "{refusal}");
    }
    let_go(&server);
}

#[test]
fn a_transaction_does_not_wait_but_has_a_connection() {
    let server = Server::start();
    hold(&server);
    let mut client = server.client();
    let id = i64::try_from(client.id()).unwrap();
    let calls: Vec<String> = WAITS
        .map(|(_, call)| format!("{call} 0"))
        .into_iter()
        .chain([
            "DRW.ACQUIRE k x READ BLOCK 0 QUEUE 60000".to_owned(),
            "DSEM.ACQUIRE s x QUEUE 60000".to_owned(),
            "DRW.ACQUIRE free x WRITE BLOCK 0 BIND 0".to_owned(),
            "DSEM.ACQUIRE new x LIMIT 1 BIND 0".to_owned(),
        ])
        .collect();
    let mut all = vec![vec!["MULTI"]];
    all.extend(calls.iter().map(|call| words(call)));
    all.push(vec!["EXEC"]);
    let replies = client.pipeline(&all).pop().unwrap().items();
    for (call, reply) in calls.iter().zip(&replies).take(7) {
        assert!(reply.is_null(), "{call}: {}", reply.show());
    }
    assert!(replies[7].int() > 0 && !replies[8].text().is_empty());
    assert_eq!(server.cmd(&["DRW.INFO", "free"]).field("writer").field("bound-client").int(), id);
    assert_eq!(server.cmd(&["DSEM.PERMITS", "new"]).items()[0].field("bound-client").int(), id);
    for (family, key) in [("DRW", "k"), ("DSEM", "s")] {
        assert_eq!(queue(&server, family, key), ["x"]);
        let call = format!("{family}.WAITERS");
        assert_eq!(server.cmd(&[&call, key]).items()[0].field("client-id").int(), id);
    }
    drop(client);
    wait_until("the ties to be cut", || server.cmd(&["EXISTS", "free", "new"]).int() == 0);
    for call in ["DRW.RELEASE k x READ", "DSEM.RELEASE s x ALL"] {
        assert!(server.ask(call).is_null(), "{call}");
    }
    let_go(&server);
}

#[test]
fn there_may_be_so_many_waiters_and_no_more() {
    let server = Server::with(&["dlock.max-waiters-per-key", "2"]).start();
    hold(&server);
    for (family, call) in WAITS {
        let key = words(call)[1];
        let wait = |owner: &str| {
            // Calls with an owner get different owners.
            let mut call: Vec<String> = words(call).into_iter().map(str::to_owned).collect();
            if call[2] != "BLOCK" {
                call[2] = owner.to_owned();
            }
            call.push("0".to_owned());
            call
        };
        let waiting = ["1", "2"].map(|owner| server.block(&wait(owner)));
        let refusal = server.cmd(&wait("3")).error();
        assert_eq!(refusal, "LIMIT 2 callers wait already (dlock.max-waiters-per-key)", "{call}");
        drop(waiting);
        wait_until("the places to go", || queue(&server, family, key).is_empty());
    }
    server.cmd(&["CONFIG", "SET", "dlock.max-waiters", "0"]).ok();
    for (_, call) in WAITS {
        let refusal = server.ask(&format!("{call} 0")).error();
        assert!(refusal.starts_with("LIMIT "), "{call}: {refusal}");
    }
    let_go(&server);
}

#[test]
fn keyspace_events_report_each_change() {
    let server = Server::with(&["notify-keyspace-events", "Ed"]).start();
    let mut events = server.psubscribe(&["__key*__:*"]);
    let mut client = server.client();
    let mut permit = String::new();
    for (call, happened) in [
        ("DRW.ACQUIRE k a READ", &["acquire"][..]),
        ("DRW.ACQUIRE k a READ", &["acquire"]),
        ("DRW.ACQUIRE k a READ REQID 1", &["acquire"]),
        ("DRW.ACQUIRE k a READ REQID 1", &[]),
        ("DRW.ACQUIRE k b WRITE", &[]),
        ("DRW.ACQUIRE k b WRITE QUEUE 60000", &["wait"]),
        ("DRW.RENEW k a READ", &[]),
        ("DRW.INFO k", &[]),
        ("DRW.RELEASE k a READ", &["release"]),
        ("DRW.RELEASE k a READ ALL", &["release", "acquire"]),
        ("DRW.ACQUIRE k c READ QUEUE 60000", &["wait"]),
        ("DRW.ACQUIRE k d READ QUEUE 2000 PX 2000", &["wait"]),
        ("DRW.BREAK k", &["break", "acquire", "acquire"]),
        ("DRW.RELEASE k c READ", &["release"]),
        // The grant to d expires.
        ("DRW.INFO k", &["expire"]),
        ("DSEM.ACQUIRE k a LIMIT 2 PX 60000", &["acquire"]),
        ("DSEM.ACQUIRE k b COUNT 2", &[]),
        ("DSEM.ACQUIRE k b COUNT 2 QUEUE 60000", &["wait"]),
        ("DSEM.INFO k", &[]),
        ("DSEM.RELEASE k $p", &["release", "acquire"]),
        ("DSEM.RELEASE k b ALL", &["release"]),
        ("DSEM.ACQUIRE k a LIMIT 1", &["acquire"]),
        ("DSEM.BREAK k $p", &["break"]),
        ("DSEM.ACQUIRE k a LIMIT 1 PX 1", &["acquire", "expire"]),
    ] {
        println!("{call}");
        let reply = client.cmd(&words(&call.replace("$p", &permit))).ok();
        if let redis::Value::BulkString(_) = &reply {
            permit = reply.text();
        }
        for event in happened {
            let (channel, key) = events.next();
            assert_eq!((channel, key), (format!("__keyevent@0__:dlock.{event}"), b"k".to_vec()));
        }
        server.cmd(&["PING"]).ok();
        events.assert_none();
    }
    // Class d only: with the class off none of them is sent, and the removal of the key sends no `del`.
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "KEg$lshzxe"]).ok();
    for call in [
        "DRW.ACQUIRE k a READ",
        "DRW.RELEASE k a READ",
        "DSEM.ACQUIRE k a LIMIT 1",
        "DSEM.BREAK k $p",
        "DLATCH.INIT k 1",
        "DLATCH.COUNTDOWN k",
    ] {
        let reply = client.cmd(&words(&call.replace("$p", &permit))).ok();
        if let redis::Value::BulkString(_) = &reply {
            permit = reply.text();
        }
    }
    server.cmd(&["PING"]).ok();
    events.assert_none();
    server.left_over_check();
}

#[test]
fn one_connection_waits_for_many_keys_of_every_family() {
    const KEYS: usize = 200;
    let server = Server::start();
    let (mut holder, mut waiter) = (server.client(), server.client());
    let calls = |verb: fn(usize) -> Vec<Vec<u8>>| (0..KEYS).map(verb).collect::<Vec<_>>();
    let ask = |client: &mut Client, calls: &[Vec<Vec<u8>>]| client.pipeline(calls);
    ask(&mut holder, &calls(|n| args!["DRW.ACQUIRE", format!("k{n}"), "a", "WRITE"]));
    ask(&mut holder, &calls(|n| args!["DSEM.INIT", format!("s{n}"), 1]));
    ask(&mut holder, &calls(|n| args!["DSEM.TAKE", format!("s{n}")]));
    let reads = calls(|n| args!["DRW.ACQUIRE", format!("k{n}"), "b", "READ", "QUEUE", 60_000]);
    let permits = calls(|n| args!["DSEM.ACQUIRE", format!("s{n}"), "b", "QUEUE", 60_000]);
    for wish in [&reads, &permits] {
        assert!(ask(&mut waiter, wish).iter().all(Reply::is_null));
    }
    assert_eq!(server.info_number("dlock", "waiters_queued"), 400);
    ask(&mut holder, &calls(|n| args!["DRW.RELEASE", format!("k{n}"), "a", "WRITE"]));
    ask(&mut holder, &calls(|n| args!["DSEM.GIVE", format!("s{n}")]));
    let info = server.info("dlock");
    assert_eq!((info["held_locks"].as_str(), info["leased_permits"].as_str()), ("200", "200"));
    assert!(ask(&mut waiter, &reads).iter().all(|token| token.int() > 0));
    assert!(ask(&mut waiter, &permits).iter().all(|id| id.text().len() == 36));
    assert_eq!(server.info_number("dlock", "unclaimed"), 0);
    holder.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}
