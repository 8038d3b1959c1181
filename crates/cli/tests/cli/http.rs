//! The exporter under test, and a client for HTTP as small as it needs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use dlock_testing::{LIMIT, Server};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::command::{Running, dlock};

/// A running `dlock exporter`.
pub struct Exporter {
    pub process: Running,
    pub address: String,
}

/// An HTTP response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Exporter {
    /// Starts it on a free port, with the URL in the environment as operators have it.
    #[track_caller]
    pub fn start(server: &Server, url: &str, options: &[&str]) -> Exporter {
        let mut command = dlock(server, &["exporter", "--listen", "127.0.0.1:0"]);
        command.args(options).env("DLOCK_URL", url);
        let mut process = Running::start(command);
        let line = process.line();
        let (_, address) = line.split_once("://").expect("a scheme");
        let address = address.strip_suffix("/metrics");
        Exporter { address: address.expect("an address").to_owned(), process }
    }

    #[track_caller]
    pub fn request(&self, method: &str, path: &str, accept: &str) -> Response {
        request(&self.address, method, path, accept)
    }

    /// GET with this header line, over TLS if it has the authority to trust.
    #[track_caller]
    pub fn get_with(&self, path: &str, header: &str, authority: Option<&Path>) -> Response {
        let stream = connect(&self.address);
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n");
        let Some(authority) = authority else { return exchange(stream, &head) };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).expect("PEM")).expect("an authority");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a configuration");
        exchange(StreamOwned::new(tls, stream), &head)
    }

    /// The metrics in the text format.
    #[track_caller]
    pub fn scrape(&self) -> String {
        scrape(&self.address)
    }
}

#[track_caller]
fn request(address: &str, method: &str, path: &str, accept: &str) -> Response {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n");
    exchange(connect(address), &head)
}

#[track_caller]
fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the exporter listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    stream
}

#[track_caller]
fn exchange(mut stream: impl Read + Write, head: &str) -> Response {
    write!(stream, "{head}Connection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    Response { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// The metrics of the exporter at an address, in the text format.
#[track_caller]
pub fn scrape(address: &str) -> String {
    let response = request(address, "GET", "/metrics", "text/plain");
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

/// The value of a sample, by its name and labels as they are written.
pub fn value<'t>(text: &'t str, sample: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))
}
