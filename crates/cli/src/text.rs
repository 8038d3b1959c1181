//! Bytes and times in readable form.

use std::fmt::Write as _;
use std::time::Duration;

use dlock_wire::reply::{QUOTE_MAX, quote};

/// Keys, owners and labels: unchanged when they are plain, else quoted as redis-cli does. Never shortened.
pub fn bytes(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if !bytes.is_empty() && bytes.iter().copied().all(plain) && bytes != NONE.as_bytes() {
        return bytes.iter().copied().map(char::from).collect();
    }
    quoted(bytes)
}

/// Always quoted, for use in sentences.
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from('"');
    for part in bytes.chunks(QUOTE_MAX) {
        let part = quote(part);
        text.push_str(&part[1..part.len() - 1]);
    }
    text.push('"');
    text
}

/// Marks an empty cell of a table.
pub const NONE: &str = "-";

/// A label or an owner, or [`NONE`].
pub fn bytes_or_none(text: &[u8]) -> String {
    if text.is_empty() { NONE.to_owned() } else { bytes(text) }
}

/// A number, or [`NONE`].
pub fn number_or_none(number: Option<u64>) -> String {
    number.map_or_else(|| NONE.to_owned(), |number| number.to_string())
}

/// A time with two units at most: `12ms`, `3.4s`, `5m07s`, `2h05m`, `3d04h`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match seconds {
        0 => write!(text, "{}ms", time.subsec_millis()),
        1..60 => write!(text, "{seconds}.{}s", time.subsec_millis() / 100),
        60..3600 => write!(text, "{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => write!(text, "{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => write!(text, "{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    };
    text
}

/// A time, or `none` if there is none.
pub fn time_or(of: Option<Duration>, none: &str) -> String {
    of.map_or_else(|| none.to_owned(), time)
}

/// `1 waiter`, `2 waiters`.
pub fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_are_left_alone_and_others_quoted() {
        for (raw, shown) in [
            (&b"orders:7"[..], "orders:7"),
            (b"", r#""""#),
            (b"a b", r#""a b""#),
            (b"a\"b\\", r#""a\"b\\""#),
            (b"\xff\n", r#""\xff\n""#),
            (b"-", r#""-""#),
            ("é".as_bytes(), r#""\xc3\xa9""#),
        ] {
            assert_eq!(bytes(raw), shown);
        }
    }

    #[test]
    fn nothing_is_cut() {
        let long = [b' '; 200];
        assert_eq!(bytes(&long).len(), 202);
        assert_eq!(bytes(&[b'x'; 200]).len(), 200);
    }

    #[test]
    fn times() {
        for (millis, shown) in [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1.0s"),
            (59_999, "59.9s"),
            (60_000, "1m00s"),
            (3_599_000, "59m59s"),
            (7_500_000, "2h05m"),
            (277_200_000, "3d05h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), shown);
        }
    }
}
