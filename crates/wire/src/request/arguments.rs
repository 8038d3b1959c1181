//! How the arguments of a request are read and written.

use super::channel::Channel;
use super::writer::Writer;
use crate::arg::Arg;
use crate::cursor::Cursor;
use crate::fault::Fault;
use crate::permit::{self, PermitId};

/// The value of an argument without a keyword.
pub(super) trait Positional<'a>: Sized {
    /// Reads it.
    fn read(at: &mut Cursor<'a>, arg: &'static Arg) -> Result<Self, Fault<'a>>;

    /// Writes it.
    fn write(self, to: &mut Writer<'_>);
}

/// A key or an owner.
impl<'a> Positional<'a> for &'a [u8] {
    #[inline]
    fn read(at: &mut Cursor<'a>, arg: &'static Arg) -> Result<Self, Fault<'a>> {
        at.bytes(arg)
    }

    fn write(self, to: &mut Writer<'_>) {
        to.bytes(self);
    }
}

/// Counted keys.
impl<'a> Positional<'a> for &'a [&'a [u8]] {
    fn read(at: &mut Cursor<'a>, numkeys: &'static Arg) -> Result<Self, Fault<'a>> {
        at.counted_keys(numkeys)
    }

    fn write(self, to: &mut Writer<'_>) {
        to.number(self.len() as u64);
        for key in self {
            to.bytes(key);
        }
    }
}

/// The owner at the end of a call, which it may leave out.
impl<'a> Positional<'a> for Option<&'a [u8]> {
    #[inline]
    fn read(at: &mut Cursor<'a>, arg: &'static Arg) -> Result<Self, Fault<'a>> {
        if at.is_at_end() { Ok(None) } else { at.bytes(arg).map(Some) }
    }

    fn write(self, to: &mut Writer<'_>) {
        if let Some(bytes) = self {
            to.bytes(bytes);
        }
    }
}

/// A fencing token.
impl<'a> Positional<'a> for u64 {
    #[inline]
    fn read(at: &mut Cursor<'a>, arg: &'static Arg) -> Result<Self, Fault<'a>> {
        at.number(arg)
    }

    fn write(self, to: &mut Writer<'_>) {
        to.number(self);
    }
}

/// A number; 1 if it is left out, where it may be.
impl<'a> Positional<'a> for u32 {
    #[inline]
    fn read(at: &mut Cursor<'a>, arg: &'static Arg) -> Result<Self, Fault<'a>> {
        if arg.optional { at.number_or_one(arg) } else { at.number(arg) }
    }

    fn write(self, to: &mut Writer<'_>) {
        to.number(u64::from(self));
    }
}

impl<'a> Positional<'a> for PermitId {
    #[inline]
    fn read(at: &mut Cursor<'a>, arg: &'static Arg) -> Result<Self, Fault<'a>> {
        at.permit(arg)
    }

    fn write(self, to: &mut Writer<'_>) {
        to.bytes(&permit::text(&self));
    }
}

/// The value of an option.
pub(crate) trait Optional<'a>: Sized {
    /// The value without the option.
    const ABSENT: Self;

    /// Reads what follows the keyword of `option`.
    fn read(at: &mut Cursor<'a>, option: &'static Arg) -> Result<Self, Fault<'a>>;

    /// Writes keyword and value; nothing if it is absent.
    fn write(self, option: &'static Arg, to: &mut Writer<'_>);
}

/// A flag.
impl<'a> Optional<'a> for bool {
    const ABSENT: Self = false;

    #[inline]
    fn read(_: &mut Cursor<'a>, _: &'static Arg) -> Result<Self, Fault<'a>> {
        Ok(true)
    }

    fn write(self, option: &'static Arg, to: &mut Writer<'_>) {
        if self {
            to.word(option);
        }
    }
}

/// A number, or a time in milliseconds.
impl<'a> Optional<'a> for Option<u64> {
    const ABSENT: Self = None;

    #[inline]
    fn read(at: &mut Cursor<'a>, option: &'static Arg) -> Result<Self, Fault<'a>> {
        let number: u64 = at.number(option)?;
        Ok(Some(if option.is_in_seconds() { number * 1000 } else { number }))
    }

    fn write(self, option: &'static Arg, to: &mut Writer<'_>) {
        if let Some(number) = self {
            to.word(option);
            to.number(number);
        }
    }
}

/// A number of permits.
impl<'a> Optional<'a> for Option<u32> {
    const ABSENT: Self = None;

    #[inline]
    fn read(at: &mut Cursor<'a>, option: &'static Arg) -> Result<Self, Fault<'a>> {
        at.number(option).map(Some)
    }

    fn write(self, option: &'static Arg, to: &mut Writer<'_>) {
        self.map(u64::from).write(option, to);
    }
}

