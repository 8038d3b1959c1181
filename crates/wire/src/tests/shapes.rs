//! Every written reply reads as itself, in both protocols.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use super::Random;
use crate::permit::PermitText;
use crate::reply::grant::{OneOf, Tokens};
use crate::reply::{
    HolderInfo, Info, Kind, LatchInfo, LockInfo, LogEntry, LogEvent, LogToken, PermitInfo, RwInfo,
    RwMode, SemInfo, Shape, Sink, Unreadable, Value, WaiterInfo, names,
};

const RUNS: u64 = 5_000;

/// Builds the reply that a client gets.
struct Builder {
    /// RESP3, which has maps.
    has_maps: bool,
    /// Values that are being built, the innermost last: whether it is a map, the missing elements, the others.
    open: Vec<(bool, usize, Vec<Value>)>,
    done: Option<Value>,
}

impl Builder {
    fn begin(&mut self, is_map: bool, len: usize) {
        self.open.push((is_map, len, Vec::new()));
        self.close();
    }

    fn push(&mut self, value: Value) {
        match self.open.last_mut() {
            None => assert_eq!(self.done.replace(value), None, "one reply"),
            Some((_, missing, values)) => {
                *missing -= 1;
                values.push(value);
                self.close();
            }
        }
    }

    fn close(&mut self) {
        let Some((is_map, _, values)) = self.open.pop_if(|(_, missing, _)| *missing == 0) else {
            return;
        };
        self.push(if is_map && self.has_maps {
            let pair = |pair: &[Value]| (pair[0].clone(), pair[1].clone());
            Value::Map(values.chunks_exact(2).map(pair).collect())
        } else {
            Value::Array(values)
        });
    }
}

impl Sink for Builder {
    fn map(&mut self, len: usize) {
        self.begin(true, 2 * len);
    }

    fn array(&mut self, len: usize) {
        self.begin(false, len);
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.push(Value::Bytes(bytes.to_vec()));
    }

    fn int(&mut self, number: i64) {
        self.push(Value::Int(number));
    }

    fn null(&mut self) {
        self.push(Value::Null);
    }
}

fn built(has_maps: bool, write: impl FnOnce(&mut Builder)) -> Value {
    let mut builder = Builder { has_maps, open: Vec::new(), done: None };
    write(&mut builder);
    builder.done.expect("a whole reply")
}

/// Adds a field that no version of this crate knows to every map.
fn with_unknown_fields(value: Value) -> Value {
    match value {
        Value::Map(pairs) => {
            let pairs = pairs.into_iter().map(|(name, value)| (name, with_unknown_fields(value)));
            let news = (Value::Bytes(b"news".to_vec()), Value::Null);
            Value::Map([news].into_iter().chain(pairs).collect())
        }
        Value::Array(items) => {
            let is_map = matches!(items.first(), Some(Value::Bytes(_))) && items.len() > 2;
            let mut items: Vec<_> = items.into_iter().map(with_unknown_fields).collect();
            if is_map {
                items.extend([Value::Bytes(b"news".to_vec()), Value::Array(vec![Value::Null])]);
            }
            Value::Array(items)
        }
        other => other,
    }
}

fn check<T: Shape + PartialEq + Debug>(reply: &T) {
    for has_maps in [false, true] {
        let value = built(has_maps, |to| reply.write(to));
        for value in [value.clone(), with_unknown_fields(value)] {
            assert_eq!(T::read("the reply", value).as_ref(), Ok(reply), "maps: {has_maps}");
        }
    }
}

fn check_info(info: &Info) {
    for has_maps in [false, true] {
        let value = built(has_maps, |to| info.write(to));
        for value in [value.clone(), with_unknown_fields(value)] {
            assert_eq!(Info::read(info.kind(), value), Ok(Some(info.clone())), "maps: {has_maps}");
        }
    }
}

impl Random {
    fn count(&mut self) -> u64 {
        self.within(0, i64::MAX.unsigned_abs())
    }

    fn time(&mut self) -> Duration {
        Duration::from_millis(self.count())
    }

