//! Replies as redis-rs has them, read as the types of `dlock_wire`.

use dlock_wire::reply::{self, Shape, Unreadable};
use redis::Value;

use crate::base::error::{Error, ErrorKind};

/// Reads a reply.
///
/// # Errors
///
/// [`Protocol`](ErrorKind::Protocol): it has another shape.
pub fn read<T: Shape>(from: Value) -> Result<T, Error> {
    Ok(T::read("the reply", value(from))?)
}

/// Reads a reply that may be Null.
///
/// # Errors
///
/// [`Protocol`](ErrorKind::Protocol): it has another shape.
pub fn read_or_null<T: Shape>(from: Value) -> Result<Option<T>, Error> {
    Ok(T::read_or_null("the reply", value(from))?)
}

/// The reply without what is particular to redis-rs.
pub fn value(from: Value) -> reply::Value {
    match from {
        Value::Nil => reply::Value::Null,
        Value::Int(number) => reply::Value::Int(number),
        Value::BulkString(bytes) => reply::Value::Bytes(bytes),
        Value::Okay => reply::Value::Bytes(b"OK".to_vec()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            reply::Value::Bytes(text.into_bytes())
        }
        Value::Array(items) => reply::Value::Array(items.into_iter().map(value).collect()),
        Value::Map(pairs) => {
            let pairs = pairs.into_iter().map(|(name, of)| (value(name), value(of)));
            reply::Value::Map(pairs.collect())
        }
        other => reply::Value::Other(format!("{other:?}")),
    }
}

impl From<Unreadable> for Error {
    fn from(error: Unreadable) -> Self {
        Self::new(ErrorKind::Protocol, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use dlock_wire::reply::grant::Tokens;
    use dlock_wire::reply::{LatchInfo, names};

    use super::*;

    #[test]
    fn a_map_is_read_from_both_protocols() {
        let expected = LatchInfo { count: 1, initial: 2, left: None, waiters: 3 };
        let values = [1, 2, -1, 3].map(Value::Int);
        let name = |name: &str| Value::BulkString(name.as_bytes().to_vec());
        let pairs: Vec<_> = names(LatchInfo::FIELDS).into_iter().map(name).zip(values).collect();
        let flat = pairs.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect();
        for reply in [Value::Map(pairs), Value::Array(flat)] {
            assert_eq!(read::<LatchInfo>(reply).unwrap(), expected);
        }
        assert_eq!(read_or_null::<LatchInfo>(Value::Nil).unwrap(), None);
    }

    #[test]
    fn pages_of_scan() {
        let text = |text: &str| Value::BulkString(text.into());
        let page = Value::Array(vec![text("17"), Value::Array(vec![text("a"), text("b")])]);
        let (cursor, keys) = read::<(Vec<u8>, Vec<Vec<u8>>)>(page).unwrap();
        assert_eq!((cursor.as_slice(), keys.len()), (&b"17"[..], 2));
    }

    #[test]
    fn any_other_reply_is_an_error_that_shows_it() {
        for reply in [Value::Okay, Value::Nil, Value::Int(-1), Value::Boolean(true)] {
            let error = read::<u64>(reply).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        }
        let error = read::<Tokens>(Value::Boolean(true)).unwrap_err();
        assert!(error.to_string().contains("boolean(true)"), "{error}");
    }
}
