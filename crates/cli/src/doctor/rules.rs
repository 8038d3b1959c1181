//! The rules. They only compare: `collect` asks the servers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use self::Status::{Fail, Good, NotChecked, Warn};
use crate::text::plural;

/// The fact that has the flags of the user `default`, if the server shows them.
pub const DEFAULT_USER: &str = "ACL GETUSER default";

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

/// Fields of INFO, settings and [`DEFAULT_USER`], by name. Of a Sentinel: the fields of SENTINEL MASTER, and the error
/// of CKQUORUM.
#[derive(Debug, Clone, Default)]
pub struct Facts(pub BTreeMap<String, String>);

impl Facts {
    /// The value; empty if the server does not show it.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The number; None if the server does not show it.
    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Good,
    Warn,
    Fail,
    NotChecked,
}

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
    fn must(&mut self, check: &'static str, holds: bool, text: String, fix: &str) {
        self.add(if holds { Good } else { Fail }, check, text, fix);
    }

    fn add(&mut self, status: Status, check: &'static str, text: String, fix: &str) {
        let fix = if status == Good { String::new() } else { fix.to_owned() };
        self.all.push(Finding { status, check, server: self.server.to_owned(), text, fix });
    }
}

/// Whether the set-up is one server that has no replica and waits for none. An unset `min-replicas-to-write` counts as
/// 0.
pub fn is_single(setup: &Setup) -> bool {
    let [group] = setup.groups.as_slice() else { return false };
    let [Server { facts: Ok(facts), .. }] = group.as_slice() else { return false };
    setup.sentinels.is_empty()
        && facts.get("role") == "master"
        && facts.number("connected_slaves") == Some(0)
        && facts.number("min-replicas-to-write").is_none_or(|replicas| replicas == 0)
}

/// Checks that locks survive a failover if `confirm` replicas confirm each grant and each renewal, and the longest
/// lease is `lease_ms`. With `confirm` 0 it checks that locks on one server survive its restart. The set-up fits if
/// each finding is `Good` or `Warn`.
pub fn check(setup: &Setup, confirm: u64, lease_ms: u64) -> Vec<Finding> {
    let mut all = Vec::new();
    let address = |group: &[Server]| group.first().map_or("", |server| &server.address).to_owned();
    for group in &setup.groups {
        let primary = address(group);
        let first = group.iter().find_map(|server| server.facts.as_ref().ok());
        let mut report = Report { server: &primary, all: &mut all };
        if confirm > 0 {
            majority(&mut report, group.len() as u64, confirm);
        }
        each(group, &mut all, |report, facts| {
            let first = first.unwrap_or(facts);
            roles(report, facts, report.server == primary);
            module(report, facts, first);
            if confirm > 0 {
                settings(report, facts, first, [confirm, lease_ms]);
                persistence(report, facts);
            } else {
                version(report, facts);
                restart(report, facts, lease_ms);
                eviction(report, facts);
                access(report, facts);
            }
        });
    }
    let primary = setup.groups.first().map_or(String::new(), |group| address(group));
    each(&setup.sentinels, &mut all, |report, facts| sentinel(report, facts, &primary));
    all
}

fn each(servers: &[Server], all: &mut Vec<Finding>, rules: impl Fn(&mut Report, &Facts)) {
    for Server { address, facts } in servers {
        let mut report = Report { server: address, all };
        match facts {
            Ok(facts) => rules(&mut report, facts),
            Err(why) => {
                let fix = "run dlock doctor on a machine that reaches it";
                report.add(NotChecked, "reachable", format!("no answer: {why}"), fix);
            }
        }
    }
}

