//! How replies are written and read, and the shapes of their parts.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// Receives a reply, one element after the other: the connection of a client.
pub trait Sink {
    /// Begins a map of `len` fields: a map in RESP3, a flat array in RESP2. Each field is its name and its value.
    fn map(&mut self, len: usize);
    /// Begins an array of `len` elements.
    fn array(&mut self, len: usize);
    /// Writes a bulk string.
    fn bulk(&mut self, bytes: &[u8]);
    /// Writes an integer.
    fn int(&mut self, number: i64);
    /// Writes Null.
    fn null(&mut self);
    /// Writes the number that stands for a missing value.
    fn missing(&mut self, number: i64) {
        self.int(number);
    }
}

/// A reply as a client received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Null.
    Null,
    /// An integer.
    Int(i64),
    /// A string of any kind.
    Bytes(Vec<u8>),
    /// An array; also a map in RESP2.
    Array(Vec<Value>),
    /// A map in RESP3.
    Map(Vec<(Value, Value)>),
    /// Any other reply, as text.
    Other(String),
}

/// A reply that is not what its command answers, of a server of another version for example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// A map lacks this field.
    Missing(&'static str),
    /// This part of the reply has another shape.
    Odd(&'static str, Value),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "the server's answer lacks the field {name}"),
            Self::Odd(what, value) => {
                write!(f, "the server's answer makes no sense: {what} is {value:?}")
            }
        }
    }
}

impl core::error::Error for Unreadable {}

/// A reply, or a part of one: `read(write(x)) == x`.
pub trait Shape: Sized {
    /// Writes it.
    fn write(&self, to: &mut impl Sink);

    /// Reads it. `what` names it in errors.
    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable>;

    /// Reads it where Null means that there is none.
    fn read_or_null(what: &'static str, from: Value) -> Result<Option<Self>, Unreadable> {
        if from == Value::Null { Ok(None) } else { Self::read(what, from).map(Some) }
    }
}

/// A field of a map: its name and its meaning (one line of Markdown).
pub type Field = (&'static str, &'static str);

/// The names of fields.
pub fn names(fields: &[Field]) -> Vec<&'static str> {
    fields.iter().map(|(name, _)| *name).collect()
}

/// The fields of a map that is being read. Unknown fields are ignored.
pub(super) struct Fields(Vec<(Value, Value)>);

impl Fields {
    pub(super) fn of(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        match from {
            Value::Map(pairs) => Ok(Self(pairs)),
            Value::Array(flat) if flat.len() % 2 == 0 => {
                let mut flat = flat.into_iter();
                let pairs = core::iter::from_fn(|| Some((flat.next()?, flat.next()?)));
                Ok(Self(pairs.collect()))
            }
            other => Err(Unreadable::Odd(what, other)),
        }
    }

    /// Takes a field.
    pub(super) fn get<T: Shape>(&mut self, name: &'static str) -> Result<T, Unreadable> {
        let is_it =
            |(key, _): &(Value, Value)| matches!(key, Value::Bytes(key) if key == name.as_bytes());
        match self.0.iter().position(is_it) {
            Some(at) => T::read(name, self.0.swap_remove(at).1),
            None => Err(Unreadable::Missing(name)),
        }
    }
}

/// Writes a field.
pub(super) fn field(to: &mut impl Sink, name: &'static str, value: &impl Shape) {
    to.bulk(name.as_bytes());
    value.write(to);
}

