//! Malformed calls, with the exact text of each error.

mod families;

use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use super::{call, id};
use crate::parse;

const PX: &str = "PX must be an integer between 1 and 31536000000";
const EX: &str = "EX must be an integer between 1 and 31536000";
const BLOCK: &str = "BLOCK must be an integer between 0 and 31536000000";
const QUEUE: &str = "QUEUE must be an integer between 1 and 86400000";
const BIND: &str = "BIND must be an integer between 0 and 31536000000";
const OPTION_TOKEN: &str = "TOKEN must be an integer between 1 and 9007199254740991";
const TOKEN: &str = "token must be an integer between 1 and 9007199254740991";
const COUNT: &str = "COUNT must be an integer between 1 and 9223372036854775807";
const CLIENT: &str = "client-id must be an integer between 1 and 9223372036854775807";
const LOG_COUNT: &str = "count must be an integer between -1 and 9223372036854775807";
const OWNER: &str = "owner must be 1 to 256 bytes";
const KEY: &str = "key must not be empty";

/// Calls and the text of each error. An empty word in a line (two spaces, or one at its end) is an empty argument.
#[rustfmt::skip]
const MALFORMED: &[(&str, &str)] = &[
    // Too few and too many.
    ("DLOCK.ACQUIRE", "wrong number of arguments for 'DLOCK.ACQUIRE' command"),
    ("DLOCK.ACQUIRE k", "wrong number of arguments for 'DLOCK.ACQUIRE' command"),
    ("DLOCK.RELEASE k", "wrong number of arguments for 'DLOCK.RELEASE' command"),
    ("DLOCK.RENEW k", "wrong number of arguments for 'DLOCK.RENEW' command"),
    ("DLOCK.CHECK k", "wrong number of arguments for 'DLOCK.CHECK' command"),
    ("DLOCK.CHECK k 1 2", "wrong number of arguments for 'DLOCK.CHECK' command"),
    ("DLOCK.FENCE k o", "wrong number of arguments for 'DLOCK.FENCE' command"),
    ("DLOCK.FENCE k o 1 2", "wrong number of arguments for 'DLOCK.FENCE' command"),
    ("DLOCK.BREAK", "wrong number of arguments for 'DLOCK.BREAK' command"),
    ("DLOCK.BREAK k o", "wrong number of arguments for 'DLOCK.BREAK' command"),
    ("DLOCK.INFO", "wrong number of arguments for 'DLOCK.INFO' command"),
    ("DLOCK.INFO k o", "wrong number of arguments for 'DLOCK.INFO' command"),
    ("DLOCK.WAITERS", "wrong number of arguments for 'DLOCK.WAITERS' command"),
    ("DLOCK.POSITION k", "wrong number of arguments for 'DLOCK.POSITION' command"),
    ("DLOCK.POSITION k o x", "wrong number of arguments for 'DLOCK.POSITION' command"),
    ("DLOCK.TRUST me", "wrong number of arguments for 'DLOCK.TRUST' command"),
    ("DLOCK.UNBLOCK", "wrong number of arguments for 'DLOCK.UNBLOCK' command"),
    ("DLOCK.LOG", "wrong number of arguments for 'DLOCK.LOG' command"),
    ("DLOCK.LOG LEN 1", "wrong number of arguments for 'DLOCK.LOG' command"),
    ("DLOCK.LOG RESET x", "wrong number of arguments for 'DLOCK.LOG' command"),
    ("DLOCK.LOG GET 1 2", "wrong number of arguments for 'DLOCK.LOG' command"),
    ("DLOCK.LOG 5", "unknown subcommand '5' for DLOCK.LOG: it must be GET, LEN or RESET"),
    ("DLOCK.LOG G\0T", r"unknown subcommand 'G\x00T' for DLOCK.LOG: it must be GET, LEN or RESET"),
    ("DLOCK.APPLY k", "wrong number of arguments for 'DLOCK.APPLY' command"),
    ("DLOCK.APPLY k p x", "wrong number of arguments for 'DLOCK.APPLY' command"),
    // A lease without its unit.
    ("DLOCK.ACQUIRE k o 30000", "unknown option '30000' for DLOCK.ACQUIRE; a lease is written PX milliseconds or EX seconds"),
    ("DLOCK.RENEW k o 30000", "unknown option '30000' for DLOCK.RENEW; a lease is written PX milliseconds or EX seconds"),
    ("DLOCK.RELEASE k o 30000", "unknown option '30000' for DLOCK.RELEASE"),
    // Empty keys and owners; the key is checked first.
    ("DLOCK.ACQUIRE  o", KEY),
    ("DLOCK.ACQUIRE  ", KEY),
    ("DLOCK.ACQUIRE k ", OWNER),
    ("DLOCK.ACQUIRE k  PX 5", OWNER),
    ("DLOCK.RELEASE  o", KEY),
    ("DLOCK.RELEASE k ", OWNER),
    ("DLOCK.RENEW  o", KEY),
    ("DLOCK.RENEW k ", OWNER),
    ("DLOCK.CHECK  1", KEY),
    ("DLOCK.FENCE  o 1", KEY),
    ("DLOCK.FENCE k  1", OWNER),
    ("DLOCK.BREAK ", KEY),
    ("DLOCK.INFO ", KEY),
    ("DLOCK.WAITERS ", KEY),
    ("DLOCK.POSITION  o", KEY),
    ("DLOCK.POSITION k ", OWNER),
    // Unknown options.
    ("DLOCK.ACQUIRE k o FOO", "unknown option 'FOO' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o foo 5 PX x", "unknown option 'foo' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o ", "unknown option '' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o PXX 5", "unknown option 'PXX' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o P 5", "unknown option 'P' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o TOKEN 5", "unknown option 'TOKEN' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o all", "unknown option 'all' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o PX 5 6", "unknown option '6' for DLOCK.ACQUIRE; a lease is written PX milliseconds or EX seconds"),
    ("DLOCK.ACQUIRE k o it's", r"unknown option 'it\'s' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o \"PX\" 5", "unknown option '\"PX\"' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o %s%n", "unknown option '%s%n' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o PX\r\n+OK 5", r"unknown option 'PX\r\n+OK' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o PX\0 5", r"unknown option 'PX\x00' for DLOCK.ACQUIRE"),
    ("DLOCK.ACQUIRE k o BLÖCK 5", r"unknown option 'BL\xc3\x96CK' for DLOCK.ACQUIRE"),
    ("DLOCK.RELEASE k o PX 5", "unknown option 'PX' for DLOCK.RELEASE"),
    ("DLOCK.RELEASE k o 5", "unknown option '5' for DLOCK.RELEASE"),
    ("DLOCK.RENEW k o BLOCK 5", "unknown option 'BLOCK' for DLOCK.RENEW"),
    ("DLOCK.RENEW k o REQID a", "unknown option 'REQID' for DLOCK.RENEW"),
    ("DLOCK.WAITERS k 5", "unknown option '5' for DLOCK.WAITERS"),
    ("DLOCK.WAITERS k ERROR", "unknown option 'ERROR' for DLOCK.WAITERS"),
    ("DLOCK.UNBLOCK 5 TIMEOUT", "unknown option 'TIMEOUT' for DLOCK.UNBLOCK"),
    ("DLOCK.UNBLOCK ABSENT-KEY k x", "wrong number of arguments for 'DLOCK.UNBLOCK' command"),
    ("DLOCK.UNBLOCK 5 COUNT 1", "unknown option 'COUNT' for DLOCK.UNBLOCK"),
    // Options without their value.
    ("DLOCK.ACQUIRE k o PX", "PX needs a value"),
    ("DLOCK.ACQUIRE k o ex", "EX needs a value"),
    ("DLOCK.ACQUIRE k o BLOCK", "BLOCK needs a value"),
    ("DLOCK.ACQUIRE k o QUEUE", "QUEUE needs a value"),
    ("DLOCK.ACQUIRE k o NOTIFY", "NOTIFY needs a value"),
    ("DLOCK.ACQUIRE k o SNOTIFY", "SNOTIFY needs a value"),
    ("DLOCK.ACQUIRE k o SNOTIFY c NOTIFY d", "NOTIFY and SNOTIFY exclude each other"),
    ("DLOCK.ACQUIRE k o NOTIFY c SNOTIFY d", "NOTIFY and SNOTIFY exclude each other"),
    ("DLOCK.ACQUIRE k o SNOTIFY c SNOTIFY d", "option SNOTIFY given twice"),
    ("DLOCK.ACQUIRE k o PX 5 REQID", "REQID needs a value"),
    ("DLOCK.ACQUIRE k o BIND", "BIND needs a value"),
    ("DLOCK.ACQUIRE k o LABEL", "LABEL needs a value"),
    ("DLOCK.RELEASE k o TOKEN", "TOKEN needs a value"),
    ("DLOCK.WAITERS k COUNT", "COUNT needs a value"),
    // Repeated and contradictory options.
    ("DLOCK.ACQUIRE k o PX 5 PX 5", "option PX given twice"),
    ("DLOCK.ACQUIRE k o PX 5 px", "option PX given twice"),
    ("DLOCK.ACQUIRE k o NOREENTRY noreentry", "option NOREENTRY given twice"),
    ("DLOCK.ACQUIRE k o LABEL a LABEL b", "option LABEL given twice"),
    ("DLOCK.ACQUIRE k o REQID a PX 1 REQID a", "option REQID given twice"),
    ("DLOCK.ACQUIRE k o BLOCK 1 BLOCK 2", "option BLOCK given twice"),
    ("DLOCK.RELEASE k o ALL ALL", "option ALL given twice"),
    ("DLOCK.RENEW k o TOKEN 1 TOKEN 1", "option TOKEN given twice"),
    ("DLOCK.WAITERS k COUNT 1 COUNT 1", "option COUNT given twice"),
    ("DLOCK.UNBLOCK 5 ERROR ERROR", "option ERROR given twice"),
    ("DLOCK.ACQUIRE k o PX 5 EX 5", "PX and EX exclude each other"),
    ("DLOCK.ACQUIRE k o EX 5 BLOCK 1 PX 5", "PX and EX exclude each other"),
    ("DLOCK.RENEW k o EX 5 PX 5", "PX and EX exclude each other"),
    // Numbers.
    ("DLOCK.ACQUIRE k o PX 0", PX),
    ("DLOCK.ACQUIRE k o PX -1", PX),
    ("DLOCK.ACQUIRE k o PX 31536000001", PX),
    ("DLOCK.ACQUIRE k o PX 9223372036854775808", PX),
    ("DLOCK.ACQUIRE k o PX 99999999999999999999999999", PX),
    ("DLOCK.ACQUIRE k o PX ", PX),
    ("DLOCK.ACQUIRE k o PX abc", PX),
    ("DLOCK.ACQUIRE k o PX 5.0", PX),
    ("DLOCK.ACQUIRE k o PX 1e3", PX),
    ("DLOCK.ACQUIRE k o PX +5", PX),
    ("DLOCK.ACQUIRE k o PX 05", PX),
    ("DLOCK.ACQUIRE k o PX 0x5", PX),
    ("DLOCK.ACQUIRE k o PX 5\0", PX),
    ("DLOCK.ACQUIRE k o PX %d", PX),
    ("DLOCK.ACQUIRE k o PX BLOCK 5", PX),
    ("DLOCK.ACQUIRE k o EX 0", EX),
    ("DLOCK.ACQUIRE k o EX 31536001", EX),
    ("DLOCK.ACQUIRE k o EX 9223372036854775807", EX),
    ("DLOCK.ACQUIRE k o BLOCK -1", BLOCK),
    ("DLOCK.ACQUIRE k o BLOCK -0", BLOCK),
    ("DLOCK.ACQUIRE k o BLOCK 31536000001", BLOCK),
    ("DLOCK.ACQUIRE k o BLOCK 0.5", BLOCK),
    ("DLOCK.ACQUIRE k o QUEUE 0", QUEUE),
    ("DLOCK.ACQUIRE k o QUEUE 86400001", QUEUE),
    ("DLOCK.ACQUIRE k o BIND -1", BIND),
    ("DLOCK.ACQUIRE k o BIND 31536000001", BIND),
    ("DLOCK.RENEW k o PX 0", PX),
    ("DLOCK.RENEW k o EX x", EX),
    ("DLOCK.RENEW k o BIND x", BIND),
    ("DLOCK.RENEW k o TOKEN 0", OPTION_TOKEN),
    ("DLOCK.RELEASE k o TOKEN 0", OPTION_TOKEN),
    ("DLOCK.RELEASE k o TOKEN 9007199254740992", OPTION_TOKEN),
    ("DLOCK.RELEASE k o TOKEN -5", OPTION_TOKEN),
    ("DLOCK.RELEASE k o TOKEN ALL", OPTION_TOKEN),
    ("DLOCK.CHECK k 0", TOKEN),
    ("DLOCK.CHECK k x", TOKEN),
    ("DLOCK.CHECK k ", TOKEN),
    ("DLOCK.CHECK k 9007199254740992", TOKEN),
    ("DLOCK.FENCE k o 0", TOKEN),
    ("DLOCK.FENCE k o -1", TOKEN),
    ("DLOCK.WAITERS k COUNT 0", COUNT),
    ("DLOCK.WAITERS k COUNT -1", COUNT),
    ("DLOCK.WAITERS k COUNT x", COUNT),
    ("DLOCK.LOG GET x", LOG_COUNT),
    ("DLOCK.LOG GET -2", LOG_COUNT),
    ("DLOCK.LOG GET ", LOG_COUNT),
    ("DLOCK.LOG GET 9223372036854775808", LOG_COUNT),
    ("DLOCK.UNBLOCK x", CLIENT),
    ("DLOCK.UNBLOCK 0", CLIENT),
    ("DLOCK.UNBLOCK -1 ERROR", CLIENT),
    ("DLOCK.UNBLOCK ERROR", CLIENT),
    // Empty values.
    ("DLOCK.ACQUIRE k o NOTIFY ", "NOTIFY must be 1 to 256 bytes"),
    ("DLOCK.ACQUIRE k o SNOTIFY ", "SNOTIFY must be 1 to 256 bytes"),
    ("DLOCK.ACQUIRE k o REQID ", "REQID must be 1 to 64 bytes"),
    ("DLOCK.RELEASE k o REQID ", "REQID must be 1 to 64 bytes"),
    // The first error from the left is returned.
    ("DLOCK.ACQUIRE k o PX 0 FOO", PX),
    ("DLOCK.ACQUIRE k o FOO PX 0", "unknown option 'FOO' for DLOCK.ACQUIRE"),
];