/// Two sets of n + 1 servers must share one: then two primaries cannot both have their grants confirmed.
fn majority(report: &mut Report, servers: u64, confirm: u64) {
    let (have, least) = (confirm + 1, servers / 2);
    let (status, note, fix) = if have > servers {
        (Fail, ", too few", format!("run {} replicas", 2 * confirm))
    } else if 2 * have <= servers {
        let fix = format!("write replicas={least} into the URL of the clients");
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
    let is_leaf = is_primary || count == 0;
    let note = if is_leaf { "" } else { " of its own, not counted" };
    let text = format!("has {}{note}", plural(count, "replica"));
    report.must("replicas", is_leaf, text, "make them replicas of the primary with REPLICAOF");
}

fn module(report: &mut Report, facts: &Facts, first: &Facts) {
    let (version, other) = (facts.get("dlock_version"), first.get("dlock_version"));
    if version.is_empty() {
        let text = "the dlock module is not loaded".to_owned();
        return report.add(Fail, "module", text, "start the server with loadmodule");
    }
    let is_same = version == other || other.is_empty();
    let note = if is_same { String::new() } else { format!(", but {other} on another server") };
    let text = format!("dlock {version}{note}");
    report.must("module", is_same, text, "load one version on all servers");
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

fn version(report: &mut Report, facts: &Facts) {
    let valkey = facts.get("valkey_version");
    let server = match valkey {
        "" => format!("Redis {}", facts.get("redis_version")),
        _ => format!("Valkey {valkey}"),
    };
    let fix = "run the tests of dlock on it, see \"Untried servers\" in the documentation";
    match facts.get("dlock_server_tried") {
        "" => {}
        "no" => report.add(Warn, "version", format!("{server} is untried"), fix),
        _ => report.add(Good, "version", format!("{server} is tried"), ""),
    }
}

/// A restart must not forget a hold whose lease may still run, unless the server then grants nothing for that long.
fn restart(report: &mut Report, facts: &Facts, lease_ms: u64) {
    const QUARANTINE: &str = "dlock.restart-quarantine-ms";
    let (appendonly, sync) = (facts.get("appendonly"), facts.get("appendfsync"));
    let (status, lost) = match (appendonly, sync, facts.0.get("save")) {
        ("yes", "always", _) => (Good, "no grant"),
        ("yes", "everysec", _) => (Warn, "grants of the last 2 s"),
        ("yes", "no", _) => (Warn, "grants that are not on the disk yet"),
        ("no", _, Some(save)) if !save.is_empty() => (Fail, "grants since the last snapshot"),
        ("no", _, Some(_)) => (Fail, "all locks"),
        _ => return hidden(report, "persistence", "save, appendonly and appendfsync"),
    };
    let text = format!("a crash loses {lost}");
    if status == Good {
        return report.add(Good, "persistence", text, "");
    }
    let Some(quarantine) = facts.number(QUARANTINE) else {
        return hidden(report, "persistence", QUARANTINE);
    };
    let fix = format!(
        "CONFIG SET appendonly yes appendfsync always, or CONFIG SET {QUARANTINE} {lease_ms}"
    );
    let status = if quarantine >= lease_ms { Good } else { status };
    report.add(status, "persistence", format!("{text}; {QUARANTINE} is {quarantine}"), &fix);
}

fn eviction(report: &mut Report, facts: &Facts) {
    const NAME: &str = "maxmemory-policy";
    let policy = facts.get(NAME);
    let status = match (policy, facts.number("maxmemory")) {
        ("", _) | (_, None) => return hidden(report, NAME, "maxmemory and maxmemory-policy"),
        // Locks have no time to live.
        _ if !policy.starts_with("allkeys-") => Good,
        (_, Some(0)) => Warn,
        _ => Fail,
    };
    let note = if status == Good { "" } else { ", which evicts locks that are held" };
    let text = format!("{NAME} is {policy}{note}");
    report.add(status, NAME, text, "CONFIG SET maxmemory-policy noeviction");
}

/// Says nothing unless the server shows the user `default`.
fn access(report: &mut Report, facts: &Facts) {
    let Some(flags) = facts.0.get(DEFAULT_USER) else { return };
    let has = |flag| flags.split(' ').any(|word| word == flag);
    let loopback = |host: &str| {
        let host = host.trim_start_matches('-');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let is_local = facts.get("bind").split_whitespace().all(loopback);
    let (status, text) = match facts.get("protected-mode") {
        _ if !(has("on") && has("nopass")) => (Good, "clients need a password"),
        "yes" => (Good, "clients need no password, and protected-mode refuses other machines"),
        "no" if is_local => (Good, "clients need no password, and bind refuses other machines"),
        "no" => (Warn, "clients of other machines need no password"),
        _ => return,
    };
    report.add(status, "access", text.to_owned(), "set a password, or bind 127.0.0.1 -::1");
}

/// The server does not show these settings.
fn hidden(report: &mut Report, check: &'static str, settings: &str) {
    let text = format!("CONFIG GET does not show {settings}");
    report.add(NotChecked, check, text, "let the user run CONFIG GET");
}

fn sentinel(report: &mut Report, facts: &Facts, primary: &str) {
    let named = format!("{}:{}", facts.get("ip"), facts.get("port"));
    let number = |name| facts.number(name).unwrap_or_default();
    let (known, quorum) = (1 + number("num-other-sentinels"), number("quorum"));
    let error = facts.get("ckquorum");
    let said = if error.is_empty() { "OK" } else { error };
    let down_after = facts.get("down-after-milliseconds");
    let set_quorum = format!("SENTINEL SET {} quorum {}", facts.get("name"), known / 2 + 1);
    let text = format!("names the primary {named}");
    report.must("sentinel-primary", named == primary, text, "check again after the failover");
    let count = format!("{} for this primary", plural(known, "Sentinel"));
    report.must("sentinels", known >= 3, count, "run at least 3 Sentinels");
    let share = format!("the quorum is {quorum} of {known}");
    report.must("quorum", 2 * quorum > known, share, &set_quorum);
    let said = format!("CKQUORUM says {said}");
    report.must("ckquorum", error.is_empty(), said, "start the missing Sentinels");
    let time = format!("down-after-milliseconds is {down_after}");
    report.must("down-after-milliseconds", true, time, "");
}

#[cfg(test)]
mod tests;
