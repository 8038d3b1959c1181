//! Certificates of authorities and clients.

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
#[derive(Debug, Clone)]
#[must_use = "pass it to ClientBuilder::tls"]
pub struct TlsCertificates {
    pem: redis::TlsCertificates,
}

impl Default for TlsCertificates {
    fn default() -> Self {
        Self { pem: redis::TlsCertificates { client_tls: None, root_cert: None } }
    }
}

impl TlsCertificates {
    /// No certificates: the client trusts the authorities of the system, and shows no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Certificates of the authorities that the client trusts, instead of those of the system.
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.pem.root_cert = Some(pem.into());
        self
    }

    /// Certificate chain and private key that the client shows to servers.
    pub fn client(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (client_cert, client_key) = (chain.into(), key.into());
        self.pem.client_tls = Some(redis::ClientTlsConfig { client_cert, client_key });
        self
    }

    /// The same for redis-rs, which reads only part of it.
    pub(crate) fn checked(self) -> Result<redis::TlsCertificates, Error> {
        let redis::TlsCertificates { client_tls, root_cert } = &self.pem;
        let chain = client_tls.as_ref().map(|client| &client.client_cert);
        for (what, pem) in [("authority", root_cert.as_ref()), ("client", chain)] {
            // An empty one would only show as a server that is not trusted.
            if pem.is_some_and(|pem| !pem.windows(BEGIN.len()).any(|text| text == BEGIN)) {
                let text = format!("the {what}'s certificate is not in PEM format");
                return Err(Error::invalid(text));
            }
        }
        Ok(self.pem)
    }
}

#[cfg(feature = "redis")]
impl From<redis::TlsCertificates> for TlsCertificates {
    fn from(certificates: redis::TlsCertificates) -> Self {
        Self { pem: certificates }
    }
}

/// How a certificate begins in PEM.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
