//! Calls and their answers as a table: what a test of a rule says, without the wiring.
//!
//! | step | means |
//! |---|---|
//! | `DRW.ACQUIRE k a READ` | a call over the story's own connection |
//! | `w: DRW.ACQUIRE k b WRITE BLOCK 0` | a call over a connection named `w`, made when it is first named |
//! | `w` | what comes over that connection next |
//! | `drop w`, `kill w` | the client or the server closes it |
//! | `rw k`, `sem k`, `latch k` | the key in words, as soon as it is so: leases end and connections go in their own time |
//!
//! | answer | means |
//! |---|---|
//! | `nil`, `7` | exactly that |
//! | `'text` | a string |
//! | `waits` | none: the call is blocked |
//! | `token t` | a fencing token above all that this story has seen, `$t` from now on |
//! | `id p` | a permit id that this story has not seen, `$p` from now on |
//! | `$t` | the same as then |
//! | anything else | an error that begins so; for keys, their words |

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    scene::assert_silent,
    support::{Client, Heard, Reply, SOON, Server, wait_until},
};

/// A table being carried out.
pub struct Story<'a> {
    server: &'a Server,
    own: Client,
    others: BTreeMap<String, Client>,
    values: BTreeMap<String, String>,
    /// The largest token so far.
    largest: i64,
    ids: BTreeSet<String>,
}

impl<'a> Story<'a> {
    /// Begins a story.
    #[track_caller]
    pub fn on(server: &'a Server) -> Story<'a> {
        Story {
            server,
            own: server.client(),
            others: BTreeMap::new(),
            values: BTreeMap::new(),
            largest: 0,
            ids: BTreeSet::new(),
        }
    }

    /// Runs a whole table on a server that must be empty afterwards.
    #[track_caller]
    pub fn tell(server: &'a Server, steps: &[(&str, &str)]) {
        let mut story = Story::on(server);
        story.go(steps);
        story.end();
    }

    /// Runs some steps.
    #[track_caller]
    pub fn go(&mut self, steps: &[(&str, &str)]) {
        for &(step, answer) in steps {
            self.step(step, answer);
        }
    }

    /// The value of `$name`.
    #[track_caller]
    pub fn value(&self, name: &str) -> String {
        self.values.get(name).unwrap_or_else(|| panic!("no ${name}")).clone()
    }

    /// Closes its connections; checks that nothing is left.
    #[track_caller]
    pub fn end(self) {
        let server = self.server;
        drop(self);
        server.left_over_check();
    }

    #[track_caller]
    fn step(&mut self, step: &str, answer: &str) {
        let server = self.server;
        if let Some((kind, key)) = step.split_once(' ')
            && let Some(look) = LOOKS.iter().find(|look| look.0 == kind)
        {
            let start = Instant::now();
            loop {
                let found = look.1(server, key);
                if found == answer {
                    return;
                }
                assert!(start.elapsed() < SOON, "{step}: `{found}`, not `{answer}`");
                thread::sleep(Duration::from_millis(1));
            }
        }
        if let Some((what, name)) = step.split_once(' ')
            && let Some(client) = ["drop", "kill"].contains(&what).then(|| self.others.remove(name))
        {
            let mut client = client.unwrap_or_else(|| panic!("no connection {name}"));
            let id = client.id().to_string();
            if what == "kill" {
                server.cmd(&["CLIENT", "KILL", "ID", &id]).ok();
                client.expect_closed();
            }
            drop(client);
            wait_until("the connection to be gone", || {
                server.cmd(&["CLIENT", "LIST", "ID", &id]).text().is_empty()
            });
            return;
        }
        let (name, call) = match step.split_once(": ") {
            Some((name, call)) => (Some(name), Some(call)),
            None if self.others.contains_key(step) => (Some(step), None),
            None => (None, Some(step)),
        };
        let words: Option<Vec<String>> =
            call.map(|call| call.split(' ').map(|word| self.written_out(word)).collect());
        let client = match name {
            Some(name) => self.others.entry(name.to_owned()).or_insert_with(|| server.client()),
            None => &mut self.own,
        };
        if let Some(words) = &words {
            client.send(words);
        }
        if answer == "waits" {
            if words.is_some() {
                wait_until(&format!("to be blocked: {step}"), || server.is_blocked(client.id()));
            }
            assert_silent(server, client);
            return;
        }
        let reply = match client.hear(SOON) {
            Heard::Reply(reply) => reply,
            other => panic!("{step}: {other:?}, not {answer}"),
        };
        self.compare(step, answer, &reply);
    }

    fn written_out(&self, word: &str) -> String {
        word.strip_prefix('$').map_or_else(|| word.to_owned(), |name| self.value(name))
    }

    #[track_caller]
    fn compare(&mut self, step: &str, answer: &str, reply: &Value) {
        let shown = reply.show();
        let fits = match answer.split_once(' ') {
            Some(("token", name)) => match reply {
                Value::Int(token) if *token > self.largest => {
                    self.largest = *token;
                    self.values.insert(name.to_owned(), token.to_string());
                    true
                }
                _ => false,
            },
            Some(("id", name)) => match reply {
                Value::BulkString(bytes) => {
                    let text = String::from_utf8_lossy(bytes).into_owned();
                    let is_new = is_permit_id(&text) && self.ids.insert(text.clone());
                    self.values.insert(name.to_owned(), text);
                    is_new
                }
                _ => false,
            },
            _ if answer == "nil" => reply.is_null(),
            _ if answer.starts_with('$') => {
                let wanted = self.written_out(answer);
                match reply {
                    Value::Int(number) => number.to_string() == wanted,
                    Value::BulkString(bytes) => *bytes == wanted.as_bytes(),
                    _ => false,
                }
            }
            _ if answer.parse::<i64>().is_ok() => {
                matches!(reply, Value::Int(number) if number.to_string() == answer)
            }
            _ => match (answer.strip_prefix('\''), reply) {
                (Some(text), Value::ServerError(_)) => panic!("{step}: {shown}, not {text}"),
                (Some(text), reply) => reply.text() == text,
                (None, Value::ServerError(_)) => reply.error().starts_with(answer),
                (None, _) => false,
            },
        };
        assert!(fits, "{step}: {shown}, not {answer}");
    }
}

/// Whether this is the canonical text of a random UUID.
pub fn is_permit_id(text: &str) -> bool {
    let id = dlock_wire::permit::parse(text.as_bytes());
    // A random or time-ordered version, and the variant of the standard.
    let is_sound = id.is_some_and(|id| [4, 7].contains(&(id[6] >> 4)) && id[8] >> 6 == 2);
    is_sound && text == text.to_lowercase()
}

type Look = fn(&Server, &str) -> String;

const LOOKS: [(&str, Look); 3] = [("rw", rw), ("sem", sem), ("latch", latch)];

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
