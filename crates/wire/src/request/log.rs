//! `DLOCK.LOG`: the log of notable events.

use super::writer::{Arguments, Writer};
use crate::args::{LOG_COUNT, LOG_GET, LOG_LEN, LOG_RESET};
use crate::cursor::Cursor;
use crate::fault::Fault;

/// Read or clear the log of notable events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// Return the newest entries.
    Get {
        /// How many; `None` returns all of them.
        count: Option<u64>,
    },
    /// Return the number of entries.
    Len,
    /// Remove all entries.
    Reset,
}

/// Number of entries that GET returns unless the call says otherwise.
const DEFAULT_COUNT: u64 = 10;

impl Log {
    pub(super) fn parse<'a>(at: &mut Cursor<'a>) -> Result<Self, Fault<'a>> {
        if at.word(&LOG_GET) {
            at.at_most(2)?;
            if at.is_at_end() {
                return Ok(Self::Get { count: Some(DEFAULT_COUNT) });
            }
            let count: i64 = at.number(&LOG_COUNT)?;
            return Ok(Self::Get { count: u64::try_from(count).ok() });
        }
        let call = if at.word(&LOG_LEN) {
            Self::Len
        } else if at.word(&LOG_RESET) {
            Self::Reset
        } else {
            return Err(Fault::Subcommand(at.next(&LOG_GET)?));
        };
        at.at_most(1)?;
        Ok(call)
    }
}

impl Arguments for Log {
    fn write(&self, to: &mut Writer<'_>) {
        match *self {
            Self::Get { count } => {
                to.word(&LOG_GET);
                to.signed(count.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX)));
            }
            Self::Len => to.word(&LOG_LEN),
            Self::Reset => to.word(&LOG_RESET),
        }
    }
}
