//! Calls that go on through restarts and failovers: each is sent to one server after the other until a primary answers.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use dlock_testing::{Client, Heard, Reply as _, Server, redis::Value};

/// Longest time without an answer; a failover by Sentinel takes some seconds.
const PATIENCE: Duration = Duration::from_mins(2);

/// Longest time for one reply. The longest BLOCK is shorter.
const REPLY: Duration = Duration::from_secs(10);

/// The pause before another server is asked.
const PAUSE: Duration = Duration::from_millis(5);

/// Errors after which a client sends the same request again.
const RETRY: [&str; 12] = [
    "ASK",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MOVED",
    "MOVING",
    "NOREPLICAS",
    "QUARANTINE",
    "READONLY",
    "REDIRECT",
    "TRYAGAIN",
    "UNBLOCKED",
];

/// Where the servers of a group are.
#[derive(Clone, Debug)]
pub struct Addresses(Arc<[(u16, PathBuf)]>);

impl Addresses {
    pub fn of(servers: &[Server]) -> Addresses {
        Addresses(servers.iter().map(|server| (server.port(), server.dir().join("s"))).collect())
    }
}

/// The final answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub value: Value,
    /// The request was sent more than once.
    pub repeated: bool,
}

/// Connections to all servers of a group.
#[derive(Debug)]
pub struct Caller {
    addresses: Addresses,
    connections: Vec<Option<Client>>,
    /// The server that answered for a key.
    known: BTreeMap<String, usize>,
    last: usize,
}

impl Caller {
    pub fn new(addresses: &Addresses) -> Caller {
        let connections = addresses.0.iter().map(|_| None).collect();
        Caller { addresses: addresses.clone(), connections, known: BTreeMap::new(), last: 0 }
    }

    /// Sends a request about `key` until a primary answers; `None` if none does.
    pub fn call(&mut self, key: &str, words: &[String]) -> Option<Answer> {
        let start = Instant::now();
        let mut repeated = false;
        let mut at = self.known.get(key).copied().unwrap_or(self.last);
        while start.elapsed() < PATIENCE {
            at = match self.send(at, words) {
                Some(Value::ServerError(error)) if RETRY.contains(&error.code()) => {
                    self.elsewhere(at, error.details())
                }
                Some(value) => {
                    self.last = at;
                    self.known.insert(key.to_owned(), at);
                    return Some(Answer { value, repeated });
                }
                None => self.elsewhere(at, None),
            };
            repeated = true;
        }
        None
    }

    /// One reply of one server; `None` if the connection broke.
    fn send(&mut self, at: usize, words: &[String]) -> Option<Value> {
        let connection = &mut self.connections[at];
        if connection.is_none() {
            *connection = Client::connect(&self.addresses.0[at].1, REPLY).ok();
        }
        let reply = connection.as_mut().and_then(|client| {
            if !client.try_send(words) {
                return None;
            }
            match client.hear(REPLY) {
                Heard::Reply(value) => Some(value),
                Heard::Nothing | Heard::Closed => None,
            }
        });
        if reply.is_none() {
            *connection = None;
        }
        reply
    }

    /// The server that a redirection names, or the next one.
    fn elsewhere(&self, at: usize, details: Option<&str>) -> usize {
        let port = details.and_then(|details| details.rsplit(':').next()?.parse::<u16>().ok());
        let named = port.and_then(|port| self.addresses.0.iter().position(|(p, _)| *p == port));
        if let Some(named) = named.filter(|named| *named != at) {
            return named;
        }
        thread::sleep(PAUSE);
        (at + 1) % self.connections.len()
    }
}

/// The words of a call.
pub fn call(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

/// A reply on one line.
pub fn shown(answer: Option<&Answer>) -> String {
    answer.map_or_else(|| format!("no answer within {PATIENCE:?}"), |answer| answer.value.show())
}
