//! The exporter under test, and a client for HTTP as small as it needs.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dlock_testing::{LIMIT, Server};

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
        let address = line.strip_prefix("http://").and_then(|line| line.strip_suffix("/metrics"));
        Exporter { address: address.expect("an address").to_owned(), process }
    }

    #[track_caller]
    pub fn request(&self, method: &str, path: &str, accept: &str) -> Response {
        request(&self.address, method, path, accept)
    }

    /// The metrics in the text format.
    #[track_caller]
    pub fn scrape(&self) -> String {
        scrape(&self.address)
    }
}

#[track_caller]
fn request(address: &str, method: &str, path: &str, accept: &str) -> Response {
    let mut stream = TcpStream::connect(address).expect("the exporter listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n");
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
