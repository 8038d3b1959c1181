//! A real server that carries out the rows of a table.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use dlock_core::tables::settings::Settings;
use dlock_testing::table::{self, Call, Caller};
use redis::Value;

use super::show::{Names, is_view, message, parts};
use crate::support::{Client, Heard, Reply, SOON, Server, wait_until};

/// How much longer everything lasts here: so long that nothing ends during a table.
pub const SCALE: u64 = 1_000;

/// Rows that a real server can carry out.
const EVENTS: [&str; 13] = [
    "gone", "del", "over", "ttl", "rename", "move", "swapdb", "flushdb", "flushall", "restore",
    "set", "db", "events",
];

/// Settings, and those of them that are times.
const TIMES: [&str; 5] = ["default-lease", "grace", "lock-delay", "claim", "request-memory-ms"];

/// Whether all rows of the table can be carried out. Tokens of a real server are too large for FENCE with a number,
/// and sharded messages need another subscription.
pub fn can_tell(script: &str) -> bool {
    table::rows(script).all(|row| {
        let (_, words, _) = table::parse(row);
        let is_call = words[0].chars().any(|letter| letter.is_ascii_digit()) || words[0] == "s";
        let is_known = is_call || EVENTS.contains(&words[0]);
        let other = ["unheard", "between", "portion", "cluster", "quarantine", "SNOTIFY", "FENCE"];
        is_known && !words.iter().any(|word| other.contains(word))
    })
}

/// A server on which nothing ends by itself.
pub fn start() -> Server {
    let defaults = Settings::default();
    let ms = |value: u64| (value * SCALE).to_string();
    Server::with(&[
        // Tables also make cycles, without detection.
        "dlock.deadlock-recheck-ms",
        "0",
        "notify-keyspace-events",
        "Ed",
        "dlock.default-lease-ms",
        &ms(defaults.default_lease_ms),
        "dlock.fair-grace-ms",
        &ms(defaults.fair_grace_ms),
        "dlock.claim-ms",
        &ms(defaults.claim_ms),
        "dlock.request-memory-ms",
        &ms(defaults.request_memory_ms),
    ])
    .start()
}

struct Talker {
    client: Client,
    db: u32,
    /// The command of its blocked call.
    waits_for: Option<String>,
}

/// A table on a server.
pub struct World<'a> {
    server: &'a Server,
    talkers: BTreeMap<u64, Talker>,
    listener: Client,
    names: Names,
    db: u32,
    with_events: bool,
    /// Settings and their values before the table.
    settings: Vec<(String, String)>,
    /// Where an owner may have a place: database, family, key and owner.
    places: BTreeSet<(u32, String, String, String)>,
    /// What is appended to the ids of requests, which the server remembers from table to table.
    era: String,
}

