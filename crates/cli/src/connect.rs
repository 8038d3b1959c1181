//! Options of the connection that the URL does not contain.

use std::fs;
use std::path::Path;

use dlock_client::{Client, ClientBuilder, TlsCertificates};

use crate::args::Tls;
use crate::exit::{Failure, USAGE};
use crate::text;

/// A client builder with the certificates from the options.
pub fn builder(tls: &Tls) -> Result<ClientBuilder, Failure> {
    let mut certificates = TlsCertificates::new();
    if let Some(file) = &tls.cacert {
        certificates = certificates.authority(read("--cacert", file)?);
    }
    match (&tls.cert, &tls.cert_key) {
        (None, None) if tls.cacert.is_none() => return Ok(Client::builder()),
        (None, None) => {}
        (Some(cert), Some(key)) => {
            certificates = certificates.client(read("--cert", cert)?, read("--key", key)?);
        }
        _ => return Err(Failure::new(USAGE, "--cert and --key belong together")),
    }
    Ok(Client::builder().tls(certificates))
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| {
        let file = text::quoted(file.as_os_str().as_encoded_bytes());
        Failure::new(USAGE, format!("cannot read {file} ({option}): {error}"))
    })
}
