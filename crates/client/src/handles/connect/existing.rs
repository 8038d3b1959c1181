//! Connecting by what an application has of redis-rs.

use redis::ConnectionInfo;

use super::ClientBuilder;
use crate::base::error::Error;
use crate::base::url::Endpoints;
#[cfg(feature = "sentinel")]
use crate::base::url::sentinel::NamedPrimary;
use crate::handles::client::Client;

impl ClientBuilder {
    /// Connects to the server of that client of redis-rs: same address, user, database and certificates, but over
    /// connections of its own.
    ///
    /// ```
    #[doc = example!()]
    /// use dlock_client::redis;
    ///
    /// let cache = redis::Client::open(url)?;
    /// let locks = dlock_client::Client::builder().connect_client(&cache).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[doc = errors_as!("[`Client::connect`]")]
    pub async fn connect_client(self, client: &redis::Client) -> Result<Client, Error> {
        self.connect_info(client.get_connection_info().clone()).await
    }

    /// Connects to one server, with connection settings of redis-rs.
    #[doc = errors_as!("[`Client::connect`]")]
    pub async fn connect_info(self, server: ConnectionInfo) -> Result<Client, Error> {
        self.connect_to(Endpoints::Single(Box::new(server))).await
    }

    /// Connects to the primary that these Sentinels name, and to the next one after a failover. `node` has password,
    /// database number and TLS for the servers themselves; its address is not used. All Sentinels are asked with the
    /// user and password of the first of them.
    #[doc = errors_as!("[`Client::connect`]")]
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinel(
        self,
        sentinels: Vec<ConnectionInfo>,
        primary_name: &str,
        node: ConnectionInfo,
    ) -> Result<Client, Error> {
        let sentinels = NamedPrimary::new(sentinels, primary_name, node);
        self.connect_to(Endpoints::Sentinel(Box::new(sentinels))).await
    }

    /// Connects to the cluster that these nodes belong to; the other nodes get the same user, password and TLS as
    /// the first of them.
    #[doc = errors_as!("[`Client::connect`]")]
    #[cfg(feature = "cluster")]
    pub async fn connect_cluster(self, nodes: Vec<ConnectionInfo>) -> Result<Client, Error> {
        self.connect_to(Endpoints::Cluster { nodes }).await
    }
}
