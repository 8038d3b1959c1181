//! Randomness without cryptographic strength: unique names, and pauses that differ.

use uuid::Uuid;

/// A unique name: 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name([u8; 32]);

impl Name {
    pub(crate) fn new() -> Self {
        let mut name = [0; 32];
        Uuid::new_v4().simple().encode_lower(&mut name);
        Self(name)
    }

    /// The name in a message.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        text.try_into().ok().map(Self)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A unique name as text.
pub fn name() -> String {
    Uuid::new_v4().simple().encode_lower(&mut Uuid::encode_buffer()).to_owned()
}

/// From 0 to 1.
pub fn fraction() -> f64 {
    let [a, b, c, d, ..] = Uuid::new_v4().into_bytes();
    f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
}
