//! `dlock metrics` and `dlock exporter`: the numbers of servers for Prometheus.

mod access;
mod busiest;
mod encode;
mod read;
mod scrape;
mod serve;
mod table;
mod targets;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::sync::Arc;

use dlock_client::ClientBuilder;

pub use self::encode::Format;
use self::encode::encode;
use self::scrape::{Scrape, Scraper};
pub use self::serve::serve;
use self::table::FAMILIES;
use crate::args::{Metrics, Scraping};
use crate::exit::{Failure, SERVER};
use crate::run::Ending;

/// Writes the metrics once. Servers that do not answer are in the output, too, and make the command fail.
pub async fn print(builder: ClientBuilder, url: &str, args: &Metrics) -> Result<Ending, Failure> {
    let scraper = scraper(builder, url, &args.scraping);
    let scrape = first(&scraper, url).await?;
    let mut out = io::stdout().lock();
    out.write_all(encode(&FAMILIES, &scrape.samples, args.format).as_bytes())?;
    out.flush()?;
    if scrape.troubles.is_empty() {
        return Ok(Ending::Code(0));
    }
    let troubles = scrape.troubles.iter().map(|(server, why)| trouble(server, why));
    Err(Failure::new(SERVER, troubles.collect::<Vec<_>>().join("; ")))
}

fn scraper(builder: ClientBuilder, url: &str, args: &Scraping) -> Scraper {
    Scraper::new(builder, url, usize::from(args.busiest), args.timeout)
}

/// The first scrape of a URL. An error: no later one can succeed.
async fn first(scraper: &Scraper, url: &str) -> Result<Arc<Scrape>, Failure> {
    let scrape = scraper.scrape().await;
    match &scrape.invalid {
        Some(error) => Err(Failure::unreachable(url, error)),
        None => Ok(scrape),
    }
}

/// Errors of a connection name the server themselves.
fn trouble(server: &str, why: &str) -> String {
    if why.contains(server) { why.to_owned() } else { format!("{server}: {why}") }
}
