//! Permit ids: UUIDs in their canonical text, `8-4-4-4-12` hexadecimal digits.

use core::fmt;
use core::ops::Deref;

/// The id of a granted permit.
pub type PermitId = [u8; 16];

/// Length of the text.
pub const TEXT_LEN: usize = 36;

/// Where the text has hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// The id that `text` spells, in any case; None if it is not the canonical text of a UUID.
///
/// ```
/// use dlock_wire::permit;
/// let id = permit::parse(b"0192F0C1-5a3e-7c44-9d3b-2f1a6c8e4b70").expect("a UUID");
/// assert_eq!(&permit::text(&id), b"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70");
/// ```
pub fn parse(text: &[u8]) -> Option<PermitId> {
    let text: &[u8; TEXT_LEN] = text.try_into().ok()?;
    let mut id = PermitId::default();
    let mut digits = 0;
    for (at, &sign) in text.iter().enumerate() {
        if HYPHENS.contains(&at) {
            if sign != b'-' {
                return None;
            }
            continue;
        }
        let digit = match sign {
            b'0'..=b'9' => sign - b'0',
            b'a'..=b'f' => sign - b'a' + 10,
            b'A'..=b'F' => sign - b'A' + 10,
            _ => return None,
        };
        id[digits / 2] = id[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(id)
}

/// The text of an id, in lower case.
pub fn text(id: &PermitId) -> [u8; TEXT_LEN] {
    let mut text = [b'-'; TEXT_LEN];
    let mut at = 0;
    for byte in id {
        at += usize::from(HYPHENS.contains(&at));
        for digit in [byte >> 4, byte & 15] {
            text[at] = b"0123456789abcdef"[usize::from(digit)];
            at += 1;
        }
    }
    text
}

/// A permit id as text, in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PermitText([u8; TEXT_LEN]);

impl PermitText {
    /// The text of an id.
    pub fn of(id: &PermitId) -> Self {
        Self(text(id))
    }

    /// The text as bytes.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for PermitText {
    type Target = str;

    fn deref(&self) -> &str {
        // It is ASCII.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for PermitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for PermitText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
