//! How the command ends.

use std::fmt;

use dlock_client::{Error, ErrorKind};

/// Nothing there, or nothing was done.
pub const NOTHING: u8 = 1;
/// Wrong usage: `EX_USAGE`, as flock(1) has it.
pub const USAGE: u8 = 64;
/// Trouble with the server: `EX_UNAVAILABLE`.
pub const SERVER: u8 = 69;
/// Trouble with this machine: `EX_OSERR`.
pub const SYSTEM: u8 = 71;
/// The lock was lost under the command: `EX_TEMPFAIL`.
pub const LOST: u8 = 75;
/// The command is there and cannot be run.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub const NOT_FOUND: u8 = 127;
/// What shells show when nobody read the output: 128 + SIGPIPE.
pub const BROKEN_PIPE: u8 = 141;

/// Why it ends early: what to say, if anything, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// For people, on stderr; nothing is said when it is empty.
    pub text: String,
}

impl Failure {
    /// Says `text` and ends with `code`.
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// An error of the client about `what` was to be done.
    pub fn of(what: impl fmt::Display, error: &Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid => USAGE,
            _ => SERVER,
        };
        let hint = match error.kind() {
            ErrorKind::WrongType => " (it is not the kind of lock that was asked for)",
            ErrorKind::Refused => " (user, password and rights come with the URL: redis://user:password@host)",
            _ => "",
        };
        Self::new(code, format!("{what}: {error}{hint}"))
    }
}

impl From<std::io::Error> for Failure {
    /// An error of writing to stdout.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::new(BROKEN_PIPE, ""),
            _ => Self::new(SYSTEM, format!("cannot write the output: {error}")),
        }
    }
}
