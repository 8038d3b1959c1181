//! Keys in words, for tests that wait for a state.

use redis::Value;

use crate::support::{Reply, Server};

/// Whether this is the canonical text of a random UUID.
pub fn is_permit_id(text: &str) -> bool {
    let id = dlock_wire::permit::parse(text.as_bytes());
    // A random or time-ordered version, and the variant of the standard.
    let is_sound = id.is_some_and(|id| [4, 7].contains(&(id[6] >> 4)) && id[8] >> 6 == 2);
    is_sound && text == text.to_lowercase()
}

/// The waiting owners, in order of service; a call without an owner is `-`.
#[track_caller]
pub fn queue(server: &Server, family: &str, key: &str) -> Vec<String> {
    let rows = server.cmd(&[&format!("{family}.WAITERS"), key]).items();
    let owner = |row: &Value| match owner_of(row) {
        nobody if nobody.is_empty() => "-".to_owned(),
        owner => owner,
    };
    rows.iter().map(owner).collect()
}

/// Owners may be any bytes.
fn owner_of(map: &Value) -> String {
    map.field("owner").bytes().escape_ascii().to_string()
}

fn waits(server: &Server, family: &str, key: &str, count: i64) -> String {
    let queue = queue(server, family, key);
    if i64::try_from(queue.len()) != Ok(count) {
        return format!("; waits {queue:?}, but INFO says {count}");
    }
    if queue.is_empty() { String::new() } else { format!("; waits {}", queue.join(" ")) }
}

/// A read-write lock, e.g. `write a*1; read a*2 b*1; waits c d`, `free; waits c`, `nothing`.
pub fn rw(server: &Server, key: &str) -> String {
    let info = server.cmd(&["DRW.INFO", key]);
    if info.is_null() {
        return "nothing".to_owned();
    }
    let hold = |hold: &Value| format!("{}*{}", owner_of(hold), hold.field("holds").int());
    let writer = info.field("writer");
    let mut readers: Vec<String> = info.field("readers").items().iter().map(hold).collect();
    readers.sort();
    let mut parts = Vec::new();
    if !writer.is_null() {
        parts.push(format!("write {}", hold(&writer)));
    }
    if !readers.is_empty() {
        parts.push(format!("read {}", readers.join(" ")));
    }
    let mode = info.field("mode").text();
    let begins = parts.first().map_or("free", |part| part.split(' ').next().unwrap());
    assert_eq!(mode, begins, "{}", info.show());
    if parts.is_empty() {
        parts.push("free".to_owned());
    }
    parts.join("; ") + &waits(server, "DRW", key, info.field("waiters").int())
}

/// A semaphore, e.g. `3 of 5 (1 leased, 1 taken); waits a - b`, `not made; waits a`, `nothing`. INFO and PERMITS must
/// agree.
pub fn sem(server: &Server, key: &str) -> String {
    let mut client = server.client();
    client.cmd(&["MULTI"]).ok();
    client.cmd(&["DSEM.INFO", key]).ok();
    client.cmd(&["DSEM.PERMITS", key]).ok();
    let replies = client.cmd(&["EXEC"]).items();
    let (info, permits) = (&replies[0], replies[1].items());
    if info.is_null() && permits.is_empty() {
        return "nothing".to_owned();
    }
    let [capacity, available, leased, taken, waiters] =
        ["capacity", "available", "leased", "taken", "waiters"]
            .map(|field| info.field(field).int());
    let out: i64 = permits.iter().map(|permit| permit.field("count").int()).sum();
    // A lease may have ended in between: then look again.
    if (out, available) != (leased, capacity - leased - taken) {
        return format!("{} with {out} permits", info.show());
    }
    let waits = waits(server, "DSEM", key, waiters);
    if capacity == 0 && taken == 0 {
        return format!("not made{waits}");
    }
    format!("{available} of {capacity} ({leased} leased, {taken} taken){waits}")
}

/// A latch, e.g. `2 of 3; waits - -`, `nothing`.
pub fn latch(server: &Server, key: &str) -> String {
    let info = server.cmd(&["DLATCH.INFO", key]);
    if info.is_null() {
        return "nothing".to_owned();
    }
    let [count, initial, waiters] =
        ["count", "initial", "waiters"].map(|field| info.field(field).int());
    format!("{count} of {initial}{}", waits(server, "DLATCH", key, waiters))
}
