//! `/scrape?target=HOST:PORT`: one exporter for several servers.
//!
//! The exporter has a password, and a caller of `/scrape` may be any process that reaches it. So it connects only to
//! targets that its operator listed, and only in the way of its own URL: no caller chooses where the password goes, or
//! that it goes without TLS.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dlock_client::ClientBuilder;
use dlock_client::redis::IntoConnectionInfo as _;
use percent_encoding::percent_decode_str;

use super::scraper;
use super::serve::Reporter;
use crate::args::Exporter;
use crate::exit::{Failure, USAGE};

/// The servers that a caller may name.
pub struct Targets {
    /// `redis` or `rediss`, as the URL says.
    scheme: String,
    reporters: BTreeMap<String, Reporter>,
}

impl Targets {
    /// The targets of the options. Connects with the first scrape of each.
    pub fn new(builder: &ClientBuilder, url: &str, args: &Exporter) -> Result<Self, Failure> {
        let wrong = |target: &str, why: &str| {
            Failure::new(USAGE, format!("--scrape-target {target}: {why}"))
        };
        let mut targets = Self { scheme: String::new(), reporters: BTreeMap::new() };
        for target in &args.scrape_target {
            let at = at(url, target).ok_or_else(|| {
                wrong(target, "--url must name a host, for user, password and TLS")
            })?;
            // The error could quote the URL with its password.
            at.as_str().into_connection_info().map_err(|_| wrong(target, "not a server"))?;
            at.split("://").next().unwrap_or_default().clone_into(&mut targets.scheme);
            let scraper = scraper(builder.clone(), &at, &args.scraping);
            targets.reporters.insert(target.clone(), Reporter::new(scraper));
        }
        Ok(targets)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.reporters.len()
    }

    /// The target that the query of a request names, or why there is none. No text repeats the request, which may
    /// have a password.
    pub fn named(&self, query: Option<&str>) -> Result<&Reporter, &'static str> {
        let mut parameters = query.unwrap_or_default().split('&');
        let target = parameters.find_map(|parameter| parameter.strip_prefix("target="));
        let target =
            target.map_or(Cow::Borrowed(""), |it| percent_decode_str(it).decode_utf8_lossy());
        let target = target.strip_suffix('/').unwrap_or(&target);
        let host = target.strip_prefix(&self.scheme).and_then(|rest| rest.strip_prefix("://"));
        let refused = "target=HOST:PORT must be a --scrape-target of this exporter\n";
        self.reporters.get(host.unwrap_or(target)).ok_or(refused)
    }
}

/// The URL with another server in it. None: it has no host.
fn at(url: &str, target: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (scheme, kind) = scheme.split_once('-').unwrap_or((scheme, ""));
    if scheme.ends_with("unix") {
        return None;
    }
    let (rest, parameters) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let (user, hosts) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
    let path = hosts.split_once('/').map_or("", |(_, path)| path);
    // Parameters of Sentinels mean nothing to a server.
    let (db, parameters) = match kind {
        "sentinel" => (path.split_once('/').map_or("", |(_, db)| db), ""),
        "cluster" => ("", ""),
        _ => (path, parameters),
    };
    Some(format!("{scheme}://{user}{target}/{db}{parameters}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_asked_as_the_url_says() {
        for (url, asked) in [
            ("redis://host", Some("redis://a:1/")),
            (
                "redis://user:p@ss@host:7000/2?protocol=resp3",
                Some("redis://user:p@ss@a:1/2?protocol=resp3"),
            ),
            ("rediss://:pass@host/#insecure", Some("rediss://:pass@a:1/#insecure")),
            (
                "rediss-sentinel://u:p@x:1,y:2/main/3?sentinel_password=z",
                Some("rediss://u:p@a:1/3"),
            ),
            ("redis-sentinel://x:1/main", Some("redis://a:1/")),
            ("redis-cluster://:p@x:1,y:2", Some("redis://:p@a:1/")),
            ("unix:///run/redis.sock?user=u&pass=p", None),
            ("host:6379", None),
        ] {
            assert_eq!(at(url, "a:1").as_deref(), asked, "{url}");
        }
    }
}
