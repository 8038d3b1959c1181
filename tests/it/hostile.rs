//! RESTORE of damaged and hostile payloads, each with a valid checksum: an error or a sound lock, never a crash or a
//! large allocation.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on stops here and says why"
)]

use std::collections::BTreeSet;

use dlock_core::{
    base::bytes::Owner,
    base::time::{Instant, LeaseInstant},
    record::{self, Clocks, Level},
    value::hold::{Hold, Notify, Requests},
    value::lock::Lock,
};
use redis::Value;

use crate::{
    args,
    support::{Client, Family, Reply, Server},
    test_both_families,
};

test_both_families! {
    thousands_of_damaged_payloads_do_no_harm
    damage_to_the_frame_does_no_harm
    accepted_payloads_can_be_saved_again
    a_hold_that_cannot_be_is_refused
}

/// A parsed DUMP payload: the server's frame around the bytes of the module.
pub struct Dump {
    /// Types of the value and of the module, and the mark of a string.
    head: Vec<u8>,
    /// The bytes of the module.
    pub body: Vec<u8>,
    version: Vec<u8>,
}

impl Dump {
    /// Reads DUMP from a server with `rdbcompression no`.
    pub fn take(client: &mut Client, key: &str) -> Dump {
        let dump = client.cmd(&["DUMP", key]).bytes();
        // One byte for the kind of value, nine for the module's type, one for "a string follows".
        let (head, rest) = dump.split_at(11);
        let (len, rest) = match rest[0] >> 6 {
            0 => (usize::from(rest[0] & 63), &rest[1..]),
            1 => (usize::from(rest[0] & 63) << 8 | usize::from(rest[1]), &rest[2..]),
            _ => panic!("an unexpected length: {}", dump.escape_ascii()),
        };
        let (body, rest) = rest.split_at(len);
        assert_eq!((head[0], head[10], rest[0], rest.len()), (7, 5, 0, 11));
        let found = Dump { head: head.to_vec(), body: body.to_vec(), version: rest[1..3].to_vec() };
        assert_eq!(found.with_body(body), dump, "this is how the server does it");
        found
    }

    /// The same with other bytes of the module.
    pub fn with_body(&self, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).unwrap();
        let short = u8::try_from(len).ok().filter(|&len| len < 64);
        let len = short.map_or((len | 0x4000).to_be_bytes().to_vec(), |len| vec![len]);
        self.seal(&[&self.head, &len[..], body, b"\0"].concat())
    }

    /// Adds the version and the checksum.
    fn seal(&self, value: &[u8]) -> Vec<u8> {
        let mut all = [value, &self.version].concat();
        let sum = crc64(&all);
        all.extend(sum.to_le_bytes());
        all
    }
}

/// CRC-64 with the polynomial of Jones, as the server computes it.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| {
        (0..8).fold(sum ^ u64::from(byte), |sum, _| {
            if sum & 1 == 1 { (sum >> 1) ^ 0x95ac_9329_ac4b_c9b5 } else { sum >> 1 }
        })
    })
}

/// Every kind of state of a key.
fn specimens(server: &Server) -> Vec<Dump> {
    let mut client = server.client();
    client.cmd(&["CONFIG", "SET", "rdbcompression", "no"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "plain", "a", "EX", "100"]).ok();
    for n in 0..8 {
        let call = args![
            "DLOCK.ACQUIRE",
            "full",
            "owner",
            "EX",
            100,
            "REQID",
            format!("request-{n}"),
            "LABEL",
            "a label",
            "NOTIFY",
            "a channel",
            "BIND",
            60_000
        ];
        client.cmd(&call).ok();
    }
    client.cmd(&["DLOCK.ACQUIRE", "unclaimed", "a"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "unclaimed", "b", "QUEUE", "60000"]).ok();
    client.cmd(&["DLOCK.RELEASE", "unclaimed", "a"]).ok();
    client.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "60000"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "closed", "a"]).ok();
    client.cmd(&["DLOCK.BREAK", "closed"]).ok();
    client.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "0"]).ok();
    let mut keys = vec!["plain", "full", "unclaimed", "closed"];
    if server.family() == Family::Fair {
        client.cmd(&["DLOCK.ACQUIRE", "line", "a", "EX", "100"]).ok();
        for owner in ["b", "c"] {
            let call =
                ["DLOCK.ACQUIRE", "line", owner, "QUEUE", "60000", "LABEL", "x", "REQID", "r"];
            client.cmd(&[&call[..], &["NOTIFY", "n", "BIND", "5", "PX", "7000"]].concat()).ok();
        }
        keys.push("line");
    }
    let dumps = keys.into_iter().map(|key| Dump::take(&mut client, key)).collect();
    client.cmd(&["FLUSHALL"]).ok();
    dumps
}

