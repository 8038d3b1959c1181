//! Writes arguments: the counterpart of the cursor.

use super::Channel;

/// Passes arguments on, one by one.
pub(super) struct Writer<F> {
    arg: F,
}

impl<F: FnMut(&[u8])> Writer<F> {
    pub(super) fn new(arg: F) -> Self {
        Self { arg }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        (self.arg)(bytes);
    }

    pub(super) fn all<'b>(&mut self, args: impl IntoIterator<Item = &'b [u8]>) {
        args.into_iter().for_each(|arg| self.bytes(arg));
    }

    pub(super) fn key_number(&mut self, key: &[u8], number: u64) {
        self.bytes(key);
        self.number(number);
    }

    pub(super) fn number(&mut self, number: u64) {
        self.decimal(number, false);
    }

    pub(super) fn signed(&mut self, number: i64) {
        self.decimal(number.unsigned_abs(), number < 0);
    }

    fn decimal(&mut self, magnitude: u64, negative: bool) {
        // 20 digits hold every 64-bit number; one more byte for the sign.
        let mut text = [b'-'; 21];
        let mut rest = magnitude;
        let mut start = text.len();
        loop {
            start -= 1;
            text[start] = b"0123456789"[(rest % 10) as usize];
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        (self.arg)(&text[start - usize::from(negative)..]);
    }

    pub(super) fn counted_keys(&mut self, keys: &[&[u8]]) {
        self.number(keys.len() as u64);
        self.all(keys.iter().copied());
    }

    pub(super) fn flag(&mut self, word: &str, given: bool) {
        if given {
            self.bytes(word.as_bytes());
        }
    }

    pub(super) fn option_number(&mut self, word: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.bytes(word.as_bytes());
            self.number(value);
        }
    }

    pub(super) fn channel(&mut self, channel: Option<Channel<'_>>) {
        if let Some(channel) = channel {
            self.option_bytes(channel.option(), Some(channel.name()));
        }
    }

    pub(super) fn option_bytes(&mut self, word: &str, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.bytes(word.as_bytes());
            self.bytes(value);
        }
    }
}
