//! A second model of DLOCK, written from its specification: slow, plain and without a clever
//! thought. It shares no code with the machine; the simulator compares the two.
//!
//! Where the specification leaves open which of several keys comes first (several leases end
//! together), the model is told the order that the machine took and must come to the same end.

mod acquire;
mod circle;
mod grant;
mod holder;
mod presence;
mod server;
mod view;
mod waiting;

use dlock_wire::request::Request;

/// Names of the keys.
pub const KEYS: [&str; 3] = ["k", "l", "m"];

const MONTH_US: u64 = 30 * 24 * 3_600_000_000;

/// An answer, in the terms of the specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Token(u64),
    Count(u64),
    Null,
    Error(&'static str),
}

/// Everything that comes out of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Out {
    /// `None`: the caller is blocked, or there is no caller.
    pub reply: Option<Answer>,
    /// By connection.
    pub wakes: Vec<(u64, Answer)>,
    /// Channel and text.
    pub messages: Vec<(String, String)>,
    /// Event and key.
    pub events: Vec<(&'static str, usize)>,
    pub counters: Counters,
}

/// How often what happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    pub grants_at_once: u64,
    pub grants_after_waiting: u64,
    pub timeouts: u64,
    pub expiries: u64,
    pub releases: u64,
    pub broken: u64,
    pub disconnected: u64,
    pub replaced: u64,
    pub unclaimed: u64,
}

/// What INFO shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Info {
    pub owner: String,
    pub token: u64,
    pub holds: u32,
    pub lease_ms: u64,
    pub ttl_ms: u64,
    pub held_ms: u64,
    pub label: String,
    pub bound_client: u64,
    pub waiters: usize,
}

/// What WAITERS shows of one: owner, connection, waiting, remaining, label.
pub type Row = (String, u64, u64, Option<u64>, String);

#[derive(Debug, Clone)]
enum Lock {
    Free,
    Foreign,
    Closed { until: u64, delay: u64 },
    Held(Hold),
}

#[derive(Debug, Clone)]
struct Hold {
    /// Tells this hold from all others, whatever its token and key.
    serial: u64,
    owner: String,
    token: u64,
    count: u32,
    ends: u64,
    lease: u64,
    since: u64,
    label: String,
    channel: Option<String>,
    requests: Vec<Vec<u8>>,
    tie: Option<Tie>,
    /// A QUEUE grant that nobody has claimed: the connection of the place, and QUEUE.
    unclaimed: Option<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Tie {
    ms: u64,
    /// 0: gone or unknown.
    client: u64,
    /// The connection went, and that is why the hold will end.
    cut: bool,
    /// After a failover: the last moment unless it is tied anew.
    at_most: Option<u64>,
}

#[derive(Debug, Clone)]
enum How {
    Blocked { until: Option<u64> },
    Queued,
    Absent { until: u64 },
}

#[derive(Debug, Clone)]
struct Place {
    owner: String,
    client: u64,
    how: How,
    since: u64,
    lease: u64,
    queue: Option<u64>,
    channel: Option<String>,
    request: Option<Vec<u8>>,
    bind: Option<u64>,
    label: String,
}

/// A grant on its way to a blocked caller.
#[derive(Debug, Clone)]
struct Sent {
    client: u64,
    serial: u64,
    request: Option<Vec<u8>>,
    queue: Option<u64>,
    /// The owner has been answered for this hold since.
    known: bool,
    /// It was even answered for this request.
    repeated: bool,
}

/// Settings, in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub default_lease: u64,
    pub grace: u64,
    pub per_key: usize,
    pub in_all: usize,
    pub quarantine: u64,
    pub lock_delay: u64,
    pub deadlock_detection: bool,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Model {
    pub settings: Settings,
    now: u64,
    /// Like `now`, but standing still in a pause.
    lease_now: u64,
    paused: bool,
    shut: bool,
    pub wall_us: u64,
    last_token: u64,
    serials: u64,
    locks: Vec<Lock>,
    queues: Vec<Vec<Place>>,
    hung: Vec<u64>,
    sent: Vec<Sent>,
    quarantine_until: u64,
    /// Keys at which the machine woke somebody in this step without writing them.
    pub woken: Vec<usize>,
    /// Whether it saw to them after the keys that it wrote.
    pub woken_last: bool,
    out: Out,
}

impl Model {
    pub fn new(settings: Settings, now: u64) -> Self {
        Self {
            settings,
            now,
            lease_now: now,
            paused: false,
            shut: false,
            wall_us: 0,
            last_token: 0,
            serials: 0,
            locks: KEYS.iter().map(|_| Lock::Free).collect(),
            queues: KEYS.iter().map(|_| Vec::new()).collect(),
            hung: Vec::new(),
            sent: Vec::new(),
            quarantine_until: 0,
            woken: Vec::new(),
            woken_last: false,
            out: Out::default(),
        }
    }

