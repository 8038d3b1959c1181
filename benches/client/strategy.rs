//! Ways to take a lock and give it back, each as a program would use it.

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};

/// One lock, as one task has it.
pub trait Way: Send + 'static {
    /// What is held.
    type Held: Send;

    /// Waits until it is ours.
    fn acquire(&mut self) -> impl Future<Output = Self::Held> + Send;

    /// Returns when it is given back.
    fn release(&mut self, held: Self::Held) -> impl Future<Output = ()> + Send;
}

/// The name of the lock, for all ways.
pub const LOCK: &str = "lock:counter";

/// How long it stays taken if its holder dies, for all ways.
pub const LEASE_MS: u64 = 30_000;

/// A connection without a limit for answers: some of them are waited for.
pub async fn connect(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(url).expect("a URL");
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

/// Asks, where only a useful answer will do.
pub async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    cmd: &redis::Cmd,
) -> T {
    cmd.query_async(connection).await.expect("an answer")
}