/// All mutations of a byte string.
pub fn mutations(bytes: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    for at in 0..bytes.len() {
        all.insert(bytes[..at].to_vec());
        all.insert([&bytes[..at], &bytes[at + 1..]].concat());
        let mut put = |with: &[u8]| all.insert([&bytes[..at], with, &bytes[at + 1..]].concat());
        for bit in 0..8 {
            put(&[bytes[at] ^ (1 << bit)]);
        }
        for value in [0, 1, 127, 128, 250, 251, 252, 253, 254, 255] {
            put(&[value]);
        }
        // Numbers of every width at each possible length field: 0, 1, very large.
        for (mark, width) in [(251, 2), (252, 4), (253, 8), (254, 16)] {
            for fill in [0, 1, 127, 255] {
                put(&[&[mark][..], &vec![fill; width]].concat());
            }
        }
    }
    for more in [&b"\0"[..], b"\x01", &[255; 300]] {
        all.insert([bytes, more].concat());
    }
    all.remove(bytes);
    all
}

/// Restores each payload and reads the result. Returns the number of accepted payloads.
fn restore_all(server: &Server, payloads: &[Vec<u8>]) -> usize {
    let mut client = server.client();
    let mut taken = 0;
    for some in payloads.chunks(100) {
        let calls: Vec<_> = some
            .iter()
            .flat_map(|payload| {
                [
                    args!["RESTORE", "k", 0, payload, "REPLACE"],
                    args!["DLOCK.INFO", "k"],
                    args!["DLOCK.RENEW", "k", "a", "PX", 60_000],
                    args!["DLOCK.ACQUIRE", "k", "b"],
                    args!["DEL", "k"],
                ]
            })
            .collect();
        for (replies, payload) in client.pipeline(&calls).chunks(5).zip(some) {
            let shown = payload.escape_ascii();
            match &replies[0] {
                Value::Okay => {
                    taken += 1;
                    assert_is_sound(&replies[1], payload);
                }
                refused => {
                    assert_eq!(refused.error(), "ERR Bad data format", "{shown}");
                    assert!(replies[1].is_null(), "{shown}");
                    assert!(replies[3].int() > 0, "{shown}");
                }
            }
        }
    }
    taken
}

fn assert_is_sound(info: &Value, payload: &[u8]) {
    let shown = payload.escape_ascii();
    if info.is_null() {
        // Locks without a remaining lease have ended by now.
        return;
    }
    let is_held = !info.field("owner").bytes().is_empty();
    let (token, holds) = (info.field("token").int(), info.field("holds").int());
    assert_eq!((token > 0, holds > 0), (is_held, is_held), "{shown}: {}", info.show());
    assert!(token < 1 << 53 && info.field("owner").bytes().len() <= 256, "{shown}");
    assert!(info.field("label").bytes().len() <= 256, "{shown}");
    for field in ["lease-ms", "ttl-ms"] {
        assert!(
            (0..=31_536_000_000).contains(&info.field(field).int()),
            "{shown}: {}",
            info.show()
        );
    }
}

fn thousands_of_damaged_payloads_do_no_harm(family: Family) {
    let server = family.start();
    let dumps = specimens(&server);
    let originals: Vec<Vec<u8>> = dumps.iter().map(|dump| dump.with_body(&dump.body)).collect();
    assert_eq!(restore_all(&server, &originals), originals.len(), "what is not damaged is taken");
    let damaged: Vec<Vec<u8>> = dumps
        .iter()
        .flat_map(|dump| mutations(&dump.body).into_iter().map(|body| dump.with_body(&body)))
        .collect();
    assert!(damaged.len() > 5_000, "only {}", damaged.len());
    let peak = || server.info_number("memory", "used_memory_peak");
    let before = peak();
    let taken = restore_all(&server, &damaged);
    assert!((1..damaged.len()).contains(&taken), "{taken} of {} were taken", damaged.len());
    assert!(peak() - before < 4 << 20, "{} bytes more", peak() - before);
    server.left_over_check();
}

