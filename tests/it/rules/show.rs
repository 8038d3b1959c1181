//! Replies in the words of a table, and whether they are those that it expects.

use std::{collections::BTreeMap, fmt::Write as _};

use dlock_wire::{message::Message, permit};
use redis::Value;

use super::world::SCALE;
use crate::support::Reply;

/// What the names in a table mean on this server.
#[derive(Default)]
pub struct Names {
    /// `t1`, `t2`, …
    pub tokens: BTreeMap<usize, i64>,
    /// `p1`, `p2`, …
    pub permits: BTreeMap<usize, String>,
    /// Connections by their id on the server.
    pub clients: BTreeMap<i64, u64>,
}

impl Names {
    /// The reply to a command; tokens and ids of permits as they are.
    pub fn show(&self, command: &str, reply: &Value) -> String {
        let (family, verb) = command.split_once('.').expect("a command with a family");
        match (verb, family) {
            (_, _) if matches!(reply, Value::ServerError(_)) => {
                let error = reply.error();
                // The second word of LOST is a part of the answer.
                let words = if error.starts_with("LOST ") { 2 } else { 1 };
                error.split(' ').take(words).collect::<Vec<_>>().join(" ")
            }
            ("WAITERS" | "PERMITS", _) => self.rows(verb, &reply.items()),
            _ if reply.is_null() => "null".to_owned(),
            ("INFO", "DRW") => rw(reply),
            ("INFO", "DSEM") => {
                let fields = ["capacity", "available", "leased", "taken", "waiters"];
                fields.map(|name| format!("{name} {}", reply.field(name).int())).join(" ")
            }
            ("INFO", "DLATCH") => {
                let [count, initial, ttl, waiters] =
                    ["count", "initial", "ttl-ms", "waiters"].map(|name| reply.field(name).int());
                format!("{count}/{initial} ttl {} waiters {waiters}", or_never(ttl))
            }
            ("INFO", _) => self.lock(reply),
            _ => match reply {
                Value::Array(items) => {
                    items.iter().map(|item| self.show(command, item)).collect::<Vec<_>>().join(" ")
                }
                Value::Int(number) => number.to_string(),
                other => other.text(),
            },
        }
    }

    /// The id of a permit. One that was never granted is made up.
    pub fn permit(&self, name: usize) -> String {
        let made_up = || String::from_utf8_lossy(&permit::text(&[7; 16])).into_owned();
        self.permits.get(&name).cloned().unwrap_or_else(made_up)
    }

    fn lock(&self, info: &Value) -> String {
        let number = |name| info.field(name).int();
        let (owner, label) = (info.field("owner").text(), info.field("label").text());
        let [token, holds, lease, ttl, held, bound, waiters] =
            ["token", "holds", "lease-ms", "ttl-ms", "held-ms", "bound-client", "waiters"]
                .map(number);
        let token = if token == 0 { "-".to_owned() } else { token.to_string() };
        let lease = lease / SCALE.cast_signed();
        let bound = self.client(bound);
        let (observers, reserved) = (number("observers"), info.field("reserved-for").text());
        let mut shown = format!(
            "[{owner}] {token} holds {holds} lease {lease} ttl {ttl} held {held} [{label}] bound {bound} waiters \
             {waiters}"
        );
        if observers > 0 {
            let _ = write!(shown, " observers {observers}");
        }
        if !reserved.is_empty() {
            let _ = write!(shown, " reserved for {reserved}");
        }
        shown
    }

    fn rows(&self, verb: &str, rows: &[Value]) -> String {
        let row = |row: &Value| {
            let (text, number) = (|name| row.field(name).text(), |name| row.field(name).int());
            let owner = text("owner");
            if verb == "PERMITS" {
                return format!("{} {owner} {} {}", text("id"), number("count"), number("ttl-ms"));
            }
            let (client, waiting) = (self.client(number("client-id")), number("waiting-ms"));
            let left = or_never(number("remaining-ms"));
            format!("{owner} {client} {waiting} {left} [{}]", text("label"))
        };
        match (verb, rows) {
            ("WAITERS", []) => "nobody".to_owned(),
            _ => rows.iter().map(row).collect::<Vec<_>>().join("; "),
        }
    }

    fn client(&self, id: i64) -> u64 {
        self.clients.get(&id).copied().unwrap_or_else(|| id.unsigned_abs())
    }