/// A number of permits; default 1.
impl<'a> Optional<'a> for u32 {
    const ABSENT: Self = 1;

    #[inline]
    fn read(at: &mut Cursor<'a>, option: &'static Arg) -> Result<Self, Fault<'a>> {
        at.number(option)
    }

    fn write(self, option: &'static Arg, to: &mut Writer<'_>) {
        Some(self).filter(|&number| number != Self::ABSENT).write(option, to);
    }
}

impl<'a> Optional<'a> for Option<&'a [u8]> {
    const ABSENT: Self = None;

    #[inline]
    fn read(at: &mut Cursor<'a>, option: &'static Arg) -> Result<Self, Fault<'a>> {
        at.bytes(option).map(Some)
    }

    fn write(self, option: &'static Arg, to: &mut Writer<'_>) {
        if let Some(bytes) = self {
            to.word(option);
            to.bytes(bytes);
        }
    }
}

impl<'a> Optional<'a> for Option<Channel<'a>> {
    const ABSENT: Self = None;

    #[inline]
    fn read(at: &mut Cursor<'a>, option: &'static Arg) -> Result<Self, Fault<'a>> {
        let name = at.bytes(option)?;
        let is_plain = option.token == Some(Channel::Plain(name).option());
        Ok(Some(if is_plain { Channel::Plain(name) } else { Channel::Sharded(name) }))
    }

    fn write(self, _: &'static Arg, to: &mut Writer<'_>) {
        if let Some(channel) = self {
            to.bytes(channel.option().as_bytes());
            to.bytes(channel.name());
        }
    }
}

/// The arguments of a request: first those without a keyword, in braces, then the options, which a call may have in any
/// order. The command table, the parser and the writer of the request come from this list.
macro_rules! arguments {
    (
        $type:ident { $($($positional:ident).+: $first:ident $($more:ident)*;)* }
        $($($field:ident).+: $option:ident;)*
    ) => {
        impl<'a> $type<'a> {
            /// All arguments.
            pub(crate) const ARGS: &'static [$crate::arg::Arg] = &[
                $($crate::args::$first, $($crate::args::$more,)*)*
                $($crate::args::$option,)*
            ];

            #[inline]
            pub(super) fn parse(
                at: &mut $crate::cursor::Cursor<'a>,
            ) -> Result<Self, $crate::fault::Fault<'a>> {
                #[allow(unused_imports)] // a request may have no options
                use $crate::request::arguments::{Optional, Positional};
                const OPTIONS: &[$crate::arg::Arg] = &[$($crate::args::$option,)*];
                if OPTIONS.is_empty() {
                    at.at_most(Self::ARGS.len())?;
                }
                #[allow(unused_mut)]
                let mut call = Self::new(
                    $(Positional::read(at, &$crate::args::$first)?,)*
                );
                while at.begin_option() {
                    $(if let Some(option) = at.takes(&$crate::args::$option)? {
                        call.$($field).+ = Optional::read(at, option)?;
                        continue;
                    })*
                    return at.unknown();
                }
                Ok(call)
            }

        }

        impl $crate::request::writer::Arguments for $type<'_> {
            fn write(&self, to: &mut $crate::request::writer::Writer<'_>) {
                #[allow(unused_imports)]
                use $crate::request::arguments::{Optional, Positional};
                $(Positional::write(self.$($positional).+, to);)*
                $(Optional::write(self.$($field).+, &$crate::args::$option, to);)*
            }
        }
    };
}

/// A request: each line is a field and its argument. Those without a keyword are in braces. Options that exclude each
/// other are parts of one `Arg::choice`, and so one field, with a type of its own (see `Option<Channel>`).
macro_rules! request {
    (
        $(#[$attribute:meta])*
        $type:ident {
            $($(#[$about:meta])* $positional:ident: $of:ty = $first:ident $($more:ident)*;)*
        }
        $($(#[$meaning:meta])* $field:ident: $value:ty = $option:ident;)*
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $type<'a> {
            $($(#[$about])* pub $positional: $of,)*
            $($(#[$meaning])* pub $field: $value,)*
        }

        impl<'a> $type<'a> {
            /// The request without options.
            pub const fn new($($positional: $of),*) -> Self {
                #[allow(unused_imports)]
                use $crate::request::arguments::Optional;
                Self { $($positional,)* $($field: <$value as Optional>::ABSENT,)* }
            }
        }

        $crate::request::arguments::arguments! {
            $type { $($positional: $first $($more)*;)* }
            $($field: $option;)*
        }
    };
}

pub(super) use {arguments, request};