#[test]
fn every_malformed_call_gets_its_text() {
    for (line, text) in
        [MALFORMED, families::RW, families::SEM, families::LATCH, families::MULTI].concat()
    {
        call(line, |parsed| match parsed {
            Ok(request) => panic!("{line:?} was understood as {request:?}"),
            Err(error) => assert_eq!(error.to_string(), text, "{line:?}"),
        });
    }
}

#[test]
fn lengths_end_where_they_say() {
    let long = vec![b'x'; 257];
    let table: &[(&str, &[&[u8]], usize, &str)] = &[
        ("DLOCK.ACQUIRE", &[b"k"], 256, OWNER),
        ("DLOCK.RELEASE", &[b"k"], 256, OWNER),
        ("DLOCK.RENEW", &[b"k"], 256, OWNER),
        ("DLOCK.POSITION", &[b"k"], 256, OWNER),
        ("DLOCK.ACQUIRE", &[b"k", b"o", b"NOTIFY"], 256, "NOTIFY must be 1 to 256 bytes"),
        ("DLOCK.ACQUIRE", &[b"k", b"o", b"REQID"], 64, "REQID must be 1 to 64 bytes"),
        ("DLOCK.RELEASE", &[b"k", b"o", b"REQID"], 64, "REQID must be 1 to 64 bytes"),
        ("DLOCK.ACQUIRE", &[b"k", b"o", b"LABEL"], 256, "LABEL must be at most 256 bytes"),
    ];
    for &(name, before, max, text) in table {
        let mut args = before.to_vec();
        args.push(&long[..max]);
        assert!(parse(id(name), &args).is_ok(), "{name} with {max} bytes");
        args.pop();
        args.push(&long[..=max]);
        let error = parse(id(name), &args).expect_err("one byte too many");
        assert_eq!(error.to_string(), text, "{name}");
    }
}

#[test]
fn long_and_binary_words_are_cut_and_escaped() {
    let long = vec![b'A'; 1000];
    let args: [&[u8]; 3] = [b"k", b"o", &long];
    let error = parse(id("DLOCK.ACQUIRE"), &args).expect_err("no such option");
    assert_eq!(
        error.to_string(),
        format!("unknown option '{}'... for DLOCK.ACQUIRE", "A".repeat(64))
    );

    let args: [&[u8]; 3] = [b"k", b"o", b"\xff\x00\t%s"];
    let error = parse(id("DLOCK.ACQUIRE"), &args).expect_err("no such option");
    assert_eq!(error.to_string(), r"unknown option '\xff\x00\t%s' for DLOCK.ACQUIRE");
}

#[test]
fn keys_and_owners_may_hold_any_byte() {
    let all: [u8; 256] = core::array::from_fn(|byte| u8::try_from(byte).expect("a byte"));
    let huge = vec![b'k'; 1 << 20];
    assert!(parse(id("DLOCK.ACQUIRE"), &[&all, &all, b"LABEL", &all, b"NOTIFY", &all]).is_ok());
    assert!(parse(id("DLOCK.INFO"), &[&huge]).is_ok());
}
