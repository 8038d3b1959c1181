//! Valid calls and their meaning.

use super::call;
use crate::cursor::integer;
use crate::permit::PermitId;
use crate::request::{
    Acquire, Channel, MAcquire, MRelease, MRenew, Mode, Release, Renew, Request, ResizeTo,
    RwAcquire, RwRelease, RwRenew, SemAcquire, SemRenew, Take,
};

const ACQUIRE: Acquire<'static> = Acquire::new(b"k", b"o");
const RELEASE: Release<'static> = Release::new(b"k", b"o");
const RENEW: Renew<'static> = Renew::new(b"k", b"o");
const SEM_ACQUIRE: SemAcquire<'static> = SemAcquire::new(b"k", b"o");
const TAKE: Take<'static> = Take::new(b"k", 1);
const KEYS: &[&[u8]] = &[b"a", b"b"];
const MACQUIRE: MAcquire<'static> = MAcquire::new(KEYS, b"o");
const PERMIT: PermitId = [
    0x01, 0x92, 0xf0, 0xc1, 0x5a, 0x3e, 0x7c, 0x44, 0x9d, 0x3b, 0x2f, 0x1a, 0x6c, 0x8e, 0x4b, 0x70,
];

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
            notify: Some(Channel::Plain(b"ch")), reqid: Some(b"r"), bind_ms: Some(0), label: Some(b"l"), ..ACQUIRE })),
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
        ("DLOCK.CANCEL k o", Request::Cancel { key: b"k", owner: b"o", reqid: None }),
        (
            "DSEM.CANCEL k o REQID r",
            Request::Cancel { key: b"k", owner: b"o", reqid: Some(b"r") },
        ),
        ("DFAIR.ACQUIRE k o EX 1 NOREENTRY", Request::Acquire(Acquire { lease_ms: Some(1000), no_reentry: true, ..ACQUIRE })),
        ("DFAIR.RELEASE k o ALL", Request::Release(Release { all: true, ..RELEASE })),
        ("DFAIR.INFO k", Request::Info { key: b"k" }),
        ("DRW.ACQUIRE k o READ", Request::RwAcquire(RwAcquire { acquire: ACQUIRE, mode: Mode::Read })),
        ("DRW.ACQUIRE k o write QUEUE 9 PX 5", Request::RwAcquire(RwAcquire {
            acquire: Acquire { lease_ms: Some(5), queue_ms: Some(9), ..ACQUIRE }, mode: Mode::Write })),
        ("DRW.RELEASE k o READ ALL TOKEN 7", Request::RwRelease(RwRelease {
            release: Release { all: true, token: Some(7), ..RELEASE }, mode: Mode::Read })),
        ("DRW.RENEW k o Write EX 1", Request::RwRenew(RwRenew { renew: Renew { lease_ms: Some(1000), ..RENEW }, mode: Mode::Write })),
        ("DRW.BREAK k", Request::RwBreak { key: b"k", owner: None }),
        ("DRW.BREAK k o", Request::RwBreak { key: b"k", owner: Some(b"o") }),
        ("DRW.CHECK k 1", Request::Check { key: b"k", token: 1 }),
        ("DSEM.INIT k 2147483647", Request::SemInit { key: b"k", permits: 2_147_483_647 }),
        ("DSEM.RESIZE k 5", Request::Resize { key: b"k", to: ResizeTo::Absolute(5), reqid: None }),
        ("DSEM.RESIZE k By -5 REQID r", Request::Resize { key: b"k", to: ResizeTo::By(-5), reqid: Some(b"r") }),
        ("DSEM.RESIZE k BY 0", Request::Resize { key: b"k", to: ResizeTo::By(0), reqid: None }),
        ("DSEM.ACQUIRE k o", Request::SemAcquire(SEM_ACQUIRE)),
        ("DSEM.ACQUIRE k o COUNT 3 Limit 4 LABEL l", Request::SemAcquire(SemAcquire {
            acquire: Acquire { label: Some(b"l"), ..ACQUIRE }, count: 3, limit: Some(4) })),
        ("DSEM.RELEASE k 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70", Request::SemRelease { key: b"k", permit: PERMIT }),
        ("DSEM.BREAK k 0192F0C1-5A3E-7C44-9D3B-2F1A6C8E4B70", Request::SemBreak { key: b"k", permit: PERMIT }),
        ("DSEM.RENEW k 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70 BIND 5", Request::SemRenew(SemRenew {
            bind_ms: Some(5), ..SemRenew::new(b"k", PERMIT) })),
        ("DSEM.TAKE k", Request::Take(TAKE)),
        ("DSEM.TAKE k 7", Request::Take(Take { n: 7, ..TAKE })),
        ("DSEM.TAKE k BLOCK 0", Request::Take(Take { block_ms: Some(0), ..TAKE })),
        ("DSEM.TAKE k 7 reqid 8", Request::Take(Take { n: 7, reqid: Some(b"8"), ..TAKE })),
        ("DSEM.GIVE k", Request::Give { key: b"k", n: 1, reqid: None }),
        ("DSEM.GIVE k 2 REQID r", Request::Give { key: b"k", n: 2, reqid: Some(b"r") }),
        ("DSEM.DRAIN k REQID r", Request::Drain { key: b"k", reqid: Some(b"r") }),
        ("DSEM.PERMITS k", Request::Permits { key: b"k" }),
        ("DSEM.WAITERS k COUNT 3", Request::Waiters { key: b"k", count: Some(3) }),
        ("DLATCH.INIT k 3", Request::LatchInit { key: b"k", count: 3, lease_ms: None }),
        ("DLATCH.INIT k 3 EX 1", Request::LatchInit { key: b"k", count: 3, lease_ms: Some(1000) }),
        ("DLATCH.COUNTDOWN k", Request::CountDown { key: b"k", n: 1, reqid: None }),
        ("DLATCH.COUNTDOWN k REQID 5", Request::CountDown { key: b"k", n: 1, reqid: Some(b"5") }),
        ("DLATCH.COUNTDOWN k 2 REQID 5", Request::CountDown { key: b"k", n: 2, reqid: Some(b"5") }),
        ("DLATCH.AWAIT k", Request::Await { key: b"k", block_ms: None }),
        ("DLATCH.AWAIT k BLOCK 5", Request::Await { key: b"k", block_ms: Some(5) }),
        ("DLOCK.MACQUIRE 2 a b o", Request::MAcquire(MACQUIRE)),
        ("DLOCK.MACQUIRE 2 a b o PX 5 BLOCK 0 REQID r BIND 1", Request::MAcquire(MAcquire {
            lease_ms: Some(5), block_ms: Some(0), reqid: Some(b"r"), bind_ms: Some(1), ..MACQUIRE })),
        ("DLOCK.ANYACQUIRE 2 a b o NOTIFY ch LABEL ", Request::AnyAcquire(MAcquire {
            notify: Some(Channel::Plain(b"ch")), label: Some(b""), ..MACQUIRE })),
        ("DLOCK.MRELEASE 2 a b o REQID r", Request::MRelease(MRelease { reqid: Some(b"r"), ..MRelease::new(KEYS, b"o") })),
        ("DLOCK.MRENEW 2 a b o EX 2", Request::MRenew(MRenew { lease_ms: Some(2000), ..MRenew::new(KEYS, b"o") })),
        // Only the count separates keys, owner and options.
        ("DLOCK.MACQUIRE 1 PX PX PX 5", Request::MAcquire(MAcquire { lease_ms: Some(5), ..MAcquire::new(&[b"PX"], b"PX") })),
        ("DLOCK.UNBLOCK 4", Request::Unblock { client: 4, error: false }),
        ("DLOCK.UNBLOCK 4 error", Request::Unblock { client: 4, error: true }),
        ("DLOCK.APPLY k ", Request::Apply { key: b"k", payload: b"" }),
        ("DLOCK.APPLY  p", Request::Apply { key: b"", payload: b"p" }),
    ];
    for (line, request) in table {
        call(line, |parsed| assert_eq!(parsed.as_ref(), Ok(request), "{line}"));
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

#[test]
fn the_channel_of_every_family_is_found() {
    for name in
        ["DLOCK.ACQUIRE k o", "DFAIR.ACQUIRE k o", "DRW.ACQUIRE k o READ", "DSEM.ACQUIRE k o"]
            .into_iter()
            .chain(["DLOCK.MACQUIRE 2 a b o", "DLOCK.ANYACQUIRE 1 k o"])
    {
        let line = alloc::format!("{name} NOTIFY ch");
        call(&line, |parsed| {
            assert_eq!(parsed.map(|request| request.notify()), Ok(Some(Channel::Plain(b"ch"))));
        });
        let line = alloc::format!("{name} SNOTIFY ch");
        call(&line, |parsed| {
            assert_eq!(parsed.map(|request| request.notify()), Ok(Some(Channel::Sharded(b"ch"))));
        });
        call(name, |parsed| assert_eq!(parsed.map(|request| request.notify()), Ok(None)));
    }
}

#[test]
fn a_call_for_many_keys_is_one_call_for_each() {
    let call = MAcquire { lease_ms: Some(5), block_ms: Some(0), label: Some(b"l"), ..MACQUIRE };
    let one = Acquire { lease_ms: Some(5), block_ms: Some(0), label: Some(b"l"), ..ACQUIRE };
    assert_eq!(call.for_key(b"k"), one);
    assert_eq!(MAcquire::of(KEYS, &one), call);
}
