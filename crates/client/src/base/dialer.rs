//! How connections are opened.

use std::fmt;
use std::pin::Pin;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};

/// A connection that is being opened.
pub type Dialed<'a> = Pin<Box<dyn Future<Output = RedisResult<MultiplexedConnection>> + Send + 'a>>;

/// Opens connections to the server of a moment: with Sentinels, a later one may be another.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Opens a connection.
    fn open<'a>(&'a self, config: &'a AsyncConnectionConfig) -> Dialed<'a>;

    /// The address, for people.
    fn address(&self) -> String;
}

impl Dial for redis::Client {
    /// Opens a connection.
    fn open<'a>(&'a self, config: &'a AsyncConnectionConfig) -> Dialed<'a> {
        Box::pin(self.get_multiplexed_async_connection_with_config(config))
    }

    fn address(&self) -> String {
        self.get_connection_info().addr().to_string()
    }
}
