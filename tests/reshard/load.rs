//! Clients of all families that wait, hold and let leases end in the slot that moves.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, Scope},
    time::{Duration, Instant},
};

use dlock_testing::{Client, Dice, Heard, LIMIT, Nodes, Reply as _};
use redis::Value;

use crate::TAG;

/// The words after the owner: in ACQUIRE, and in RELEASE.
const FAMILIES: [(&str, &str, &str); 4] =
    [("DLOCK", "", ""), ("DFAIR", "", ""), ("DRW", " WRITE", " WRITE"), ("DSEM", " LIMIT 1", "")];

/// How most clients wait.
const BLOCK: &str = "BLOCK 0";

/// What the reply tells to do: ask again, here or elsewhere.
const AGAIN: [&str; 3] = ["MOVING", "CLUSTERDOWN", "TRYAGAIN"];
/// Other errors that a call may end with. The program judges whether the fault explains them.
const FINAL: [&str; 5] = ["SPENT", "LOST", "UNKNOWN", "NOTHELD", "BROKEN"];

/// A hold as its client believes in it.
#[derive(Clone, Debug)]
pub struct Hold {
    pub key: String,
    /// The node that granted it.
    pub node: usize,
    /// The fencing token: the wall clock of the grant in microseconds. Permit ids tell no time.
    pub token: Option<i64>,
    pub from: Instant,
    /// When its RELEASE was sent, or when the client forgot it.
    pub to: Instant,
}

/// The load of one episode, and what became of its calls.
#[derive(Debug)]
pub struct Load<'a> {
    nodes: &'a Nodes,
    source: usize,
    episode: u64,
    is_over: AtomicBool,
    /// Clients that wait for the latch until the load is over.
    awaiters: AtomicUsize,
    answers: Mutex<BTreeMap<String, u64>>,
    holds: Mutex<Vec<Hold>>,
    violations: Mutex<Vec<String>>,
}

impl<'a> Load<'a> {
    pub fn new(nodes: &'a Nodes, source: usize, episode: u64) -> Load<'a> {
        Load {
            nodes,
            source,
            episode,
            is_over: AtomicBool::new(false),
            awaiters: AtomicUsize::new(2),
            answers: Mutex::default(),
            holds: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    /// Starts for each family two clients that block and one that waits with QUEUE; for the latch two that wait and
    /// one that opens it.
    pub fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        for (n, family) in FAMILIES.into_iter().enumerate() {
            for way in [BLOCK, BLOCK, "QUEUE 2000 NOTIFY dlock:notify:@"] {
                scope.spawn(move || self.lock(family, way, n));
            }
        }
        for _ in 0..2 {
            scope.spawn(|| self.wait_for_latch());
        }
        scope.spawn(|| self.open_latches());
    }

    pub fn stop(&self) {
        self.is_over.store(true, SeqCst);
    }

    pub fn answers(&self) -> BTreeMap<String, u64> {
        self.answers.lock().unwrap().clone()
    }

    pub fn holds(&self) -> Vec<Hold> {
        self.holds.lock().unwrap().clone()
    }

    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    fn key(&self, family: &str) -> String {
        format!("{TAG}{family}-{}", self.episode)
    }

    /// Acquires and releases until the load is over. One hold of ten is left to its lease, which is short; not with
    /// QUEUE, where it lasts longer.
    fn lock(&self, (family, acquire, release): (&str, &str, &str), way: &str, seed: usize) {
        let mut caller = Caller::new(self);
        let mut dice = Dice::part(self.episode, seed as u64);
        let key = self.key(family);
        for n in 0.. {
            if self.is_over() {
                return;
            }
            let owner = format!("{:?}-{n}", thread::current().id());
            let is_left = way == BLOCK && dice.one_in(10);
            let px = if is_left { 100 + dice.below(600) } else { 10_000 };
            let call =
                format!("{family}.ACQUIRE {key} {owner}{acquire} PX {px} {way} REQID {owner}");
            let mut reply = caller.call(&call);
            while matches!(reply, Some(Value::Nil)) {
                // It waits with QUEUE: a copy of the request gets the grant.
                thread::sleep(Duration::from_millis(2));
                reply = caller.call(&call);
            }
            let (from, node) = (Instant::now(), caller.node);
            let Some(reply @ (Value::Int(_) | Value::BulkString(_))) = reply else { continue };
            thread::sleep(dice.millis(3));
            let token = if let Value::Int(token) = reply { Some(token) } else { None };
            let to = Instant::now();
            self.holds.lock().unwrap().push(Hold { key: key.clone(), node, token, from, to });
            if !is_left {
                caller.call(&format!("{family}.RELEASE {key} {owner}{release} REQID {owner}"));
            }
        }
    }

    fn wait_for_latch(&self) {
        let mut caller = Caller::new(self);
        while !self.is_over() {
            caller.call(&format!("DLATCH.AWAIT {} BLOCK 0", self.key("latch")));
        }
        self.awaiters.fetch_sub(1, SeqCst);
    }

    /// Closes and opens the latch until no client waits for it.
    fn open_latches(&self) {
        let mut caller = Caller::new(self);
        let key = self.key("latch");
        while self.awaiters.load(SeqCst) > 0 {
            caller.call(&format!("DLATCH.INIT {key} 2"));
            for _ in 0..2 {
                // Closed for long enough that the slot can move meanwhile.
                thread::sleep(Duration::from_millis(10));
                caller.call(&format!("DLATCH.COUNTDOWN {key}"));
            }
        }
    }
}

/// A client of the cluster that follows redirections.
struct Caller<'a> {
    load: &'a Load<'a>,
    connections: [Option<Client>; 3],
    /// The node that it asks first, and that answered last.
    node: usize,
}

impl<'a> Caller<'a> {
    fn new(load: &'a Load<'a>) -> Caller<'a> {
        Caller { load, connections: [None, None, None], node: load.source }
    }

