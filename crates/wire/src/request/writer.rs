//! Writes arguments: the counterpart of the cursor.

use crate::arg::Arg;

/// Passes arguments on, one by one.
pub(crate) struct Writer<'w> {
    arg: &'w mut dyn FnMut(&[u8]),
}

/// The arguments of a request.
pub(crate) trait Arguments {
    /// Writes all of them.
    fn write(&self, to: &mut Writer<'_>);
}

impl<'w> Writer<'w> {
    pub(super) fn new(arg: &'w mut dyn FnMut(&[u8])) -> Self {
        Self { arg }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        (self.arg)(bytes);
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

    /// The keyword of an option; of a choice, the first.
    pub(super) fn word(&mut self, option: &'static Arg) {
        let word = option.alternatives().first().and_then(|part| part.token);
        self.bytes(word.unwrap_or_default().as_bytes());
    }
}