fn damage_to_the_frame_does_no_harm(family: Family) {
    let server = family.start();
    for dump in specimens(&server) {
        let whole = dump.with_body(&dump.body);
        // The first byte is the type of the value: how other types handle garbage is not tested here.
        let (kind, rest) = whole[..whole.len() - 10].split_at(1);
        let damaged: Vec<Vec<u8>> =
            mutations(rest).into_iter().map(|rest| dump.seal(&[kind, &rest].concat())).collect();
        restore_all(&server, &damaged);
    }
    server.left_over_check();
}

fn accepted_payloads_can_be_saved_again(family: Family) {
    let server = family.start();
    let mut client = server.client();
    for (kind, dump) in specimens(&server).iter().enumerate() {
        for (n, body) in mutations(&dump.body).iter().enumerate() {
            let payload = dump.with_body(body);
            client.cmd(&args!["RESTORE", format!("k{kind}.{n}"), 0, payload]);
        }
    }
    let kept = server.keys();
    assert!(kept > 100, "{kept}");
    // Locks with a short remaining lease end meanwhile.
    client.cmd(&["DEBUG", "RELOAD"]).ok();
    assert!((kept / 2..=kept).contains(&server.keys()), "{} of {kept}", server.keys());
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// Sets a field to its limit (0) or one beyond (1).
type Change<'a> = &'a dyn Fn(&mut Hold, u32);

fn a_hold_that_cannot_be_is_refused(family: Family) {
    let server = family.start();
    let dump = specimens(&server).remove(1);
    let long = |len: u32| vec![b'x'; len as usize];
    // Each limit itself, which is accepted, then one step beyond.
    let changes: [(&str, Change); 11] = [
        ("owner", &|hold, over| hold.owner = Owner::from(&long(256 + over)[..])),
        ("no owner", &|hold, over| hold.owner = Owner::from(&long(1 - over)[..])),
        ("token", &|hold, over| hold.token = u64::from(1 - over)),
        ("count", &|hold, over| hold.count = 1 - over),
        ("lease", &|hold, over| hold.lease_ms = 31_536_000_000 + u64::from(over)),
        ("no lease", &|hold, over| hold.lease_ms = u64::from(1 - over)),
        ("label", &|hold, over| hold.extras_mut().label = long(256 + over).into()),
        ("channel", &|hold, over| {
            hold.extras_mut().notify = Notify::Channel(long(256 + over).into());
        }),
        ("no channel", &|hold, over| {
            hold.extras_mut().notify = Notify::Channel(long(1 - over).into());
        }),
        ("tie", &|hold, over| {
            hold.extras_mut().binding.as_mut().expect("a tie").ms =
                31_536_000_000 + u64::from(over);
        }),
        ("ids", &|hold, over| {
            let requests = &mut hold.extras_mut().requests;
            *requests = Requests::default();
            (0..64 + over).for_each(|n| requests.add(&n.to_le_bytes()));
        }),
    ];
    for (what, change) in changes {
        for over in [0, 1] {
            let mut lock = record::decode(&dump.body, Instant(0)).expect("one of ours");
            change(lock.lock_mut().and_then(Lock::hold_mut).expect("a hold"), over);
            let mut body = Vec::new();
            record::encode(
                &lock,
                Clocks { mono: Instant(0), lease: LeaseInstant(0) },
                Level::FIRST,
                &mut body,
            );
            let reply = server.cmd(&args!["RESTORE", "k", 0, dump.with_body(&body), "REPLACE"]);
            match over {
                0 => assert_eq!(reply, Value::Okay, "{what}"),
                _ => assert_eq!(reply.error(), "ERR Bad data format", "{what}"),
            }
        }
    }
    server.cmd(&["DEL", "k"]).ok();
    // The largest count is one, too; it cannot grow.
    let mut lock = record::decode(&dump.body, Instant(0)).expect("one of ours");
    lock.lock_mut().and_then(Lock::hold_mut).expect("a hold").count = u32::MAX;
    let mut body = Vec::new();
    record::encode(
        &lock,
        Clocks { mono: Instant(0), lease: LeaseInstant(0) },
        Level::FIRST,
        &mut body,
    );
    server.cmd(&args!["RESTORE", "k", 0, dump.with_body(&body)]).ok();
    let full = server.cmd(&["DLOCK.ACQUIRE", "k", "owner"]).error();
    assert_eq!(full, r#"LIMIT "k" is held 4294967295 times already"#);
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "owner"]).int(), 4_294_967_294);
    server.cmd(&["DEL", "k"]).ok();
    server.left_over_check();
}
