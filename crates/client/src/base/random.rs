//! Randomness without cryptographic strength: unique names, and pauses that differ.

use uuid::Uuid;

/// A unique name: 32 hexadecimal digits.
pub fn name() -> String {
    Uuid::new_v4().simple().encode_lower(&mut Uuid::encode_buffer()).to_owned()
}

/// From 0 to 1.
pub fn fraction() -> f64 {
    let [a, b, c, d, ..] = Uuid::new_v4().into_bytes();
    f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
}