/// A type whose values are maps. Each line is a field in the order of the reply: its name, its name and type in Rust,
/// and its meaning. A field that always has the same text is in parentheses in front of the others.
macro_rules! map {
    (
        $(#[$attribute:meta])*
        $type:ident $(($fixed:literal = $text:literal, $fixed_meaning:literal))? {
            $($name:literal => $field:ident: $of:ty, $meaning:literal;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $type {
            $(#[doc = $meaning] pub $field: $of,)*
        }

        impl $type {
            /// The fields of the map, in the order of the reply.
            pub const FIELDS: &'static [$crate::reply::Field] =
                &[$(($fixed, $fixed_meaning),)? $(($name, $meaning),)*];

            /// Writes the fields without the beginning of the map.
            pub(super) fn write_fields(&self, to: &mut impl $crate::reply::Sink) {
                $(to.bulk($fixed.as_bytes()); to.bulk($text.as_bytes());)?
                $($crate::reply::shape::field(to, $name, &self.$field);)*
            }

            /// Reads the fields of a map that may have more.
            pub(super) fn read_fields(
                fields: &mut $crate::reply::shape::Fields,
            ) -> Result<Self, $crate::reply::Unreadable> {
                Ok(Self { $($field: fields.get($name)?,)* })
            }
        }

        impl $crate::reply::Shape for $type {
            fn write(&self, to: &mut impl $crate::reply::Sink) {
                to.map(Self::FIELDS.len());
                self.write_fields(to);
            }

            fn read(
                what: &'static str,
                from: $crate::reply::Value,
            ) -> Result<Self, $crate::reply::Unreadable> {
                Self::read_fields(&mut $crate::reply::shape::Fields::of(what, from)?)
            }
        }
    };
}
pub(super) use map;

/// An integer.
impl Shape for i64 {
    fn write(&self, to: &mut impl Sink) {
        to.int(*self);
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        match from {
            Value::Int(number) => Ok(number),
            other => Err(Unreadable::Odd(what, other)),
        }
    }
}

/// An integer from 0.
impl Shape for u64 {
    #[inline]
    fn write(&self, to: &mut impl Sink) {
        to.int(i64::try_from(*self).unwrap_or(i64::MAX));
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let number = i64::read(what, from)?;
        Self::try_from(number).map_err(|_| Unreadable::Odd(what, Value::Int(number)))
    }
}

/// The id of a connection; 0 for none.
impl Shape for Option<u64> {
    fn write(&self, to: &mut impl Sink) {
        match self {
            Some(id) => id.write(to),
            None => to.missing(0),
        }
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        Ok(Some(u64::read(what, from)?).filter(|&id| id != 0))
    }
}

/// Milliseconds.
impl Shape for Duration {
    fn write(&self, to: &mut impl Sink) {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX).write(to);
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        u64::read(what, from).map(Self::from_millis)
    }
}

/// Milliseconds; -1, as in PTTL, for a time without an end.
impl Shape for Option<Duration> {
    fn write(&self, to: &mut impl Sink) {
        match self {
            Some(time) => time.write(to),
            None => to.missing(-1),
        }
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let millis = i64::read(what, from)?;
        Ok(u64::try_from(millis).ok().map(Duration::from_millis))
    }
}

/// A string.
impl Shape for Vec<u8> {
    fn write(&self, to: &mut impl Sink) {
        to.bulk(self);
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        match from {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(Unreadable::Odd(what, other)),
        }
    }
}

/// An array.
impl<T: Shape> Shape for Vec<T> {
    fn write(&self, to: &mut impl Sink) {
        to.array(self.len());
        for item in self {
            item.write(to);
        }
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        match from {
            Value::Array(items) => items.into_iter().map(|item| T::read(what, item)).collect(),
            other => Err(Unreadable::Odd(what, other)),
        }
    }
}

/// An array of two.
impl<A: Shape, B: Shape> Shape for (A, B) {
    fn write(&self, to: &mut impl Sink) {
        to.array(2);
        self.0.write(to);
        self.1.write(to);
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let Value::Array(items) = from else { return Err(Unreadable::Odd(what, from)) };
        let [first, second] = <[Value; 2]>::try_from(items)
            .map_err(|items| Unreadable::Odd(what, Value::Array(items)))?;
        Ok((A::read(what, first)?, B::read(what, second)?))
    }
}
