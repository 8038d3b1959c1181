//! Options of `dlock metrics` and `dlock exporter`.

use std::net::SocketAddr;
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
GET /metrics asks the servers and answers with their metrics; /healthz answers as long as the exporter runs. \
There is no password and no TLS: keep the default address, or put a proxy in front.")]
pub struct Exporter {
    /// Address and port for HTTP
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9735")]
    pub listen: SocketAddr,

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
