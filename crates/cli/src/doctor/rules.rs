//! The rules. They only compare: `collect` asks the servers.

use std::collections::BTreeMap;

use crate::text::plural;

/// All servers of one URL.
#[derive(Debug, Default)]
pub struct Setup {
    /// The primary comes first, then all replicas that it, a Sentinel or the cluster knows.
    pub groups: Vec<Vec<Server>>,
    /// The Sentinels that the URL names.
    pub sentinels: Vec<Server>,
}

/// A server or a Sentinel, and what it says; else why it does not answer.
#[derive(Debug)]
pub struct Server {
    pub address: String,
    pub facts: Result<Facts, String>,
}

/// Fields of INFO and settings, by name. Of a Sentinel: the fields of SENTINEL MASTER, and the error of CKQUORUM.
#[derive(Debug, Clone, Default)]
pub struct Facts(pub BTreeMap<String, String>);

impl Facts {
    /// The value; empty if the server does not show it.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ok,
    Warn,
    Fail,
    NotChecked,
}
use Status::{Fail, NotChecked, Ok as Good, Warn};

/// The result of one check of one server.
#[derive(Debug)]
pub struct Finding {
    pub status: Status,
    pub check: &'static str,
    pub server: String,
    pub text: String,
    /// What to do unless the check holds.
    pub fix: String,
}

/// The findings about one server.
struct Report<'a> {
    server: &'a str,
    all: &'a mut Vec<Finding>,
}

impl Report<'_> {
    fn add(&mut self, status: Status, check: &'static str, text: String, fix: &str) {
        let fix = if status == Good { String::new() } else { fix.to_owned() };
        self.all.push(Finding { status, check, server: self.server.to_owned(), text, fix });
    }
}

/// Checks that locks survive a failover if `confirm` replicas (at least 1) confirm each grant and each renewal, and the
/// longest lease is `lease_ms`. The set-up fits if each finding is `Ok` or `Warn`.
pub fn check(setup: &Setup, confirm: u64, lease_ms: u64) -> Vec<Finding> {
    let mut all = Vec::new();
    for group in &setup.groups {
        let first = group.iter().find_map(|server| server.facts.as_ref().ok());
        for (at, Server { address, facts }) in group.iter().enumerate() {
            let mut report = Report { server: address, all: &mut all };
            if at == 0 {
                majority(&mut report, group.len() as u64, confirm);
            }
            match (facts, first) {
                (Ok(facts), Some(first)) => {
                    roles(&mut report, facts, at == 0);
                    module(&mut report, facts, first);
                    settings(&mut report, facts, first, [confirm, lease_ms]);
                    persistence(&mut report, facts);
                }
                (facts, _) => unreached(&mut report, facts),
            }
        }
    }
    let primary = setup.groups.iter().flatten().next().map_or("", |server| &server.address);
    for Server { address, facts } in &setup.sentinels {
        let mut report = Report { server: address, all: &mut all };
        match facts {
            Ok(facts) => sentinel(&mut report, facts, primary),
            facts => unreached(&mut report, facts),
        }
    }
    all
}

fn unreached(report: &mut Report, facts: &Result<Facts, String>) {
    let why = facts.as_ref().err().map_or("", String::as_str);
    let fix = "run dlock doctor on a machine that reaches it";
    report.add(NotChecked, "reachable", format!("no answer: {why}"), fix);
}

/// Two sets of n + 1 servers must share one: then two primaries cannot both have their grants confirmed.
fn majority(report: &mut Report, servers: u64, confirm: u64) {
    let (have, least) = (confirm + 1, servers / 2);
    let (status, note, fix) = if have > servers {
        (Fail, ", too few", format!("run {} replicas", 2 * confirm))
    } else if 2 * have <= servers {
        let fix = format!("let {least} replicas confirm: check with --replicas {least}");
        (Fail, ", no majority", fix)
    } else if have == servers {
        (Warn, ": if one is down, there are no grants", "add a replica".to_owned())
    } else {
        (Good, ", a majority", String::new())
    };
    let text = format!("a grant needs {have} of {}{note}", plural(servers, "server"));
    report.add(status, "majority", text, &fix);
}

fn roles(report: &mut Report, facts: &Facts, is_primary: bool) {
    let is_up = facts.get("master_link_status") == "up";
    let (status, text, fix) = match (is_primary, facts.get("role")) {
        (true, "master") => (Good, "is the primary", ""),
        (true, _) => (Fail, "is not the primary", "check the URL of its primary"),
        (false, "slave") if is_up => (Good, "the link to the primary is up", ""),
        (false, "slave") => {
            (Fail, "the link to the primary is down", "read the log of this server")
        }
        (false, _) => (Fail, "is no replica", "make it one with REPLICAOF"),
    };
    report.add(status, "role", text.to_owned(), fix);
    let count = facts.number("connected_slaves").unwrap_or_default();
    let status = if is_primary || count == 0 { Good } else { Fail };
    let note = if status == Good { "" } else { " of its own, not counted" };
    let text = format!("has {}{note}", plural(count, "replica"));
    report.add(status, "replicas", text, "make them replicas of the primary with REPLICAOF");
}

