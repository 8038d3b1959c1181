//! Options of `dlock metrics` and `dlock exporter`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::time::interval;
use crate::metrics::Format;

/// `dlock metrics`
#[derive(Debug, Args)]
#[command(after_help = "\
Shows all primaries of a cluster. A server that does not answer is shown with dlock_up 0, and the exit code is 69.")]
pub struct Metrics {
    /// The format of the output
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "openmetrics")]
    pub format: Format,

    /// How much to ask.
    #[command(flatten)]
    pub scraping: Scraping,
}

/// `dlock exporter`
#[derive(Debug, Args)]
#[command(after_help = "\
GET /metrics asks the servers and answers with their metrics; /scrape?target=HOST:PORT does so for one \
--scrape-target; /healthz answers as long as the exporter runs. \
Without --listen-users any client that reaches the address may read them; /healthz never asks for a password.")]
pub struct Exporter {
    /// Address and port for HTTP
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9735")]
    pub listen: SocketAddr,

    /// Serve HTTPS: the certificate, with those of its issuers (PEM)
    #[arg(long, value_name = "FILE", requires = "listen_key")]
    pub listen_cert: Option<PathBuf>,

    /// The private key of --listen-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "listen_cert")]
    pub listen_key: Option<PathBuf>,

    /// Ask for a name and password (basic authentication): a file with a line user:password for each user
    #[arg(long, value_name = "FILE")]
    pub listen_users: Option<PathBuf>,

    /// A further server, for /scrape?target=HOST:PORT; user, password, TLS and database are those of --url. May be
    /// given several times. Other targets are refused: the exporter sends its password to no other server
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = host_and_port)]
    pub scrape_target: Vec<String>,

    /// How much to ask.
    #[command(flatten)]
    pub scraping: Scraping,
}

/// What a scrape may cost.
#[derive(Debug, Args)]
pub struct Scraping {
    /// Show the waiters of the N keys with most of them; 0: none. While there are waiters, each scrape reads all keys
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(..=100))]
    pub busiest: u8,

    /// Longest time to ask the servers
    #[arg(long, value_name = "DURATION", default_value = "5", value_parser = interval)]
    pub timeout: Duration,
}

/// The name of a server without anything that has a meaning in a URL.
fn host_and_port(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').ok_or("HOST:PORT is expected")?;
    let has_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if host.is_empty() || !has_port || host.contains(['@', '/', '?', '#']) {
        return Err("HOST:PORT is expected, without a scheme, user or password".to_owned());
    }
    Ok(text.to_owned())
}
