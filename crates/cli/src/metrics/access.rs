//! Who may read the exporter's pages: TLS and basic authentication.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderMap};
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use crate::args::Exporter;
use crate::exit::{Failure, USAGE};
use crate::text;

/// Longest time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What the options ask for.
pub struct Access {
    tls: Option<TlsAcceptor>,
    /// Names with passwords as the header has them; None: any client may read.
    users: Option<Vec<String>>,
}

impl Access {
    /// Reads the files of the options.
    pub fn new(args: &Exporter) -> Result<Self, Failure> {
        let tls = args.listen_cert.as_deref().zip(args.listen_key.as_deref());
        let tls = tls.map(|(cert, key)| acceptor(cert, key)).transpose()?;
        let users = args.listen_users.as_deref().map(read_users).transpose()?;
        Ok(Self { tls, users })
    }

    /// `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The stream for HTTP; None if the handshake failed, which concerns that client alone.
    pub async fn accept(&self, stream: TcpStream) -> Option<Box<dyn Stream>> {
        let Some(tls) = &self.tls else { return Some(Box::new(stream)) };
        let accepted = timeout(HANDSHAKE, tls.accept(stream)).await.ok()?.ok()?;
        Some(Box::new(accepted))
    }

    /// Whether the request has the name and password of a user. Takes the same time for all passwords of a length.
    pub fn allows(&self, headers: &HeaderMap) -> bool {
        let Some(users) = &self.users else { return true };
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, sent) = header.and_then(|value| value.split_once(' ')).unwrap_or_default();
        let is_user = |user: &&String| user.as_bytes().ct_eq(sent.trim().as_bytes()).into();
        scheme.eq_ignore_ascii_case("basic") && users.iter().filter(is_user).count() > 0
    }
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, Failure> {
    let certs =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certs = certs.map_err(|error| unfit("--listen-cert", cert, error))?;
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.map_err(|error| unfit("--listen-key", key, error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(certs, private))
        .map_err(|error: rustls::Error| unfit("--listen-cert", cert, error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read_users(file: &Path) -> Result<Vec<String>, Failure> {
    let text = fs::read_to_string(file).map_err(|error| unfit("--listen-users", file, error))?;
    // The message does not have the line, which may be a password.
    users(&text).ok_or_else(|| unfit("--listen-users", file, "each line must be user:password"))
}

/// The users of a file; None if there are none, or a line is none.
fn users(text: &str) -> Option<Vec<String>> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let fits = !lines.is_empty() && lines.iter().all(|line| line.contains(':'));
    fits.then(|| lines.iter().map(|line| base64(line.as_bytes())).collect())
}

fn unfit(option: &str, file: &Path, why: impl std::fmt::Display) -> Failure {
    let file = text::quoted(file.as_os_str().as_encoded_bytes());
    Failure::new(USAGE, format!("cannot use {file} ({option}): {why}"))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | usize::from(*chunk.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = DIGITS[bits >> (18 - 6 * at) & 63];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{3ff}>?", "z78+Pw=="),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded, "{text}");
        }
    }

    #[test]
    fn only_users_of_the_file_are_let_in() {
        let access = Access { tls: None, users: users("prom:pass:word\r\n\nother:x\n") };
        assert!(access.users.is_some());
        for (header, allowed) in [
            ("Basic cHJvbTpwYXNzOndvcmQ=", true),
            ("basic  cHJvbTpwYXNzOndvcmQ=", true),
            ("Basic b3RoZXI6eA==", true),
            ("Basic b3RoZXI6eQ==", false),
            ("Basic b3RoZXI6", false),
            ("Basic ", false),
            ("Bearer cHJvbTpwYXNzOndvcmQ=", false),
            ("", false),
        ] {
            let value = HeaderValue::from_static(header);
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
            assert_eq!(access.allows(&headers), allowed, "{header}");
        }
        assert!(!access.allows(&HeaderMap::new()));
        assert!(Access { tls: None, users: None }.allows(&HeaderMap::new()));
        for wrong in ["", "\n", "prom:x\nsecret\n"] {
            assert_eq!(users(wrong), None, "{wrong}");
        }
    }
}
