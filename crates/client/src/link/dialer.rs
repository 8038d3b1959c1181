//! Opens connections to one server.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};

/// The server of a moment: with Sentinels, a later one may be another.
pub(crate) enum Dialer {
    Server(Box<redis::Client>),
    /// A server in this process.
    #[cfg(feature = "testing")]
    Fake(crate::testing::server::FakeServer),
}

impl Dialer {
    pub(super) async fn open(
        &self,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        match self {
            Self::Server(client) => {
                client.get_multiplexed_async_connection_with_config(config).await
            }
            #[cfg(feature = "testing")]
            Self::Fake(server) => server.open(config).await,
        }
    }

    pub(super) fn address(&self) -> String {
        match self {
            Self::Server(client) => client.get_connection_info().addr().to_string(),
            #[cfg(feature = "testing")]
            Self::Fake(_) => "fake".to_owned(),
        }
    }
}
