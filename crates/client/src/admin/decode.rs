//! Decodes the replies of inspection commands.

use std::time::Duration;

use dlock_wire::reply::{holder, info, latch_info, permit, rw_info, sem_info, waiter};
use redis::Value;

use super::info::{Holder, Info, Latch, Lock, PermitHold, ReadWrite, RwMode, Semaphore, Waiter};
use super::kind::Kind;
use crate::error::{Error, ErrorKind};

/// What INFO of a family answers; None for Null.
pub(super) fn info(kind: Kind, value: &Value) -> Result<Option<Info>, Error> {
    if matches!(value, Value::Nil) {
        return Ok(None);
    }
    let fields = Fields::of(value)?;
    Ok(Some(match kind {
        Kind::Lock | Kind::Fair => Info::Lock(lock(kind, &fields)?),
        Kind::ReadWrite => Info::ReadWrite(read_write(&fields)?),
        Kind::Semaphore => Info::Semaphore(Semaphore {
            capacity: fields.number(sem_info::CAPACITY)?,
            available: fields.signed(sem_info::AVAILABLE)?,
            leased: fields.number(sem_info::LEASED)?,
            taken: fields.number(sem_info::TAKEN)?,
            waiters: fields.number(sem_info::WAITERS)?,
        }),
        Kind::Latch => Info::Latch(Latch {
            count: fields.number(latch_info::COUNT)?,
            initial: fields.number(latch_info::INITIAL)?,
            left: fields.time_left(latch_info::TTL_MS)?,
            waiters: fields.number(latch_info::WAITERS)?,
        }),
    }))
}

/// What WAITERS of any family answers.
pub(super) fn waiters(value: &Value) -> Result<Vec<Waiter>, Error> {
    each(value, |fields| {
        Ok(Waiter {
            owner: fields.bytes(waiter::OWNER)?,
            client: fields.client(waiter::CLIENT_ID)?,
            waiting: fields.time(waiter::WAITING_MS)?,
            remaining: fields.time_left(waiter::REMAINING_MS)?,
            label: fields.bytes(waiter::LABEL)?,
        })
    })
}

/// What `DSEM.PERMITS` answers.
pub(super) fn permits(value: &Value) -> Result<Vec<PermitHold>, Error> {
    each(value, |fields| {
        Ok(PermitHold {
            id: fields.text(permit::ID)?,
            owner: fields.bytes(permit::OWNER)?,
            count: fields.number(permit::COUNT)?,
            left: fields.time(permit::TTL_MS)?,
            held: fields.time(permit::HELD_MS)?,
            label: fields.bytes(permit::LABEL)?,
            bound_client: fields.client(permit::BOUND_CLIENT)?,
        })
    })
}

/// An Integer that counts something: what BREAK and UNBLOCK answer.
pub(super) fn count(value: &Value) -> Result<u64, Error> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| odd("a count", value)),
        _ => Err(odd("a count", value)),
    }
}

/// One page of SCAN: the cursor of the next, and keys.
pub(super) fn page(value: &Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), Error> {
    let Value::Array(parts) = value else { return Err(odd("a page of SCAN", value)) };
    let [cursor, Value::Array(keys)] = parts.as_slice() else {
        return Err(odd("a page of SCAN", value));
    };
    let keys = keys.iter().map(bytes).collect::<Result<_, _>>()?;
    Ok((bytes(cursor)?, keys))
}

/// A text, such as that of INFO.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&bytes(value)?).into_owned())
}

/// DLOCK.INFO and DFAIR.INFO call the same things by the same names as a hold of a read-write lock.
fn lock(kind: Kind, fields: &Fields<'_>) -> Result<Lock, Error> {
    let waiters = fields.number(info::WAITERS)?;
    let held = fields.number(info::HOLDS)? > 0;
    let holder = if held { Some(a_holder(fields)?) } else { None };
    let closed_for = if held { Duration::ZERO } else { fields.time(info::TTL_MS)? };
    Ok(Lock { kind, holder, closed_for, waiters })
}

