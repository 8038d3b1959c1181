//! Locks that are held through many stages, durable queues, and requests that are over: what every stage must find.

use std::collections::VecDeque;

use dlock_testing::{Reply as _, redis::Value};

use crate::{
    caller::{Caller, call, shown},
    requests::{Copy, Expected},
};

/// Much longer than a run.
const LONG_MS: u64 = 3_600_000;

/// Entries of each durable queue.
const ENTRIES: u64 = 5;

/// A hold, or a step of a latch, that must stay as it is.
#[derive(Debug)]
struct Claim {
    key: String,
    /// The request that made it: a repeat gets the same reply.
    request: Vec<String>,
    reply: Value,
    /// A request of another owner, which must get Null.
    stranger: Vec<String>,
    /// Ends it, with the reply; empty: it has no end.
    release: Vec<String>,
}

/// A DFAIR lock with a durable queue.
#[derive(Debug)]
struct Queue {
    key: String,
    holder: u64,
    token: i64,
    waiting: VecDeque<u64>,
    turns: u64,
}

/// What stays, and what is over.
#[derive(Debug, Default)]
pub struct Standing {
    claims: Vec<Claim>,
    queues: Vec<Queue>,
    finished: Vec<Copy>,
    stages: u64,
    /// Held locks that were granted to another owner.
    pub strangers: usize,
    /// Claims that were asked for.
    pub asked: usize,
}

impl Standing {
    /// Makes holds of every family and a queue; ends half of the earlier ones.
    pub fn next_stage(&mut self, caller: &mut Caller) {
        self.stages += 1;
        let stage = self.stages;
        for claim in self.claims.drain(..self.claims.len() / 2).collect::<Vec<_>>() {
            self.finish(caller, claim);
        }
        for family in ["DLOCK", "DFAIR"] {
            let key = format!("held:{stage}:{family}");
            self.claim(caller, &key, &format!("{family}.ACQUIRE {key} OWNER"), "RELEASE");
        }
        for mode in ["READ", "WRITE"] {
            let key = format!("held:{stage}:DRW:{mode}");
            let request = format!("DRW.ACQUIRE {key} OWNER {mode}");
            self.claim(caller, &key, &request, "RELEASE");
        }
        let key = format!("held:{stage}:DSEM");
        self.claim(caller, &key, &format!("DSEM.ACQUIRE {key} OWNER LIMIT 1"), "RELEASE");
        let key = format!("held:{stage}:{{m}}");
        let request = format!("DLOCK.MACQUIRE 2 {key}:1 {key}:2 OWNER");
        self.claim(caller, &format!("{key}:1"), &request, "MRELEASE");
        self.latch(caller, stage);
        self.queue(caller, stage);
    }

    /// Asks for everything; returns what is wrong.
    pub fn check(&mut self, caller: &mut Caller) -> Vec<String> {
        let mut faults = Vec::new();
        for claim in &self.claims {
            self.asked += 1;
            let answer = caller.call(&claim.key, &claim.stranger);
            if !matches!(&answer, Some(answer) if answer.value == Value::Nil) {
                self.strangers += 1;
                let got = shown(answer.as_ref());
                faults.push(format!("a stranger got {got} for {}", claim.stranger.join(" ")));
            }
            let copy = Copy {
                key: claim.key.clone(),
                words: claim.request.clone(),
                expected: Expected::Same(claim.reply.clone()),
            };
            faults.extend(copy.send(caller).err());
        }
        faults.extend(self.finished.iter().filter_map(|copy| copy.send(caller).err()));
        faults.extend(self.queues.iter_mut().filter_map(|queue| queue.turn(caller).err()));
        faults
    }

    /// A request with a long lease and an id. OWNER stands for the owner.
    fn claim(&mut self, caller: &mut Caller, key: &str, request: &str, release: &str) {
        let request_of = |owner: &str, id: &str| {
            let mut words = call(&request.replace("OWNER", owner));
            words.extend(call(&format!("PX {LONG_MS} REQID {id}")));
            words
        };
        let words = request_of("holder", "a");
        let answer = caller.call(key, &words);
        let reply = match answer {
            Some(answer) if !matches!(answer.value, Value::Nil | Value::ServerError(_)) => {
                answer.value
            }
            other => panic!("{}: {}", words.join(" "), shown(other.as_ref())),
        };
        let release = if request.starts_with("DSEM") {
            format!("DSEM.RELEASE {key} {}", reply.text())
        } else {
            let (verb, rest) = request.split_once(' ').expect("a command");
            let family = verb.split('.').next().unwrap_or_default();
            format!("{family}.{release} {} REQID a", rest.replace("OWNER", "holder"))
        };
        // Of a reader, the stranger is a writer.
        let stranger = request_of("stranger", "s").join(" ").replace(" READ", " WRITE");
        let (stranger, release) = (call(&stranger), call(&release));
        self.claims.push(Claim { key: key.to_owned(), request: words, reply, stranger, release });
    }

