//! Tests that table, parser, writer, texts and reference page agree.

mod accepted;
mod agreement;
mod malformed;
mod message;
mod permit;
mod reference;
mod reply;
mod round_trip;
mod shapes;

use alloc::vec::Vec;

use crate::request::Request;
use crate::table::{COMMANDS, CommandId};
use crate::{ParseError, parse};

/// The command of that name.
fn id(name: &str) -> CommandId {
    COMMANDS.iter().find(|command| command.name == name).expect("a command of the table").id
}

/// Parses a call given as one line, split at spaces, with the name first.
fn call<T>(line: &str, look: impl FnOnce(Result<Request<'_>, ParseError<'_>>) -> T) -> T {
    let mut words = line.split(' ');
    let command = id(words.next().expect("a name"));
    let args: Vec<&[u8]> = words.map(str::as_bytes).collect();
    look(parse(command, &args))
}

/// Splitmix64: small, seeded, good enough to vary test inputs.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `min..=max`, with both ends more likely than the rest.
    fn within(&mut self, min: u64, max: u64) -> u64 {
        match self.next() % 8 {
            0 => min,
            1 => max,
            _ => match (max - min).checked_add(1) {
                Some(span) => min + self.next() % span,
                None => self.next(),
            },
        }
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % len as u64).expect("fits")
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }

    /// `min..=max` bytes of any value.
    fn bytes(&mut self, min: usize, max: usize) -> Vec<u8> {
        let len = self.within(min as u64, max as u64);
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
