//! The two families with the same commands, so that one test covers both.

use std::borrow::Cow;

/// A plain lock, or one with a durable queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// DLOCK.
    #[default]
    Lock,
    /// DFAIR.
    Fair,
}

impl Family {
    /// Both.
    pub const ALL: [Family; 2] = [Family::Lock, Family::Fair];

    /// The prefix of its commands, without the dot; in lower case its `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Family::Lock => "DLOCK",
            Family::Fair => "DFAIR",
        }
    }

    /// Its key type.
    pub fn key_type(self) -> &'static str {
        match self {
            Family::Lock => "dlock-mtx",
            Family::Fair => "dlock-fif",
        }
    }

    /// The words of a call: `call("ACQUIRE k a")`.
    pub fn call(self, words: &str) -> Vec<String> {
        format!("{}.{words}", self.name()).split(' ').map(str::to_owned).collect()
    }

    /// The command name to send.
    pub(super) fn command(self, name: &[u8]) -> Cow<'_, [u8]> {
        match name.split_at_checked(b"DLOCK.".len()) {
            Some((prefix, verb))
                if self != Family::Lock
                    && prefix.eq_ignore_ascii_case(b"DLOCK.")
                    // These exist once for all families.
                    && ![&b"UNBLOCK"[..], b"LOG", b"APPLY"].contains(&verb) =>
            {
                [self.name().as_bytes(), b".", verb].concat().into()
            }
            _ => name.into(),
        }
    }

    /// Translates a text about a DLOCK command to the command of the family.
    pub fn in_words(self, command: &str, text: &str) -> String {
        if *self.command(command.as_bytes()) == *command.as_bytes() {
            return text.to_owned();
        }
        text.replace("DLOCK.", &format!("{}.", self.name()))
    }
}

/// Makes two tests of each of these functions, one for each family.
#[macro_export]
macro_rules! test_both_families {
    ($($test:ident)*) => {
        mod dlock {
            $(#[test] fn $test() { super::$test($crate::Family::Lock); })*
        }
        mod dfair {
            $(#[test] fn $test() { super::$test($crate::Family::Fair); })*
        }
    };
}

/// As [`test_both_families!`], but one test runs both at the same time: for tests that mostly wait.
#[macro_export]
macro_rules! test_both_families_at_once {
    ($($test:ident)*) => {
        mod both {
            $(#[test] fn $test() {
                $crate::each(&$crate::Family::ALL, |family| super::$test(*family));
            })*
        }
    };
}
