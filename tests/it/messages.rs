//! Messages about waiters and holds, and keyspace events.

use dlock_wire::message::{Event, Message};

use crate::{
    args,
    support::{Client, Family, Reply, SOON, Server, Subscription, wait_until},
    test_both_families,
};

test_both_families! {
    a_hold_hears_how_it_ended
    names_of_any_bytes_come_through
    keyspace_events_report_changes_of_a_lock
}

/// A subscriber to all our channels, so that a message on a wrong channel or of a wrong hold is noticed, too.
fn listen(server: &Server) -> Subscription {
    server.psubscribe(&["dlock:notify*", "mine"])
}

/// Checks the next message; `TOKEN` stands for the fencing token.
#[track_caller]
fn expect(listener: &mut Subscription, channel: &str, text: &str, token: i64) {
    let (on, said) = listener.next();
    let text = text.replace("TOKEN", &token.to_string());
    assert_eq!((on.as_str(), String::from_utf8_lossy(&said).as_ref()), (channel, text.as_str()));
}

fn a_hold_hears_how_it_ended(family: Family) {
    let server = family.start();
    let mut listener = listen(&server);
    // How it ends: by a call, or (none) by the close of the connection it is bound to.
    let table: [(&str, &[&str]); 8] = [
        ("expired", &["PING"]),
        ("broken", &["DLOCK.BREAK", "k"]),
        ("disconnected", &[]),
        ("deleted", &["DEL", "k"]),
        ("deleted", &["UNLINK", "k"]),
        ("deleted", &["SET", "k", "v", "PX", "1"]),
        ("deleted", &["PEXPIRE", "k", "1"]),
        ("deleted", &["EVAL", "redis.call('DEL', KEYS[1])", "1", "k"]),
    ];
    for (event, end) in table {
        for notify in [true, false] {
            let mut holder = server.client();
            let lease = if event == "expired" { "20" } else { "30000" };
            let mut call = vec!["DLOCK.ACQUIRE", "k", "own er", "BIND", "0", "PX", lease];
            if notify {
                call.extend(["NOTIFY", "mine"]);
            }
            let token = holder.cmd(&call).int();
            if end.is_empty() {
                server.cmd(&args!["CLIENT", "KILL", "ID", holder.id()]).ok();
            } else {
                server.cmd(end).ok();
            }
            wait_until(event, || {
                let info = server.cmd(&["DLOCK.INFO", "k"]);
                info.is_null() || matches!(info, redis::Value::ServerError(_))
            });
            wait_until("the key to go", || server.cmd(&["EXISTS", "k"]).int() == 0);
            if notify {
                expect(&mut listener, "mine", &format!("{event} 0 TOKEN 6 own er 0  k"), token);
            }
            listener.assert_none();
        }
    }
    server.left_over_check();
}

#[test]
fn a_flush_is_one_message() {
    let server = Server::start();
    let mut listener = listen(&server);
    let mut client = server.client();
    let fill = |client: &mut crate::support::Client, db: &str| {
        client.cmd(&["SELECT", db]).ok();
        for n in 0..100 {
            let call = args!["DLOCK.ACQUIRE", format!("k{n}"), "a", "NOTIFY", "mine"];
            client.cmd(&call).ok();
        }
    };
    for flush in [&["FLUSHDB"][..], &["FLUSHDB", "ASYNC"], &["FLUSHDB", "SYNC"]] {
        fill(&mut client, "2");
        client.cmd(flush).ok();
        expect(&mut listener, "dlock:notify", "flushed 2", 0);
    }
    for flush in [&["FLUSHALL"][..], &["FLUSHALL", "ASYNC"], &["FLUSHALL", "SYNC"]] {
        fill(&mut client, "5");
        fill(&mut client, "0");
        client.cmd(flush).ok();
        let mut texts = [listener.next_text(), listener.next_text()];
        texts.sort();
        assert_eq!(texts, ["flushed 0", "flushed 5"]);
    }
    // The waiter gets the lock, and its usual message.
    client.cmd(&["DLOCK.ACQUIRE", "k", "a", "NOTIFY", "mine"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "k", "b", "QUEUE", "60000"]).ok();
    client.cmd(&["FLUSHALL"]).ok();
    let token = client.cmd(&["DLOCK.ACQUIRE", "k", "b"]).int();
    let mut heard = [listener.next(), listener.next()]
        .map(|(channel, text)| format!("{channel} {}", String::from_utf8_lossy(&text)));
    heard.sort();
    assert_eq!(
        heard,
        ["dlock:notify flushed 0".to_owned(), format!("dlock:notify:b granted 0 {token} 1 b 0  k")]
    );
    client.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    listener.assert_none();
    server.left_over_check();
}

