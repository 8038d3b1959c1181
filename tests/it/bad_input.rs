//! Wrong calls, odd bytes, damaged payloads: each gets its error, nothing changes, the server continues.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here and says why")]

use redis::Value;

use crate::{
    args,
    support::{Family, ReplicaTap, Reply, SOON, Server},
    test_both_families,
};

test_both_families! {
    every_malformed_call_gets_its_error_and_changes_nothing
    keys_owners_and_labels_are_any_bytes
    clients_cannot_replay_records
}

pub const PX: &str = "ERR PX must be an integer between 1 and 31536000000";
pub const EX: &str = "ERR EX must be an integer between 1 and 31536000";
pub const BLOCK: &str = "ERR BLOCK must be an integer between 0 and 31536000000";
pub const QUEUE: &str = "ERR QUEUE must be an integer between 1 and 86400000";
pub const BIND: &str = "ERR BIND must be an integer between 0 and 31536000000";
pub const IF_TOKEN: &str = "ERR TOKEN must be an integer between 1 and 9007199254740991";
pub const TOKEN: &str = "ERR token must be an integer between 1 and 9007199254740991";
pub const COUNT: &str = "ERR COUNT must be an integer between 1 and 9223372036854775807";
const CLIENT: &str = "ERR client-id must be an integer between 1 and 9223372036854775807";
pub const KEY: &str = "ERR key must not be empty";
pub const OWNER: &str = "ERR owner must be 1 to 256 bytes";
pub const NOTIFY: &str = "ERR NOTIFY must be 1 to 256 bytes";
pub const REQID: &str = "ERR REQID must be 1 to 64 bytes";
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const FOREIGN: &str = "WRONGTYPE Operation against a key holding the wrong kind of value: \"text\" holds nothing of dlock";
const NOT_HELD: &str = r#"NOTHELD "held" is held by another owner, not by "o""#;
const FREE: &str = r#"NOTHELD "o" does not hold "k": nobody does"#;
const APPLY: &str = "ERR DLOCK.APPLY is for replication and the append-only file";

