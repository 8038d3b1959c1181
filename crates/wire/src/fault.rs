//! What can be wrong with a call.

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
    /// Another word than `GET`, `LEN` or `RESET`.
    Subcommand(&'a [u8]),
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
