//! The level of a payload: what its reader has to know.

use crate::record::DecodeError;

/// What the reader of a payload has to know: its first byte.
///
/// A level contains all levels below it. `docs/format.md` says what each of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// That of dlock 1.0.
    pub const FIRST: Self = Self(1);

    /// The largest level that this code reads and writes. Tests of what a second level will need have one.
    pub const LATEST: Self = Self(if cfg!(feature = "next-level") { 2 } else { 1 });

    /// The level with this number, if this code knows it.
    pub fn new(number: u8) -> Option<Self> {
        Self::of_byte(number).ok()
    }

    /// Its number, the first byte of a payload.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The level that the first byte of a payload names.
    pub(super) fn of_byte(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            0 => Err(DecodeError::Damaged),
            _ if byte <= Self::LATEST.0 => Ok(Self(byte)),
            _ => Err(DecodeError::LaterLevel(byte)),
        }
    }

    /// The level that a payload names.
    pub fn of(payload: &[u8]) -> Result<Self, DecodeError> {
        Self::of_byte(*payload.first().ok_or(DecodeError::Damaged)?)
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::FIRST
    }
}
