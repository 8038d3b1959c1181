//! One scrape: asks every server, however many of them are gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dlock_admin::Admin;
use dlock_client::{Client, ClientBuilder, Error, ErrorKind};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::busiest::Busiest;
use super::encode::{Sample, Value};
use super::read::Answer;

/// The sections of INFO that have what is shown.
const SECTIONS: [&str; 3] = ["server", "replication", "dlock"];

/// Scrapes the servers of one URL, one scrape at a time.
pub struct Scraper {
    builder: ClientBuilder,
    url: String,
    busiest: usize,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// It reconnects by itself, once it was connected.
    client: Option<Client>,
    last: Option<(Instant, Arc<Scrape>)>,
    busiest: Option<Walked>,
}

/// A walk over all keys.
struct Walked {
    ended: Instant,
    took: Duration,
    busiest: Busiest,
}

impl Walked {
    /// Whether it must do for now: walks take at most a tenth of the time.
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ended) < self.took * 9
    }
}

/// The result of a scrape.
#[derive(Debug, Default)]
pub struct Scrape {
    /// All samples.
    pub samples: Vec<Sample>,
    /// Servers that did not answer, and why.
    pub troubles: BTreeMap<String, String>,
    /// What is wrong with the URL or the certificates: no later scrape can succeed.
    pub invalid: Option<Error>,
}

impl Scraper {
    /// Connects with the first scrape. `busiest` limits the keys with waiters that are shown, and `timeout` the length
    /// of a scrape.
    pub fn new(builder: ClientBuilder, url: &str, busiest: usize, timeout: Duration) -> Self {
        let builder = builder.connect_timeout(timeout / 2).retry_for(timeout / 2);
        let builder = builder.response_timeout(timeout / 2);
        Self { builder, url: url.to_owned(), busiest, timeout, state: Mutex::default() }
    }

    /// Asks all servers. A call that waited for the end of another one's scrape gets the result of that.
    pub async fn scrape(&self) -> Arc<Scrape> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if let Some((ended, scrape)) = &state.last
            && *ended >= asked
        {
            return scrape.clone();
        }
        let scrape = Arc::new(self.ask(&mut state).await);
        state.last = Some((Instant::now(), scrape.clone()));
        scrape
    }

    async fn ask(&self, state: &mut State) -> Scrape {
        let start = Instant::now();
        let mut scrape = Scrape::default();
        match self.connect(state).await {
            Ok(client) => self.ask_servers(&client, state, start, &mut scrape).await,
            Err(error) if error.kind() == ErrorKind::Invalid => scrape.invalid = Some(error),
            Err(error) => {
                for server in servers_of(&self.url) {
                    scrape.is_down(&server, error.to_string());
                }
            }
        }
        let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (family, value) = ("dlock_scrape_duration_seconds", Value::Micros(took));
        scrape.samples.push(Sample { family, labels: Vec::new(), value });
        scrape
    }

    async fn connect(&self, state: &mut State) -> Result<Client, Error> {
        if let Some(client) = &state.client {
            return Ok(client.clone());
        }
        let client = self.builder.clone().connect(&self.url).await?;
        state.client = Some(client.clone());
        Ok(client)
    }

    async fn ask_servers(
        &self,
        client: &Client,
        state: &mut State,
        start: Instant,
        scrape: &mut Scrape,
    ) {
        let admin = Admin::new(client);
        let mut waiters = 0;
        for answer in admin.info_texts(&SECTIONS).await {
            let server = answer.server;
            let text = match answer.text {
                Ok(text) => text,
                Err(error) => {
                    scrape.is_down(&server, error.to_string());
                    continue;
                }
            };
            if !text.contains("\ndlock_") {
                scrape.is_down(&server, "the dlock module is not loaded in the server".to_owned());
                continue;
            }
            scrape.up(&server, 1);
            let answer = Answer::parse(&text);
            answer.samples(&server, &mut scrape.samples);
            waiters += answer.waiters();
        }
        if self.busiest > 0 {
            if waiters == 0 {
                state.busiest = None;
                Busiest::none().samples(&mut scrape.samples);
                return;
            }
            let now = Instant::now();
            let last = state.busiest.take().filter(|walked| walked.is_fresh(now));
            let walked = match last {
                Some(walked) => walked,
                None => self.walk(&admin, waiters, start + self.timeout).await,
            };
            walked.busiest.samples(&mut scrape.samples);
            state.busiest = Some(walked);
        }
    }

    async fn walk(&self, admin: &Admin, waiters: u64, until: Instant) -> Walked {
        let began = Instant::now();
        let busiest = Busiest::find(admin, self.busiest, waiters, until).await;
        Walked { ended: Instant::now(), took: began.elapsed(), busiest }
    }
}

impl Scrape {
    fn up(&mut self, server: &str, up: u64) {
        let labels = vec![("server", server.to_owned())];
        self.samples.push(Sample { family: "dlock_up", labels, value: Value::Number(up) });
    }

    fn is_down(&mut self, server: &str, why: String) {
        self.up(server, 0);
        self.troubles.insert(server.to_owned(), why);
    }
}

/// The names that the client will have for the servers of a URL, without user and password.
fn servers_of(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split('?').next().unwrap_or_default();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    if scheme == "unix" {
        return vec![rest.to_owned()];
    }
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    if scheme.ends_with("-sentinel") {
        return vec![path.split('/').next().unwrap_or_default().to_owned()];
    }
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:6379"),
    };
    hosts.split(',').filter(|host| !host.is_empty()).map(with_port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_take_a_tenth_of_the_time() {
        let ended = Instant::now();
        let took = Duration::from_secs(2);
        let walked = Walked { ended, took, busiest: Busiest::none() };
        assert!(walked.is_fresh(ended + Duration::from_millis(17_999)));
        assert!(!walked.is_fresh(ended + Duration::from_secs(18)));
    }

    #[test]
    fn a_server_that_never_answered_has_a_name_without_a_password() {
        for (url, servers) in [
            ("redis://user:pass@host:7000/2", &["host:7000"][..]),
            ("rediss://host", &["host:6379"]),
            ("redis://:p@ss@host?protocol=resp3", &["host:6379"]),
            ("unix:///run/redis.sock?user=a&pass=b", &["/run/redis.sock"]),
            ("redis-sentinel://u:p@a:1,b:2/main/3?sentinel_password=x", &["main"]),
            ("rediss-cluster://:p@a:1,b", &["a:1", "b:6379"]),
        ] {
            assert_eq!(servers_of(url), servers, "{url}");
        }
    }
}
