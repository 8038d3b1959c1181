//! One lock in every possible state, for transfer between servers.

use dlock_core::value::hold::OPEN_MAX;

use crate::{
    args,
    records::{stored, words},
    support::{Client, Family, Reply as _, SOON, Server},
};

/// A name that no text routine must touch.
const ODD: &[u8] = b"%s\0\xff caf\xc3\xa9\r\n";
/// Longer than any test.
const LONG: &str = "86400000";

/// Where the specimens are: database and key.
const PLACES: [(u32, &[u8]); 10] = [
    (0, b"plain"),
    (0, b"deep"),
    (0, b"named"),
    (0, b"full"),
    (0, b"tied"),
    (0, b"turn"),
    (0, b"closed"),
    (0, b"raised"),
    (9, ODD),
    (0, b"line"),
];

/// Waiters for the lock `line`, in families with a durable queue, and their options: none, few, all.
const LINE: [(&[u8], &[&[u8]]); 3] = [
    (b"w0", &[]),
    (ODD, &[b"PX", b"7000", b"LABEL", b"second"]),
    (&[b'x'; 256], &[b"BIND", b"86400000", b"LABEL", &[b'y'; 256], b"NOTIFY", ODD, b"REQID", ODD]),
];

/// The specimens on a server that was started with `rdbcompression no`.
pub struct Specimens {
    /// The connections of the bindings and of the grant to a place.
    _connections: Vec<Client>,
    state: Vec<String>,
    digest: String,
    /// The token of the grant to a place.
    turn: i64,
    /// The largest token that was given.
    largest: i64,
}

impl Specimens {
    /// Creates them.
    #[track_caller]
    pub fn make(server: &Server) -> Specimens {
        let mut client = server.client();
        let mut run = |calls: &[Vec<Vec<u8>>]| {
            for call in calls {
                client.cmd(call).ok();
            }
        };
        // A grant to a place lasts as long as QUEUE.
        run(&[args!["CONFIG", "SET", "dlock.claim-ms", LONG]]);
        run(&[args!["DLOCK.ACQUIRE", "plain", "a", "PX", LONG]]);
        // Of four requests two are over. A third count has no id.
        for n in 0..4 {
            let id = format!("request{n}");
            run(&[args!["DLOCK.ACQUIRE", "deep", "a", "PX", LONG, "REQID", id]]);
        }
        run(&[
            args!["DLOCK.RELEASE", "deep", "a", "REQID", "request0"],
            args!["DLOCK.RELEASE", "deep", "a"],
            args!["DLOCK.ACQUIRE", "deep", "a"],
            args!["DLOCK.ACQUIRE", "named", ODD, "PX", LONG, "LABEL", ODD, "NOTIFY", ODD],
        ]);
        // Every field with its maximum length.
        let text = [b'x'; 256];
        for n in 0..OPEN_MAX {
            let id = format!("{n:r>64}");
            run(&[args![
                "DLOCK.ACQUIRE",
                "full",
                &text[..],
                "EX",
                31_536_000,
                "BIND",
                31_536_000_000_u64,
                "LABEL",
                &text[..],
                "NOTIFY",
                &text[..],
                "REQID",
                id
            ]]);
        }
        let mut waiter = server.client();
        waiter.cmd(&["DLOCK.ACQUIRE", "tied", "a", "PX", LONG, "BIND", "3600000"]).ok();
        run(&[args!["DLOCK.ACQUIRE", "turn", "a"]]);
        let call = ["DLOCK.ACQUIRE", "turn", "b", "QUEUE", LONG, "PX", "7000", "LABEL", "next"];
        assert!(waiter.cmd(&call).is_null());
        run(&[
            args!["DLOCK.RELEASE", "turn", "a"],
            args!["CONFIG", "SET", "dlock.lock-delay-ms", LONG],
            args!["DLOCK.ACQUIRE", "closed", "a"],
            args!["DLOCK.BREAK", "closed"],
            args!["CONFIG", "SET", "dlock.lock-delay-ms", 0],
        ]);
        if server.family() == Family::Fair {
            client.cmd(&["DLOCK.ACQUIRE", "line", "a", "PX", LONG]).int();
            for (owner, options) in LINE {
                let call: [&[u8]; 5] =
                    [b"DLOCK.ACQUIRE", b"line", owner, b"QUEUE", LONG.as_bytes()];
                assert!(waiter.cmd(&[&call, options].concat()).is_null());
            }
        }
        let token = client.cmd(&["DLOCK.ACQUIRE", "raised", "a", "PX", LONG]).int();
        let raised = token + 30_000_000;
        client.cmd(&args!["DLOCK.FENCE", "raised", "a", raised]).ok();
        client.cmd(&["SELECT", "9"]).ok();
        client.cmd(&args!["DLOCK.ACQUIRE", ODD, ODD, "PX", LONG, "REQID", ODD]).ok();
        let largest = server.info_number("dlock", "last_token");
        assert!(largest > raised);
        let turn = server.cmd(&["DLOCK.INFO", "turn"]).field("token").int();
        let state = state(server);
        assert_eq!(
            state[5..7],
            [
                format!(
                    "turn: b token {turn} holds 1 lease {LONG} label \"next\" messages to its owner unclaimed"
                ),
                format!("closed: closed for {LONG}"),
            ]
        );
        let digest = server.digest();
        Specimens { _connections: vec![client, waiter], state, digest, turn, largest }
    }

