//! Strategies to take and release a lock, each as a program would use it.

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};

/// The lock of one task.
pub trait Strategy: Send + 'static {
    /// The hold.
    type Held: Send;

    /// Returns when the lock is held.
    fn acquire(&mut self) -> impl Future<Output = Self::Held> + Send;

    /// Returns when the lock is released.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = ()> + Send;
}

/// The name of the lock, for all strategies.
pub const LOCK: &str = "lock:counter";

/// The lease of the lock, for all strategies.
pub const LEASE_MS: u64 = 30_000;

/// A connection without a response timeout: some calls block.
pub async fn connect(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(url).expect("a URL");
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

/// Sends a command that must succeed.
pub async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    cmd: &redis::Cmd,
) -> T {
    cmd.query_async(connection).await.expect("an answer")
}
