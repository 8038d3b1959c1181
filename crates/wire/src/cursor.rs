//! Reads the arguments of one call from left to right.
//!
//! This is on the path of every command: it allocates nothing, and an option costs one look at its
//! length and first letter and one comparison.

use core::ops::RangeInclusive;

use crate::fault::{Fault, ParseError};
use crate::names::{
    BIND_MAX_MS, BLOCK_MAX_MS, CHANNEL_MAX, COUNT_MAX, LABEL_MAX, LEASE_MAX_MS, LEASE_MAX_S,
    LEASE_MIN_MS, OWNER_MAX, QUEUE_MAX_MS, QUEUE_MIN_MS, REQID_MAX, TOKEN_MAX, TOKEN_MIN,
};
use crate::table::CommandId;

/// A word that may follow the fixed arguments of some command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opt {
    All,
    Bind,
    Block,
    Count,
    Error,
    Ex,
    Label,
    NoReentry,
    Notify,
    Px,
    Queue,
    ReqId,
    Token,
}

impl Opt {
    /// Every option of every command.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 13] = [
        Self::All,
        Self::Bind,
        Self::Block,
        Self::Count,
        Self::Error,
        Self::Ex,
        Self::Label,
        Self::NoReentry,
        Self::Notify,
        Self::Px,
        Self::Queue,
        Self::ReqId,
        Self::Token,
    ];

    /// How it is written.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::All => "ALL",
            Self::Bind => "BIND",
            Self::Block => "BLOCK",
            Self::Count => "COUNT",
            Self::Error => "ERROR",
            Self::Ex => "EX",
            Self::Label => "LABEL",
            Self::NoReentry => "NOREENTRY",
            Self::Notify => "NOTIFY",
            Self::Px => "PX",
            Self::Queue => "QUEUE",
            Self::ReqId => "REQID",
            Self::Token => "TOKEN",
        }
    }

    /// The option that `word` spells, in any case.
    #[inline]
    fn from_word(word: &[u8]) -> Option<Self> {
        let first = word.first()?.to_ascii_lowercase();
        // No two options share length and first letter, so one comparison settles it.
        let option = match (word.len(), first) {
            (2, b'p') => Self::Px,
            (2, b'e') => Self::Ex,
            (3, b'a') => Self::All,
            (4, b'b') => Self::Bind,
            (5, b'b') => Self::Block,
            (5, b'c') => Self::Count,
            (5, b'e') => Self::Error,
            (5, b'l') => Self::Label,
            (5, b'q') => Self::Queue,
            (5, b'r') => Self::ReqId,
            (5, b't') => Self::Token,
            (6, b'n') => Self::Notify,
            (9, b'n') => Self::NoReentry,
            _ => return None,
        };
        word.eq_ignore_ascii_case(option.word().as_bytes()).then_some(option)
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The arguments of one call, and how far they are read.
pub(crate) struct Cursor<'s, 'a> {
    command: CommandId,
    args: &'s [&'a [u8]],
    next: usize,
    /// One bit per option that was read.
    seen: u32,
}

