//! Reads the arguments of one call from left to right, as their rows of the command table say.
//!
//! Every command runs this code, so it allocates nothing, except to find repeated keys in large sets.

use crate::arg::{Arg, ArgKind, Bounds};
use crate::fault::Fault;
use crate::permit::{self, PermitId};
use crate::repeated::first_repeated;

/// The arguments of one call, and the current position.
pub(crate) struct Cursor<'a> {
    args: &'a [&'a [u8]],
    next: usize,
    /// One bit per keyword of the command: those that were read.
    seen: u32,
    /// The bit of the next keyword that the current word is compared with.
    bit: u32,
}

impl<'a> Cursor<'a> {
    /// Starts at the first argument.
    #[inline]
    pub(crate) fn new(args: &'a [&'a [u8]]) -> Self {
        Self { args, next: 0, seen: 0, bit: 1 }
    }

    /// Checks that there are no more arguments than this.
    #[inline]
    pub(crate) fn at_most(&self, count: usize) -> Result<(), Fault<'a>> {
        if self.args.len() > count { Err(Fault::WrongArity) } else { Ok(()) }
    }

    /// Reads the next argument, whatever it is.
    #[inline]
    pub(crate) fn next(&mut self, arg: &'static Arg) -> Result<&'a [u8], Fault<'a>> {
        let Some(bytes) = self.args.get(self.next) else {
            return Err(arg.token.map_or(Fault::WrongArity, Fault::NoValue));
        };
        self.next += 1;
        Ok(bytes)
    }

    /// Reads the next argument as a key or as bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, arg: &'static Arg) -> Result<&'a [u8], Fault<'a>> {
        let bytes = self.next(arg)?;
        match arg.bounds {
            Bounds::Bytes { min, max } if !(min..=max).contains(&bytes.len()) => {
                Err(Fault::Length { name: arg.label(), min, max })
            }
            _ if arg.kind == ArgKind::Key && bytes.is_empty() => Err(Fault::EmptyKey),
            _ => Ok(bytes),
        }
    }

    /// Reads the next argument as a number.
    #[inline]
    pub(crate) fn number<N: TryFrom<i64>>(&mut self, arg: &'static Arg) -> Result<N, Fault<'a>> {
        let text = self.next(arg)?;
        let Bounds::Number { min, max, .. } = arg.bounds else { return self.unknown() };
        let number = integer(text).filter(|number| (min..=max).contains(number));
        match number.and_then(|number| N::try_from(number).ok()) {
            Some(number) => Ok(number),
            None => Err(Fault::Number { name: arg.label(), min, max }),
        }
    }

    /// Reads the next argument as a number if it is one; else 1. Options begin with a letter, numbers do not.
    #[inline]
    pub(crate) fn number_or_one(&mut self, arg: &'static Arg) -> Result<u32, Fault<'a>> {
        match self.args.get(self.next) {
            Some([first, ..]) if first.is_ascii_alphabetic() => Ok(1),
            Some(_) => self.number(arg),
            None => Ok(1),
        }
    }

    /// Reads the next argument as a permit id.
    #[inline]
    pub(crate) fn permit(&mut self, arg: &'static Arg) -> Result<PermitId, Fault<'a>> {
        match permit::parse(self.next(arg)?) {
            Some(id) => Ok(id),
            None => Err(Fault::PermitId),
        }
    }

    /// Reads a number and that many keys, all different; at least one argument must follow them.
    pub(crate) fn counted_keys(
        &mut self,
        numkeys: &'static Arg,
    ) -> Result<&'a [&'a [u8]], Fault<'a>> {
        let numkeys: u32 = self.number(numkeys)?;
        let rest = self.args.get(self.next..).unwrap_or_default();
        let Some((keys, [_, ..])) = rest.split_at_checked(numkeys as usize) else {
            return Err(Fault::MissingKeys(numkeys));
        };
        if keys.iter().any(|key| key.is_empty()) {
            return Err(Fault::EmptyKey);
        }
        if let Some(key) = first_repeated(keys) {
            return Err(Fault::RepeatedKey(key));
        }
        self.next += keys.len();
        Ok(keys)
    }

    /// Whether all arguments are read.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        self.next >= self.args.len()
    }

    /// Consumes the next argument if it is the keyword of `arg`, in any case.
    #[inline]
    pub(crate) fn word(&mut self, arg: &'static Arg) -> bool {
        let found = matches!((self.args.get(self.next), arg.token), (Some(word), Some(token))
            if word.eq_ignore_ascii_case(token.as_bytes()));
        self.next += usize::from(found);
        found
    }

    /// Begins the next option; false at the end of the call. [`Cursor::takes`] must follow for each option of the
    /// command, always in the same order, until one takes it.
    #[inline]
    pub(crate) fn begin_option(&mut self) -> bool {
        self.bit = 1;
        !self.is_at_end()
    }

    /// Consumes the next argument if it is a keyword of `option`, and returns the part that it belongs to.
    #[inline]
    pub(crate) fn takes(
        &mut self,
        option: &'static Arg,
    ) -> Result<Option<&'static Arg>, Fault<'a>> {
        let parts = option.alternatives();
        let first = self.bit;
        self.bit <<= parts.len();
        for (n, part) in parts.iter().enumerate() {
            if !self.word(part) {
                continue;
            }
            let (seen, bit) = (self.seen, first << n);
            self.seen |= bit;
            if seen & bit != 0 {
                return Err(Fault::Repeated(part.label()));
            }
            return match parts {
                [one, .., other] if seen & (self.bit - first) != 0 => {
                    Err(Fault::Exclusive(one.label(), other.label()))
                }
                _ => Ok(Some(part)),
            };
        }
        Ok(None)
    }

    /// The error for a word that is no option of the command.
    #[cold]
    pub(crate) fn unknown<T>(&self) -> Result<T, Fault<'a>> {
        Err(Fault::UnknownOption(self.args.get(self.next).copied().unwrap_or_default()))
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