    /// Whether the output is what the table expects; gives names to what is new.
    pub fn fit(&mut self, command: &str, expected: &str, mut got: Vec<String>) -> bool {
        let as_one = is_view(command) && !command.ends_with("PERMITS");
        let split = |text: &str| -> Vec<String> {
            if as_one { vec![text.to_owned()] } else { parts(text).map(str::to_owned).collect() }
        };
        let mut wanted = split(expected);
        if is_view(command) {
            wanted = wanted.iter().map(|part| without_times(command, part)).collect();
            // Permits are listed in the order of their ids, which are random here.
            got = got.iter().flat_map(|part| split(&without_times(command, part))).collect();
        }
        let newest = self.tokens.values().max().copied().unwrap_or(0);
        for part in &wanted {
            let Some(at) = got.iter().position(|other| self.is_alike(newest, part, other)) else {
                return false;
            };
            got.remove(at);
        }
        // In the order of their names.
        got.is_empty() && self.tokens.values().is_sorted()
    }

    fn is_alike(&mut self, newest: i64, expected: &str, got: &str) -> bool {
        let (expected, got): (Vec<_>, Vec<_>) =
            (expected.split(' ').collect(), got.split(' ').collect());
        if expected.len() != got.len() {
            return false;
        }
        let mut new_tokens = Vec::new();
        let mut new_permits = Vec::new();
        for (&expected, &got) in expected.iter().zip(&got) {
            let name = |prefix| expected.strip_prefix(prefix)?.parse::<usize>().ok();
            let is_same = match (name('t'), name('p')) {
                _ if expected == got => true,
                (Some(name), _) => match (self.tokens.get(&name), got.parse::<i64>()) {
                    (Some(token), Ok(got)) => *token == got,
                    (None, Ok(got)) if got > newest => {
                        new_tokens.push((name, got));
                        true
                    }
                    _ => false,
                },
                (_, Some(name)) => match self.permits.get(&name) {
                    Some(id) => id == got,
                    None if permit::parse(got.as_bytes()).is_some() => {
                        new_permits.push((name, got.to_owned()));
                        self.permits.values().all(|other| other != got)
                    }
                    None => false,
                },
                // The reply to TAKE.
                _ => (expected, got) == ("taken", "1"),
            };
            if !is_same {
                return false;
            }
        }
        self.tokens.extend(new_tokens);
        self.permits.extend(new_permits);
        true
    }
}

fn rw(info: &Value) -> String {
    let holder = |holder: &Value| {
        let [token, holds, ttl] = ["token", "holds", "ttl-ms"].map(|name| holder.field(name).int());
        format!("{} {token} {holds} {ttl}", holder.field("owner").text())
    };
    let writer = Some(info.field("writer")).filter(|writer| !writer.is_null());
    let writer = writer.as_ref().map_or("-".to_owned(), holder);
    let readers: Vec<String> = info.field("readers").items().iter().map(holder).collect();
    let mode = info.field("mode").text().to_uppercase();
    let waiters = info.field("waiters").int();
    format!("{mode} [{writer}] [{}] waiters {waiters}", readers.join(", "))
}

fn or_never(ms: i64) -> String {
    if ms < 0 { "-".to_owned() } else { ms.to_string() }
}

/// Whether the reply is a view, without any other output.
pub fn is_view(command: &str) -> bool {
    ["INFO", "WAITERS", "PERMITS"].iter().any(|verb| command.ends_with(verb))
}

/// The parts of an output.
pub fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split("; ").filter(|part| !part.trim().is_empty())
}

/// A message, as `channel: event db id owner-length owner [reqid] key`.
pub fn message(channel: &str, text: &[u8]) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown = match Message::parse(text).expect("a message") {
        Message::Flushed { db } => format!("flushed {db}"),
        Message::Hold { event, db, id, owner, reqid, key } => {
            let reqid =
                if reqid.is_empty() { String::new() } else { format!("[{}] ", lossy(reqid)) };
            let id = if id == b"0" { "-".to_owned() } else { lossy(id) };
            let (event, length) = (event.as_str(), owner.len());
            format!("{event} {db} {id} {length} {} {reqid}{}", lossy(owner), lossy(key))
        }
    };
    format!("{channel}: {shown}")
}

/// The reply of a reader, without how long something has lasted and how long it will last.
fn without_times(command: &str, text: &str) -> String {
    let hide = |word: &str| {
        let end = word.trim_start_matches(|letter: char| letter.is_ascii_digit());
        if word == end { word.to_owned() } else { format!("_{end}") }
    };
    let part = |part: &str| -> String {
        let words: Vec<&str> = part.split(' ').collect();
        let is_time = |at: usize| match command {
            "DRW.INFO" => words[at].ends_with([',', ']']),
            "DSEM.PERMITS" => at == 3,
            _ if command.ends_with(".WAITERS") => at == 2 || at == 3,
            _ => at > 0 && ["ttl", "held"].contains(&words[at - 1]),
        };
        let word = |(at, word): (usize, &&str)| {
            if is_time(at) { hide(word) } else { (*word).to_owned() }
        };
        words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
    };
    text.split("; ").map(part).collect::<Vec<_>>().join("; ")
}
