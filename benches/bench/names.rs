//! Names of realistic length, which is part of every number.

/// A key of 20 bytes.
pub fn key(n: usize) -> String {
    format!("lock:order:{n:09}")
}

/// An owner in the format of a UUID: 36 bytes.
pub fn owner(n: usize) -> String {
    format!("{:08x}-7d1c-4b0e-9f3a-{n:012x}", n.wrapping_mul(0x9e37_79b1) & 0xffff_ffff)
}
