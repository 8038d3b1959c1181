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

/// A text of the server, in which names are quoted already: bytes that a terminal may act upon are escaped.
pub fn printable(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for &byte in text {
        if byte == b' ' || byte.is_ascii_graphic() {
            shown.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
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

/// A short time with its first digits: `210us`, `2.1ms`, `21ms`, `3.4s`.
pub fn short_time(of: Duration) -> String {
    match of.as_micros() {
        micros @ 0..1000 => format!("{micros}us"),
        micros @ 1000..10_000 => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
        _ => time(of),
    }
}

/// A time, or `none` if there is none.
pub fn time_or(of: Option<Duration>, none: &str) -> String {
    of.map_or_else(|| none.to_owned(), time)
}

/// A wall clock time, since 1970, in UTC: `2026-11-23T03:12:07.043Z`.
pub fn timestamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Counted in years that begin in March: a leap day is then the last day of its year. 1970 began 719,468 days after
    // the 1st of March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since_1970.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
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
    fn short_times() {
        for (micros, shown) in [
            (0, "0us"),
            (999, "999us"),
            (1000, "1.0ms"),
            (9999, "9.9ms"),
            (21_500, "21ms"),
            (3_400_000, "3.4s"),
        ] {
            assert_eq!(short_time(Duration::from_micros(micros)), shown);
        }
    }

    #[test]
    fn timestamps() {
        for (seconds, shown) in [
            (0, "1970-01-01T00:00:00.043Z"),
            (951_782_399, "2000-02-28T23:59:59.043Z"),
            (951_782_400, "2000-02-29T00:00:00.043Z"),
            (951_868_800, "2000-03-01T00:00:00.043Z"),
            (1_767_225_599, "2025-12-31T23:59:59.043Z"),
            (1_795_403_527, "2026-11-23T03:12:07.043Z"),
            (4_107_542_400, "2100-03-01T00:00:00.043Z"),
        ] {
            assert_eq!(timestamp(Duration::from_millis(seconds * 1000 + 43)), shown);
        }
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