fn names_of_any_bytes_come_through(family: Family) {
    let server = family.start();
    let all: Vec<u8> = (0..=255).collect();
    for name in [&b"%s%n %d"[..], b"\0", b"\r\nfoo\r\n", b" ", "\u{fc}\u{2028}".as_bytes(), &all] {
        let mut client = server.client();
        client.send(&args!["SUBSCRIBE", name]);
        client.reply(SOON).ok();
        let token =
            server.cmd(&args!["DLOCK.ACQUIRE", name, name, "NOTIFY", name, "LABEL", name]).int();
        server.cmd(&args!["DLOCK.BREAK", name]).ok();
        let items = client.reply(SOON).items();
        assert_eq!(items[1].bytes(), name);
        let text = items[2].bytes();
        let id = token.to_string();
        let broken = Message::Hold {
            event: Event::Broken,
            db: 0,
            id: id.as_bytes(),
            owner: name,
            reqid: b"",
            key: name,
        };
        assert_eq!(Message::parse(&text), Some(broken), "{}", text.escape_ascii());
        assert_eq!(text, broken.write());
    }
    server.left_over_check();
}

fn keyspace_events_report_changes_of_a_lock(family: Family) {
    let server = family.with(&["notify-keyspace-events", "Ed", "dlock.fair-grace-ms", "0"]).start();
    let mut events = server.psubscribe(&["__key*__:*"]);
    let mut bound = server.client();
    let mut waiter = server.client();
    let steps: [(&[&str], &[&str]); 17] = [
        (&["DLOCK.ACQUIRE", "k", "a"], &["acquire"]),
        (&["DLOCK.ACQUIRE", "k", "a"], &["acquire"]),
        (&["DLOCK.ACQUIRE", "k", "b"], &[]),
        (&["DLOCK.ACQUIRE", "k", "b", "QUEUE", "60000"], &["wait"]),
        (&["DLOCK.RENEW", "k", "a"], &[]),
        (&["DLOCK.RELEASE", "k", "a"], &["release"]),
        (&["DLOCK.RELEASE", "k", "a"], &["release", "acquire"]),
        (&["DLOCK.RENEW", "k", "b"], &[]),
        (&["DLOCK.RELEASE", "k", "b"], &["release"]),
        (&["DLOCK.ACQUIRE", "k", "b", "PX", "1"], &["acquire", "expire"]),
        (&["DLOCK.ACQUIRE", "k", "a", "REQID", "1"], &["acquire"]),
        (&["DLOCK.ACQUIRE", "k", "a", "REQID", "1"], &[]),
        (&["DLOCK.INFO", "k"], &[]),
        (&["DLOCK.ACQUIRE", "k", "c", "QUEUE", "60000"], &["wait"]),
        (&["DLOCK.BREAK", "k"], &["break", "acquire"]),
        (&["DLOCK.RELEASE", "k", "c"], &["release"]),
        (&["DLOCK.POSITION", "k", "c"], &[]),
    ];
    for (call, happened) in steps {
        waiter.cmd(call).ok();
        for event in happened {
            let (channel, key) = events.next();
            assert_eq!((channel, key), (format!("__keyevent@0__:dlock.{event}"), b"k".to_vec()));
        }
        // Another round trip of the server: nothing more was published.
        server.cmd(&["PING"]).ok();
        events.assert_none();
    }
    bound.cmd(&["DLOCK.ACQUIRE", "k", "a", "BIND", "0"]).ok();
    assert_eq!(events.next_text(), "k");
    let blocked = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    assert_eq!(events.next().0, "__keyevent@0__:dlock.wait");
    blocked.hang_up();
    server.wait_blocked(0);
    drop(bound);
    assert_eq!(events.next().0, "__keyevent@0__:dlock.expire");
    // Class d only: with the class off none of them is sent, and the removal of the key sends no `del`.
    server.cmd(&["CONFIG", "SET", "notify-keyspace-events", "KEg$lshzxe"]).ok();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    server.cmd(&["PING"]).ok();
    events.assert_none();
    server.left_over_check();
}

/// A listener of sharded pub/sub.
fn listen_sharded(server: &Server, channel: &str) -> Client {
    let mut listener = server.client();
    listener.cmd(&["SSUBSCRIBE", channel]).ok();
    listener
}