fn read_write(fields: &Fields<'_>) -> Result<ReadWrite, Error> {
    let mode = match fields.text(rw_info::MODE)?.as_str() {
        rw_info::MODE_FREE => RwMode::Free,
        rw_info::MODE_READ => RwMode::Read,
        rw_info::MODE_WRITE => RwMode::Write,
        _ => return Err(odd("a mode", fields.get(rw_info::MODE)?)),
    };
    let writer = match fields.get(rw_info::WRITER)? {
        Value::Nil => None,
        hold => Some(a_holder(&Fields::of(hold)?)?),
    };
    let readers = each(fields.get(rw_info::READERS)?, a_holder)?;
    Ok(ReadWrite { mode, writer, readers, waiters: fields.number(rw_info::WAITERS)? })
}

fn a_holder(fields: &Fields<'_>) -> Result<Holder, Error> {
    Ok(Holder {
        owner: fields.bytes(holder::OWNER)?,
        token: fields.number(holder::TOKEN)?,
        holds: fields.number(holder::HOLDS)?,
        lease: fields.time(holder::LEASE_MS)?,
        left: fields.time(holder::TTL_MS)?,
        held: fields.time(holder::HELD_MS)?,
        label: fields.bytes(holder::LABEL)?,
        bound_client: fields.client(holder::BOUND_CLIENT)?,
    })
}

fn each<'v, T>(
    value: &'v Value,
    row: impl Fn(&Fields<'v>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    match value {
        Value::Array(rows) => rows.iter().map(|value| row(&Fields::of(value)?)).collect(),
        _ => Err(odd("an array", value)),
    }
}

/// The fields of a map, or of the flat array that RESP2 has for it.
enum Fields<'v> {
    Map(&'v [(Value, Value)]),
    Flat(&'v [Value]),
}

impl<'v> Fields<'v> {
    fn of(value: &'v Value) -> Result<Self, Error> {
        match value {
            Value::Map(pairs) => Ok(Self::Map(pairs)),
            Value::Array(flat) if flat.len().is_multiple_of(2) => Ok(Self::Flat(flat)),
            _ => Err(odd("a map", value)),
        }
    }

    fn get(&self, name: &str) -> Result<&'v Value, Error> {
        let named = |key: &Value| match key {
            Value::BulkString(bytes) => bytes == name.as_bytes(),
            Value::SimpleString(text) => text == name,
            _ => false,
        };
        let found = match self {
            Self::Map(pairs) => pairs.iter().find(|(key, _)| named(key)).map(|(_, value)| value),
            Self::Flat(flat) => {
                flat.chunks_exact(2).find(|pair| named(&pair[0])).map(|pair| &pair[1])
            }
        };
        // An older or a newer server: better an error than an invented number.
        found.ok_or_else(|| lacking(name))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, Error> {
        bytes(self.get(name)?)
    }

    fn text(&self, name: &str) -> Result<String, Error> {
        text(self.get(name)?)
    }

    fn signed(&self, name: &str) -> Result<i64, Error> {
        match self.get(name)? {
            Value::Int(number) => Ok(*number),
            other => Err(odd(name, other)),
        }
    }

    fn number(&self, name: &str) -> Result<u64, Error> {
        u64::try_from(self.signed(name)?).map_err(|_| odd(name, &Value::Nil))
    }

    fn time(&self, name: &str) -> Result<Duration, Error> {
        Ok(Duration::from_millis(self.number(name)?))
    }

    /// -1 stands for "does not end by itself".
    fn time_left(&self, name: &str) -> Result<Option<Duration>, Error> {
        Ok(u64::try_from(self.signed(name)?).ok().map(Duration::from_millis))
    }

    /// 0 stands for "no connection".
    fn client(&self, name: &str) -> Result<Option<u64>, Error> {
        Ok(Some(self.number(name)?).filter(|&id| id != 0))
    }
}

fn bytes(value: &Value) -> Result<Vec<u8>, Error> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.clone()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            Ok(text.clone().into_bytes())
        }
        _ => Err(odd("a string", value)),
    }
}