    pub fn at(&mut self, now: u64) {
        if !self.paused {
            self.lease_now += now - self.now;
        }
        self.now = now;
    }

    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    pub fn shut(&mut self, shut: bool) {
        self.shut = shut;
    }

    /// `touched`: the keys that the machine wrote, in its order.
    pub fn call(
        &mut self,
        client: u64,
        may_block: bool,
        request: &Request<'_>,
        touched: &[usize],
    ) -> Out {
        if let Request::Unblock { client, error } = *request {
            let reply = self.unblock(client, error, touched);
            self.out.reply = Some(reply);
            return self.done();
        }
        self.shut = false;
        if let Some(error) = unfit_for_a_script(client, request) {
            self.out.reply = Some(error);
            return self.done();
        }
        let k = key_of(request);
        let roused = self.rouse(client, k, touched);
        if matches!(self.locks[k], Lock::Foreign) {
            self.out.reply = Some(Answer::Error("WRONGTYPE"));
            return self.done();
        }
        if let Request::Acquire(call) = request {
            let waits = call.queue_ms.is_some() || (call.block_ms.is_some() && may_block);
            let detects = self.settings.deadlock_detection;
            if waits && detects && self.closes_a_circle(k, &text(call.owner)) {
                self.out.reply = Some(Answer::Error("DEADLOCK"));
                return self.done();
            }
        }
        self.end_what_is_due(k);
        // A grant that lapsed before this call, and was found by it, is no silence since.
        let was_hung = self.hung.contains(&client);
        self.hung.retain(|&other| other != client);
        if let Request::Acquire(_) = request {
            // Whoever is first comes before the caller.
            self.hand_on(k);
        }
        self.out.reply = match *request {
            Request::Acquire(ref call) => self.acquire(k, client, may_block, call),
            Request::Release(ref call) => Some(self.release(k, client, call)),
            Request::Renew(ref call) => Some(self.renew(k, client, call)),
            Request::Fence { owner, token, .. } => Some(self.fence(k, &text(owner), token)),
            Request::Break { .. } => Some(self.break_hold(k)),
            Request::Cancel { owner, .. } => Some(self.cancel(k, &text(owner))),
            _ => panic!("not modelled: {request:?}"),
        };
        let beside: Vec<usize> = touched.iter().copied().skip_while(|&other| other != k).collect();
        if was_hung {
            // The first write of its own key was that of the call.
            self.look_at_queues(beside.get(1..).unwrap_or_default(), &self.places_of(client));
        } else if !roused {
            let beside = beside.iter().find(|&&other| other != k);
            assert_eq!(beside, None, "a call touches its own key only");
        }
        self.done()
    }

    fn event(&mut self, event: &'static str, k: usize) {
        self.out.events.push((event, k));
    }

    fn say(&mut self, event: &str, k: usize, channel: Option<String>, token: u64, owner: &str) {
        if let Some(channel) = channel {
            let text = format!("{event} 0 {token} {} {owner} {}", owner.len(), KEYS[k]);
            self.out.messages.push((channel, text));
        }
    }

    fn done(&mut self) -> Out {
        std::mem::take(&mut self.out)
    }

    fn in_quarantine(&self) -> bool {
        self.now < self.quarantine_until
    }
}

fn unfit_for_a_script(client: u64, request: &Request<'_>) -> Option<Answer> {
    let unfit = match request {
        Request::Acquire(call) => call.bind_ms.is_some() || call.queue_ms.is_some(),
        Request::Renew(call) => call.bind_ms.is_some(),
        _ => false,
    };
    (client == 0 && unfit).then_some(Answer::Error("ERR"))
}

fn key_of(request: &Request<'_>) -> usize {
    let key = match *request {
        Request::Acquire(ref call) => call.key,
        Request::Release(ref call) => call.key,
        Request::Renew(ref call) => call.key,
        Request::Fence { key, .. } | Request::Break { key } | Request::Cancel { key, .. } => key,
        _ => panic!("not modelled: {request:?}"),
    };
    KEYS.iter().position(|name| name.as_bytes() == key).expect("a known key")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("plain text")
}
