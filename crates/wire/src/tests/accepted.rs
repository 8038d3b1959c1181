//! Calls that are understood, and what they mean.

use super::call;
use crate::cursor::integer;
use crate::request::{Acquire, Release, Renew, Request};

const ACQUIRE: Acquire<'static> = Acquire::new(b"k", b"o");
const RELEASE: Release<'static> = Release::new(b"k", b"o");
const RENEW: Renew<'static> = Renew::new(b"k", b"o");

#[test]
#[rustfmt::skip]
fn calls_and_their_meaning() {
    let table: &[(&str, Request<'_>)] = &[
        ("DLOCK.ACQUIRE k o", Request::Acquire(ACQUIRE)),
        ("DLOCK.ACQUIRE k o PX 1", Request::Acquire(Acquire { lease_ms: Some(1), ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o px 31536000000", Request::Acquire(Acquire { lease_ms: Some(31_536_000_000), ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o Ex 30", Request::Acquire(Acquire { lease_ms: Some(30_000), ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o EX 31536000", Request::Acquire(Acquire { lease_ms: Some(31_536_000_000), ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o BLOCK 0", Request::Acquire(Acquire { block_ms: Some(0), ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o BLOCK 5 QUEUE 9", Request::Acquire(Acquire { block_ms: Some(5), queue_ms: Some(9), ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o NoReEntry", Request::Acquire(Acquire { no_reentry: true, ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o NOTIFY ch REQID r BIND 0 LABEL l", Request::Acquire(Acquire {
            notify: Some(b"ch"), reqid: Some(b"r"), bind_ms: Some(0), label: Some(b"l"), ..ACQUIRE })),
        // Any order; a value that looks like an option is a value.
        ("DLOCK.ACQUIRE k o LABEL PX PX 5", Request::Acquire(Acquire { label: Some(b"PX"), lease_ms: Some(5), ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o REQID REQID", Request::Acquire(Acquire { reqid: Some(b"REQID"), ..ACQUIRE })),
        ("DLOCK.ACQUIRE k o LABEL ", Request::Acquire(Acquire { label: Some(b""), ..ACQUIRE })),
        ("DLOCK.RELEASE k o", Request::Release(RELEASE)),
        ("DLOCK.RELEASE k o all", Request::Release(Release { all: true, ..RELEASE })),
        ("DLOCK.RELEASE k o TOKEN 7 ALL REQID x", Request::Release(Release { all: true, token: Some(7), reqid: Some(b"x"), ..RELEASE })),
        ("DLOCK.RENEW k o", Request::Renew(RENEW)),
        ("DLOCK.RENEW k o BIND 10 TOKEN 9007199254740991 EX 1", Request::Renew(Renew {
            lease_ms: Some(1000), token: Some(9_007_199_254_740_991), bind_ms: Some(10), ..RENEW })),
        ("DLOCK.CHECK k 1", Request::Check { key: b"k", token: 1 }),
        ("DLOCK.FENCE k o 12", Request::Fence { key: b"k", owner: b"o", token: 12 }),
        ("DLOCK.BREAK k", Request::Break { key: b"k" }),
        ("DLOCK.INFO k", Request::Info { key: b"k" }),
        ("DLOCK.WAITERS k", Request::Waiters { key: b"k", count: None }),
        ("DLOCK.WAITERS k count 3", Request::Waiters { key: b"k", count: Some(3) }),
        ("DLOCK.POSITION k o", Request::Position { key: b"k", owner: b"o" }),
        ("DLOCK.CANCEL k o", Request::Cancel { key: b"k", owner: b"o" }),
        ("DLOCK.UNBLOCK 4", Request::Unblock { client: 4, error: false }),
        ("DLOCK.UNBLOCK 4 error", Request::Unblock { client: 4, error: true }),
        ("DLOCK.APPLY k ", Request::Apply { key: b"k", payload: b"" }),
    ];
    for (line, request) in table {
        assert_eq!(call(line).as_ref(), Ok(request), "{line}");
    }
}

#[test]
#[rustfmt::skip]
fn integers_are_read_as_redis_reads_them() {
    let table: &[(&str, Option<i64>)] = &[
        ("0", Some(0)), ("1", Some(1)), ("-1", Some(-1)), ("30000", Some(30_000)),
        ("9223372036854775807", Some(i64::MAX)), ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None), ("-9223372036854775809", None), ("9999999999999999999", None),
        ("18446744073709551616", None), ("99999999999999999999999", None),
        ("", None), ("-", None), ("-0", None), ("00", None), ("01", None), ("-01", None), ("+1", None),
        (" 1", None), ("1 ", None), ("1.0", None), ("1e3", None), ("0x10", None), ("1\0", None), ("--1", None),
        ("1_000", None), ("١", None),
    ];
    for (text, number) in table {
        assert_eq!(integer(text.as_bytes()), *number, "{text:?}");
    }
}
