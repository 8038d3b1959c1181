//! Errors of malformed calls.

use core::fmt;

use crate::reply::write_quoted;
use crate::table::CommandId;

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

/// What is wrong with a call. The names of arguments are those of the reference page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault<'a> {
    /// Too few arguments, or too many for a command without options.
    WrongArity,
    /// The key is empty.
    EmptyKey,
    /// A value is too short or too long.
    Length {
        /// Argument.
        name: &'static str,
        /// Fewest bytes.
        min: usize,
        /// Most bytes.
        max: usize,
    },
    /// A value is not a decimal integer, or is out of range.
    Number {
        /// Argument.
        name: &'static str,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// The mode of a read-write lock is neither `READ` nor `WRITE`.
    Mode,
    /// A permit id is not a UUID in its canonical text.
    PermitId,
    /// Fewer arguments than this number of keys and an owner.
    MissingKeys(u32),
    /// A repeated key.
    RepeatedKey(&'a [u8]),
    /// An option that this command does not have.
    UnknownOption(&'a [u8]),
    /// A repeated option.
    Repeated(&'static str),
    /// Two options that exclude each other.
    Exclusive(&'static str, &'static str),
    /// An option at the end of the call, without its value.
    NoValue(&'static str),
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
                write!(f, " for {}", self.command.name())
            }
            Fault::Repeated(option) => write!(f, "option {option} given twice"),
            Fault::Exclusive(one, other) => write!(f, "{one} and {other} exclude each other"),
            Fault::NoValue(option) => write!(f, "{option} needs a value"),
        }
    }
}

impl core::error::Error for ParseError<'_> {}
