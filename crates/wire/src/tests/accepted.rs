//! Valid calls and their meaning.

use super::call;
use crate::ParseError;
use crate::cursor::integer;
use crate::permit::PermitId;
use crate::request::{
    Acquire, Apply, Await, AwaitEnd, Channel, Check, CountDown, Drain, EndAbsent, Fence,
    FindPosition, Give, LatchInit, LatchOp, ListWaiters, LockFamily, LockOp, LockRead, Log,
    MAcquire, MRelease, MRenew, Mode, MultiOp, OneKey, OnePermit, Op, Read, Release, Renew,
    Request, Resize, ResizeTo, RwAcquire, RwBreak, RwOp, RwRead, RwRelease, RwRenew, SemAcquire,
    SemInit, SemOp, SemRead, SemRelease, SemRenew, Take, Trust, Unblock,
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
#[allow(clippy::too_many_lines)] // one line for each call
fn calls_and_their_meaning() {
    let table: alloc::vec::Vec<(&str, Request<'_>)> = alloc::vec![
        ("DLOCK.ACQUIRE k o", Op::Lock(LockFamily::Lock, LockOp::Acquire(ACQUIRE)).into()),
        ("DLOCK.ACQUIRE k o PX 1", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { lease_ms: Some(1), ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o px 31536000000", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { lease_ms: Some(31_536_000_000), ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o Ex 30", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { lease_ms: Some(30_000), ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o EX 31536000", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { lease_ms: Some(31_536_000_000), ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o BLOCK 0", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { block_ms: Some(0), ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o BLOCK 5 QUEUE 9", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { block_ms: Some(5), queue_ms: Some(9), ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o NoReEntry", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { no_reentry: true, ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o NOTIFY ch REQID r BIND 0 LABEL l", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire {
            notify: Some(Channel::Plain(b"ch")), reqid: Some(b"r"), bind_ms: Some(0), label: Some(b"l"), ..ACQUIRE })).into()),
        // Any order; a value that looks like an option is a value.
        ("DLOCK.ACQUIRE k o LABEL PX PX 5", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { label: Some(b"PX"), lease_ms: Some(5), ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o REQID REQID", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { reqid: Some(b"REQID"), ..ACQUIRE })).into()),
        ("DLOCK.ACQUIRE k o LABEL ", Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire { label: Some(b""), ..ACQUIRE })).into()),
        ("DLOCK.RELEASE k o", Op::Lock(LockFamily::Lock, LockOp::Release(RELEASE)).into()),
        ("DLOCK.RELEASE k o all", Op::Lock(LockFamily::Lock, LockOp::Release(Release { all: true, ..RELEASE })).into()),
        ("DLOCK.RELEASE k o DELAY 9 REQID x", Op::Lock(LockFamily::Lock, LockOp::Release(Release { delay_ms: Some(9), reqid: Some(b"x"), ..RELEASE })).into()),
        ("DLOCK.RELEASE k o done", Op::Lock(LockFamily::Lock, LockOp::Release(Release { done: true, ..RELEASE })).into()),
        ("DLOCK.RELEASE k o TOKEN 7 ALL REQID x", Op::Lock(LockFamily::Lock, LockOp::Release(Release { all: true, token: Some(7), reqid: Some(b"x"), ..RELEASE })).into()),
        ("DLOCK.RENEW k o", Op::Lock(LockFamily::Lock, LockOp::Renew(RENEW)).into()),
        ("DLOCK.RENEW k o BIND 10 TOKEN 9007199254740991 EX 1", Op::Lock(LockFamily::Lock, LockOp::Renew(Renew {
            lease_ms: Some(1000), token: Some(9_007_199_254_740_991), bind_ms: Some(10), ..RENEW })).into()),
        ("DLOCK.CHECK k 1", Read::Lock(LockFamily::Lock, LockRead::Check(Check { key: b"k", token: 1 })).into()),
        ("DLOCK.FENCE k o 12", Op::Lock(LockFamily::Lock, LockOp::Fence(Fence { key: b"k", owner: b"o", token: 12 })).into()),
        ("DLOCK.BREAK k", Op::Lock(LockFamily::Lock, LockOp::Break(OneKey { key: b"k" })).into()),
        ("DLOCK.INFO k", Read::Lock(LockFamily::Lock, LockRead::Info(OneKey { key: b"k" })).into()),
        ("DLOCK.WAITERS k", Read::Lock(LockFamily::Lock, LockRead::Waiters(ListWaiters { key: b"k", count: None })).into()),
        ("DLOCK.WAITERS k count 3", Read::Lock(LockFamily::Lock, LockRead::Waiters(ListWaiters { key: b"k", count: Some(3) })).into()),
        ("DLOCK.POSITION k o", Read::Lock(LockFamily::Lock, LockRead::Position(FindPosition { key: b"k", owner: b"o" })).into()),
        ("DFAIR.ACQUIRE k o EX 1 NOREENTRY", Op::Lock(LockFamily::Fair, LockOp::Acquire(Acquire { lease_ms: Some(1000), no_reentry: true, ..ACQUIRE })).into()),
        ("DFAIR.RELEASE k o ALL", Op::Lock(LockFamily::Fair, LockOp::Release(Release { all: true, ..RELEASE })).into()),
        ("DFAIR.INFO k", Read::Lock(LockFamily::Fair, LockRead::Info(OneKey { key: b"k" })).into()),
        ("DRW.ACQUIRE k o READ", Op::Rw(RwOp::Acquire(RwAcquire { acquire: ACQUIRE, mode: Mode::Read })).into()),
        ("DRW.ACQUIRE k o write QUEUE 9 PX 5", Op::Rw(RwOp::Acquire(RwAcquire {
            acquire: Acquire { lease_ms: Some(5), queue_ms: Some(9), ..ACQUIRE }, mode: Mode::Write })).into()),
        ("DRW.RELEASE k o READ ALL TOKEN 7", Op::Rw(RwOp::Release(RwRelease {
            release: Release { all: true, token: Some(7), ..RELEASE }, mode: Mode::Read })).into()),
        ("DRW.RENEW k o Write EX 1", Op::Rw(RwOp::Renew(RwRenew { renew: Renew { lease_ms: Some(1000), ..RENEW }, mode: Mode::Write })).into()),
        ("DRW.BREAK k", Op::Rw(RwOp::Break(RwBreak { key: b"k", owner: None })).into()),
        ("DRW.BREAK k o", Op::Rw(RwOp::Break(RwBreak { key: b"k", owner: Some(b"o") })).into()),
        ("DRW.CHECK k 1", Read::Rw(RwRead::Check(Check { key: b"k", token: 1 })).into()),
        ("DSEM.INIT k 2147483647", Op::Sem(SemOp::Init(SemInit { key: b"k", permits: 2_147_483_647 })).into()),
        ("DSEM.RESIZE k 5", Op::Sem(SemOp::Resize(Resize { key: b"k", to: ResizeTo::Absolute(5), reqid: None })).into()),
        ("DSEM.RESIZE k By -5 REQID r", Op::Sem(SemOp::Resize(Resize { key: b"k", to: ResizeTo::By(-5), reqid: Some(b"r") })).into()),
        ("DSEM.RESIZE k BY 0", Op::Sem(SemOp::Resize(Resize { key: b"k", to: ResizeTo::By(0), reqid: None })).into()),
        ("DSEM.ACQUIRE k o", Op::Sem(SemOp::Acquire(SEM_ACQUIRE)).into()),
        ("DSEM.ACQUIRE k o COUNT 3 Limit 4 LABEL l", Op::Sem(SemOp::Acquire(SemAcquire {
            acquire: Acquire { label: Some(b"l"), ..ACQUIRE }, count: 3, limit: Some(4) })).into()),
        ("DSEM.RELEASE k 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70", Op::Sem(SemOp::Release(SemRelease::new(b"k", b"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70"))).into()),
        ("DSEM.RELEASE k o ReqId r", Op::Sem(SemOp::Release(SemRelease { reqid: Some(b"r"), ..SemRelease::new(b"k", b"o") })).into()),
        ("DSEM.RELEASE k o ALL", Op::Sem(SemOp::Release(SemRelease { all: true, ..SemRelease::new(b"k", b"o") })).into()),
        ("DSEM.BREAK k 0192F0C1-5A3E-7C44-9D3B-2F1A6C8E4B70", Op::Sem(SemOp::Break(OnePermit { key: b"k", permit: PERMIT })).into()),
        ("DSEM.RENEW k 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70 BIND 5", Op::Sem(SemOp::Renew(SemRenew {
            bind_ms: Some(5), ..SemRenew::new(b"k", PERMIT) })).into()),
        ("DSEM.TAKE k", Op::Sem(SemOp::Take(TAKE)).into()),
        ("DSEM.TAKE k 7", Op::Sem(SemOp::Take(Take { n: 7, ..TAKE })).into()),
        ("DSEM.TAKE k BLOCK 0", Op::Sem(SemOp::Take(Take { block_ms: Some(0), ..TAKE })).into()),
        ("DSEM.TAKE k 7 reqid 8", Op::Sem(SemOp::Take(Take { n: 7, reqid: Some(b"8"), ..TAKE })).into()),
        ("DSEM.GIVE k", Op::Sem(SemOp::Give(Give { key: b"k", n: 1, reqid: None })).into()),
        ("DSEM.GIVE k 2 REQID r", Op::Sem(SemOp::Give(Give { key: b"k", n: 2, reqid: Some(b"r") })).into()),
        ("DSEM.DRAIN k REQID r", Op::Sem(SemOp::Drain(Drain { key: b"k", reqid: Some(b"r") })).into()),
        ("DSEM.PERMITS k", Read::Sem(SemRead::Permits(OneKey { key: b"k" })).into()),
        ("DSEM.WAITERS k COUNT 3", Read::Sem(SemRead::Waiters(ListWaiters { key: b"k", count: Some(3) })).into()),
        ("DLATCH.INIT k 3", Op::Latch(LatchOp::Init(LatchInit { key: b"k", count: 3, lease_ms: None })).into()),
        ("DLATCH.INIT k 3 EX 1", Op::Latch(LatchOp::Init(LatchInit { key: b"k", count: 3, lease_ms: Some(1000) })).into()),
        ("DLATCH.COUNTDOWN k", Op::Latch(LatchOp::CountDown(CountDown { key: b"k", n: 1, reqid: None })).into()),
        ("DLATCH.COUNTDOWN k REQID 5", Op::Latch(LatchOp::CountDown(CountDown { key: b"k", n: 1, reqid: Some(b"5") })).into()),
        ("DLATCH.COUNTDOWN k 2 REQID 5", Op::Latch(LatchOp::CountDown(CountDown { key: b"k", n: 2, reqid: Some(b"5") })).into()),
        ("DLOCK.AWAIT k", Op::Lock(LockFamily::Lock, LockOp::Await(AwaitEnd::new(b"k"))).into()),
        ("DFAIR.AWAIT k reason TOKEN 7 block 5", Op::Lock(LockFamily::Fair, LockOp::Await(AwaitEnd {
            token: Some(7), block_ms: Some(5), reason: true, ..AwaitEnd::new(b"k")
        })).into()),
        ("DLATCH.AWAIT k", Op::Latch(LatchOp::Await(Await { key: b"k", block_ms: None })).into()),
        ("DLATCH.AWAIT k BLOCK 5", Op::Latch(LatchOp::Await(Await { key: b"k", block_ms: Some(5) })).into()),
        ("DLOCK.MACQUIRE 2 a b o", Op::Multi(MultiOp::Acquire(MACQUIRE)).into()),
        ("DLOCK.MACQUIRE 2 a b o PX 5 BLOCK 0 REQID r BIND 1", Op::Multi(MultiOp::Acquire(MAcquire {
            lease_ms: Some(5), block_ms: Some(0), reqid: Some(b"r"), bind_ms: Some(1), ..MACQUIRE })).into()),
        ("DLOCK.ANYACQUIRE 2 a b o NOTIFY ch LABEL ", Op::Multi(MultiOp::AnyAcquire(MAcquire {
            notify: Some(Channel::Plain(b"ch")), label: Some(b""), ..MACQUIRE })).into()),
        ("DLOCK.MRELEASE 2 a b o REQID r", Op::Multi(MultiOp::Release(MRelease { reqid: Some(b"r"), ..MRelease::new(KEYS, b"o") })).into()),
        ("DLOCK.MRENEW 2 a b o EX 2", Op::Multi(MultiOp::Renew(MRenew { lease_ms: Some(2000), ..MRenew::new(KEYS, b"o") })).into()),
        // Only the count separates keys, owner and options.
        ("DLOCK.MACQUIRE 1 PX PX PX 5", Op::Multi(MultiOp::Acquire(MAcquire { lease_ms: Some(5), ..MAcquire::new(&[b"PX"], b"PX") })).into()),
        ("DLOCK.UNBLOCK 4", Request::Op(Op::Unblock(Unblock { client: 4, error: false }))),
        ("DLOCK.LOG GET", Request::Log(Log::Get { count: Some(10) })),
        ("DLOCK.LOG get 0", Request::Log(Log::Get { count: Some(0) })),
        ("DLOCK.LOG Get 128", Request::Log(Log::Get { count: Some(128) })),
        ("DLOCK.LOG GET -1", Request::Log(Log::Get { count: None })),
        ("DLOCK.LOG len", Request::Log(Log::Len)),
        ("DLOCK.LOG RESET", Request::Log(Log::Reset)),
        ("DLOCK.TRUST", Request::Op(Op::Trust(Trust))),
        ("DLOCK.UNBLOCK absent-key k", Request::Op(Op::EndAbsent(EndAbsent::At(b"k")))),
        ("DLOCK.UNBLOCK ABSENT-USER u", Request::Op(Op::EndAbsent(EndAbsent::Of(b"u")))),
        ("DLOCK.UNBLOCK 4 error", Request::Op(Op::Unblock(Unblock { client: 4, error: true }))),
        ("DLOCK.APPLY k ", Request::Apply(Apply { key: b"k", payload: b"" })),
        ("DLOCK.APPLY  p", Request::Apply(Apply { key: b"", payload: b"p" })),
    ];
    for (line, request) in table {
        call(line, |parsed| assert_eq!(parsed.as_ref(), Ok(&request), "{line}"));
        assert_eq!(line.split(' ').next(), Some(request.id().name()));
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

fn notify<'a>(parsed: Result<Request<'a>, ParseError<'a>>) -> Option<Channel<'a>> {
    let Ok(Request::Op(op)) = parsed else { panic!("an operation: {parsed:?}") };
    op.notify()
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
            assert_eq!(notify(parsed), Some(Channel::Plain(b"ch")));
        });
        let line = alloc::format!("{name} SNOTIFY ch");
        call(&line, |parsed| {
            assert_eq!(notify(parsed), Some(Channel::Sharded(b"ch")));
        });
        call(name, |parsed| assert_eq!(notify(parsed), None));
    }
}

#[test]
fn a_call_for_many_keys_is_one_call_for_each() {
    let call = MAcquire { lease_ms: Some(5), block_ms: Some(0), label: Some(b"l"), ..MACQUIRE };
    let one = Acquire { lease_ms: Some(5), block_ms: Some(0), label: Some(b"l"), ..ACQUIRE };
    assert_eq!(call.for_key(b"k"), one);
    assert_eq!(MAcquire::of(KEYS, &one), call);
}
