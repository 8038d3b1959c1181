//! `dlock ping`

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use dlock_admin::{Admin, Stats};
use dlock_client::{ClientBuilder, Error, ErrorKind};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::args::Ping;
use crate::exit::{Failure, NO_MODULE, QUARANTINE, REPLICA, SERVER};
use crate::run::Ending;
use crate::{json, text};

/// Asks every server once.
pub async fn ping(builder: ClientBuilder, url: &str, args: &Ping) -> Result<Ending, Failure> {
    let time = args.timeout;
    let builder = builder.connect_timeout(time).response_timeout(time).retry_for(time);
    let asked = timeout(time, ask(builder, url)).await;
    let Ok(asked) = asked else {
        let text = format!(
            "no answer within {} from {}",
            text::time(time),
            crate::exit::without_password(url)
        );
        return Err(Failure::new(SERVER, text));
    };
    let (servers, took) = asked.map_err(|error| unusable(url, &error))?;
    let found = json!({
        "servers": servers.iter().map(as_json).collect::<Vec<_>>(),
        "took-ms": took.as_secs_f64() * 1000.0,
    });
    let problem = problem(&servers, args.primary);
    let mut out = io::stdout().lock();
    if !args.json {
        for server in &servers {
            writeln!(out, "{}", line(server))?;
        }
    } else if problem.is_none() {
        json::write(&mut out, &found)?;
    }
    match problem {
        None => Ok(Ending::Code(0)),
        Some(failure) => Err(failure.with(found)),
    }
}

/// The servers, and how long they took to answer.
async fn ask(builder: ClientBuilder, url: &str) -> Result<(Vec<Stats>, Duration), Error> {
    let client = builder.connect(url).await?;
    let start = Instant::now();
    let servers = Admin::new(&client).stats().await?;
    Ok((servers, start.elapsed()))
}

fn unusable(url: &str, error: &Error) -> Failure {
    let mut failure = Failure::unreachable(url, error);
    if error.kind() == ErrorKind::NoModule {
        failure.code = NO_MODULE;
    }
    failure
}

fn is_replica(server: &Stats) -> bool {
    server.role == "slave"
}

/// Why a server grants no locks, if one does not.
fn problem(servers: &[Stats], primary: bool) -> Option<Failure> {
    if let Some(server) = servers.iter().find(|server| primary && is_replica(server)) {
        return Some(Failure::new(REPLICA, format!("{} is a replica", server.address)));
    }
    let server = servers.iter().find(|server| server.quarantine_left_ms > 0)?;
    let left = text::time(Duration::from_millis(server.quarantine_left_ms));
    let text = format!("{} is in quarantine: it grants nothing for another {left}", server.address);
    Some(Failure::new(QUARANTINE, text))
}

fn line(server: &Stats) -> String {
    let role = if is_replica(server) { "replica" } else { "primary" };
    format!("{}: dlock {}, {}, {role}", server.address, server.dlock_version, server.version)
}

fn as_json(server: &Stats) -> Value {
    json!({
        "address": server.address,
        "server": server.version,
        "dlock-version": server.dlock_version,
        "role": if is_replica(server) { "replica" } else { "primary" },
        "quarantine-left-ms": server.quarantine_left_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(role: &str, quarantine_left_ms: u64) -> Stats {
        let mut server = Stats::default();
        "here:1".clone_into(&mut server.address);
        role.clone_into(&mut server.role);
        server.quarantine_left_ms = quarantine_left_ms;
        server
    }

    #[test]
    fn each_problem_has_its_code() {
        let code =
            |servers: &[Stats], primary| problem(servers, primary).map(|failure| failure.code);
        let (good, replica, new) =
            (server("master", 0), server("slave", 0), server("master", 1500));
        assert_eq!(code(std::slice::from_ref(&good), true), None);
        assert_eq!(code(std::slice::from_ref(&replica), false), None);
        assert_eq!(code(&[good.clone(), replica.clone()], true), Some(REPLICA));
        assert_eq!(code(&[good, new.clone()], false), Some(QUARANTINE));
        assert_eq!(code(&[new, replica], true), Some(REPLICA));
    }
}
