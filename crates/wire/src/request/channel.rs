//! Where the messages about a waiter go.

/// Channel of the messages about a waiter and its hold, 1 to 256 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel<'a> {
    /// `NOTIFY`: published to all nodes of a cluster.
    Plain(&'a [u8]),
    /// `SNOTIFY`: sharded pub/sub, published to the nodes of one shard.
    Sharded(&'a [u8]),
}

impl<'a> Channel<'a> {
    /// Its name.
    pub const fn name(self) -> &'a [u8] {
        match self {
            Self::Plain(name) | Self::Sharded(name) => name,
        }
    }

    /// The option that names it.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Plain(_) => "NOTIFY",
            Self::Sharded(_) => "SNOTIFY",
        }
    }
}
