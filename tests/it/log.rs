//! DLOCK.LOG: who lost a lock, and who waited long.

use dlock_wire::reply::{LogEntry, LogEvent, LogToken, Shape, Value as Words};
use redis::Value;

use crate::{
    args,
    commands::user,
    support::{Kind, Reply, SOON, Server, wait_until},
};

/// A reply in the form that the typed reader takes.
fn as_words(value: &Value) -> Words {
    match value {
        Value::Int(number) => Words::Int(*number),
        Value::BulkString(bytes) => Words::Bytes(bytes.clone()),
        Value::Array(items) => Words::Array(items.iter().map(as_words).collect()),
        Value::Map(pairs) => Words::Map(
            pairs.iter().map(|(name, value)| (as_words(name), as_words(value))).collect(),
        ),
        other => panic!("{other:?}"),
    }
}

/// The entries, newest first.
fn entries(server: &Server) -> Vec<LogEntry> {
    let reply = server.client3().cmd(&["DLOCK.LOG", "GET", "-1"]);
    Vec::read("DLOCK.LOG", as_words(&reply)).expect("entries")
}

fn set(server: &Server, name: &str, value: &str) {
    server.cmd(&["CONFIG", "SET", name, value]).ok();
}

/// The one entry of `event` says this.
#[track_caller]
fn assert_one(all: &[LogEntry], event: LogEvent, owner: &str, label: &str, token: i64) -> LogEntry {
    let found: Vec<_> = all.iter().filter(|entry| entry.event == event).collect();
    assert_eq!(found.len(), 1, "{event}: {found:#?}");
    let entry = found[0].clone();
    let names = [&entry.owner, &entry.label].map(|bytes| String::from_utf8_lossy(bytes));
    assert_eq!(names, [owner, label], "{event}");
    let token = token.try_into().expect("a token");
    let token = if token == 0 { LogToken::None } else { LogToken::Token(token) };
    assert_eq!(entry.token, token, "{event}");
    entry
}