impl<'a> World<'a> {
    pub fn on(server: &'a Server) -> World<'a> {
        let mut listener = server.client();
        listener.cmd(&["PSUBSCRIBE", "*"]).ok();
        World {
            server,
            talkers: BTreeMap::new(),
            listener,
            names: Names::default(),
            db: 0,
            with_events: false,
            settings: Vec::new(),
            places: BTreeSet::new(),
            era: format!("~{}", server.info_number("stats", "total_connections_received")),
        }
    }

    /// Connection `number`, in the database of the table. Number 0 does what is no connection's doing.
    fn talker(&mut self, number: u64) -> &mut Talker {
        let (server, db) = (self.server, self.db);
        let talker = self.talkers.entry(number).or_insert_with(|| {
            let client = server.client();
            Talker { client, db: 0, waits_for: None }
        });
        let id = i64::try_from(talker.client.id()).expect("the id of a connection");
        self.names.clients.insert(id, number);
        if talker.db != db {
            talker.client.cmd(&["SELECT", &db.to_string()]).ok();
            talker.db = db;
        }
        talker
    }

    fn do_it(&mut self, words: &[&str]) -> Value {
        self.talker(0).client.cmd(words)
    }

    /// The words of a call on this server.
    fn written_out(&self, call: &Call<'_>) -> Vec<String> {
        let mut words = vec![call.command()];
        for pair in call.words.windows(2) {
            let word = pair[1];
            let is_time = ["PX", "EX", "BLOCK", "QUEUE", "BIND", "DELAY"].contains(&pair[0]);
            let number = word.parse::<u64>();
            words.push(match (word.split_at_checked(2), number) {
                (Some(("$t", name)), _) => self.names.tokens[&name.parse().unwrap()].to_string(),
                (Some(("$p", name)), _) => self.names.permit(name.parse().unwrap()),
                _ if pair[0] == "REQID" => format!("{word}{}", self.era),
                (_, Ok(number)) if words[0] == "DLOCK.UNBLOCK" => match self.talkers.get(&number) {
                    Some(talker) => talker.client.id().to_string(),
                    None => u32::MAX.to_string(),
                },
                (_, Ok(time)) if is_time => time.saturating_mul(SCALE).to_string(),
                _ => word.to_owned(),
            });
        }
        words
    }

    /// What is answered at once, and nothing if the call waits.
    fn answer(&mut self, caller: Caller, words: &[String]) -> Option<Value> {
        let server = self.server;
        let is_waiting =
            |number| self.talkers.get(&number).is_some_and(|talker| talker.waits_for.is_some());
        let number = match caller {
            // Only in a made-up world a connection calls while it waits.
            Caller::Client(number) if is_waiting(number) => 0,
            Caller::Client(number) => number,
            Caller::InMulti(number) => {
                let client = &mut self.talker(number).client;
                client.cmd(&["MULTI"]).ok();
                client.cmd(words).ok();
                return client.cmd(&["EXEC"]).items().pop();
            }
            Caller::Script | Caller::Replica => {
                let mut call = vec!["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
                call.extend(words.iter().map(String::as_str));
                return Some(self.do_it(&call));
            }
        };
        let talker = self.talker(number);
        talker.client.send(words);
        let mut answer = None;
        wait_until("an answer, or the call to wait", || {
            match talker.client.hear(Duration::from_millis(1)) {
                Heard::Reply(reply) => answer = Some(reply),
                Heard::Nothing => {}
                Heard::Closed => panic!("the connection is closed"),
            }
            answer.is_some() || server.is_blocked(talker.client.id())
        });
        if answer.is_none() {
            talker.waits_for = Some(words[0].clone());
        }
        answer
    }

    /// All output after the answer: as much as is expected, and what comes with it.
    fn gather(&mut self, got: &mut Vec<String>, events: &mut Vec<String>, expected: usize) {
        let start = Instant::now();
        loop {
            let is_last = got.len() >= expected || start.elapsed() > SOON;
            if is_last {
                // Whatever is on its way is here afterwards.
                self.server.cmd(&["PING"]);
            }
            let (names, talkers) = (&self.names, &mut self.talkers);
            for (number, talker) in talkers {
                let Some(command) = &talker.waits_for else { continue };
                if let Heard::Reply(reply) = talker.client.hear(Duration::ZERO) {
                    got.push(format!("c{number} gets {}", names.show(command, &reply)));
                    talker.waits_for = None;
                }
            }
            self.listen(got, events);
            if is_last {
                return;
            }
        }
    }

    fn listen(&mut self, got: &mut Vec<String>, events: &mut Vec<String>) {
        self.listener.send(&["PING"]);
        loop {
            let items = self.listener.reply(SOON).items();
            let [_, _, channel, text] = &items[..] else { return };
            let channel = channel.text();
            if let Some(event) = channel.strip_prefix("__keyevent@") {
                let name = event.rsplit('.').next().unwrap_or_default();
                events.push(format!("+{name}"));
            } else {
                got.push(message(&channel, &text.bytes()).replace(&self.era, ""));
            }
        }
    }

    /// All output of a row, or what was expected if that is the same.
    fn output(&mut self, command: &str, answer: Option<String>, expected: &str) -> String {
        let (told, wanted) = match expected.find('+') {
            Some(at) if self.with_events => expected.split_at(at),
            _ => (expected, ""),
        };
        let count = if is_view(command) { 1 } else { parts(told).count() };
        let (mut got, mut events): (Vec<String>, _) = (answer.into_iter().collect(), Vec::new());
        self.gather(&mut got, &mut events, count);
        let shown = format!("{} {}", got.join("; "), events.join(" "));
        let mut wanted: Vec<&str> = wanted.split_whitespace().collect();
        wanted.sort_unstable();
        events.sort_unstable();
        let has_events = !self.with_events || events.iter().eq(&wanted);
        if self.names.fit(command, told.trim(), got) && has_events {
            return expected.to_owned();
        }
        shown
    }

    fn set(&mut self, name: &str, value: &str) {
        let setting = match name {
            "grace" => "dlock.fair-grace-ms".to_owned(),
            "default-lease" | "lock-delay" | "claim" => format!("dlock.{name}-ms"),
            _ => format!("dlock.{name}"),
        };
        let value = match value.parse::<u64>().expect("a number") {
            number if TIMES.contains(&name) => (number * SCALE).to_string(),
            0 if name == "deadlock-detection" => "no".to_owned(),
            _ if name == "deadlock-detection" => "yes".to_owned(),
            number => number.to_string(),
        };
        let before = self.server.cmd(&["CONFIG", "GET", &setting]).items()[1].text();
        self.server.cmd(&["CONFIG", "SET", &setting, &value]).ok();
        self.settings.push((setting, before));
    }

    fn hang_up(&mut self, number: u64) {
        let Some(talker) = self.talkers.remove(&number) else { return };
        let id = talker.client.id().to_string();
        drop(talker);
        wait_until("the connection to be gone", || {
            self.server.cmd(&["CLIENT", "LIST", "ID", &id]).text().is_empty()
        });
    }
}

impl table::World for World<'_> {
    fn at(&mut self, _ms: u64) {}

    fn call(&mut self, call: Call<'_>, expected: &str) -> String {
        let words = self.written_out(&call);
        if let Some((family, "ACQUIRE")) = words[0].split_once('.') {
            let [family, key, owner] = [family, &words[1], &words[2]].map(str::to_owned);
            self.places.insert((self.db, family, key, owner));
        }
        let answer = match self.answer(call.caller, &words) {
            Some(reply) => self.names.show(&words[0], &reply),
            None => "parked".to_owned(),
        };
        self.output(&words[0], Some(answer), expected)
    }

    fn happen(&mut self, words: &[&str], expected: &str) -> String {
        match *words {
            ["gone", who] => self.hang_up(who[1..].parse().expect("a connection")),
            ["del", key] => drop(self.do_it(&["DEL", key]).int()),
            ["over", key] => drop(self.do_it(&["SET", key, "another value"]).ok()),
            ["ttl", key] => assert_eq!(self.do_it(&["EXPIRE", key, "1000000"]).int(), 1),
            ["move", key, db] => assert_eq!(self.do_it(&["MOVE", key, db]).int(), 1),
            ["restore", from, to] => {
                let client = &mut self.talker(0).client;
                let value = client.cmd(&["DUMP", from]).bytes();
                client.cmd(&[b"RESTORE", to.as_bytes(), b"0", &value]).ok();
            }
            ["flushdb", db] => {
                let here = std::mem::replace(&mut self.db, db.parse().expect("a database"));
                self.do_it(&["FLUSHDB"]).ok();
                self.db = here;
            }
            ["set", name, value] => self.set(name, value),
            ["db", db] => self.db = db.parse().expect("a database"),
            ["events"] => self.with_events = true,
            _ => drop(self.do_it(words).ok()),
        }
        self.output("", None, expected)
    }

    fn finish(mut self) {
        let numbers: Vec<u64> = self.talkers.keys().copied().collect();
        for number in numbers {
            self.hang_up(number);
        }
        for (setting, before) in self.settings.drain(..).rev() {
            self.server.cmd(&["CONFIG", "SET", &setting, &before]).ok();
        }
        // Places without a connection are granted nothing when the keys go.
        for (db, family, key, owner) in std::mem::take(&mut self.places) {
            self.db = db;
            let modes: &[&[&str]] = if family == "DRW" { &[&["READ"], &["WRITE"]] } else { &[&[]] };
            for mode in modes {
                let name = format!("{family}.RELEASE");
                self.do_it(&[&[name.as_str(), &key, &owner][..], *mode, &["ALL"]].concat());
            }
        }
        self.talkers.clear();
        // The end of a hold is a grant to the next in its queue.
        wait_until("all holds and places to end", || {
            self.server.cmd(&["FLUSHALL"]).ok();
            self.server.info_number("dlock", "waiters_queued") == 0
        });
        self.server.left_over_check();
    }
}
