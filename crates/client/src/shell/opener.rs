//! Where and how to connect: to a fixed address, or to the primary that Sentinels name.

use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::socket2::TcpKeepalive;
#[cfg(feature = "sentinel")]
use redis::sentinel::SentinelClient;
use redis::{ConnectionInfo, ProtocolVersion};
#[cfg(feature = "sentinel")]
use tokio::sync::Mutex;

use crate::base::dialer::Dial;
use crate::base::error::Error;
#[cfg(feature = "sentinel")]
use crate::base::url::sentinel::NamedPrimary;

/// Makes the configuration of a connection to one server.
pub(crate) enum Opener {
    Fixed(Box<ConnectionInfo>),
    #[cfg(feature = "sentinel")]
    Sentinel {
        lookup: Box<Mutex<SentinelClient>>,
        /// How the servers themselves are spoken to.
        node: Box<ConnectionInfo>,
    },
    /// Whatever that leads to.
    Given(Arc<dyn Dial>),
}

impl Opener {
    #[cfg(feature = "sentinel")]
    pub(crate) fn of_sentinels(named: &NamedPrimary) -> Result<Self, Error> {
        let lookup = Box::new(Mutex::new(lookup(named)?));
        Ok(Self::Sentinel { lookup, node: Box::new(named.node.clone()) })
    }

    /// Where to connect to now: with Sentinels the primary of this moment, which was asked whether it is one.
    #[cfg_attr(not(feature = "sentinel"), allow(clippy::unused_async))]
    pub(crate) async fn dialer(&self) -> Result<Arc<dyn Dial>, Error> {
        let info = match self {
            Self::Fixed(info) => ConnectionInfo::clone(info),
            #[cfg(feature = "sentinel")]
            Self::Sentinel { lookup, node } => {
                let primary = lookup.lock().await.async_get_client().await;
                let primary = primary.map_err(Error::from_redis)?;
                ConnectionInfo::clone(node).set_addr(primary.get_connection_info().addr().clone())
            }
            Self::Given(dialer) => return Ok(dialer.clone()),
        };
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Many small requests of many tasks: none waits for the acknowledgement of another. And a connection on which
        // nothing happens for long must not be forgotten by what is between, nor outlive a peer that is gone.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(15))
            .with_interval(Duration::from_secs(5))
            .with_retries(3);
        let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(keepalive);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        let client = redis::Client::open(info).map_err(Error::from_redis)?;
        Ok(Arc::new(client))
    }

    /// Whether Sentinels name the server, and may name another one later.
    pub(crate) fn is_named_by_sentinels(&self) -> bool {
        match self {
            #[cfg(feature = "sentinel")]
            Self::Sentinel { .. } => true,
            _ => false,
        }
    }
}

/// Asks the Sentinels for the primary, and that server whether it is one.
#[cfg(feature = "sentinel")]
fn lookup(named: &NamedPrimary) -> Result<SentinelClient, Error> {
    use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
    use redis::{ConnectionAddr, TlsMode};

    let NamedPrimary { sentinels, name, node, .. } = named;
    let addresses = sentinels.iter().map(|sentinel| sentinel.addr().clone());
    let mut builder =
        SentinelClientBuilder::new(addresses, name.as_str(), SentinelServerType::Master)
            .map_err(Error::from_redis)?;
    if let Some(asked) = sentinels.first() {
        builder = builder.set_client_to_sentinel_tcp_settings(asked.tcp_settings().clone());
        if let Some(user) = asked.redis_settings().username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = asked.redis_settings().password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
    }
    builder = builder.set_client_to_redis_tcp_settings(node.tcp_settings().clone());
    if let Some(user) = node.redis_settings().username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = node.redis_settings().password() {
        builder = builder.set_client_to_redis_password(password);
    }
    builder = match node.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            builder.set_client_to_redis_tls_mode(TlsMode::Insecure)
        }
        ConnectionAddr::TcpTls { .. } => builder.set_client_to_redis_tls_mode(TlsMode::Secure),
        _ => builder,
    };
    #[cfg(feature = "tls-rustls")]
    if let Some(tls) = &named.tls {
        builder = builder.set_client_to_redis_certificates(tls.clone());
    }
    builder.build().map_err(Error::from_redis)
}