impl<'s, 'a> Cursor<'s, 'a> {
    /// Before the first argument. The call must have at least `fixed` arguments.
    #[inline]
    pub(crate) fn at_least(
        command: CommandId,
        args: &'s [&'a [u8]],
        fixed: usize,
    ) -> Result<Self, ParseError<'a>> {
        if args.len() < fixed {
            return Err(ParseError { command, fault: Fault::WrongArity });
        }
        Ok(Self { command, args, next: 0, seen: 0 })
    }

    /// Before the first argument. The call must have exactly `fixed` arguments.
    #[inline]
    pub(crate) fn exactly(
        command: CommandId,
        args: &'s [&'a [u8]],
        fixed: usize,
    ) -> Result<Self, ParseError<'a>> {
        if args.len() != fixed {
            return Err(ParseError { command, fault: Fault::WrongArity });
        }
        Ok(Self { command, args, next: 0, seen: 0 })
    }

    #[cold]
    fn fail<T>(&self, fault: Fault<'a>) -> Result<T, ParseError<'a>> {
        Err(ParseError { command: self.command, fault })
    }

    /// The next fixed argument.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        let Some(bytes) = self.args.get(self.next) else {
            return self.fail(Fault::WrongArity);
        };
        self.next += 1;
        Ok(bytes)
    }

    /// The next fixed argument is a key.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        let key = self.bytes()?;
        if key.is_empty() { self.fail(Fault::EmptyKey) } else { Ok(key) }
    }

    /// The next fixed argument is an owner.
    #[inline]
    pub(crate) fn owner(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        let owner = self.bytes()?;
        self.sized("owner", owner, 1..=OWNER_MAX)
    }

    /// The next fixed argument is a number.
    #[inline]
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, ParseError<'a>> {
        let text = self.bytes()?;
        self.in_range(name, text, range)
    }

    /// The next option, or None at the end of the call.
    #[inline]
    pub(crate) fn option(&mut self) -> Result<Option<Opt>, ParseError<'a>> {
        let Some(&word) = self.args.get(self.next) else {
            return Ok(None);
        };
        let Some(option) = Opt::from_word(word) else {
            return self.fail(Fault::UnknownOption(word));
        };
        self.next += 1;
        if self.seen & option.bit() != 0 {
            return self.fail(Fault::Repeated(option.word()));
        }
        self.seen |= option.bit();
        Ok(Some(option))
    }

    /// The option just read is not one of this command.
    #[cold]
    pub(crate) fn unknown<T>(&self) -> Result<T, ParseError<'a>> {
        let word = self.next.checked_sub(1).and_then(|at| self.args.get(at));
        self.fail(Fault::UnknownOption(word.copied().unwrap_or_default()))
    }

    /// `PX` or `EX` was just read: the lease, in milliseconds.
    #[inline]
    pub(crate) fn lease_ms(&mut self, option: Opt) -> Result<u64, ParseError<'a>> {
        if self.seen & Opt::Px.bit() != 0 && self.seen & Opt::Ex.bit() != 0 {
            return self.fail(Fault::Exclusive(Opt::Px.word(), Opt::Ex.word()));
        }
        if option == Opt::Ex {
            Ok(self.value_in(option, 1..=LEASE_MAX_S)? * 1000)
        } else {
            self.value_in(option, LEASE_MIN_MS..=LEASE_MAX_MS)
        }
    }

    /// The value of `BLOCK`, in milliseconds; 0 is for ever.
    #[inline]
    pub(crate) fn block_ms(&mut self) -> Result<u64, ParseError<'a>> {
        self.value_in(Opt::Block, 0..=BLOCK_MAX_MS)
    }

    /// The value of `QUEUE`, in milliseconds.
    #[inline]
    pub(crate) fn queue_ms(&mut self) -> Result<u64, ParseError<'a>> {
        self.value_in(Opt::Queue, QUEUE_MIN_MS..=QUEUE_MAX_MS)
    }

    /// The value of `BIND`, in milliseconds.
    #[inline]
    pub(crate) fn bind_ms(&mut self) -> Result<u64, ParseError<'a>> {
        self.value_in(Opt::Bind, 0..=BIND_MAX_MS)
    }

    /// The value of `TOKEN`.
    #[inline]
    pub(crate) fn token(&mut self) -> Result<u64, ParseError<'a>> {
        self.value_in(Opt::Token, TOKEN_MIN..=TOKEN_MAX)
    }

    /// The value of `COUNT`.
    #[inline]
    pub(crate) fn count(&mut self) -> Result<u64, ParseError<'a>> {
        self.value_in(Opt::Count, 1..=COUNT_MAX)
    }

    /// The value of `NOTIFY`.
    #[inline]
    pub(crate) fn channel(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        self.value_sized(Opt::Notify, 1..=CHANNEL_MAX)
    }

    /// The value of `REQID`.
    #[inline]
    pub(crate) fn reqid(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        self.value_sized(Opt::ReqId, 1..=REQID_MAX)
    }

    /// The value of `LABEL`.
    #[inline]
    pub(crate) fn label(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        self.value_sized(Opt::Label, 0..=LABEL_MAX)
    }

    #[inline]
    fn value(&mut self, option: Opt) -> Result<&'a [u8], ParseError<'a>> {
        let Some(value) = self.args.get(self.next) else {
            return self.fail(Fault::NoValue(option.word()));
        };
        self.next += 1;
        Ok(value)
    }

    #[inline]
    fn value_in(&mut self, option: Opt, range: RangeInclusive<u64>) -> Result<u64, ParseError<'a>> {
        let text = self.value(option)?;
        self.in_range(option.word(), text, range)
    }

    #[inline]
    fn value_sized(
        &mut self,
        option: Opt,
        range: RangeInclusive<usize>,
    ) -> Result<&'a [u8], ParseError<'a>> {
        let bytes = self.value(option)?;
        self.sized(option.word(), bytes, range)
    }

    #[inline]
    fn in_range(
        &self,
        name: &'static str,
        text: &[u8],
        range: RangeInclusive<u64>,
    ) -> Result<u64, ParseError<'a>> {
        match integer(text).and_then(|number| u64::try_from(number).ok()) {
            Some(number) if range.contains(&number) => Ok(number),
            _ => self.fail(Fault::Number { name, min: *range.start(), max: *range.end() }),
        }
    }

    #[inline]
    fn sized(
        &self,
        name: &'static str,
        bytes: &'a [u8],
        range: RangeInclusive<usize>,
    ) -> Result<&'a [u8], ParseError<'a>> {
        if range.contains(&bytes.len()) {
            Ok(bytes)
        } else {
            self.fail(Fault::Length { name, min: *range.start(), max: *range.end() })
        }
    }
}

/// `text` as Redis reads integers: decimal, no plus sign, no spaces, no leading zeros, 64 bits.
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // 19 digits always fit into 64 bits without a sign.
    let mut magnitude = 0_u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}
