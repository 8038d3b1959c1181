//! Parses the call of a client: its row of the table says how many arguments it takes, its request what they mean.

use core::fmt;

use crate::cursor::Cursor;
use crate::fault::Fault;
use crate::reply::write_quoted;
use crate::request::{CommandId, Request};

/// Parses the arguments of one call; `args` are those after the command's name.
///
/// Their number is checked first, then they are read from left to right; the first error is returned. The request
/// borrows from the arguments. Nothing is allocated, except to find repeated keys in large sets.
#[inline]
pub fn parse<'a>(id: CommandId, args: &'a [&'a [u8]]) -> Result<Request<'a>, ParseError<'a>> {
    let takes = id.command().is_some_and(|row| row.takes(args.len()));
    let parsed =
        if takes { Request::read(id, &mut Cursor::new(args)) } else { Err(Fault::WrongArity) };
    parsed.map_err(|fault| ParseError { command: id, fault })
}

/// A malformed call. It changed nothing.
///
/// `Display` gives the text of the error without its code, which is always `ERR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseError<'a> {
    /// The command that was called.
    pub command: CommandId,
    /// The error.
    pub fault: Fault<'a>,
}

impl fmt::Display for ParseError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::WrongArity => {
                write!(f, "wrong number of arguments for '{}' command", self.command.name())
            }
            Fault::EmptyKey => f.write_str("key must not be empty"),
            Fault::Length { name, min: 0, max } => write!(f, "{name} must be at most {max} bytes"),
            Fault::Length { name, min, max } => write!(f, "{name} must be {min} to {max} bytes"),
            Fault::Number { name, min, max } => {
                write!(f, "{name} must be an integer between {min} and {max}")
            }
            Fault::Mode => f.write_str("mode must be READ or WRITE"),
            Fault::Subcommand(word) => {
                f.write_str("unknown subcommand ")?;
                write_quoted(f, word, '\'')?;
                write!(f, " for {}: it must be GET, LEN or RESET", self.command.name())
            }
            Fault::PermitId => f.write_str(
                "permit-id must be a UUID: 36 characters, hexadecimal digits and hyphens",
            ),
            Fault::MissingKeys(numkeys) => {
                let follow = numkeys.saturating_add(1);
                write!(f, "numkeys is {numkeys}: at least {follow} arguments must follow it")
            }
            Fault::RepeatedKey(key) => {
                f.write_str("key ")?;
                write_quoted(f, key, '"')?;
                f.write_str(" given twice")
            }
            Fault::UnknownOption(word) => {
                f.write_str("unknown option ")?;
                write_quoted(f, word, '\'')?;
                write!(f, " for {}", self.command.name())?;
                let name = self.command.name();
                let has_lease = name.ends_with("ACQUIRE") || name.ends_with("RENEW");
                if has_lease && !word.is_empty() && word.iter().all(u8::is_ascii_digit) {
                    f.write_str("; a lease is written PX milliseconds or EX seconds")?;
                }
                Ok(())
            }
            Fault::Repeated(option) => write!(f, "option {option} given twice"),
            Fault::Exclusive(one, other) => write!(f, "{one} and {other} exclude each other"),
            Fault::NoValue(option) => write!(f, "{option} needs a value"),
        }
    }
}

impl core::error::Error for ParseError<'_> {}
