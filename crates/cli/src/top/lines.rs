//! The text of the screen and of the snapshot.

use std::time::Duration;

use dlock_admin::{Kind, Latency, Stats};

use super::state::{Rates, Row, State};
use crate::look::left_out;
use crate::show::{held_by, label, left};
use crate::table::Table;
use crate::text;

/// The inspected servers: one line for a server, or for all.
pub fn server(servers: &[Stats]) -> String {
    let clients = sum(servers, |server| server.connected_clients);
    let memory = sum(servers, |server| server.used_memory);
    let (clients, memory) = (text::plural(clients, "client"), bytes(memory));
    match servers {
        [one] => {
            let up = text::time(Duration::from_secs(one.uptime_s));
            let role = if one.role == "slave" { ", a replica" } else { "" };
            format!("{} at {}{role}, up {up}, {clients}, {memory}", one.version, one.address)
        }
        many => format!("{}, {clients}, {memory}", text::plural(many.len() as u64, "server")),
    }
}

/// The current state.
pub fn now(servers: &[Stats]) -> String {
    let mut line = format!(
        "{}, {}, {}; waiting: {} blocked, {} queued, longest queue {}",
        text::plural(sum(servers, |server| server.held_locks), "hold"),
        text::plural(sum(servers, |server| server.leased_permits), "permit"),
        text::plural(sum(servers, |server| server.keys), "key"),
        sum(servers, |server| server.waiters_blocked),
        sum(servers, |server| server.waiters_queued),
        servers.iter().map(|server| server.longest_queue).max().unwrap_or(0),
    );
    let quarantine = servers.iter().map(|server| server.quarantine_left_ms).max().unwrap_or(0);
    if quarantine > 0 {
        line.push_str("; quarantine: ");
        line.push_str(&text::time(Duration::from_millis(quarantine)));
    }
    line
}

/// Counts per second.
pub fn rates(rates: Option<&Rates>) -> String {
    let Some(rates) = rates else { return "per second: (after the next look)".to_owned() };
    format!(
        "per second: {:.1} grants at once, {:.1} after waiting, {:.1} releases, {:.1} expiries, {:.1} timeouts",
        rates.grants_at_once,
        rates.grants_after_waiting,
        rates.releases,
        rates.expiries,
        rates.timeouts
    )
}

/// How long waits and holds last: a line each, if the servers show it and there were any. Of several servers the worst.
pub fn latency(servers: &[Stats]) -> Vec<String> {
    let line = |is_held: bool, name: &str| {
        let of_all = servers.iter().flat_map(|server| &server.latency);
        let seen: Vec<&Latency> =
            of_all.filter(|times| times.is_held == is_held && times.count > 0).collect();
        let kinds = Kind::ALL.into_iter().filter_map(|kind| {
            let of_kind = || seen.iter().filter(|times| times.kind == kind);
            let (half, most) =
                (of_kind().map(|times| times.p50).max()?, of_kind().map(|times| times.p99).max()?);
            Some(format!("{} {}/{}", kind.name(), text::short_time(half), text::short_time(most)))
        });
        let kinds: Vec<String> = kinds.collect();
        (!kinds.is_empty()).then(|| format!("{name} p50/p99: {}", kinds.join(", ")))
    };
    [line(false, "waited"), line(true, "held  ")].into_iter().flatten().collect()
}

/// Counts since the start of the servers.
pub fn totals(servers: &[Stats]) -> String {
    format!(
        "since the start: {} at once, {} after waiting, {}, {}, {}",
        text::plural(sum(servers, |server| server.grants_at_once), "grant"),
        sum(servers, |server| server.grants_after_waiting),
        text::plural(sum(servers, |server| server.releases), "release"),
        match sum(servers, |server| server.expiries) {
            1 => "1 expiry".to_owned(),
            many => format!("{many} expiries"),
        },
        text::plural(sum(servers, |server| server.timeouts), "timeout"),
    )
}

/// The table of keys. `rates`: with the column of grants per second.
pub fn keys(rows: &[Row], rates: bool) -> Table {
    let mut headings = vec!["KEY", "KIND", "HELD BY", ">LEFT", ">WAITERS", "LABEL"];
    if rates {
        headings.insert(5, ">GRANTS/S");
    }
    let mut table = Table::new(&headings);
    for Row { seen, grants } in rows {
        let info = &seen.info;
        let mut cells = vec![
            text::bytes(&seen.entry.key),
            info.kind().name().to_owned(),
            held_by(info),
            left(info),
            info.waiters().to_string(),
            label(info),
        ];
        if rates {
            cells.insert(5, grants.map_or("-".to_owned(), |grants| format!("{grants:.1}")));
        }
        table.row(cells);
    }
    table
}

/// The whole text, for a pipe.
pub fn snapshot(state: &State) -> Vec<String> {
    let servers = &state.servers;
    let mut lines = vec![server(servers), now(servers), totals(servers)];
    lines.extend(latency(servers));
    if !state.rows.is_empty() {
        lines.push(String::new());
        lines.extend(keys(&state.rows, false).lines());
    }
    lines.extend(more(state));
    lines
}

/// Notes the keys that the list leaves out.
pub fn more(state: &State) -> Option<String> {
    let more = u64::try_from(state.more).ok().filter(|&more| more > 0).map(|more| {
        let more = text::plural(more, "key");
        if state.is_partial {
            format!("{more} less busy so far, reading on")
        } else {
            format!("{more} less busy: give a PATTERN to see them")
        }
    });
    let notes: Vec<String> = more.into_iter().chain(left_out(state.hidden)).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

fn sum(servers: &[Stats], of: impl Fn(&Stats) -> u64) -> u64 {
    servers.iter().map(of).sum()
}

fn bytes(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "one digit is shown")]
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return format!("{size:.1} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}
