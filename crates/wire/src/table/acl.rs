//! Sets of ACL categories that several commands share.

pub(super) const READ_FAST: &[&str] = &["read", "fast"];
pub(super) const READ_SLOW: &[&str] = &["read", "slow"];
pub(super) const READ_BLOCKING: &[&str] = &["read", "slow", "blocking"];
pub(super) const WRITE_FAST: &[&str] = &["write", "fast"];
pub(super) const WRITE_SLOW: &[&str] = &["write", "slow"];
pub(super) const WRITE_BLOCKING: &[&str] = &["write", "slow", "blocking"];
pub(super) const WRITE_DANGEROUS: &[&str] = &["write", "slow", "dangerous"];
