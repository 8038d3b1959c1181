//! How an argument is described.

/// One argument, as `COMMAND DOCS` describes it.
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    /// Name, lower case.
    pub name: &'static str,
    /// Type.
    pub kind: ArgKind,
    /// Keyword in front of the value, or the whole argument ([`ArgKind::PureToken`]).
    pub token: Option<&'static str>,
    /// Whether it is optional.
    pub optional: bool,
    /// Whether it can be repeated.
    pub multiple: bool,
    /// The accepted values.
    pub bounds: Bounds,
    /// What it means (one line of Markdown, without the range). That of a choice stands behind that of each part, so it
    /// says what holds for all of them: the default, or that one is required.
    pub summary: &'static str,
    /// Parts of a [`ArgKind::OneOf`] or a [`ArgKind::Block`].
    pub parts: &'static [Arg],
}

/// Type of an argument, as Redis defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// Name of a key.
    Key,
    /// Bytes.
    String,
    /// A decimal integer.
    Integer,
    /// A keyword without a value.
    PureToken,
    /// Exactly one of the parts.
    OneOf,
    /// All parts, in order.
    Block,
}

impl ArgKind {
    /// The name that `COMMAND DOCS` uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::String => "string",
            Self::Integer => "integer",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }
}

/// The accepted values of an argument; both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// Anything its type allows, or it has no value.
    Any,
    /// A string with a length in this range, in bytes.
    Bytes {
        /// Shortest.
        min: usize,
        /// Longest.
        max: usize,
    },
    /// A number in this range.
    Number {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
        /// The unit, for example `ms`; empty for plain numbers.
        unit: &'static str,
    },
    /// A UUID in canonical form, in upper or lower case.
    Uuid,
}

impl Bounds {
    pub(crate) const fn bytes(min: usize, max: usize) -> Self {
        Self::Bytes { min, max }
    }

    // `cast_signed` is const only from Rust 1.87 on. All ranges of dlock fit into 63 bits.
    #[allow(clippy::cast_possible_wrap)]
    pub(crate) const fn number(min: u64, max: u64, unit: &'static str) -> Self {
        Self::Number { min: min as i64, max: max as i64, unit }
    }
}

impl Arg {
    /// Whether its value is a time in seconds.
    #[inline]
    pub(crate) fn is_in_seconds(&self) -> bool {
        matches!(self.bounds, Bounds::Number { unit: "s", .. })
    }

    /// Its name in errors.
    pub(crate) fn label(&self) -> &'static str {
        self.token.unwrap_or(self.name)
    }

    /// Each of the parts of a choice, or only itself.
    #[inline]
    pub(crate) fn alternatives(&'static self) -> &'static [Self] {
        if self.parts.is_empty() { core::slice::from_ref(self) } else { self.parts }
    }

    /// Whether one of its parts is a block, whose length differs from that of the others.
    pub(crate) const fn has_block(&self) -> bool {
        let mut part = 0;
        while part < self.parts.len() {
            if matches!(self.parts[part].kind, ArgKind::Block) {
                return true;
            }
            part += 1;
        }
        false
    }

    /// A required argument without a keyword. The other constructors build on it.
    pub(crate) const fn plain(
        name: &'static str,
        kind: ArgKind,
        bounds: Bounds,
        summary: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
            bounds,
            summary,
            parts: &[],
        }
    }

    /// `token value`, one of the parts of a choice.
    pub(crate) const fn part(
        token: &'static str,
        name: &'static str,
        kind: ArgKind,
        bounds: Bounds,
        summary: &'static str,
    ) -> Self {
        Self { token: Some(token), ..Self::plain(name, kind, bounds, summary) }
    }

    /// `[token value]`
    pub(crate) const fn option(
        token: &'static str,
        name: &'static str,
        kind: ArgKind,
        bounds: Bounds,
        summary: &'static str,
    ) -> Self {
        Self { optional: true, ..Self::part(token, name, kind, bounds, summary) }
    }

    /// `[token]`
    pub(crate) const fn flag(
        token: &'static str,
        name: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::option(token, name, ArgKind::PureToken, Bounds::Any, summary)
    }

    /// `token`, one of the parts of a choice.
    pub(crate) const fn word(
        token: &'static str,
        name: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::part(token, name, ArgKind::PureToken, Bounds::Any, summary)
    }

    /// All `parts`, in order: one of the parts of a choice.
    pub(crate) const fn block(
        name: &'static str,
        summary: &'static str,
        parts: &'static [Self],
    ) -> Self {
        Self { parts, ..Self::plain(name, ArgKind::Block, Bounds::Any, summary) }
    }

    /// `[part | part]`
    pub(crate) const fn choice(
        name: &'static str,
        summary: &'static str,
        parts: &'static [Self],
    ) -> Self {
        Self { optional: true, parts, ..Self::plain(name, ArgKind::OneOf, Bounds::Any, summary) }
    }
}