/// Calls and the exact error of each. One space separates words, so two spaces make an empty word. `a` holds `held`,
/// `text` is a string; `{x*n}` means n times x.
#[rustfmt::skip]
const TABLE: &[(&str, &str)] = &[
    // Too few and too many arguments: the server's own check.
    ("DLOCK.ACQUIRE", "ERR wrong number of arguments for 'DLOCK.ACQUIRE' command"),
    ("DLOCK.ACQUIRE k", "ERR wrong number of arguments for 'DLOCK.ACQUIRE' command"),
    ("dlock.acquire k", "ERR wrong number of arguments for 'DLOCK.ACQUIRE' command"),
    ("DLOCK.RELEASE k", "ERR wrong number of arguments for 'DLOCK.RELEASE' command"),
    ("DLOCK.RENEW k", "ERR wrong number of arguments for 'DLOCK.RENEW' command"),
    ("DLOCK.CHECK k", "ERR wrong number of arguments for 'DLOCK.CHECK' command"),
    ("DLOCK.CHECK k 1 2", "ERR wrong number of arguments for 'DLOCK.CHECK' command"),
    ("DLOCK.FENCE k o", "ERR wrong number of arguments for 'DLOCK.FENCE' command"),
    ("DLOCK.FENCE k o 1 2", "ERR wrong number of arguments for 'DLOCK.FENCE' command"),
    ("DLOCK.BREAK", "ERR wrong number of arguments for 'DLOCK.BREAK' command"),
    ("DLOCK.BREAK k o", "ERR wrong number of arguments for 'DLOCK.BREAK' command"),
    ("DLOCK.INFO", "ERR wrong number of arguments for 'DLOCK.INFO' command"),
    ("DLOCK.INFO k o", "ERR wrong number of arguments for 'DLOCK.INFO' command"),
    ("DLOCK.WAITERS", "ERR wrong number of arguments for 'DLOCK.WAITERS' command"),
    ("DLOCK.POSITION k", "ERR wrong number of arguments for 'DLOCK.POSITION' command"),
    ("DLOCK.POSITION k o x", "ERR wrong number of arguments for 'DLOCK.POSITION' command"),
    ("DLOCK.UNBLOCK", "ERR wrong number of arguments for 'DLOCK.UNBLOCK' command"),
    ("DLOCK.APPLY k", "ERR wrong number of arguments for 'DLOCK.APPLY' command"),
    ("DLOCK.APPLY k p x", "ERR wrong number of arguments for 'DLOCK.APPLY' command"),
    // Keys and owners.
    ("DLOCK.ACQUIRE  o", KEY),
    ("DLOCK.ACQUIRE  ", KEY),
    ("DLOCK.RELEASE  o", KEY),
    ("DLOCK.RENEW  o", KEY),
    ("DLOCK.CHECK  1", KEY),
    ("DLOCK.FENCE  o 1", KEY),
    ("DLOCK.BREAK ", KEY),
    ("DLOCK.INFO ", KEY),
    ("DLOCK.WAITERS ", KEY),
    ("DLOCK.POSITION  o", KEY),
    ("DLOCK.ACQUIRE k ", OWNER),
    ("DLOCK.ACQUIRE k {o*257}", OWNER),
    ("DLOCK.ACQUIRE k {o*100000} BLOCK 0", OWNER),
    ("DLOCK.RELEASE k ", OWNER),
    ("DLOCK.RELEASE k {o*257} ALL", OWNER),
    ("DLOCK.RENEW k ", OWNER),
    ("DLOCK.FENCE k  1", OWNER),
    ("DLOCK.POSITION k {o*257}", OWNER),
    // Unknown options, and options of other commands.
    ("DLOCK.ACQUIRE k o FOO", "ERR unknown option 'FOO' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o ", "ERR unknown option '' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o 30000", "ERR unknown option '30000' for DLOCK.ACQUIRE; a lease is written PX milliseconds or EX seconds"),
    ("DLOCK.ACQUIRE k o TOKEN 5", "ERR unknown option 'TOKEN' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o PX 5 6", "ERR unknown option '6' for DLOCK.ACQUIRE; a lease is written PX milliseconds or EX seconds"),
    ("DLOCK.ACQUIRE k o it's", r"ERR unknown option 'it\'s' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o %s%n%d", "ERR unknown option '%s%n%d' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o PX\r\n+OK 5", r"ERR unknown option 'PX\r\n+OK' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o PX\0 5", r"ERR unknown option 'PX\x00' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o BLÖCK 5", r"ERR unknown option 'BL\xc3\x96CK' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o {x*65}", "ERR unknown option '{x*64}'... for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o {x*100000}", "ERR unknown option '{x*64}'... for DLOCK.ACQUIRE"),
    ("DLOCK.RELEASE k o PX 5", "ERR unknown option 'PX' for DLOCK.RELEASE"),
    ("DLOCK.RENEW k o BLOCK 5", "ERR unknown option 'BLOCK' for DLOCK.RENEW"),
    ("DLOCK.RENEW k o REQID a", "ERR unknown option 'REQID' for DLOCK.RENEW"),
    ("DLOCK.WAITERS k 5", "ERR unknown option '5' for DLOCK.WAITERS"),
    ("DLOCK.UNBLOCK 5 TIMEOUT", "ERR unknown option 'TIMEOUT' for DLOCK.UNBLOCK"),
    // Options without a value, repeated, or contradictory.
    ("DLOCK.ACQUIRE k o PX", "ERR PX needs a value"),
    ("DLOCK.ACQUIRE k o ex", "ERR EX needs a value"),
    ("DLOCK.ACQUIRE k o BLOCK", "ERR BLOCK needs a value"),
    ("DLOCK.ACQUIRE k o QUEUE", "ERR QUEUE needs a value"),
    ("DLOCK.ACQUIRE k o NOTIFY", "ERR NOTIFY needs a value"),
    ("DLOCK.ACQUIRE k o PX 5 REQID", "ERR REQID needs a value"),
    ("DLOCK.ACQUIRE k o BIND", "ERR BIND needs a value"),
    ("DLOCK.ACQUIRE k o LABEL", "ERR LABEL needs a value"),
    ("DLOCK.RELEASE k o TOKEN", "ERR TOKEN needs a value"),
    ("DLOCK.WAITERS k COUNT", "ERR COUNT needs a value"),
    ("DLOCK.ACQUIRE k o PX 5 px 5", "ERR option PX given twice"),
    ("DLOCK.ACQUIRE k o NOREENTRY noreentry", "ERR option NOREENTRY given twice"),
    ("DLOCK.ACQUIRE k o REQID a PX 1 REQID a", "ERR option REQID given twice"),
    ("DLOCK.RELEASE k o ALL ALL", "ERR option ALL given twice"),
    ("DLOCK.RENEW k o TOKEN 1 TOKEN 1", "ERR option TOKEN given twice"),
    ("DLOCK.UNBLOCK 5 ERROR ERROR", "ERR option ERROR given twice"),
    ("DLOCK.ACQUIRE k o PX 5 EX 5", "ERR PX and EX exclude each other"),
    ("DLOCK.RENEW k o EX 5 BIND 0 PX 5", "ERR PX and EX exclude each other"),
    // Numbers.
    ("DLOCK.ACQUIRE k o PX 0", PX),
    ("DLOCK.ACQUIRE k o PX -1", PX),
    ("DLOCK.ACQUIRE k o PX 31536000001", PX),
    ("DLOCK.ACQUIRE k o PX 9223372036854775808", PX),
    ("DLOCK.ACQUIRE k o PX 18446744073709551617", PX),
    ("DLOCK.ACQUIRE k o PX ", PX),
    ("DLOCK.ACQUIRE k o PX abc", PX),
    ("DLOCK.ACQUIRE k o PX 5.0", PX),
    ("DLOCK.ACQUIRE k o PX 1e3", PX),
    ("DLOCK.ACQUIRE k o PX +5", PX),
    ("DLOCK.ACQUIRE k o PX 05", PX),
    ("DLOCK.ACQUIRE k o PX 5\0", PX),
    ("DLOCK.ACQUIRE k o PX %d", PX),
    ("DLOCK.ACQUIRE k o PX {9*5000}", PX),
    ("DLOCK.ACQUIRE k o PX BLOCK 5", PX),
    ("DLOCK.ACQUIRE k o EX 31536001", EX),
    ("DLOCK.ACQUIRE k o EX 9223372036854775807", EX),
    ("DLOCK.ACQUIRE k o BLOCK -1", BLOCK),
    ("DLOCK.ACQUIRE k o BLOCK 31536000001", BLOCK),
    ("DLOCK.ACQUIRE held o BLOCK 0.5", BLOCK),
    ("DLOCK.ACQUIRE held o QUEUE 0", QUEUE),
    ("DLOCK.ACQUIRE held o QUEUE 86400001", QUEUE),
    ("DLOCK.ACQUIRE k o BIND -1", BIND),
    ("DLOCK.RENEW held a EX 0", EX),
    ("DLOCK.RENEW held a BIND x", BIND),
    ("DLOCK.RENEW held a TOKEN 0", IF_TOKEN),
    ("DLOCK.RELEASE held a TOKEN 9007199254740992", IF_TOKEN),
    ("DLOCK.RELEASE held a TOKEN ALL", IF_TOKEN),
    ("DLOCK.CHECK held 0", TOKEN),
    ("DLOCK.CHECK held x", TOKEN),
    ("DLOCK.FENCE held a 9007199254740992", TOKEN),
    ("DLOCK.FENCE held a -1", TOKEN),
    ("DLOCK.WAITERS held COUNT 0", COUNT),
    ("DLOCK.UNBLOCK x", CLIENT),
    ("DLOCK.UNBLOCK 0 ERROR", CLIENT),
    ("DLOCK.UNBLOCK ERROR", CLIENT),
    // Lengths.
    ("DLOCK.ACQUIRE k o NOTIFY ", NOTIFY),
    ("DLOCK.ACQUIRE k o NOTIFY {c*257}", NOTIFY),
    ("DLOCK.ACQUIRE k o REQID ", REQID),
    ("DLOCK.ACQUIRE k o REQID {r*65}", REQID),
    ("DLOCK.RELEASE held a REQID {r*65}", REQID),
    ("DLOCK.ACQUIRE k o LABEL {l*257}", "ERR LABEL must be at most 256 bytes"),
    // The first error from the left is returned.
    ("DLOCK.ACQUIRE k o PX 0 FOO", PX),
    ("DLOCK.ACQUIRE k o FOO PX 0", "ERR unknown option 'FOO' for DLOCK.ACQUIRE"),
    // Well-formed, and still refused.
    ("DLOCK.ACQUIRE held a NOREENTRY", r#"REENTRY "a" already holds "held""#),
    ("DLOCK.RELEASE held o", NOT_HELD),
    ("DLOCK.RENEW held o", NOT_HELD),
    ("DLOCK.FENCE held o 1", NOT_HELD),
    ("DLOCK.RELEASE k o", FREE),
    ("DLOCK.RENEW k o", FREE),
    ("DLOCK.FENCE k o 1", FREE),
    ("DLOCK.CHECK held 1", r#"STALE token 1 is not that of the hold on "held""#),
    ("DLOCK.RELEASE %s%n it's", r#"NOTHELD "it's" does not hold "%s%n": nobody does"#),
    ("DLOCK.RELEASE \0\r\n\t \"\\", r#"NOTHELD "\"\\" does not hold "\x00\r\n\t": nobody does"#),
    ("DLOCK.RELEASE ä {o*256}", r#"NOTHELD "{o*64}"... does not hold "\xc3\xa4": nobody does"#),
    // Another type under the key.
    ("DLOCK.ACQUIRE text o", FOREIGN),
    ("DLOCK.ACQUIRE text o BLOCK 0 QUEUE 5", FOREIGN),
    ("DLOCK.RELEASE text o", FOREIGN),
    ("DLOCK.RENEW text o", FOREIGN),
    ("DLOCK.CHECK text 1", FOREIGN),
    ("DLOCK.FENCE text o 1", FOREIGN),
    ("DLOCK.BREAK text", FOREIGN),
    ("DLOCK.INFO text", FOREIGN),
    ("DLOCK.WAITERS text", FOREIGN),
    ("DLOCK.POSITION text o", FOREIGN),
    ("GET held", WRONG_TYPE),
    ("LPUSH held x", WRONG_TYPE),
    // Commands that only servers send to servers.
    ("DLOCK.APPLY k \u{1}", APPLY),
    ("DLOCK.APPLY held \u{1}\0", APPLY),
    ("DLOCK.APPLY text ", APPLY),
    ("DLOCK.APPLY  x", APPLY),
    // A lock belongs to one key.
    ("COPY held k", "ERR not supported for this module key"),
    ("DLOCK.NOTHING k", "ERR unknown command 'DLOCK.NOTHING', with args beginning with: 'k' "),
];

/// Expands `{x*n}`.
fn expand(text: &str) -> String {
    let Some((before, rest)) = text.split_once('{') else { return text.to_owned() };
    let (inside, after) = rest.split_once('}').unwrap();
    let (letter, times) = inside.split_once('*').unwrap();
    format!("{before}{}{}", letter.repeat(times.parse().unwrap()), expand(after))
}

/// Makes each call in both protocols and checks its exact error.
#[track_caller]
pub fn each_is_refused(server: &Server, table: &[(&str, &str)]) {
    let mut clients = [server.client(), server.client3()];
    for (call, error) in table {
        let words: Vec<String> = expand(call).split(' ').map(str::to_owned).collect();
        for client in &mut clients {
            let error = server.family().in_words(&words[0], &expand(error));
            assert_eq!(client.cmd(&words).error(), error, "{call:?}");
        }
    }
}

fn every_malformed_call_gets_its_error_and_changes_nothing(family: Family) {
    let server = family.start();
    server.cmd(&["DLOCK.ACQUIRE", "held", "a", "EX", "1000"]).ok();
    server.cmd(&["SET", "text", "x"]).ok();
    let state = || (server.digest(), server.info("dlock")["last_token"].clone(), server.keys());
    let before = state();
    each_is_refused(&server, TABLE);
    assert_eq!(state(), before);
    let info = server.cmd(&["DLOCK.INFO", "held"]);
    assert_eq!((info.field("holds").int(), info.field("waiters").int()), (1, 0));
    assert_eq!(info.field("lease-ms").int(), 1_000_000);
    server.cmd(&["DLOCK.RELEASE", "held", "a"]).ok();
    server.cmd(&["DEL", "text"]).ok();
    server.left_over_check();
}

fn keys_owners_and_labels_are_any_bytes(family: Family) {
    let server = family.start();
    let all: Vec<u8> = (0..=255).collect();
    let names: [&[u8]; 8] = [
        b"%s%n%x",
        b"\0",
        b"\0\0a\0",
        b"\xff\xfe",
        b"\r\n$-1\r\n",
        b" ",
        "日本 \u{301}".as_bytes(),
        &all,
    ];
    for name in names {
        let mut client = server.client3();
        let call = args![
            "DLOCK.ACQUIRE",
            name,
            name,
            "LABEL",
            name,
            "NOTIFY",
            name,
            "REQID",
            &name[..name.len().min(64)]
        ];
        let token = client.cmd(&call).int();
        assert_eq!(client.cmd(&call).int(), token);
        let other = b"\xfe%s\0\n";
        let mut waiter =
            server.block(&args!["DLOCK.ACQUIRE", name, other, "BLOCK", 0, "LABEL", name]);
        let info = client.cmd(&args!["DLOCK.INFO", name]);
        assert_eq!(
            (info.field("owner").bytes(), info.field("label").bytes()),
            (name.to_vec(), name.to_vec())
        );
        let row = client.cmd(&args!["DLOCK.WAITERS", name]).items()[0].clone();
        assert_eq!(
            (row.field("owner").bytes(), row.field("label").bytes()),
            (other.to_vec(), name.to_vec())
        );
        assert_eq!(client.cmd(&args!["DLOCK.POSITION", name, name]).int(), 0);
        assert_eq!(client.cmd(&args!["EXISTS", name]).int(), 1);
        // Errors quote keys and owners as redis-cli does: one line, printable.
        for error in [
            client.cmd(&args!["DLOCK.ACQUIRE", name, name, "NOREENTRY"]).error(),
            client.cmd(&args!["DLOCK.RELEASE", name, name, "TOKEN", 1]).error(),
            client.cmd(&args!["DLOCK.CHECK", name, 1]).error(),
            client.cmd(&args!["DLOCK.ACQUIRE", name, name, name]).error(),
        ] {
            assert!(error.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{error:?}");
        }
        client.cmd(&args!["DEBUG", "RELOAD"]).ok();
        assert_eq!(client.cmd(&args!["DLOCK.CHECK", name, token]).int(), 1);
        client.cmd(&args!["DLOCK.RELEASE", name, name]).ok();
        waiter.expect_reply(SOON).int();
        client.cmd(&args!["DLOCK.BREAK", name]).ok();
    }
    // A key may be long, too.
    let long = vec![b'k'; 1 << 20];
    server.cmd(&args!["DLOCK.ACQUIRE", &long, "a"]).int();
    let error = server.cmd(&args!["DLOCK.ACQUIRE", &long, "a", "NOREENTRY"]).error();
    assert_eq!(error, format!("REENTRY \"a\" already holds \"{}\"...", "k".repeat(64)));
    server.cmd(&args!["DLOCK.RELEASE", &long, "a"]).ok();
    server.left_over_check();
}

fn clients_cannot_replay_records(family: Family) {
    let server = family.start();
    let token = server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let mut tap = ReplicaTap::attach(&server);
    server.cmd(&["DLOCK.RENEW", "k", "a"]).ok();
    // A true record, taken from the stream to a replica.
    let record = tap.commands(&server).pop().unwrap();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    let mut client = server.client();
    assert_eq!(client.cmd(&record).error(), APPLY);
    let replies = client.pipeline(&[args!["MULTI"], record.clone(), args!["EXEC"]]);
    assert_eq!(replies[2].items()[0].error(), APPLY);
    let script = "return redis.call('DLOCK.APPLY', KEYS[1], ARGV[1])";
    let error = client.cmd(&args!["EVAL", script, 1, "k", &record[2]]).error();
    assert!(error.starts_with(APPLY), "{error}");
    let load = "#!lua name=l\nredis.register_function('f', function(k, a) return redis.call('DLOCK.APPLY', k[1], a[1]) end)";
    client.cmd(&["FUNCTION", "LOAD", load]).ok();
    let error = client.cmd(&args!["FCALL", "f", 1, "k", &record[2]]).error();
    assert!(error.starts_with(APPLY), "{error}");
    assert_eq!(server.keys(), 0);
    assert!(client.cmd(&args!["DLOCK.CHECK", "k", token]).error().starts_with("STALE "));
    assert_eq!(client.cmd(&["DLOCK.INFO", "k"]), Value::Nil);
    server.left_over_check();
}