    fn end(&mut self) -> Option<Duration> {
        self.coin().then(|| self.time())
    }

    fn connection(&mut self) -> Option<u64> {
        Some(self.count()).filter(|&id| id != 0)
    }

    fn several<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.within(0, 4)).map(|_| make(self)).collect()
    }

    fn permit_text(&mut self) -> PermitText {
        PermitText::of(&core::array::from_fn(|_| self.next().to_le_bytes()[0]))
    }

    fn holder(&mut self) -> HolderInfo {
        HolderInfo {
            owner: self.bytes(0, 40),
            token: self.count(),
            holds: self.within(1, 9),
            lease: self.time(),
            left: self.time(),
            held: self.time(),
            label: self.bytes(0, 40),
            bound_client: self.connection(),
        }
    }

    fn lock_info(&mut self) -> LockInfo {
        let kind = if self.coin() { Kind::Lock } else { Kind::Fair };
        let holder = self.coin().then(|| self.holder());
        let closed_for = if holder.is_some() { Duration::ZERO } else { self.time() };
        let (waiters, observers) = (self.count(), self.count());
        LockInfo { kind, holder, closed_for, waiters, observers, reserved_for: self.bytes(0, 40) }
    }

    fn rw_info(&mut self) -> RwInfo {
        RwInfo {
            mode: [RwMode::Free, RwMode::Read, RwMode::Write][self.index(3)],
            writer: self.coin().then(|| self.holder()),
            readers: self.several(Self::holder),
            waiters: self.count(),
        }
    }

    fn sem_info(&mut self) -> SemInfo {
        SemInfo {
            capacity: self.count(),
            available: self.next().cast_signed(),
            leased: self.count(),
            taken: self.count(),
            waiters: self.count(),
        }
    }

    fn latch_info(&mut self) -> LatchInfo {
        LatchInfo {
            count: self.count(),
            initial: self.count(),
            left: self.end(),
            waiters: self.count(),
        }
    }

    fn permit_info(&mut self) -> PermitInfo {
        PermitInfo {
            id: self.permit_text(),
            owner: self.bytes(0, 40),
            count: self.count(),
            left: self.time(),
            held: self.time(),
            label: self.bytes(0, 40),
            bound_client: self.connection(),
        }
    }

    fn log_entry(&mut self) -> LogEntry {
        LogEntry {
            id: self.count(),
            time: self.time(),
            event: LogEvent::ALL[self.index(LogEvent::ALL.len())],
            kind: Kind::ALL[self.index(Kind::ALL.len())],
            db: self.count(),
            key: self.bytes(0, 40),
            owner: self.bytes(0, 40),
            label: self.bytes(0, 40),
            token: match self.index(3) {
                0 => LogToken::None,
                1 => LogToken::Token(self.within(1, 1 << 53)),
                _ => LogToken::Permit(self.permit_text()),
            },
            held: self.time(),
            waited: self.time(),
            waiters: self.count(),
            text: self.bytes(0, 40),
            count: self.count(),
            first: self.time(),
        }
    }

    fn waiter_info(&mut self) -> WaiterInfo {
        WaiterInfo {
            owner: self.bytes(0, 40),
            client: self.connection(),
            waiting: self.time(),
            remaining: self.end(),
            label: self.bytes(0, 40),
        }
    }
}

#[test]
fn written_replies_read_as_themselves() {
    for seed in 0..RUNS {
        let mut random = Random(seed);
        check_info(&Info::Lock(random.lock_info()));
        check_info(&Info::ReadWrite(random.rw_info()));
        check_info(&Info::Semaphore(random.sem_info()));
        check_info(&Info::Latch(random.latch_info()));
        check(&random.several(Random::permit_info));
        check(&random.several(Random::waiter_info));
        check(&random.several(Random::log_entry));
        check::<Tokens>(&random.several(Random::count));
        check::<OneOf>(&(random.bytes(0, 40), random.count()));
        check(&random.permit_text());
        check(&random.next().cast_signed());
    }
}

