//! Output for programs. Names are those of the server's replies; times are in milliseconds; missing values are null.
//! Keys, owners and labels are strings, or `{"hex": "…"}` when they are not UTF-8.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use dlock_admin::{HolderInfo, Info, PermitInfo, RwMode};
use dlock_wire::reply::{Shape, Sink};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// Bytes: a string, or an object with their hexadecimal digits.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = str::from_utf8(self.0) {
            return to.serialize_str(text);
        }
        let mut digits = String::with_capacity(2 * self.0.len());
        for byte in self.0 {
            // Writing to a String cannot fail.
            let _ = write!(digits, "{byte:02x}");
        }
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry("hex", &digits)?;
        map.end()
    }
}

/// A key with the fields of INFO.
#[derive(Debug, serde::Serialize)]
pub struct Key<'a> {
    #[serde(rename = "key")]
    name: Bytes<'a>,
    kind: &'static str,
    waiters: u64,
    #[serde(flatten)]
    state: State<'a>,
}

#[derive(Debug, serde::Serialize)]
#[serde(untagged, rename_all_fields = "kebab-case")]
enum State<'a> {
    Lock {
        holders: Vec<Row<'a, HolderInfo>>,
        closed_ms: u64,
        observers: u64,
        reserved_for: Bytes<'a>,
    },
    ReadWrite {
        mode: &'static str,
        holders: Vec<Row<'a, HolderInfo>>,
    },
    Semaphore {
        capacity: u64,
        available: i64,
        leased: u64,
        taken: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        permits: Option<Vec<Row<'a, PermitInfo>>>,
    },
    Latch {
        count: u64,
        initial: u64,
        ttl_ms: Option<u64>,
    },
    /// A family that this version does not support.
    Other {},
}

/// The fields of a map in a reply.
#[derive(Debug)]
pub struct Row<'a, T> {
    mode: Option<RwMode>,
    of: &'a T,
}

impl<'a, T> Row<'a, T> {
    /// A row without a mode.
    pub const fn of(of: &'a T) -> Self {
        Self { mode: None, of }
    }
}

impl<T: Shape> Serialize for Row<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut cells = Cells(Vec::new());
        self.of.write(&mut cells);
        let mut map = to.serialize_map(None)?;
        if let Some(mode) = self.mode {
            map.serialize_entry("mode", mode.name())?;
        }
        for field in cells.0.chunks_exact(2) {
            map.serialize_entry(&field[0], &field[1])?;
        }
        map.end()
    }
}

/// The names and values of a map without nested maps.
struct Cells(Vec<Cell>);

#[derive(serde::Serialize)]
#[serde(untagged)]
enum Cell {
    Text(#[serde(serialize_with = "as_text")] Vec<u8>),
    Number(i64),
    Null,
}

fn as_text<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    Bytes(bytes).serialize(to)
}

impl Sink for Cells {
    fn map(&mut self, _: usize) {}

    fn array(&mut self, _: usize) {}

    fn bulk(&mut self, bytes: &[u8]) {
        self.0.push(Cell::Text(bytes.to_vec()));
    }

    fn int(&mut self, number: i64) {
        self.0.push(Cell::Number(number));
    }

    fn null(&mut self) {
        self.0.push(Cell::Null);
    }

    fn missing(&mut self, _: i64) {
        self.null();
    }
}

impl<'a> Key<'a> {
    /// `permits` of a semaphore, if they were requested.
    pub fn new(key: &'a [u8], info: &'a Info, permits: Option<&'a [PermitInfo]>) -> Self {
        let state = match info {
            Info::Lock(lock) => State::Lock {
                holders: lock.holder.iter().map(Row::of).collect(),
                closed_ms: millis(lock.closed_for),
                observers: lock.observers,
                reserved_for: Bytes(&lock.reserved_for),
            },
            Info::ReadWrite(lock) => {
                let of = |mode| move |hold| Row { mode: Some(mode), of: hold };
                let writer = lock.writer.iter().map(of(RwMode::Write));
                let readers = lock.readers.iter().map(of(RwMode::Read));
                State::ReadWrite {
                    mode: lock.mode.name(),
                    holders: writer.chain(readers).collect(),
                }
            }
            Info::Semaphore(semaphore) => State::Semaphore {
                capacity: semaphore.capacity,
                available: semaphore.available,
                leased: semaphore.leased,
                taken: semaphore.taken,
                permits: permits.map(|permits| permits.iter().map(Row::of).collect()),
            },
            Info::Latch(latch) => State::Latch {
                count: latch.count,
                initial: latch.initial,
                ttl_ms: latch.left.map(millis),
            },
            _ => State::Other {},
        };
        Self { name: Bytes(key), kind: info.kind().name(), waiters: info.waiters(), state }
    }
}

/// Writes the value and ends the line.
pub fn write(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    write_text(out, &serde_json::to_string_pretty(value)?)
}

/// Writes the value on one line, for a stream of values.
pub fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    write_text(out, &serde_json::to_string(value)?)
}

fn write_text(out: &mut impl Write, mut rest: &str) -> io::Result<()> {
    // Such characters occur only in strings, where `\uXXXX` means the same.
    while let Some((at, sign)) = rest.char_indices().find(|&(_, sign)| moves_terminals(sign)) {
        let (before, after) = rest.split_at(at);
        write!(out, "{before}\\u{:04x}", u32::from(sign))?;
        rest = after.strip_prefix(sign).unwrap_or_default();
    }
    writeln!(out, "{rest}")
}

/// Characters that a terminal may execute instead of showing, and that JSON does not escape: DEL, the control
/// characters above ASCII, and those that change the direction of text.
const fn moves_terminals(sign: char) -> bool {
    matches!(
        sign,
        '\u{7f}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use dlock_admin::{Kind, LatchInfo, LockInfo, SemInfo};
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn bytes_that_are_not_text_lose_nothing() {
        assert_eq!(to_value(Bytes("é\n".as_bytes())).unwrap(), json!("é\n"));
        assert_eq!(to_value(Bytes(b"\xff\0")).unwrap(), json!({"hex": "ff00"}));
    }

    #[test]
    fn nothing_is_written_that_a_terminal_acts_upon() {
        let name = "\u{9b}31m\u{7f}\u{202e}\u{1b}[2Jé\u{2069}";
        let mut out = Vec::new();
        write(&mut out, &Bytes(name.as_bytes())).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "\"\\u009b31m\\u007f\\u202e\\u001b[2Jé\\u2069\"\n");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
    }

    #[test]
    fn each_family_has_its_fields() {
        let lock = LockInfo { waiters: 3, ..LockInfo::free(Kind::Fair) };
        assert_eq!(
            to_value(Key::new(b"k", &Info::Lock(lock), None)).unwrap(),
            json!({"key": "k", "kind": "dfair", "waiters": 3, "holders": [], "closed-ms": 0,
                "observers": 0, "reserved-for": ""})
        );
        let latch = LatchInfo { count: 1, initial: 2, left: None, waiters: 0 };
        assert_eq!(
            to_value(Key::new(b"k", &Info::Latch(latch), None)).unwrap(),
            json!({"key": "k", "kind": "dlatch", "waiters": 0, "count": 1, "initial": 2, "ttl-ms": null})
        );
        let semaphore = SemInfo { capacity: 2, available: -1, leased: 3, taken: 0, waiters: 0 };
        assert_eq!(
            to_value(Key::new(b"k", &Info::Semaphore(semaphore), Some(&[]))).unwrap(),
            json!({"key": "k", "kind": "dsem", "waiters": 0, "capacity": 2, "available": -1,
                "leased": 3, "taken": 0, "permits": []})
        );
    }
}