    /// Fails the test unless they are on `server` unchanged.
    #[track_caller]
    pub fn check(&self, server: &Server, how: &str) {
        assert_eq!(state(server), self.state, "{how}");
        assert_eq!(server.digest(), self.digest, "{how}");
    }

    /// As [`Specimens::check`], then uses each up.
    #[track_caller]
    pub fn use_up(self, server: &Server, how: &str) {
        self.check(server, how);
        let mut client = server.client();
        // A request that the hold knows counts nothing, another one counts.
        let token = client.cmd(&["DLOCK.INFO", "deep"]).field("token").int();
        for (id, holds) in [("request1", 3), ("request2", 3), ("request4", 4)] {
            let again = client.cmd(&["DLOCK.ACQUIRE", "deep", "a", "REQID", id]).int();
            assert_eq!(again, token, "{how}");
            assert_eq!(client.cmd(&["DLOCK.INFO", "deep"]).field("holds").int(), holds, "{how}");
        }
        assert_eq!(
            client.cmd(&["DLOCK.RELEASE", "deep", "a", "REQID", "request4"]).int(),
            3,
            "{how}"
        );
        assert_eq!(client.cmd(&["DLOCK.RELEASE", "deep", "a", "ALL"]).int(), 0);
        // Messages go to their channels.
        let mut listener = server.client();
        listener.cmd(&[b"SUBSCRIBE", ODD]).ok();
        let token = client.cmd(&["DLOCK.INFO", "named"]).field("token").int();
        client.cmd(&["DLOCK.BREAK", "named"]).ok();
        let text =
            [format!("broken 0 {token} {} ", ODD.len()).as_bytes(), ODD, b" 0  named"].concat();
        assert_eq!(listener.reply(SOON).items()[2].bytes(), text, "{how}");
        // A grant to a place still belongs to its owner, for as long as it was promised.
        assert!(client.cmd(&["DLOCK.ACQUIRE", "turn", "c"]).is_null(), "{how}");
        assert_eq!(client.cmd(&["DLOCK.RENEW", "turn", "b"]).int(), self.turn, "{how}");
        let left = client.cmd(&["DLOCK.INFO", "turn"]).field("ttl-ms").int();
        assert!((80_000_000..=86_400_000).contains(&left), "{how}: {left}");
        // A closed lock stays closed.
        assert!(client.cmd(&["DLOCK.ACQUIRE", "closed", "b"]).is_null(), "{how}");
        if server.family() == Family::Fair {
            serve_the_line(server, how);
        }
        // The next token is above all that there were.
        let next = client.cmd(&["DLOCK.ACQUIRE", "new", "a"]).int();
        assert!(next > self.largest, "{how}: {next} is not above {}", self.largest);
        for (key, owner) in [("plain", "a"), ("tied", "a"), ("raised", "a"), ("turn", "b")] {
            let token = client.cmd(&["DLOCK.INFO", key]).field("token").int();
            assert_eq!(client.cmd(&args!["DLOCK.CHECK", key, token]).int(), 1, "{how}: {key}");
            let released = client.cmd(&args!["DLOCK.RELEASE", key, owner, "TOKEN", token]);
            assert_eq!(released.int(), 0, "{how}: {key}");
        }
        client.cmd(&["DLOCK.RELEASE", "new", "a"]).ok();
        client.cmd(&["DLOCK.BREAK", "full"]).ok();
        client.cmd(&["DEL", "closed"]).ok();
        client.cmd(&["SELECT", "9"]).ok();
        assert_eq!(client.cmd(&[b"DLOCK.RELEASE", ODD, ODD]).int(), 0, "{how}");
        server.left_over_check();
    }
}