/// The names in the order in which they are written.
fn written_names(reply: &impl Shape) -> Vec<Vec<u8>> {
    let Value::Map(pairs) = built(true, |to| reply.write(to)) else { panic!("a map") };
    let name = |(name, _)| Vec::<u8>::read("a name", name).expect("a name");
    pairs.into_iter().map(name).collect()
}

#[test]
fn documented_fields_are_the_written_ones() {
    let mut random = Random(1);
    let bytes = |fields| names(fields).into_iter().map(Vec::from).collect::<Vec<_>>();
    assert_eq!(written_names(&random.lock_info()), bytes(LockInfo::FIELDS));
    assert_eq!(written_names(&random.rw_info()), bytes(RwInfo::FIELDS));
    assert_eq!(written_names(&random.holder()), bytes(HolderInfo::FIELDS));
    assert_eq!(written_names(&random.sem_info()), bytes(SemInfo::FIELDS));
    assert_eq!(written_names(&random.latch_info()), bytes(LatchInfo::FIELDS));
    assert_eq!(written_names(&random.permit_info()), bytes(PermitInfo::FIELDS));
    assert_eq!(written_names(&random.waiter_info()), bytes(WaiterInfo::FIELDS));
    assert_eq!(written_names(&random.log_entry()), bytes(LogEntry::FIELDS));
}

fn text(text: &str) -> Value {
    Value::Bytes(text.into())
}

#[test]
fn null_stands_for_no_reply() {
    for kind in Kind::ALL {
        assert_eq!(Info::read(kind, Value::Null), Ok(None));
    }
    assert_eq!(u64::read_or_null("POSITION", Value::Null), Ok(None));
    assert!(Vec::<WaiterInfo>::read("WAITERS", Value::Null).is_err());
}

/// Numbers that stand for a missing value, and the shape of a lock without a holder.
#[test]
fn missing_values_have_numbers() {
    assert_eq!(built(true, |to| None::<u64>.write(to)), Value::Int(0));
    assert_eq!(built(true, |to| None::<Duration>.write(to)), Value::Int(-1));
    let closed_for = Duration::from_millis(250);
    let free = LockInfo { closed_for, waiters: 1, ..LockInfo::free(Kind::Lock) };
    let zero = Value::Int(0);
    let fields = [
        [text("kind"), text("dlock")],
        [text("owner"), text("")],
        [text("token"), zero.clone()],
        [text("holds"), zero.clone()],
        [text("lease-ms"), zero.clone()],
        [text("ttl-ms"), Value::Int(250)],
        [text("held-ms"), zero.clone()],
        [text("label"), text("")],
        [text("bound-client"), zero],
        [text("waiters"), Value::Int(1)],
        [text("observers"), Value::Int(0)],
        [text("reserved-for"), text("")],
    ];
    assert_eq!(built(false, |to| free.write(to)), Value::Array(fields.concat()));
}

#[test]
fn other_replies_are_errors_that_name_the_field() {
    let reply = Value::Map(vec![(text("count"), Value::Int(1))]);
    let error = Info::read(Kind::Latch, reply).expect_err("no field `initial`");
    assert_eq!(error, Unreadable::Missing("initial"));
    let reply = Value::Map(vec![(text("count"), Value::Int(-1))]);
    let error = Info::read(Kind::Latch, reply).expect_err("a negative count");
    assert_eq!(error, Unreadable::Odd("count", Value::Int(-1)));
    for reply in [Value::Int(1), text("OK"), Value::Array(vec![Value::Int(1)])] {
        assert_eq!(Info::read(Kind::Lock, reply.clone()), Err(Unreadable::Odd("INFO", reply)));
    }
    for odd in [text("upside down"), Value::Null] {
        assert_eq!(RwMode::read("mode", odd.clone()), Err(Unreadable::Odd("mode", odd)));
    }
    assert!(OneOf::read("the grant", Value::Array(vec![text("k")])).is_err());
    assert!(PermitText::read("id", text("not a UUID")).is_err());
}