fn module(report: &mut Report, facts: &Facts, first: &Facts) {
    let (version, other) = (facts.get("dlock_version"), first.get("dlock_version"));
    if version.is_empty() {
        let text = "the dlock module is not loaded".to_owned();
        return report.add(Fail, "module", text, "start the server with loadmodule");
    }
    let (status, text) = match other {
        other if other == version || other.is_empty() => (Good, format!("dlock {version}")),
        other => (Fail, format!("dlock {version}, another server has {other}")),
    };
    report.add(status, "module", text, "load one version on all servers");
    let (status, text) = match facts.number("dlock_records_refused") {
        Some(0) => (Good, "no record was refused".to_owned()),
        Some(count) => (Fail, format!("is diverged: {} refused", plural(count, "record"))),
        None => (NotChecked, "INFO does not show dlock_records_refused".to_owned()),
    };
    let fix = "see \"Diverged servers\" in the documentation";
    report.add(status, "records", text, fix);
}

/// `needs`: how many replicas confirm, and the longest lease.
fn settings(report: &mut Report, facts: &Facts, first: &Facts, needs: [u64; 2]) {
    let [confirm, lease_ms] = needs;
    let max = u64::MAX;
    let priority = first.number("replica-priority").unwrap_or(100);
    // The least and the largest good value, how others count, and a good one.
    for (name, least, most, other, good) in [
        ("min-replicas-to-write", confirm, max, Fail, confirm),
        ("min-replicas-max-lag", 1, 10, Warn, 10),
        ("dlock.restart-quarantine-ms", lease_ms, max, Fail, lease_ms),
        ("replica-priority", priority, priority, Warn, priority),
    ] {
        let Some(value) = facts.number(name) else {
            hidden(report, name, name);
            continue;
        };
        let status = match value {
            // Without a limit, min-replicas-to-write has no effect.
            0 if name == "min-replicas-max-lag" => Fail,
            _ if (least..=most).contains(&value) => Good,
            _ => other,
        };
        let fix = format!("CONFIG SET {name} {good}");
        report.add(status, name, format!("{name} is {value}"), &fix);
    }
}

fn persistence(report: &mut Report, facts: &Facts) {
    let (status, text) = match (facts.get("appendonly"), facts.0.get("save")) {
        ("yes", _) => (Good, "appendonly is yes"),
        ("no", Some(save)) if !save.is_empty() => (Good, "takes snapshots"),
        ("no", Some(_)) => (Warn, "keeps nothing: restarted as primary, it empties its replicas"),
        _ => return hidden(report, "persistence", "save and appendonly"),
    };
    report.add(status, "persistence", text.to_owned(), "CONFIG SET appendonly yes");
}

/// The server does not show these settings.
fn hidden(report: &mut Report, check: &'static str, settings: &str) {
    let text = format!("CONFIG GET does not show {settings}");
    report.add(NotChecked, check, text, "let the user run CONFIG GET");
}

fn sentinel(report: &mut Report, facts: &Facts, primary: &str) {
    let named = format!("{}:{}", facts.get("ip"), facts.get("port"));
    let status = if named == primary { Good } else { Fail };
    let text = format!("names the primary {named}");
    report.add(status, "sentinel-primary", text, "check again after the failover");
    let number = |name| facts.number(name).unwrap_or_default();
    let (known, quorum) = (1 + number("num-other-sentinels"), number("quorum"));
    let status = if known < 3 { Fail } else { Good };
    let text = format!("{} for this primary", plural(known, "Sentinel"));
    report.add(status, "sentinels", text, "run at least 3 Sentinels");
    let status = if 2 * quorum > known { Good } else { Fail };
    let fix = format!("SENTINEL SET {} quorum {}", facts.get("name"), known / 2 + 1);
    report.add(status, "quorum", format!("the quorum is {quorum} of {known}"), &fix);
    let (status, said) = match facts.get("ckquorum") {
        "" => (Good, "OK"),
        error => (Fail, error),
    };
    let text = format!("CKQUORUM says {said}");
    report.add(status, "ckquorum", text, "start the missing Sentinels");
    let time = facts.get("down-after-milliseconds");
    let text = format!("down-after-milliseconds is {time}");
    report.add(Good, "down-after-milliseconds", text, "");
}

#[cfg(test)]
mod tests;
