//! RESP: commands as clients write them, and replies as the fake server writes them.

use std::io::Write as _;

use dlock_wire::reply::Sink;

/// A command of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Its name and its arguments.
    pub(crate) words: Vec<Vec<u8>>,
    /// Its length as it was sent.
    pub(crate) len: usize,
}

/// The first command of `input`; None: it is not complete.
pub(crate) fn command(input: &[u8]) -> Result<Option<Command>, Malformed> {
    let mut at = 0;
    let Some(count) = header(input, &mut at, b'*')? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some(len) = header(input, &mut at, b'$')? else { return Ok(None) };
        let Some(word) = input.get(at..at.saturating_add(len)) else { return Ok(None) };
        let end = at + len;
        match input.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(Malformed),
        }
        words.push(word.to_vec());
        at = end + 2;
    }
    Ok(Some(Command { words, len: at }))
}

/// What a client sent is no array of strings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The number of a line like `*3`, or None if the line is not complete.
fn header(input: &[u8], at: &mut usize, kind: u8) -> Result<Option<usize>, Malformed> {
    let rest = input.get(*at..).unwrap_or_default();
    let Some(len) = rest.windows(2).take(32).position(|end| end == b"\r\n") else {
        return if rest.len() < 32 { Ok(None) } else { Err(Malformed) };
    };
    let Some((&first, digits)) = rest.get(..len).and_then(<[u8]>::split_first) else {
        return Err(Malformed);
    };
    *at += len + 2;
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    number.filter(|_| first == kind).map(Some).ok_or(Malformed)
}

/// A reply, or a push message, in RESP3.
#[derive(Default)]
pub(crate) struct Resp(pub(crate) Vec<u8>);

impl Resp {
    pub(crate) fn ok() -> Self {
        Self::simple("OK")
    }

    pub(crate) fn simple(text: &str) -> Self {
        let mut reply = Self::default();
        reply.line('+', text);
        reply
    }

    /// An error: its code and its text.
    pub(crate) fn error(text: &str) -> Self {
        let mut reply = Self::default();
        reply.line('-', text);
        reply
    }

    pub(crate) fn number(number: impl std::fmt::Display) -> Self {
        let mut reply = Self::default();
        reply.line(':', number);
        reply
    }

    pub(crate) fn text(text: impl AsRef<[u8]>) -> Self {
        let mut reply = Self::default();
        reply.bulk(text.as_ref());
        reply
    }

    /// What `write` writes, or the error that it returns.
    pub(crate) fn written(write: impl FnOnce(&mut Self) -> Result<(), String>) -> Self {
        let mut reply = Self::default();
        match write(&mut reply) {
            Ok(()) => reply,
            Err(error) => Self::error(&error),
        }
    }

    /// Begins a push message of `len` elements.
    pub(crate) fn push(&mut self, len: usize) {
        self.line('>', len);
    }

    fn line(&mut self, kind: char, rest: impl std::fmt::Display) {
        // Writing to memory does not fail.
        let _ = write!(self.0, "{kind}{rest}\r\n");
    }
}

impl Sink for Resp {
    fn map(&mut self, len: usize) {
        self.line('%', len);
    }

    fn array(&mut self, len: usize) {
        self.line('*', len);
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.line('$', bytes.len());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
    }

    fn int(&mut self, number: i64) {
        self.line(':', number);
    }

    fn null(&mut self) {
        self.0.extend_from_slice(b"_\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_one_by_one_and_only_when_they_are_complete() {
        let input = b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n*1\r\n$4\r\nROLE\r\n";
        let read = |words: &[&str], len| {
            let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            Ok(Some(Command { words, len }))
        };
        assert_eq!(command(input), read(&["PING", ""], 20));
        assert_eq!(command(&input[20..]), read(&["ROLE"], 14));
        for cut in 0..20 {
            assert_eq!(command(&input[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn other_input_is_refused() {
        for input in ["PING\r\n", "*x\r\n", "*1\r\n:1\r\n", "*1\r\n$1\r\nabc", "*1\r\n$-1\r\n"] {
            assert_eq!(command(input.as_bytes()), Err(Malformed), "{input:?}");
        }
        assert_eq!(command(&[b'*'; 40]), Err(Malformed));
    }
}
