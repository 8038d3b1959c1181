//! Options of the connection that the URL does not contain.

use std::fs;
use std::path::Path;

use dlock_client::redis::{ClientTlsConfig, TlsCertificates};
use dlock_client::{Client, ClientBuilder};

use crate::args::Tls;
use crate::exit::{Failure, USAGE};
use crate::text;

/// A client builder with the certificates from the options.
pub fn builder(tls: &Tls) -> Result<ClientBuilder, Failure> {
    let certificates = certificates(tls)?;
    Ok(certificates.map_or_else(Client::builder, |these| Client::builder().tls(these.into())))
}

/// The certificates from the options; None: the options name none.
pub fn certificates(tls: &Tls) -> Result<Option<TlsCertificates>, Failure> {
    let root_cert = tls.cacert.as_deref().map(|file| read("--cacert", file)).transpose()?;
    let client_tls = match (&tls.cert, &tls.cert_key) {
        (None, None) if root_cert.is_none() => return Ok(None),
        (None, None) => None,
        (Some(cert), Some(key)) => {
            let (client_cert, client_key) = (read("--cert", cert)?, read("--key", key)?);
            Some(ClientTlsConfig { client_cert, client_key })
        }
        _ => return Err(Failure::new(USAGE, "--cert and --key belong together")),
    };
    Ok(Some(TlsCertificates { client_tls, root_cert }))
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| {
        let file = text::quoted(file.as_os_str().as_encoded_bytes());
        Failure::new(USAGE, format!("cannot read {file} ({option}): {error}"))
    })
}
