//! Certificates of authorities and clients.

use std::fmt;

use redis::ConnectionInfo;

use super::has_tls;
use crate::base::error::Error;

/// Certificates for TLS, as bytes in PEM format.
///
/// ```no_run
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// use dlock_client::{Client, TlsCertificates};
///
/// let certificates = TlsCertificates::new()
///     .authority(std::fs::read("ca.crt")?)
///     .client(std::fs::read("client.crt")?, std::fs::read("client.key")?);
/// let client = Client::builder().tls(certificates).connect("rediss://locks.example:6380").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "pass it to ClientBuilder::tls"]
pub struct TlsCertificates {
    authority: Option<Vec<u8>>,
    client: Option<ClientCertificate>,
}

#[derive(Clone)]
struct ClientCertificate {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl TlsCertificates {
    /// No certificates: the client trusts the authorities of the system, and shows no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Certificates of the authorities that the client trusts, instead of those of the system.
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Certificate chain and private key that the client shows to servers.
    pub fn client(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client = Some(ClientCertificate { chain: chain.into(), key: key.into() });
        self
    }

    /// The same for redis-rs, which reads only part of it.
    pub(crate) fn checked(self) -> Result<redis::TlsCertificates, Error> {
        let Self { authority, client } = self;
        let chain = client.as_ref().map(|client| &client.chain);
        for (what, pem) in [("authority", authority.as_ref()), ("client", chain)] {
            // An empty one would only show as a server that is not trusted.
            if pem.is_some_and(|pem| !pem.windows(BEGIN.len()).any(|text| text == BEGIN)) {
                let text = format!("the {what}'s certificate is not in PEM format");
                return Err(Error::invalid(text));
            }
        }
        let client_tls = client.map(|client| redis::ClientTlsConfig {
            client_cert: client.chain,
            client_key: client.key,
        });
        Ok(redis::TlsCertificates { client_tls, root_cert: authority })
    }
}

impl fmt::Debug for TlsCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsCertificates")
            .field("authority", &self.authority.is_some())
            .field("client", &self.client.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "redis")]
impl From<redis::TlsCertificates> for TlsCertificates {
    fn from(certificates: redis::TlsCertificates) -> Self {
        let redis::TlsCertificates { client_tls, root_cert } = certificates;
        let client = client_tls
            .map(|client| ClientCertificate { chain: client.client_cert, key: client.client_key });
        Self { authority: root_cert, client }
    }
}

/// How a certificate begins in PEM.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The same connection with these certificates, which are read here: what is wrong with them is the caller's business,
/// and is not tried again.
pub(crate) fn certified(
    info: ConnectionInfo,
    tls: &redis::TlsCertificates,
) -> Result<ConnectionInfo, Error> {
    if !has_tls(&info) {
        return Err(Error::invalid(
            "certificates are for TLS: rediss://, rediss-sentinel://, rediss-cluster://",
        ));
    }
    let client = redis::Client::build_with_tls(info, tls.clone())
        .map_err(|error| Error::invalid(format!("bad certificates: {error}")))?;
    Ok(client.get_connection_info().clone())
}
