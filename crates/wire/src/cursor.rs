//! Reads the arguments of one call from left to right.
//!
//! Every command runs this code, so it allocates nothing, except to find repeated keys in large sets.

use core::ops::RangeInclusive;

use crate::fault::{Fault, ParseError};
use crate::names::{
    BIND_MAX_MS, BLOCK_MAX_MS, CHANNEL_MAX, COUNT_MAX, KEYS_MAX, LABEL_MAX, LEASE_MAX_MS,
    LEASE_MAX_S, LEASE_MIN_MS, OWNER_MAX, PERMITS_MAX, QUEUE_MAX_MS, QUEUE_MIN_MS, REQID_MAX,
    TOKEN_MAX, TOKEN_MIN,
};
use crate::option::Opt;
use crate::permit::{self, PermitId};
use crate::repeated::first_repeated;
use crate::request::Channel;
use crate::request::Mode;
use crate::table::CommandId;

/// The arguments of one call, and the current position.
pub(crate) struct Cursor<'a> {
    command: CommandId,
    args: &'a [&'a [u8]],
    next: usize,
    /// One bit per option that was read.
    seen: u32,
}

impl<'a> Cursor<'a> {
    /// Starts at the first argument. The call must have at least `fixed` arguments.
    #[inline]
    pub(crate) fn at_least(
        command: CommandId,
        args: &'a [&'a [u8]],
        fixed: usize,
    ) -> Result<Self, ParseError<'a>> {
        if args.len() < fixed {
            return Err(ParseError { command, fault: Fault::WrongArity });
        }
        Ok(Self { command, args, next: 0, seen: 0 })
    }

    /// Starts at the first argument. The call must have exactly `fixed` arguments.
    #[inline]
    pub(crate) fn exactly(
        command: CommandId,
        args: &'a [&'a [u8]],
        fixed: usize,
    ) -> Result<Self, ParseError<'a>> {
        Self::between(command, args, fixed..=fixed)
    }

    /// Starts at the first argument. The call must have a number of arguments in this range.
    #[inline]
    pub(crate) fn between(
        command: CommandId,
        args: &'a [&'a [u8]],
        count: RangeInclusive<usize>,
    ) -> Result<Self, ParseError<'a>> {
        if !count.contains(&args.len()) {
            return Err(ParseError { command, fault: Fault::WrongArity });
        }
        Ok(Self { command, args, next: 0, seen: 0 })
    }

    #[cold]
    fn fail<T>(&self, fault: Fault<'a>) -> Result<T, ParseError<'a>> {
        Err(ParseError { command: self.command, fault })
    }

    /// Reads the next fixed argument.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        let Some(bytes) = self.args.get(self.next) else {
            return self.fail(Fault::WrongArity);
        };
        self.next += 1;
        Ok(bytes)
    }

    /// Reads the next fixed argument as a key.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        let key = self.bytes()?;
        if key.is_empty() { self.fail(Fault::EmptyKey) } else { Ok(key) }
    }

    /// Reads the next fixed argument as an owner.
    #[inline]
    pub(crate) fn owner(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        let owner = self.bytes()?;
        self.sized("owner", owner, 1..=OWNER_MAX)
    }

    /// Reads the next fixed argument as a number.
    #[inline]
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, ParseError<'a>> {
        let text = self.bytes()?;
        self.in_range(name, text, range)
    }

    /// Reads the next fixed argument as a 32-bit number.
    #[inline]
    pub(crate) fn number32(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<u32, ParseError<'a>> {
        let text = self.bytes()?;
        self.in_range32(name, text, range)
    }

    /// Reads the next argument as a 32-bit number if it is one; else 1. Options begin with a letter, numbers do not.
    #[inline]
    pub(crate) fn number32_or_one(
        &mut self,
        name: &'static str,
        max: u32,
    ) -> Result<u32, ParseError<'a>> {
        match self.args.get(self.next) {
            Some([first, ..]) if first.is_ascii_alphabetic() => Ok(1),
            Some(_) => self.number32(name, 1..=max),
            None => Ok(1),
        }
    }

    /// Consumes the next fixed argument if it is `word` in any case.
    #[inline]
    pub(crate) fn word(&mut self, word: &str) -> bool {
        let found =
            self.args.get(self.next).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        self.next += usize::from(found);
        found
    }

    /// Reads the number after `word`, which was just read; it may be negative.
    #[inline]
    pub(crate) fn signed(
        &mut self,
        word: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<i64, ParseError<'a>> {
        let Some(text) = self.args.get(self.next) else {
            return self.fail(Fault::NoValue(word));
        };
        self.next += 1;
        match integer(text) {
            Some(number) if range.contains(&number) => Ok(number),
            _ => self.fail(Fault::Number { name: word, min: *range.start(), max: *range.end() }),
        }
    }

    /// Reads the next fixed argument as the mode of a read-write lock.
    #[inline]
    pub(crate) fn mode(&mut self) -> Result<Mode, ParseError<'a>> {
        let word = self.bytes()?;
        match Mode::ALL.into_iter().find(|mode| word.eq_ignore_ascii_case(mode.as_str().as_bytes()))
        {
            Some(mode) => Ok(mode),
            None => self.fail(Fault::Mode),
        }
    }

    /// Reads the next fixed argument as a permit id.
    #[inline]
    pub(crate) fn permit(&mut self) -> Result<PermitId, ParseError<'a>> {
        let text = self.bytes()?;
        match permit::parse(text) {
            Some(id) => Ok(id),
            None => self.fail(Fault::PermitId),
        }
    }

    /// Reads a number and that many keys, all different; at least one argument must follow them.
    pub(crate) fn counted_keys(&mut self) -> Result<&'a [&'a [u8]], ParseError<'a>> {
        let numkeys = self.number32("numkeys", 1..=KEYS_MAX)?;
        let rest = self.args.get(self.next..).unwrap_or_default();
        let Some((keys, [_, ..])) = rest.split_at_checked(numkeys as usize) else {
            return self.fail(Fault::MissingKeys(numkeys));
        };
        if keys.iter().any(|key| key.is_empty()) {
            return self.fail(Fault::EmptyKey);
        }
        if let Some(key) = first_repeated(keys) {
            return self.fail(Fault::RepeatedKey(key));
        }
        self.next += keys.len();
        Ok(keys)
    }

    /// Whether all arguments are read.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        self.next >= self.args.len()
    }

    /// Reads the next option; None at the end of the call.
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

    /// The error for an option that the command does not have.
    #[cold]
    pub(crate) fn unknown<T>(&self) -> Result<T, ParseError<'a>> {
        let word = self.next.checked_sub(1).and_then(|at| self.args.get(at));
        self.fail(Fault::UnknownOption(word.copied().unwrap_or_default()))
    }

    /// Reads the lease after `PX` or `EX`, in milliseconds.
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

    /// The value of `BLOCK`, in milliseconds; 0 waits forever.
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

    /// The value of `COUNT`, a number of permits.
    #[inline]
    pub(crate) fn width(&mut self) -> Result<u32, ParseError<'a>> {
        let text = self.value(Opt::Count)?;
        self.in_range32(Opt::Count.word(), text, 1..=PERMITS_MAX)
    }

    /// The value of `LIMIT`.
    #[inline]
    pub(crate) fn limit(&mut self) -> Result<u32, ParseError<'a>> {
        let text = self.value(Opt::Limit)?;
        self.in_range32(Opt::Limit.word(), text, 1..=PERMITS_MAX)
    }

    /// The value of `COUNT`, a number of waiters.
    #[inline]
    pub(crate) fn count(&mut self) -> Result<u64, ParseError<'a>> {
        self.value_in(Opt::Count, 1..=COUNT_MAX)
    }

    /// The value of `NOTIFY` or `SNOTIFY`, which exclude each other.
    #[inline]
    pub(crate) fn channel(&mut self, option: Opt) -> Result<Channel<'a>, ParseError<'a>> {
        if self.seen & Opt::Notify.bit() != 0 && self.seen & Opt::SNotify.bit() != 0 {
            return self.fail(Fault::Exclusive(Opt::Notify.word(), Opt::SNotify.word()));
        }
        let is_sharded = option == Opt::SNotify;
        let name = self.value_sized(option, 1..=CHANNEL_MAX)?;
        Ok(if is_sharded { Channel::Sharded(name) } else { Channel::Plain(name) })
    }

    /// The value of `REQID`.
    #[inline]
    pub(crate) fn reqid(&mut self) -> Result<&'a [u8], ParseError<'a>> {
        self.value_sized(Opt::ReqId, 1..=REQID_MAX)
    }

    /// Reads the rest of the call, which may contain a `REQID` and nothing else.
    #[inline]
    pub(crate) fn only_reqid(&mut self) -> Result<Option<&'a [u8]>, ParseError<'a>> {
        let mut reqid = None;
        while let Some(option) = self.option()? {
            match option {
                Opt::ReqId => reqid = Some(self.reqid()?),
                _ => return self.unknown(),
            }
        }
        Ok(reqid)
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
            _ => {
                // All ranges of dlock fit into 63 bits.
                let [min, max] = [*range.start(), *range.end()].map(u64::cast_signed);
                self.fail(Fault::Number { name, min, max })
            }
        }
    }

    #[inline]
    fn in_range32(
        &self,
        name: &'static str,
        text: &[u8],
        range: RangeInclusive<u32>,
    ) -> Result<u32, ParseError<'a>> {
        match integer(text).and_then(|number| u32::try_from(number).ok()) {
            Some(number) if range.contains(&number) => Ok(number),
            _ => {
                let [min, max] = [*range.start(), *range.end()].map(i64::from);
                self.fail(Fault::Number { name, min, max })
            }
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

/// Parses an integer as Redis does: decimal, no plus sign, no spaces, no leading zeros, 64 bits.
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
