//! TLS: where it is spoken, and with which crypto provider.

#[cfg(feature = "tls-rustls")]
mod certificates;

use redis::{ConnectionAddr, ConnectionInfo};

#[cfg(feature = "tls-rustls")]
pub use self::certificates::TlsCertificates;
use crate::base::error::Error;

/// Whether TLS is spoken there.
pub(crate) fn has_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Makes sure that this process has a default crypto provider: rustls panics without one.
#[cfg(feature = "tls-rustls")]
pub(crate) fn crypto_provider() -> Result<(), Error> {
    use rustls::crypto::CryptoProvider;

    #[cfg(feature = "tls-ring")]
    if CryptoProvider::get_default().is_none() {
        // An error: another thread has just installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    if CryptoProvider::get_default().is_some() {
        return Ok(());
    }
    Err(Error::invalid(
        "TLS needs a crypto provider: call rustls::crypto::CryptoProvider::install_default before connect, or enable \
         the feature `tls-ring` of dlock-client",
    ))
}

/// Without that feature, redis-rs may speak TLS for another crate of the application. This one does not rely on that.
#[cfg(not(feature = "tls-rustls"))]
pub(crate) fn crypto_provider() -> Result<(), Error> {
    Err(Error::invalid("TLS needs the feature `tls-rustls` of dlock-client"))
}

#[cfg(all(feature = "tls-rustls", not(feature = "tls-ring")))]
#[cfg(test)]
mod tests {
    use crate::{Client, ErrorKind};

    /// rustls would panic.
    #[tokio::test]
    async fn without_a_crypto_provider_connecting_is_an_error() {
        let error = Client::connect("rediss://127.0.0.1:1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("install_default"), "{error}");
    }
}