    fn latch(&mut self, caller: &mut Caller, stage: u64) {
        let key = format!("held:{stage}:DLATCH");
        caller.call(&key, &call(&format!("DLATCH.INIT {key} 3")));
        let request = call(&format!("DLATCH.COUNTDOWN {key} REQID s"));
        let answer = caller.call(&key, &request);
        assert!(
            matches!(&answer, Some(answer) if answer.value == Value::Int(2)),
            "{request:?}: {}",
            shown(answer.as_ref())
        );
        let stranger = call(&format!("DLATCH.AWAIT {key}"));
        let reply = Value::Int(2);
        self.claims.push(Claim { key, request, reply, stranger, release: Vec::new() });
    }

    /// Ends a claim. Late copies of its requests are known as such from then on.
    fn finish(&mut self, caller: &mut Caller, claim: Claim) {
        if claim.release.is_empty() {
            self.claims.push(claim);
            return;
        }
        let answer = caller.call(&claim.key, &claim.release);
        let reply = match answer {
            Some(answer) if matches!(answer.value, Value::Int(_)) => answer.value,
            other => panic!("{}: {}", claim.release.join(" "), shown(other.as_ref())),
        };
        let (key, words) = (claim.key.clone(), claim.request);
        self.finished.push(Copy { key, words, expected: Expected::Spent });
        if claim.release.iter().any(|word| word == "REQID") {
            let (key, words) = (claim.key, claim.release);
            self.finished.push(Copy { key, words, expected: Expected::Same(reply) });
        }
    }

    fn queue(&mut self, caller: &mut Caller, stage: u64) {
        let key = format!("queue:{stage}");
        let mut queue = Queue { key, holder: 0, token: 0, waiting: VecDeque::new(), turns: 0 };
        for entry in 0..=ENTRIES {
            let answer = caller.call(&queue.key, &queue.request(entry));
            match answer {
                Some(answer) if entry == 0 => queue.token = answer.value.int(),
                Some(answer) if answer.value == Value::Nil => queue.waiting.push_back(entry),
                other => panic!("{}: {}", queue.key, shown(other.as_ref())),
            }
        }
        self.queues.push(queue);
    }
}

impl Queue {
    fn request(&self, entry: u64) -> Vec<String> {
        // Each entry waits again after its turn, with another request.
        let round = (self.turns + ENTRIES - entry) / (ENTRIES + 1);
        call(&format!(
            "DFAIR.ACQUIRE {} {} PX {LONG_MS} QUEUE {LONG_MS} REQID a{round}",
            self.key,
            self.owner(entry)
        ))
    }

    /// Each queue has its own owners: an owner that holds one and waits for another can be part of a deadlock.
    fn owner(&self, entry: u64) -> String {
        format!("{}:entry{entry}", self.key)
    }

    /// The order is as it was; the holder releases, the first in the queue is next, and the holder goes to the end.
    fn turn(&mut self, caller: &mut Caller) -> Result<(), String> {
        let listed = caller.call(&self.key, &call(&format!("DFAIR.WAITERS {}", self.key)));
        let owners: Vec<String> = match &listed {
            Some(answer) if matches!(answer.value, Value::Array(_)) => {
                answer.value.items().iter().map(|row| row.field("owner").text()).collect()
            }
            other => return Err(format!("{}: {}", self.key, shown(other.as_ref()))),
        };
        let expected: Vec<String> = self.waiting.iter().map(|&entry| self.owner(entry)).collect();
        if owners != expected {
            return Err(format!("{}: queue {owners:?}, not {expected:?}", self.key));
        }
        let release = format!("DFAIR.RELEASE {} {} ALL", self.key, self.owner(self.holder));
        let released = caller.call(&self.key, &call(&release));
        let Some(next) = self.waiting.pop_front() else { return Ok(()) };
        let claimed = caller.call(&self.key, &self.request(next));
        let before = std::mem::replace(&mut self.holder, next);
        match &claimed {
            Some(answer) if matches!(answer.value, Value::Int(token) if token > self.token) => {
                self.token = answer.value.int();
            }
            other => {
                let (released, got) = (shown(released.as_ref()), shown(other.as_ref()));
                return Err(format!("{}: {release} {released}; entry{next} {got}", self.key));
            }
        }
        self.turns += 1;
        let queued = caller.call(&self.key, &self.request(before));
        self.waiting.push_back(before);
        match &queued {
            Some(answer) if answer.value == Value::Nil => Ok(()),
            other => Err(format!("{}: entry{before} {}", self.key, shown(other.as_ref()))),
        }
    }
}
