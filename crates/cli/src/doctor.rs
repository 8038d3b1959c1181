//! `dlock doctor`

mod collect;
mod rules;
mod url;

use std::io::{self, Write as _};
use std::time::Duration;

use dlock_client::ErrorKind;
use serde_json::{Value, json};

use self::rules::{Finding, Status};
use self::url::Target;
use crate::args::{Doctor, Tls};
use crate::exit::{Failure, UNFIT, USAGE};
use crate::run::Ending;
use crate::{connect, json, text};

/// How long a server may take for all answers.
const PATIENCE: Duration = Duration::from_secs(3);

/// Checks the set-up that the URL names.
pub async fn doctor(tls: &Tls, url: &str, args: &Doctor) -> Result<Ending, Failure> {
    let client = connect::builder(tls)?.retry_for(PATIENCE).connect(url).await;
    match client {
        Err(error) if error.kind() != ErrorKind::NoModule => {
            return Err(Failure::unreachable(url, &error));
        }
        // That the module is missing is a finding.
        _ => {}
    }
    let target = Target::parse(url).map_err(|error| Failure::new(USAGE, error.to_string()))?;
    let setup = collect::collect(&target, connect::certificates(tls)?.as_ref()).await;
    let lease_ms = u64::try_from(args.lease.as_millis()).unwrap_or(u64::MAX);
    let replicas = args.replicas.or(target.replicas.filter(|&replicas| replicas > 0));
    let is_single = !target.is_cluster && rules::is_single(&setup);
    let replicas = replicas.unwrap_or_else(|| u64::from(!is_single));
    let all = rules::check(&setup, replicas, lease_ms);
    let found = json!({ "checks": all.iter().map(as_json).collect::<Vec<_>>() });
    let count = |status| all.iter().filter(|found| found.status == status).count() as u64;
    let (failed, open) = (count(Status::Fail), count(Status::NotChecked));
    let fits = failed + open == 0 && !all.is_empty();
    let mut out = io::stdout().lock();
    if !args.json {
        let width = all.iter().map(|found| found.server.len()).max().unwrap_or_default();
        for found in &all {
            writeln!(out, "{}", line(found, width))?;
        }
    } else if fits {
        json::write(&mut out, &found)?;
    }
    if fits {
        return Ok(Ending::Code(0));
    }
    let text = format!("{} failed, {open} not checked", text::plural(failed, "check"));
    Err(Failure::new(UNFIT, text).with(found))
}

fn line(found: &Finding, width: usize) -> String {
    let Finding { server, text, fix, .. } = found;
    let colon = if fix.is_empty() { "" } else { ": " };
    let line = format!("{:<11}  {server:<width$}  {text}{colon}{fix}", word(found.status));
    text::printable(line.as_bytes())
}

const fn word(status: Status) -> &'static str {
    match status {
        Status::Good => "ok",
        Status::Warn => "warn",
        Status::Fail => "FAIL",
        Status::NotChecked => "not checked",
    }
}

fn as_json(found: &Finding) -> Value {
    let Finding { status, check, server, text, fix } = found;
    json!({ "status": word(*status), "check": check, "server": server, "text": text, "fix": fix })
}
