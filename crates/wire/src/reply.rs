//! Replies of the server. Each shape is a type, written by the server and read by the client.
//!
//! | reply | type |
//! |---|---|
//! | INFO | [`Info`]: [`LockInfo`], [`RwInfo`], [`SemInfo`], [`LatchInfo`] |
//! | WAITERS | array of [`WaiterInfo`] |
//! | `DSEM.PERMITS` | array of [`PermitInfo`] |
//! | `DLOCK.LOG GET` | array of [`LogEntry`] |
//! | ACQUIRE and similar commands | see [`grant`] |
//! | AWAIT with REASON | [`HoldEnd`] |
//! | other numbers | `u64`, or `i64` where they can be negative |
//! | errors | an [`ErrorCode`], a space, and a text for people |
//!
//! Null stands for a missing reply: nothing is there, or nothing was granted.

mod code;
pub mod grant;
mod hold_end;
mod holder;
mod info;
mod kind;
mod latch;
mod lock;
mod log;
mod rw;
mod semaphore;
mod shape;
mod waiter;

use alloc::string::String;
use core::fmt::{self, Write};

pub use code::ErrorCode;
pub use hold_end::HoldEnd;
pub use holder::HolderInfo;
pub use info::Info;
pub use kind::Kind;
pub use latch::LatchInfo;
pub use lock::LockInfo;
pub use log::{LOG_STRING_MAX, LogEntry, LogEvent, LogToken};
pub use rw::{RwInfo, RwMode};
pub use semaphore::{PermitInfo, SemInfo};
pub use shape::{Field, Shape, Sink, Unreadable, Value, names};
pub use waiter::WaiterInfo;

/// Most bytes of a key, an owner or an option that an error text shows.
pub const QUOTE_MAX: usize = 64;

/// `bytes` as `redis-cli` shows them, in double quotes. Only the first [`QUOTE_MAX`] bytes are
/// shown; when that cuts, `...` follows the closing quote.
///
/// ```
/// use dlock_wire::reply::quote;
/// assert_eq!(quote(b"a\"b\n\xff"), r#""a\"b\n\xff""#);
/// ```
pub fn quote(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().min(QUOTE_MAX) + 5);
    // Writing to a String cannot fail.
    let _ = write_quoted(&mut text, bytes, '"');
    text
}

/// [`quote`] into any writer, between `mark`s, which are escaped inside.
pub(crate) fn write_quoted(out: &mut impl Write, bytes: &[u8], mark: char) -> fmt::Result {
    out.write_char(mark)?;
    for &byte in bytes.iter().take(QUOTE_MAX) {
        match byte {
            b'\\' => out.write_str("\\\\")?,
            b'\n' => out.write_str("\\n")?,
            b'\r' => out.write_str("\\r")?,
            b'\t' => out.write_str("\\t")?,
            0x07 => out.write_str("\\a")?,
            0x08 => out.write_str("\\b")?,
            b' '..=b'~' => {
                if char::from(byte) == mark {
                    out.write_char('\\')?;
                }
                out.write_char(char::from(byte))?;
            }
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    out.write_char(mark)?;
    if bytes.len() > QUOTE_MAX {
        out.write_str("...")?;
    }
    Ok(())
}
