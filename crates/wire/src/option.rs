//! The option keywords that may follow the fixed arguments.
//!
//! Parsing one takes a match on its length and first letters, and one comparison.

/// An option keyword of some command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opt {
    All,
    Bind,
    Block,
    Count,
    Error,
    Ex,
    Label,
    Limit,
    NoReentry,
    Notify,
    Px,
    Queue,
    ReqId,
    SNotify,
    Token,
}

impl Opt {
    /// Every option of every command.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 15] = [
        Self::All,
        Self::Bind,
        Self::Block,
        Self::Count,
        Self::Error,
        Self::Ex,
        Self::Label,
        Self::Limit,
        Self::NoReentry,
        Self::Notify,
        Self::Px,
        Self::Queue,
        Self::ReqId,
        Self::SNotify,
        Self::Token,
    ];

    /// The keyword on the wire.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::All => "ALL",
            Self::Bind => "BIND",
            Self::Block => "BLOCK",
            Self::Count => "COUNT",
            Self::Error => "ERROR",
            Self::Ex => "EX",
            Self::Label => "LABEL",
            Self::Limit => "LIMIT",
            Self::NoReentry => "NOREENTRY",
            Self::Notify => "NOTIFY",
            Self::Px => "PX",
            Self::Queue => "QUEUE",
            Self::ReqId => "REQID",
            Self::SNotify => "SNOTIFY",
            Self::Token => "TOKEN",
        }
    }

    /// The option that `word` names, in any case.
    #[inline]
    pub(crate) fn from_word(word: &[u8]) -> Option<Self> {
        let first = word.first()?.to_ascii_lowercase();
        // Length and first letter leave one option, or LABEL and LIMIT, so one comparison decides.
        let option = match (word.len(), first) {
            (2, b'p') => Self::Px,
            (2, b'e') => Self::Ex,
            (3, b'a') => Self::All,
            (4, b'b') => Self::Bind,
            (5, b'b') => Self::Block,
            (5, b'c') => Self::Count,
            (5, b'e') => Self::Error,
            (5, b'l') if word[1].eq_ignore_ascii_case(&b'i') => Self::Limit,
            (5, b'l') => Self::Label,
            (5, b'q') => Self::Queue,
            (5, b'r') => Self::ReqId,
            (5, b't') => Self::Token,
            (6, b'n') => Self::Notify,
            (7, b's') => Self::SNotify,
            (9, b'n') => Self::NoReentry,
            _ => return None,
        };
        word.eq_ignore_ascii_case(option.word().as_bytes()).then_some(option)
    }

    /// A unique bit for each option.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}
