//! Which owner waits for which key, and who holds it: a snapshot of the servers.
//!
//! The keys are read one after the other, so the snapshot mixes moments that lie close together.

mod graph;
mod read;
mod why;

use std::collections::HashMap;
use std::time::Duration;

use dlock_admin::{Entry, HolderInfo, Info, PermitInfo, RwMode, WaiterInfo};
use serde_json::{Value, json};

pub use self::graph::graph;
pub use self::why::why;
use crate::json::Bytes;
use crate::text;

/// A waiter or holder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Party {
    /// An owner.
    Owner(Vec<u8>),
    /// A call without an owner, by its connection: it waits for a latch, or takes permits.
    Client(u64),
}

impl Party {
    fn of(waiter: &WaiterInfo) -> Self {
        if waiter.owner.is_empty() {
            Self::Client(waiter.client.unwrap_or(0))
        } else {
            Self::Owner(waiter.owner.clone())
        }
    }

    /// For people.
    fn shown(&self) -> String {
        match self {
            Self::Owner(owner) => text::bytes(owner),
            Self::Client(id) => format!("client {id}"),
        }
    }

    fn as_json(&self) -> Value {
        match self {
            Self::Owner(owner) => json!(Bytes(owner)),
            Self::Client(id) => json!({ "client-id": id }),
        }
    }
}

/// A key that has waiters.
#[derive(Debug)]
struct Waited {
    entry: Entry,
    holds: Vec<Hold>,
    /// Why there are no holds.
    state: String,
    /// The length of its queue.
    waiters: u64,
}

#[derive(Debug)]
struct Hold {
    party: usize,
    mode: Option<RwMode>,
    /// None: nothing is held, but the key is kept closed for this MACQUIRE.
    times: Option<Times>,
    label: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    held: Duration,
    left: Duration,
}

#[derive(Debug)]
struct Wait {
    party: usize,
    key: usize,
    /// From 1.
    place: u64,
    /// None: the server did not show it.
    waiting: Option<Duration>,
}

/// The snapshot.
#[derive(Debug, Default)]
struct Waits {
    parties: Vec<Party>,
    numbers: HashMap<Party, usize>,
    keys: Vec<Waited>,
    queued: Vec<Wait>,
    /// The waits of each party, as indices of `queued`.
    of_party: Vec<Vec<usize>>,
    /// False: there was more than could be read.
    is_complete: bool,
    /// Number of keys that the user may not read.
    hidden: u64,
}

impl Waits {
    fn party(&mut self, party: Party) -> usize {
        if let Some(&number) = self.numbers.get(&party) {
            return number;
        }
        let number = self.parties.len();
        self.parties.push(party.clone());
        self.of_party.push(Vec::new());
        self.numbers.insert(party, number);
        number
    }

    /// Adds a key with the first of its waiters.
    fn add(&mut self, entry: Entry, info: &Info, permits: &[PermitInfo], waiters: &[WaiterInfo]) {
        let mut holds = Vec::new();
        let mut add = |owner: &[u8], mode, times, label: &[u8]| {
            let party = self.party(Party::Owner(owner.to_vec()));
            holds.push(Hold { party, mode, times, label: label.to_vec() });
        };
        let mut of_hold = |hold: &HolderInfo, mode| {
            let times = Times { held: hold.held, left: hold.left };
            add(&hold.owner, mode, Some(times), &hold.label);
        };
        match info {
            Info::Lock(lock) => {
                lock.holder.iter().for_each(|hold| of_hold(hold, None));
                if !lock.reserved_for.is_empty() {
                    add(&lock.reserved_for, None, None, b"");
                }
            }
            Info::ReadWrite(lock) => {
                lock.writer.iter().for_each(|hold| of_hold(hold, Some(RwMode::Write)));
                lock.readers.iter().for_each(|hold| of_hold(hold, Some(RwMode::Read)));
            }
            Info::Semaphore(_) => {
                for permit in permits {
                    let times = Times { held: permit.held, left: permit.left };
                    add(&permit.owner, None, Some(times), &permit.label);
                }
            }
            _ => {}
        }
        let key = self.keys.len();
        for (place, waiter) in (1..).zip(waiters) {
            self.add_wait(key, Party::of(waiter), place, Some(waiter.waiting));
        }
        let state = crate::show::held_by(info);
        self.keys.push(Waited { entry, holds, state, waiters: info.waiters() });
    }

    fn add_wait(&mut self, key: usize, party: Party, place: u64, waiting: Option<Duration>) {
        let party = self.party(party);
        self.of_party[party].push(self.queued.len());
        self.queued.push(Wait { party, key, place, waiting });
    }

    fn waits_of(&self, party: usize) -> impl Iterator<Item = &Wait> {
        self.of_party[party].iter().map(|&at| &self.queued[at])
    }

    fn wait_as_json(&self, wait: &Wait) -> Value {
        let key = &self.keys[wait.key];
        json!({
            "owner": self.parties[wait.party].as_json(),
            "key": Bytes(&key.entry.key),
            "kind": key.entry.kind.name(),
            "place": wait.place,
            "waiting-ms": wait.waiting.map(millis),
        })
    }

    fn hold_as_json(&self, hold: &Hold) -> Value {
        json!({
            "owner": self.parties[hold.party].as_json(),
            "mode": hold.mode.map(RwMode::name),
            "reserved": hold.times.is_none(),
            "held-ms": hold.times.map(|times| millis(times.held)),
            "ttl-ms": hold.times.map(|times| millis(times.left)),
            "label": Bytes(&hold.label),
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod sample {
    use dlock_admin::{Kind, LockInfo};

    use super::*;

    /// A lock held by one owner, with these waiters.
    pub fn lock(waits: &mut Waits, key: &str, holder: &str, waiters: &[&str]) {
        let holder = HolderInfo {
            owner: holder.as_bytes().to_vec(),
            token: 7,
            holds: 1,
            lease: Duration::from_secs(30),
            left: Duration::from_secs(20),
            held: Duration::from_secs(10),
            label: Vec::new(),
            bound_client: None,
        };
        let waiter = |owner: &&str| WaiterInfo {
            owner: owner.as_bytes().to_vec(),
            client: Some(5),
            waiting: Duration::from_millis(1500),
            remaining: None,
            label: Vec::new(),
        };
        let waiters: Vec<_> = waiters.iter().map(waiter).collect();
        let lock = LockInfo {
            holder: Some(holder),
            waiters: waiters.len() as u64,
            ..LockInfo::free(Kind::Lock)
        };
        let entry = Entry { key: key.as_bytes().to_vec(), kind: Kind::Lock };
        waits.add(entry, &Info::Lock(lock), &[], &waiters);
    }
}