/// The first waiter of the line is first, and gets its options.
#[track_caller]
fn serve_the_line(server: &Server, how: &str) {
    let rows = server.cmd(&["DLOCK.WAITERS", "line"]).items();
    let owners: Vec<_> = rows.iter().map(|row| row.field("owner").bytes()).collect();
    assert_eq!(owners, LINE.map(|(owner, _)| owner.to_vec()), "{how}");
    let mut listener = server.client();
    listener.cmd(&[b"SUBSCRIBE", ODD]).ok();
    let mut holder = &b"a"[..];
    for ((owner, options), row) in LINE.into_iter().zip(rows) {
        assert_eq!(server.cmd(&[b"DLOCK.RELEASE", &b"line"[..], holder]).int(), 0, "{how}");
        let token = server.cmd(&["DLOCK.INFO", "line"]).field("token").int();
        if options.contains(&&b"NOTIFY"[..]) {
            let event = if row.field("client-id").int() == 0 { "offered" } else { "granted" };
            let text = format!("{event} 0 {token} {} ", owner.len());
            let reqid = format!(" {} ", ODD.len());
            let text = [text.as_bytes(), owner, reqid.as_bytes(), ODD, b" line"].concat();
            assert_eq!(listener.reply(SOON).items()[2].bytes(), text, "{how}");
        }
        let mut copy = args!["DLOCK.ACQUIRE", "line", owner];
        if options.contains(&&b"REQID"[..]) {
            copy.extend(args!["REQID", ODD]);
        }
        assert_eq!(server.cmd(&copy).int(), token, "{how}");
        let info = server.cmd(&["DLOCK.INFO", "line"]);
        let label = options.iter().skip_while(|word| **word != b"LABEL").nth(1);
        assert_eq!(info.field("label").bytes(), label.copied().unwrap_or(b""), "{how}");
        assert_eq!(info.field("holds").int(), 1, "{how}: a copy of the request");
        holder = owner;
    }
    assert_eq!(server.cmd(&[b"DLOCK.RELEASE", &b"line"[..], holder]).int(), 0, "{how}");
}

/// The contents of each place.
#[track_caller]
fn state(server: &Server) -> Vec<String> {
    let mut client = server.client();
    let mut show = |&(db, key): &(u32, &[u8])| {
        client.cmd(&["SELECT", &db.to_string()]).ok();
        let found = stored(&mut client, key).as_ref().map_or("missing".to_owned(), words);
        format!("{}: {found}", key.escape_ascii())
    };
    PLACES.iter().map(&mut show).collect()
}