#[test]
fn messages_of_snotify_are_sharded() {
    let server = Server::start();
    let mut plain = server.psubscribe(&["*"]);
    let mut sharded = listen_sharded(&server, "mine");
    let table: [(&[&str], &[&str], &[&str]); 4] = [
        (&["DLOCK.ACQUIRE", "k"], &[], &["DLOCK.RELEASE", "k", "a"]),
        (&["DFAIR.ACQUIRE", "k"], &[], &["DFAIR.RELEASE", "k", "a"]),
        (&["DRW.ACQUIRE", "k"], &["WRITE"], &["DRW.RELEASE", "k", "a", "WRITE"]),
        (&["DSEM.ACQUIRE", "k"], &["LIMIT", "1"], &["DSEM.RELEASE", "k"]),
    ];
    let mut client = server.client();
    for (acquire, options, release) in table {
        let held = client.cmd(&[acquire, &["a"], options].concat());
        let terms = ["QUEUE", "60000", "SNOTIFY", "mine", "REQID", "r"];
        assert!(client.cmd(&[acquire, &["b"], options, &terms].concat()).is_null());
        let mut release: Vec<String> = release.iter().map(ToString::to_string).collect();
        if acquire[0] == "DSEM.ACQUIRE" {
            release.push(held.text());
        }
        client.cmd(&release).ok();
        client.cmd(&["DEL", "k"]).ok();
        for event in ["granted", "deleted"] {
            let heard = sharded.reply(SOON).items();
            assert_eq!((heard[0].text(), heard[1].text()), ("smessage".into(), "mine".into()));
            let text = heard[2].text();
            assert!(text.starts_with(&format!("{event} 0 ")), "{acquire:?}: {text}");
            assert!(text.ends_with(" 1 b 1 r k"), "{acquire:?}: {text}");
        }
    }
    // For several keys, too.
    for call in [
        &["DLOCK.MACQUIRE", "2", "x", "y", "a", "SNOTIFY", "mine"][..],
        &["DLOCK.ANYACQUIRE", "1", "x", "a", "SNOTIFY", "mine"],
    ] {
        client.cmd(call).ok();
        client.cmd(&["DEL", "x"]).ok();
        assert!(sharded.reply(SOON).items()[2].text().ends_with(" 1 a 0  x"));
        client.cmd(&["DLOCK.MRELEASE", "1", "y", "a"]).ok();
    }
    plain.assert_none();
    // SNOTIFY requires the right to publish, as NOTIFY does.
    let user = ["ACL", "SETUSER", "u", "on", ">p", "~*", "&mine", "+@all"];
    server.cmd(&user).ok();
    client.cmd(&["AUTH", "u", "p"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "k", "o", "SNOTIFY", "mine"]).int();
    client.cmd(&["DLOCK.RELEASE", "k", "o"]).int();
    let error = client.cmd(&["DLOCK.ACQUIRE", "k", "o", "SNOTIFY", "other"]).error();
    assert!(error.starts_with("NOPERM ") && error.ends_with("SNOTIFY names"), "{error}");
    let entry = &server.cmd(&["ACL", "LOG", "1"]).items()[0];
    let field = |name| entry.field(name).text();
    assert_eq!([field("reason"), field("object")], ["channel", "other"]);
    server.left_over_check();
}

#[test]
fn a_sharded_channel_outlives_a_restart() {
    let mut server = Server::with(&["appendonly", "yes", "appendfsync", "always"]).start();
    server.cmd(&["DFAIR.ACQUIRE", "f", "a", "SNOTIFY", "mine", "REQID", "r"]).int();
    let mut waiter = server.client();
    let place = ["DFAIR.ACQUIRE", "f", "b", "QUEUE", "60000", "SNOTIFY", "mine", "REQID", "s"];
    assert!(waiter.cmd(&place).is_null());
    for rewritten in [false, true] {
        if rewritten {
            server.cmd(&["BGREWRITEAOF"]).ok();
            wait_until("the rewrite", || {
                server.info_number("persistence", "aof_rewrite_in_progress") == 0
            });
        }
        server.restart();
    }
    let mut sharded = listen_sharded(&server, "mine");
    server.cmd(&["DFAIR.BREAK", "f"]).int();
    let mut next = || sharded.reply(SOON).items()[2].text();
    assert!(next().ends_with(" 1 a 1 r f"));
    assert!(next().ends_with(" 1 b 1 s f"));
    server.cmd(&["DEL", "f"]).int();
    assert!(next().ends_with(" 1 b 1 s f"));
    server.left_over_check();
}