fn lacking(name: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("the server's answer lacks the field {name}"))
}

fn odd(wanted: &str, value: &Value) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the server's answer makes no sense: {wanted} is {value:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn map(pairs: &[(&str, Value)]) -> Value {
        Value::Map(pairs.iter().map(|(name, value)| (text(name), value.clone())).collect())
    }

    fn flat(map: &Value) -> Value {
        let Value::Map(pairs) = map else { panic!("{map:?}") };
        Value::Array(pairs.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect())
    }

    fn held() -> Vec<(&'static str, Value)> {
        vec![
            (holder::OWNER, text("alice")),
            (holder::TOKEN, Value::Int(41)),
            (holder::HOLDS, Value::Int(2)),
            (holder::LEASE_MS, Value::Int(60_000)),
            (holder::TTL_MS, Value::Int(54_594)),
            (holder::HELD_MS, Value::Int(5_406)),
            (holder::LABEL, text("deliveries")),
            (holder::BOUND_CLIENT, Value::Int(8)),
        ]
    }

    fn alice() -> Holder {
        Holder {
            owner: b"alice".to_vec(),
            token: 41,
            holds: 2,
            lease: Duration::from_mins(1),
            left: Duration::from_millis(54_594),
            held: Duration::from_millis(5_406),
            label: b"deliveries".to_vec(),
            bound_client: Some(8),
        }
    }

    #[test]
    fn a_lock_as_a_map_and_as_a_flat_array() {
        let mut pairs = held();
        pairs.extend([(info::KIND, text("dfair")), (info::WAITERS, Value::Int(3))]);
        let map = map(&pairs);
        let expected = Info::Lock(Lock {
            kind: Kind::Fair,
            holder: Some(alice()),
            closed_for: Duration::ZERO,
            waiters: 3,
        });
        for reply in [&map, &flat(&map)] {
            assert_eq!(super::info(Kind::Fair, reply).unwrap(), Some(expected.clone()));
        }
        assert_eq!(super::info(Kind::Fair, &Value::Nil).unwrap(), None);
    }

    #[test]
    fn a_free_lock_may_be_closed() {
        let reply = map(&[
            (info::KIND, text("dlock")),
            (info::OWNER, text("")),
            (info::TOKEN, Value::Int(0)),
            (info::HOLDS, Value::Int(0)),
            (info::LEASE_MS, Value::Int(0)),
            (info::TTL_MS, Value::Int(250)),
            (info::HELD_MS, Value::Int(0)),
            (info::LABEL, text("")),
            (info::BOUND_CLIENT, Value::Int(0)),
            (info::WAITERS, Value::Int(1)),
        ]);
        let Some(Info::Lock(lock)) = super::info(Kind::Lock, &reply).unwrap() else { panic!() };
        assert_eq!(lock.holder, None);
        assert_eq!(lock.closed_for, Duration::from_millis(250));
    }

    #[test]
    fn a_read_write_lock_with_readers_and_with_a_writer() {
        let reply = |mode, writer, readers| {
            map(&[
                (rw_info::KIND, text("drw")),
                (rw_info::MODE, text(mode)),
                (rw_info::WRITER, writer),
                (rw_info::READERS, Value::Array(readers)),
                (rw_info::WAITERS, Value::Int(0)),
            ])
        };
        let (one, none) = (map(&held()), Vec::new());
        let read = reply("read", Value::Nil, vec![one.clone(), flat(&one)]);
        let Some(Info::ReadWrite(read)) = super::info(Kind::ReadWrite, &read).unwrap() else {
            panic!()
        };
        assert_eq!((read.mode, read.writer), (RwMode::Read, None));
        assert_eq!(read.readers, [alice(), alice()]);
        let write = reply("write", one, none);
        let Some(Info::ReadWrite(write)) = super::info(Kind::ReadWrite, &write).unwrap() else {
            panic!()
        };
        assert_eq!((write.mode, write.writer), (RwMode::Write, Some(alice())));
        let odd = reply("upside down", Value::Nil, Vec::new());
        assert!(super::info(Kind::ReadWrite, &odd).is_err());
    }

    #[test]
    fn a_semaphore_may_have_more_permits_out_than_it_has() {
        let reply = map(&[
            (sem_info::CAPACITY, Value::Int(2)),
            (sem_info::AVAILABLE, Value::Int(-1)),
            (sem_info::LEASED, Value::Int(3)),
            (sem_info::TAKEN, Value::Int(0)),
            (sem_info::WAITERS, Value::Int(5)),
        ]);
        let expected = Semaphore { capacity: 2, available: -1, leased: 3, taken: 0, waiters: 5 };
        assert_eq!(super::info(Kind::Semaphore, &reply).unwrap(), Some(Info::Semaphore(expected)));
    }

    #[test]
    fn a_latch_may_have_no_end() {
        let reply = map(&[
            (latch_info::COUNT, Value::Int(1)),
            (latch_info::INITIAL, Value::Int(2)),
            (latch_info::TTL_MS, Value::Int(-1)),
            (latch_info::WAITERS, Value::Int(1)),
        ]);
        let expected = Latch { count: 1, initial: 2, left: None, waiters: 1 };
        assert_eq!(super::info(Kind::Latch, &reply).unwrap(), Some(Info::Latch(expected)));
    }

    #[test]
    fn waiters_and_permits() {
        let row = map(&[
            (waiter::OWNER, Value::BulkString(vec![0xff])),
            (waiter::CLIENT_ID, Value::Int(0)),
            (waiter::WAITING_MS, Value::Int(7)),
            (waiter::REMAINING_MS, Value::Int(-1)),
            (waiter::LABEL, text("")),
        ]);
        let found = super::waiters(&Value::Array(vec![row.clone(), flat(&row)])).unwrap();
        let expected = Waiter {
            owner: vec![0xff],
            client: None,
            waiting: Duration::from_millis(7),
            remaining: None,
            label: Vec::new(),
        };
        assert_eq!(found, [expected.clone(), expected]);

        let row = map(&[
            (permit::ID, text("4a3cbb2d-76ae-416a-80b4-d11edb1a7273")),
            (permit::OWNER, text("alice")),
            (permit::COUNT, Value::Int(2)),
            (permit::TTL_MS, Value::Int(10)),
            (permit::HELD_MS, Value::Int(20)),
            (permit::LABEL, text("")),
            (permit::BOUND_CLIENT, Value::Int(0)),
        ]);
        let found = super::permits(&Value::Array(vec![row])).unwrap();
        assert_eq!(found[0].id, "4a3cbb2d-76ae-416a-80b4-d11edb1a7273");
        assert_eq!((found[0].count, found[0].bound_client), (2, None));
    }

    #[test]
    fn what_makes_no_sense_is_an_error_and_names_the_field() {
        let reply = map(&[(latch_info::COUNT, Value::Int(1))]);
        let error = super::info(Kind::Latch, &reply).unwrap_err();
        assert!(error.to_string().contains(latch_info::INITIAL), "{error}");
        for reply in [Value::Int(1), Value::Okay, Value::Array(vec![Value::Int(1)])] {
            assert!(super::info(Kind::Lock, &reply).is_err(), "{reply:?}");
        }
        assert!(super::waiters(&Value::Nil).is_err());
        assert!(super::count(&Value::Int(-1)).is_err());
    }

    #[test]
    fn pages_of_scan() {
        let page = Value::Array(vec![text("17"), Value::Array(vec![text("a"), text("b")])]);
        let (cursor, keys) = super::page(&page).unwrap();
        assert_eq!((cursor.as_slice(), keys.len()), (&b"17"[..], 2));
        assert!(super::page(&Value::Array(vec![text("17")])).is_err());
    }
}