#[test]
fn every_notable_event_is_logged_once_with_owner_label_and_token() {
    let server = Server::start();
    let acquire = |options: &str| server.ask(&format!("DLOCK.ACQUIRE {options}")).int();
    let release = |options: &str| server.ask(&format!("DLOCK.RELEASE {options}")).ok();

    let expired = acquire("e alice PX 20 LABEL nightly");
    wait_until("the lease to end", || server.cmd(&["EXISTS", "e"]).int() == 0);

    let mut bound = server.client();
    let call = ["DLOCK.ACQUIRE", "d", "bob", "BIND", "0", "LABEL", "import"];
    let disconnected = bound.cmd(&call).int();
    drop(bound);
    wait_until("the hold to end", || server.cmd(&["EXISTS", "d"]).int() == 0);

    let broken = acquire("b carol LABEL stuck");
    assert_eq!(server.cmd(&["DLOCK.BREAK", "b"]).int(), 1);

    let mut poller = server.client();
    acquire("u other");
    assert!(
        poller
            .cmd(&["DLOCK.ACQUIRE", "u", "dave", "QUEUE", "40", "PX", "1", "LABEL", "poll"])
            .is_null()
    );
    release("u other");
    let unclaimed = server.cmd(&["DLOCK.INFO", "u"]).field("token").int();
    wait_until("the grant to lapse", || server.cmd(&["EXISTS", "u"]).int() == 0);

    acquire("x1 erin");
    acquire("x2 frank");
    let waits = server.block(&["DLOCK.ACQUIRE", "x2", "erin", "BLOCK", "0"]);
    let refused = server.cmd(&["DLOCK.ACQUIRE", "x1", "frank", "BLOCK", "0", "LABEL", "transfer"]);
    assert!(refused.error().starts_with("DEADLOCK "));
    waits.hang_up();
    server.wait_blocked(0);

    acquire("s grace REQID r1");
    release("s grace");
    let late = server.ask("DLOCK.ACQUIRE s grace REQID r1 LABEL late");
    assert!(late.error().starts_with("SPENT "));

    set(&server, "dlock.log-wait-ms", "60");
    acquire("w heidi");
    let mut waiter = server.wait("DLOCK.ACQUIRE w ivan BLOCK 0 LABEL report");
    wait_until("the wait to be slow", || {
        server.ask("DLOCK.WAITERS w").items()[0].field("waiting-ms").int() > 60
    });
    release("w heidi");
    let slow = waiter.expect_reply(SOON).int();

    set(&server, "dlock.log-hold-ms", "30");
    let long = acquire("l judy LABEL batch");
    wait_until("the hold to be long", || server.ask("DLOCK.INFO l").field("held-ms").int() > 30);
    release("l judy");

    let all = entries(&server);
    // All but an eviction.
    assert_eq!(all.len(), LogEvent::ALL.len() - 1, "{all:#?}");
    assert!(all.is_sorted_by(|one, next| one.id > next.id && one.time >= next.time));
    let entry = assert_one(&all, LogEvent::Expired, "alice", "nightly", expired);
    assert!(entry.held.as_millis() >= 20 && entry.key == b"e" && entry.db == 0);
    assert_one(&all, LogEvent::Disconnected, "bob", "import", disconnected);
    assert_one(&all, LogEvent::Broken, "carol", "stuck", broken);
    assert_one(&all, LogEvent::Unclaimed, "dave", "poll", unclaimed);
    let entry = assert_one(&all, LogEvent::Deadlock, "frank", "transfer", 0);
    assert_eq!(entry.text, br#""frank" waits for "x1", "erin" waits for "x2""#);
    assert_one(&all, LogEvent::Spent, "grace", "late", 0);
    let entry = assert_one(&all, LogEvent::SlowWait, "ivan", "report", slow);
    assert_eq!(entry.text, br#"granted; last holder: "heidi""#);
    assert!(entry.waited.as_millis() > 60, "{entry:?}");
    let entry = assert_one(&all, LogEvent::LongHold, "judy", "batch", long);
    assert!(entry.held.as_millis() > 30, "{entry:?}");
    let wall = server.cmd(&["TIME"]).items()[0].text().parse::<u64>().expect("seconds");
    assert!(wall.abs_diff(entry.time.as_secs()) < 60, "{entry:?}");
}

#[test]
fn the_ring_keeps_its_length_and_reset_empties_it() {
    let server = Server::start();
    let len = || server.cmd(&["DLOCK.LOG", "LEN"]).int();
    let lose = |key: &str| {
        server.cmd(&["DLOCK.ACQUIRE", key, "me"]).int();
        assert_eq!(server.cmd(&["DLOCK.BREAK", key]).int(), 1);
    };
    set(&server, "dlock.log-max-len", "3");
    for key in 0..10 {
        lose(&format!("k{key}"));
    }
    assert_eq!(len(), 3);
    let keys: Vec<_> = entries(&server).into_iter().map(|entry| (entry.id, entry.key)).collect();
    assert_eq!(keys, [(10, b"k9".to_vec()), (9, b"k8".to_vec()), (8, b"k7".to_vec())]);
    set(&server, "dlock.log-max-len", "1");
    assert_eq!(len(), 1);
    assert_eq!(server.cmd(&["DLOCK.LOG", "RESET"]).text(), "OK");
    assert_eq!((len(), entries(&server)), (0, vec![]));
    lose("k");
    assert_eq!(entries(&server)[0].id, 11);
    set(&server, "dlock.log-max-len", "0");
    lose("k");
    assert_eq!(len(), 0);
    set(&server, "dlock.log-max-len", "20");
    for key in 0..20 {
        lose(&format!("k{key}"));
    }
    assert_eq!(server.cmd(&["DLOCK.LOG", "GET"]).items().len(), 10);
    assert_eq!(server.cmd(&["DLOCK.LOG", "GET", "4"]).items().len(), 4);
    assert_eq!(server.cmd(&["DLOCK.LOG", "GET", "0"]).items().len(), 0);
    assert_eq!(server.cmd(&["DLOCK.LOG", "GET", "-1"]).items().len(), 20);
    // It is no data: neither a flush nor a reload of the data changes it, and a restart empties it.
    server.cmd(&["FLUSHALL"]).ok();
    assert_eq!(len(), 20);
}

#[test]
fn a_user_who_may_not_use_dangerous_commands_cannot_read_the_log() {
    let server = Server::start();
    let mut client = user(&server, &["~*", "&*", "+@all", "-@dangerous"]);
    let reply = client.cmd(&["DLOCK.LOG", "LEN"]);
    if Kind::of_binary().has_module_acl_categories() {
        assert!(reply.error().starts_with("NOPERM "));
    } else {
        // Before Redis 7.2 the commands of modules are in no category.
        assert_eq!(reply.int(), 0);
    }
    let mut client = user(&server, &["~*", "&*", "+@all", "-dlock.log"]);
    for call in [&["DLOCK.LOG", "GET"][..], &["DLOCK.LOG", "RESET"]] {
        assert!(client.cmd(call).error().starts_with("NOPERM "));
    }
}

#[test]
fn hostile_names_come_as_raw_bytes_and_quoted_in_texts() {
    let server = Server::start();
    set(&server, "dlock.log-wait-ms", "1");
    let hostile = b"\x1b[2J\x1b]0;owned\x07\r\nevil: 1\0%s%n\xff\"'\\";
    let long = [&hostile[..], &[b'\n'; 200]].concat();
    let mut holder = server.client();
    holder.cmd(&args!["DLOCK.ACQUIRE", hostile, hostile, "LABEL", long, "BIND", "0"]).int();
    let mut client = server.client();
    client.send(&args!["DLOCK.ACQUIRE", hostile, long, "BLOCK", "0", "LABEL", hostile]);
    wait_until("the wait to be slow", || {
        let waiters = server.cmd(&args!["DLOCK.WAITERS", hostile]).items();
        waiters.first().is_some_and(|waiter| waiter.field("waiting-ms").int() > 1)
    });
    drop(holder);
    client.reply(SOON).int();
    let all = entries(&server);
    assert_eq!(all.len(), 2, "{all:#?}");
    for entry in &all {
        assert_eq!(entry.key, hostile);
        assert!(entry.text.iter().all(|byte| (b' '..=b'~').contains(byte)), "{entry:?}");
    }
    let (slow, lost) = (&all[0], &all[1]);
    assert_eq!((&slow.owner[..], &slow.label[..]), (&long[..128], &hostile[..]));
    assert_eq!((&lost.owner[..], &lost.label[..]), (&hostile[..], &long[..128]));
    assert!(
        slow.text.starts_with(br#"granted; last holder: "\x1b[2J\x1b]0;owned\a\r\nevil: 1\x00"#)
    );
    // Nothing goes to the server's log, where a line break would begin a line of its own.
    assert!(!server.log().contains("evil"));
}

#[test]
fn only_the_server_that_decides_logs() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    primary.cmd(&["DLOCK.ACQUIRE", "k", "me", "PX", "20"]).int();
    wait_until("the lease to end", || primary.cmd(&["EXISTS", "k"]).int() == 0);
    primary.wait_replica_synced(&replica);
    assert_eq!(primary.cmd(&["DLOCK.LOG", "LEN"]).int(), 1);
    assert_eq!(replica.cmd(&["DLOCK.LOG", "LEN"]).int(), 0);
    assert_eq!(replica.info("dlock_latency")["lock_held"].split(',').next(), Some("count=0"));
    assert_eq!(primary.info("dlock_latency")["lock_held"].split(',').next(), Some("count=1"));
}

/// How long the waits of these tests wait at least, and the setting that makes them slow.
const SLOW_MS: i64 = 30;

fn start_with_slow_waits() -> Server {
    let server = Server::start();
    set(&server, "dlock.log-wait-ms", &SLOW_MS.to_string());
    server
}

fn wait_until_slow(server: &Server, call: &str) {
    wait_until("the wait to be slow", || {
        let waiters = server.ask(call).items();
        waiters.first().is_some_and(|waiter| waiter.field("waiting-ms").int() > SLOW_MS)
    });
}

/// The newest entry is a slow wait with this text.
#[track_caller]
fn assert_slow(server: &Server, count: usize, key: &str, text: &str) {
    wait_until("an entry", || entries(server).len() == count);
    let entry = entries(server).swap_remove(0);
    assert_eq!((entry.event, entry.key), (LogEvent::SlowWait, key.as_bytes().to_vec()));
    assert_eq!(String::from_utf8_lossy(&entry.text), text);
}

#[test]
fn a_slow_wait_whose_connection_closes_is_logged() {
    let server = start_with_slow_waits();
    let held =
        ["DLOCK.ACQUIRE k me", "DRW.ACQUIRE r me WRITE", "DSEM.INIT s 1", "DSEM.ACQUIRE s me"];
    for call in held {
        server.ask(call).ok();
    }
    let calls = [
        ("DLOCK.ACQUIRE k you BLOCK 0", "DLOCK.WAITERS k", "k"),
        ("DLOCK.MACQUIRE 2 j k you BLOCK 0", "DLOCK.WAITERS j", "j"),
        ("DLOCK.ANYACQUIRE 1 k him BLOCK 0", "DLOCK.WAITERS k", "k"),
        ("DRW.ACQUIRE r you READ BLOCK 0", "DRW.WAITERS r", "r"),
        ("DSEM.ACQUIRE s you BLOCK 0", "DSEM.WAITERS s", "s"),
        ("DSEM.TAKE s BLOCK 0", "DSEM.WAITERS s", "s"),
    ];
    for (at, (call, waiters, key)) in calls.into_iter().enumerate() {
        let waits = server.wait(call);
        wait_until_slow(&server, waiters);
        waits.hang_up();
        assert_slow(&server, at + 1, key, r#"connection closed; holder: "me""#);
    }
    // During a pause the machine learns late that the connection is closed, but not the log.
    let waits = server.wait("DLOCK.ACQUIRE k her BLOCK 0");
    wait_until_slow(&server, "DLOCK.WAITERS k");
    server.ask("CLIENT PAUSE 60000 WRITE").ok();
    waits.hang_up();
    assert_slow(&server, calls.len() + 1, "k", r#"connection closed; holder: "me""#);
    server.ask("CLIENT UNPAUSE").ok();
}

#[test]
fn a_slow_wait_that_an_operator_ends_is_logged() {
    let server = start_with_slow_waits();
    server.ask("DLOCK.ACQUIRE k me").ok();
    let mut verbs = vec!["DLOCK.UNBLOCK"];
    if Kind::of_binary().client_unblock_is_safe() {
        verbs.push("CLIENT UNBLOCK");
    }
    for (at, verb) in verbs.into_iter().enumerate() {
        let mut waits = server.wait(&format!("DLOCK.ACQUIRE k you{at} BLOCK 0"));
        wait_until_slow(&server, "DLOCK.WAITERS k");
        assert_eq!(server.ask(&format!("{verb} {}", waits.id())).int(), 1);
        assert!(waits.expect_reply(SOON).is_null());
        assert_slow(&server, at + 1, "k", r#"unblocked; holder: "me""#);
    }
}

#[test]
fn the_log_does_not_remove_a_key_whose_time_to_live_is_over() {
    if !Kind::of_binary().has_module_acl_categories() {
        // Redis 7.0 cannot open a key without that.
        return;
    }
    let server = start_with_slow_waits();
    server.ask("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    server.ask("DLOCK.ACQUIRE k me").ok();
    let mut waits = server.wait("DLOCK.ACQUIRE k you BLOCK 300");
    assert_eq!(server.ask("PEXPIRE k 100").int(), 1);
    let reply = waits.expect_reply(SOON);
    assert!(reply.is_null(), "{}", reply.show());
    // The key counts as missing, so nothing holds it.
    assert_slow(&server, 1, "k", "timed out");
    assert_eq!(server.info_number("stats", "expired_keys"), 0);
}

#[test]
fn a_user_may_be_allowed_one_subcommand_of_the_log() {
    let server = Server::start();
    let mut client = user(&server, &["~*", "&*", "-@all", "+dlock.log|get"]);
    assert_eq!(client.cmd(&["DLOCK.LOG", "GET"]).items().len(), 0);
    assert!(client.cmd(&["DLOCK.LOG", "RESET"]).error().starts_with("NOPERM "));
    let refused = server.cmd(&["ACL", "SETUSER", "someone", "+@all", "-dlock.log|reset"]);
    assert!(refused.error().starts_with("ERR Error in ACL SETUSER modifier"));
}

/// An eviction takes the lock from its holder: it leaves a trace wherever operators look.
#[test]
fn an_eviction_is_counted_logged_and_warned_of() {
    for name in ["redis-7.0", "redis-8.2", "valkey-9.1"] {
        let server = Server::of(name).and(&["maxmemory-policy", "volatile-random"]).start();
        let token = server.ask("DLOCK.ACQUIRE k alice").int();
        let evict = || {
            server.cmd(&["SET", "other", "1", "PX", "600000"]).ok();
            set(&server, "maxmemory", "1");
            wait_until("the eviction", || server.cmd(&["EXISTS", "other"]).int() == 0);
        };
        evict();
        assert_eq!(server.cmd(&["EXISTS", "k"]).int(), 1, "{name}: a volatile policy spares locks");
        assert_eq!((server.info_number("dlock", "evicted"), entries(&server).len()), (0, 0));
        set(&server, "maxmemory-policy", "allkeys-random");
        wait_until("the eviction of the lock", || server.info_number("dlock", "evicted") == 1);
        let entry = assert_one(&entries(&server), LogEvent::Evicted, "alice", "", token);
        assert_eq!(entry.text, b"holds: 1; see maxmemory-policy", "{name}");
        assert!(server.log().contains("<dlock> the server evicted a key of dlock"), "{name}");
        set(&server, "maxmemory", "0");
        server.left_over_check();
    }
}
