//! Which servers the tests of this version have run on. `tests/it/versions.rs` includes this file.

/// The product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

/// The servers of `make matrix`: product, major and minor version.
pub const TRIED: [(Server, u32, u32); 8] = [
    (Server::Redis, 7, 0),
    (Server::Redis, 7, 2),
    (Server::Redis, 7, 4),
    (Server::Redis, 8, 0),
    (Server::Redis, 8, 2),
    (Server::Redis, 8, 6),
    (Server::Valkey, 8, 0),
    (Server::Valkey, 9, 1),
];

/// Whether the tests have run on this minor version. Its patch releases count, because they fix defects. Other minor
/// versions do not, also between two tried ones: each may change what a module relies on.
pub fn is_tried(server: Server, major: u32, minor: u32) -> bool {
    TRIED.contains(&(server, major, minor))
}
