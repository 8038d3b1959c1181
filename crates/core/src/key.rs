//! The name of a key.

/// The name of a key: a database number and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    /// Database number; 0 in a cluster.
    pub db: u32,
    /// Name of the key.
    pub name: &'a [u8],
}