    /// The answer of the node that serves the key. `None`: no answer, or none for [`LIMIT`] but redirections; that is
    /// a violation.
    fn call(&mut self, call: &str) -> Option<Value> {
        let (start, mut is_asking) = (Instant::now(), false);
        while start.elapsed() < LIMIT {
            let node = &self.load.nodes.all()[self.node];
            let client = self.connections[self.node].get_or_insert_with(|| node.client());
            if is_asking {
                client.cmd(&["ASKING"]).ok();
            }
            let call = call.replace('@', &self.node.to_string());
            client.send(&call.split(' ').collect::<Vec<_>>());
            let Heard::Reply(reply) = client.hear(LIMIT) else {
                self.violation(&format!("no answer from node {}: {call}", self.node));
                self.connections[self.node] = None;
                return None;
            };
            let error =
                matches!(reply, Value::ServerError(_)).then(|| reply.error()).unwrap_or_default();
            let code = error.split(' ').next().unwrap_or_default();
            self.count(&call, &reply, code);
            is_asking = code == "ASK";
            if is_asking || code == "MOVED" {
                let all = self.load.nodes.all();
                let to = |port: &str| all.iter().position(|node| node.port().to_string() == port);
                self.node = error.rsplit(':').next().and_then(to).expect("a node of the cluster");
            } else if !AGAIN.contains(&code) {
                if !code.is_empty() && !FINAL.contains(&code) {
                    self.violation(&format!("{call}: {error}"));
                }
                return Some(reply);
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.violation(&format!("not served for {LIMIT:?}: {call}"));
        None
    }

    fn count(&self, call: &str, reply: &Value, code: &str) {
        let verb = call.split(' ').next().unwrap_or_default();
        let what = match reply {
            Value::Nil => "null",
            _ if code.is_empty() && verb.ends_with(".ACQUIRE") => "granted",
            _ if code.is_empty() => "done",
            _ => code,
        };
        *self.load.answers.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn violation(&self, text: &str) {
        self.load.violations.lock().unwrap().push(text.to_owned());
    }
}
