//! Short accessors for replies. On a mismatch the message shows the whole reply.

use std::fmt::Write as _;

use redis::Value;

/// The expected type of a reply. Each method fails the test, and shows the reply, if the type differs.
pub trait Reply: Sized {
    /// An Integer.
    fn int(&self) -> i64;
    /// A Null (of RESP2 or RESP3); never fails.
    fn is_null(&self) -> bool;
    /// A string of any kind, as text.
    fn text(&self) -> String;
    /// A string of any kind, as bytes.
    fn bytes(&self) -> Vec<u8>;
    /// An error: the whole text with its code, without the leading `-`.
    fn error(&self) -> String;
    /// Any reply but an error.
    fn ok(self) -> Self;
    /// The elements of an Array, Set or Push.
    fn items(&self) -> Vec<Value>;
    /// The pairs of a Map, also of a flattened one (RESP2).
    fn pairs(&self) -> Vec<(String, Value)>;
    /// One value of a Map.
    fn field(&self, name: &str) -> Value;
    /// The reply as redis-cli would show it, on one line.
    fn show(&self) -> String;
}

impl Reply for Value {
    #[track_caller]
    fn int(&self) -> i64 {
        match self {
            Value::Int(n) => *n,
            other => panic!("expected an integer, got {}", other.show()),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Value::Nil)
    }

    #[track_caller]
    fn text(&self) -> String {
        String::from_utf8(self.bytes())
            .unwrap_or_else(|_| panic!("expected text, got {}", self.show()))
    }

    #[track_caller]
    fn bytes(&self) -> Vec<u8> {
        match self {
            Value::BulkString(bytes) => bytes.clone(),
            Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
                text.clone().into_bytes()
            }
            Value::Okay => b"OK".to_vec(),
            other => panic!("expected a string, got {}", other.show()),
        }
    }

    #[track_caller]
    fn error(&self) -> String {
        match self {
            Value::ServerError(error) => match error.details() {
                Some(details) => format!("{} {details}", error.code()),
                None => error.code().to_owned(),
            },
            other => panic!("expected an error, got {}", other.show()),
        }
    }

    #[track_caller]
    fn ok(self) -> Self {
        if let Value::ServerError(_) = self {
            panic!("the server refused: {}", self.error());
        }
        self
    }

    #[track_caller]
    fn items(&self) -> Vec<Value> {
        match self {
            Value::Array(items) | Value::Set(items) => items.clone(),
            Value::Push { data, .. } => data.clone(),
            other => panic!("expected an array, got {}", other.show()),
        }
    }

    #[track_caller]
    fn pairs(&self) -> Vec<(String, Value)> {
        if let Value::Map(pairs) = self {
            return pairs.iter().map(|(name, value)| (name.text(), value.clone())).collect();
        }
        let flat = self.items();
        assert!(
            flat.len().is_multiple_of(2),
            "a flattened map has an even length: {}",
            self.show()
        );
        flat.chunks_exact(2).map(|pair| (pair[0].text(), pair[1].clone())).collect()
    }

    #[track_caller]
    fn field(&self, name: &str) -> Value {
        let found = self.pairs().into_iter().find(|(field, _)| field == name);
        found.unwrap_or_else(|| panic!("no field {name} in {}", self.show())).1
    }

    fn show(&self) -> String {
        let list = |items: &[Value]| items.iter().map(Reply::show).collect::<Vec<_>>().join(", ");
        match self {
            Value::Nil => "(nil)".to_owned(),
            Value::Int(n) => format!("(integer) {n}"),
            Value::BulkString(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            Value::Okay => "OK".to_owned(),
            Value::SimpleString(text) => text.clone(),
            Value::Array(items) => format!("[{}]", list(items)),
            Value::Set(items) => format!("~[{}]", list(items)),
            Value::Push { kind, data } => format!(">{kind}[{}]", list(data)),
            Value::Map(pairs) => {
                let mut out = String::from("{");
                for (n, (name, value)) in pairs.iter().enumerate() {
                    let comma = if n == 0 { "" } else { ", " };
                    let _ = write!(out, "{comma}{}: {}", name.show(), value.show());
                }
                out + "}"
            }
            Value::ServerError(_) => format!("(error) {}", self.error()),
            other => format!("{other:?}"),
        }
    }
}
