//! `dlock exporter`: the metrics over HTTP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_client::ClientBuilder;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use nix::sys::signal::Signal;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::access::Access;
use super::encode::{Format, encode};
use super::scrape::{Scrape, Scraper};
use super::table::FAMILIES;
use super::targets::Targets;
use super::{first, scraper, trouble};
use crate::args::Exporter;
use crate::exit::{Failure, SYSTEM};
use crate::run::Ending;
use crate::run::signals::Signals;
use crate::say;

/// Longest time between two requests of a connection. Prometheus mostly asks once a minute, or more often.
const REQUEST: Duration = Duration::from_secs(75);
/// Most open connections. Prometheus needs one, and one more for each target.
const CONNECTIONS: usize = 64;
/// Pause after a connection could not be accepted, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(100);
/// How long scrapes may take that have begun when a signal ends the exporter.
const END: Duration = Duration::from_secs(2);

const PAGE: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><title>dlock exporter</title></head>\n\
    <body><h1>dlock exporter</h1><p><a href=\"/metrics\">Metrics</a></p></body></html>\n";

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers requests until SIGINT or SIGTERM, or until the terminal is gone.
pub async fn serve(builder: ClientBuilder, url: &str, args: &Exporter) -> Result<Ending, Failure> {
    let refused = |error: io::Error| {
        Failure::new(SYSTEM, format!("cannot listen on {}: {error}", args.listen))
    };
    // Before anything is answered: a signal then ends the exporter in order.
    let which = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    let mut signals = Signals::of(&which).map_err(refused)?;
    let listener = TcpListener::bind(args.listen).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let access = Access::new(args)?;
    let scheme = access.scheme();
    let targets = Targets::new(&builder, url, args)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS + targets.len()));
    let main = Reporter::new(scraper(builder, url, &args.scraping));
    let start = first(&main.scraper, url).await?;
    main.report(&start);
    let exporter = Arc::new(Servers { main, targets, access });
    // For those who asked for any free port. Nothing depends on a reader.
    let _ = writeln!(io::stdout(), "{scheme}://{address}/metrics");
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST);
    let connections = GracefulShutdown::new();
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            _ = signals.fatal() => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => {
                    let (exporter, http) = (exporter.clone(), http.clone());
                    let watcher = connections.watcher();
                    tokio::spawn(async move {
                        if let Some(stream) = exporter.access.accept(stream).await {
                            let answer = service_fn(|request| answer(&exporter, request));
                            let connection = http.serve_connection(TokioIo::new(stream), answer);
                            // The error of a connection concerns its client alone.
                            let _ = watcher.watch(connection).await;
                        }
                        drop(place);
                    });
                }
                Err(_) => sleep(PAUSE).await,
            },
        }
    }
    drop(listener);
    let _ = timeout(END, connections.shutdown()).await;
    Ok(Ending::Code(0))
}

/// What can be scraped.
struct Servers {
    main: Reporter,
    targets: Targets,
    access: Access,
}

/// A scraper that says on stderr which servers do not answer.
pub struct Reporter {
    scraper: Scraper,
    reported: Mutex<BTreeMap<String, String>>,
}

impl Reporter {
    /// With nothing reported yet.
    pub fn new(scraper: Scraper) -> Self {
        Self { scraper, reported: Mutex::default() }
    }

    /// The answer to a request: 200 also if a server is down, because its metrics say so.
    async fn answer(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let scrape = self.scraper.scrape().await;
        self.report(&scrape);
        let accept = headers.get_all(ACCEPT).iter();
        let accept: Vec<&str> = accept.filter_map(|value| value.to_str().ok()).collect();
        let format = preferred(&accept.join(","));
        let body = encode(&FAMILIES, &scrape.samples, format);
        reply(StatusCode::OK, format.content_type(), body)
    }

    /// Once for each change, not once for each scrape.
    fn report(&self, scrape: &Scrape) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        for (server, why) in &scrape.troubles {
            if reported.get(server) != Some(why) {
                say(&trouble(server, why));
            }
        }
        for server in reported.keys().filter(|server| !scrape.troubles.contains_key(*server)) {
            say(&format!("{server} answers again"));
        }
        reported.clone_from(&scrape.troubles);
    }
}

async fn answer(
    exporter: &Servers,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(answer);
    }
    let path = request.uri().path();
    if path != "/healthz" && !exporter.access.allows(request.headers()) {
        let mut answer = reply(StatusCode::UNAUTHORIZED, TEXT, "name and password are needed\n");
        let ask = HeaderValue::from_static("Basic realm=\"dlock exporter\"");
        answer.headers_mut().insert(WWW_AUTHENTICATE, ask);
        return Ok(answer);
    }
    Ok(match path {
        "/metrics" => exporter.main.answer(request.headers()).await,
        "/scrape" => match exporter.targets.named(request.uri().query()) {
            Ok(target) => target.answer(request.headers()).await,
            Err(why) => reply(StatusCode::BAD_REQUEST, TEXT, why),
        },
        "/healthz" => reply(StatusCode::OK, TEXT, "ok\n"),
        "/" => reply(StatusCode::OK, "text/html; charset=utf-8", PAGE),
        _ => reply(StatusCode::NOT_FOUND, TEXT, "there is /metrics, /scrape and /healthz\n"),
    })
}

fn reply(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// The format that the header Accept prefers. A client that does not ask for OpenMetrics gets the text format, which
/// browsers show.
fn preferred(accept: &str) -> Format {
    let weight = |wanted: &str| {
        let weights = accept.split(',').filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            if !parts.next()?.eq_ignore_ascii_case(wanted) {
                return None;
            }
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            quality.map_or(Some(1.0), |quality| quality.parse::<f64>().ok())
        });
        weights.fold(0.0, f64::max)
    };
    let open = weight("application/openmetrics-text");
    if open > 0.0 && open >= weight("text/plain") { Format::OpenMetrics } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_format_is_sent() {
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            // Prometheus 2.42.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            ("text/plain;version=0.0.4, application/openmetrics-text;q=0.3", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
        ] {
            assert_eq!(preferred(accept), format, "{accept}");
        }
    }
}
