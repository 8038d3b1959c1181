//! Options of the connection that the URL does not contain.

use std::fs;
use std::path::Path;

use dlock_client::{Client, ClientBuilder, ClientTlsConfig, TlsCertificates};

use crate::args::Tls;
use crate::exit::{Failure, USAGE};
use crate::text;

/// A client builder with the certificates from the options.
pub fn builder(tls: &Tls) -> Result<ClientBuilder, Failure> {
    let root_cert = tls.cacert.as_deref().map(|file| read("--cacert", file)).transpose()?;
    let client_tls = match (tls.cert.as_deref(), tls.cert_key.as_deref()) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some(ClientTlsConfig {
            client_cert: read("--cert", cert)?,
            client_key: read("--key", key)?,
        }),
        _ => return Err(Failure::new(USAGE, "--cert and --key belong together")),
    };
    let builder = Client::builder();
    if root_cert.is_none() && client_tls.is_none() {
        return Ok(builder);
    }
    Ok(builder.tls(TlsCertificates { client_tls, root_cert }))
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| {
        let file = text::quoted(file.as_os_str().as_encoded_bytes());
        Failure::new(USAGE, format!("cannot read {file} ({option}): {error}"))
    })
}
