//! `dlock log`

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use dlock_admin::{Admin, LogEntry, LogToken, ServerLog};
use dlock_client::{Client, Error, ErrorKind};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::args::Log;
use crate::exit::Failure;
use crate::table::Table;
use crate::{json, text};

/// How often `--follow` asks.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Shows the log, follows it or clears it.
pub async fn log(client: &Client, args: &Log, out: &mut impl Write) -> Result<(), Failure> {
    let admin = Admin::new(client);
    let failed = |error: Error| Failure::of("cannot read the log", &error);
    if args.reset {
        let reset = admin.reset_log().await;
        reset.map_err(|error| Failure::of("cannot clear the log", &error))?;
        if args.json {
            json::write(out, &json!({ "reset": true }))?;
        }
        return Ok(());
    }
    let logs = admin.log(args.count).await.map_err(failed)?;
    if args.follow {
        return follow(&admin, logs, args, out).await;
    }
    let entries = in_order(&logs);
    if args.json {
        json::write(out, &entries.iter().map(Line::as_json).collect::<Value>())?;
    } else if entries.is_empty() {
        // On stderr: stdout stays empty for an empty log.
        crate::say("the log is empty");
    } else {
        table(&entries, logs.len() > 1).write(out)?;
    }
    Ok(())
}

/// An entry, and the server that noted it.
struct Line<'a> {
    server: &'a str,
    entry: &'a LogEntry,
}

/// The entries of all servers, the newest last.
fn in_order(logs: &[ServerLog]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for ServerLog { server, entries, .. } in logs {
        lines.extend(entries.iter().map(|entry| Line { server, entry }));
    }
    lines.sort_by_key(|line| (line.entry.time, line.entry.id));
    lines
}

/// Prints the log, and then new entries.
async fn follow(
    admin: &Admin,
    mut logs: Vec<ServerLog>,
    args: &Log,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut known: HashMap<String, u64> = HashMap::new();
    let mut is_lost = false;
    loop {
        for line in in_order(&logs) {
            if known.get(line.server).is_some_and(|&last| line.entry.id <= last) {
                continue;
            }
            if args.json {
                json::write_line(out, &line.as_json())?;
            } else {
                writeln!(out, "{}", line.sentence())?;
            }
        }
        out.flush()?;
        for log in &logs {
            // Ids begin again with the process of the server.
            let last = log.entries.first().map_or(0, |newest| newest.id);
            known.insert(log.server.clone(), last);
        }
        sleep(ASK_EVERY).await;
        logs = match admin.log(None).await {
            Ok(logs) => {
                is_lost = false;
                restarted(&logs, &mut known);
                logs
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                if !std::mem::replace(&mut is_lost, true) {
                    crate::say(&format!("trying again: {error}"));
                }
                Vec::new()
            }
            Err(error) => return Err(Failure::of("cannot read the log", &error)),
        };
    }
}

/// Forgets the last id of a server whose ids have begun again.
fn restarted(logs: &[ServerLog], known: &mut HashMap<String, u64>) {
    for log in logs {
        let newest = log.entries.first().map(|entry| entry.id);
        if newest.is_some_and(|newest| known.get(&log.server).is_some_and(|&last| newest < last)) {
            known.remove(&log.server);
        }
    }
}

/// The table; `servers`: with the server of each entry. Few columns, so that it fits on a terminal.
fn table(lines: &[Line<'_>], servers: bool) -> Table {
    let mut headings = vec!["=TIME", "=EVENT", "KEY", "OWNER", ">LASTED", "DETAILS"];
    if servers {
        headings.insert(0, "SERVER");
    }
    let mut table = Table::new(&headings);
    for line in lines {
        let entry = line.entry;
        let lasted = if entry.waited.is_zero() { entry.held } else { entry.waited };
        let mut cells = vec![
            text::timestamp(entry.time),
            entry.event.to_string(),
            text::bytes(&entry.key),
            text::bytes_or_none(&entry.owner),
            if lasted.is_zero() { text::NONE.to_owned() } else { text::time(lasted) },
            line.details(),
        ];
        if servers {
            cells.insert(0, line.server.to_owned());
        }
        table.row(cells);
    }
    table
}

fn token(token: LogToken) -> Option<String> {
    (token != LogToken::None).then(|| token.to_string())
}

impl Line<'_> {
    fn as_json(&self) -> Value {
        let mut value = serde_json::to_value(json::Row::of(self.entry)).unwrap_or_default();
        value["server"] = self.server.into();
        value
    }

    /// What no other column has.
    fn details(&self) -> String {
        let entry = self.entry;
        let mut details = Vec::new();
        if !entry.text.is_empty() {
            details.push(text::printable(&entry.text));
        }
        if !entry.label.is_empty() {
            details.push(format!("label {}", text::bytes(&entry.label)));
        }
        details.extend(token(entry.token).map(|token| format!("token {token}")));
        if entry.count > 1 {
            details.push(format!("{} times since {}", entry.count, text::timestamp(entry.first)));
        }
        details.join(", ")
    }

    /// All of it on one line.
    fn sentence(&self) -> String {
        let entry = self.entry;
        let (when, what, kind) = (text::timestamp(entry.time), entry.event, entry.kind.name());
        let mut line = format!("{when} {what} {} ({kind})", text::bytes(&entry.key));
        let mut add = |name: &str, value: &str| line.extend([", ", name, value]);
        if !entry.owner.is_empty() {
            add("owner ", &text::bytes(&entry.owner));
        }
        for (name, time) in [("held ", entry.held), ("waited ", entry.waited)] {
            if !time.is_zero() {
                add(name, &text::time(time));
            }
        }
        add("", &self.details());
        line
    }
}
