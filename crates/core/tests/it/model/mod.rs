//! A second model of DLOCK, DFAIR and DRW, written from their specification: slow and plain. It shares no code with the
//! machine; the simulator compares the two.
//!
//! The specification leaves open which of several keys comes first (several leases end together). There the model gets
//! the order of the machine and must reach the same result. It also gets the keys that the server has: the server
//! removes an empty key when it may write next.

mod acquire;
mod circle;
mod grant;
mod holder;
mod modes;
mod observers;
mod presence;
mod requests;
mod server;
mod state;
mod view;
mod waiting;

pub use state::{Answer, Counters, Family, Out, Settings};

use dlock_wire::request::{Acquire, LockFamily, LockOp, Mode, Op, Release, Renew, RwOp, Unblock};
use state::{Binding, Hold, How, Lock, Place, Sent, Spent, Use};

/// Names of the keys.
pub const KEYS: [&str; 3] = ["k", "l", "m"];

const TOKEN_LEAD_US: u64 = 60_000_000;

/// Whether a new primary has been able to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Begun,
    /// It is just beginning to serve.
    Starting,
    /// It was not asked yet.
    Unasked,
    /// It was not: leases stand still, and the quarantine has not begun.
    Refused,
}

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct Model {
    pub settings: Settings,
    now: u64,
    /// Like `now`, but it stops during a pause.
    lease_now: u64,
    paused: bool,
    shut: bool,
    service: Service,
    pub wall_us: u64,
    last_token: u64,
    serials: u64,
    /// The keys that the server has.
    pub there: Vec<bool>,
    /// The family of each key or of its waiters, if there is one.
    families: Vec<Family>,
    locks: Vec<Lock>,
    readers: Vec<Vec<Hold>>,
    queues: Vec<Vec<Place>>,
    /// The queues of fair locks as last written.
    saved: Vec<Vec<Place>>,
    /// A command does nothing for other keys; the next tick does.
    pub is_cluster: bool,
    /// Number of waiters that a hand-off within a command serves; the next tick serves the rest.
    pub portion: usize,
    /// Number of waiters that the next hand-off serves.
    looks: usize,
    hung: Vec<u64>,
    observers: Vec<observers::Observer>,
    spent: Vec<Spent>,
    sent: Vec<Sent>,
    /// The last numbers of waiters that joined at the end of a queue, and at its front.
    numbers: (i64, i64),
    quarantine_until: u64,
    /// The connections whose waits the machine found to be over in this step. (It may find this when the alarm rings,
    /// or earlier, when it checks the queue.)
    pub found_over: Vec<u64>,
    answer: Option<Answer>,
    out: Out,
}

/// A call of any family. A lock for one holder counts as a lock that is only written.
#[derive(Clone, Copy)]
enum Verb<'a> {
    Acquire(&'a Acquire<'a>, Mode),
    Release(&'a Release<'a>, Mode),
    Renew(&'a Renew<'a>, Mode),
    Fence(&'a [u8], u64),
    Break(Option<&'a [u8]>),
}

impl Model {
    pub fn new(settings: Settings, now: u64) -> Self {
        Self {
            settings,
            now,
            lease_now: now,
            paused: false,
            shut: false,
            service: Service::Begun,
            wall_us: 0,
            last_token: 0,
            serials: 0,
            there: vec![false; KEYS.len()],
            families: vec![Family::Lock; KEYS.len()],
            locks: KEYS.iter().map(|_| Lock::Free).collect(),
            readers: vec![Vec::new(); KEYS.len()],
            queues: vec![Vec::new(); KEYS.len()],
            saved: vec![Vec::new(); KEYS.len()],
            is_cluster: false,
            portion: usize::MAX,
            looks: usize::MAX,
            hung: Vec::new(),
            observers: Vec::new(),
            spent: Vec::new(),
            sent: Vec::new(),
            numbers: (0, 0),
            quarantine_until: 0,
            found_over: Vec::new(),
            answer: None,
            out: Out::default(),
        }
    }

    pub fn at(&mut self, now: u64) {
        if !self.paused && self.service != Service::Refused {
            self.lease_now += now - self.now;
        }
        self.now = now;
    }

    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// The server says whether it takes writes.
    pub fn shut(&mut self, shut: bool) {
        self.shut = shut;
        self.service = match self.service {
            Service::Unasked if shut => Service::Refused,
            Service::Refused if !shut => {
                self.quarantine_until = self.now + self.settings.quarantine;
                Service::Begun
            }
            Service::Unasked => Service::Begun,
            other => other,
        };
    }

    /// `touched`: the keys that the machine wrote, in its order.
    pub fn call(&mut self, client: u64, may_block: bool, op: &Op<'_>, touched: &[usize]) -> Out {
        self.looks = self.portion;
        let out = self.command(client, may_block, op, touched);
        self.looks = usize::MAX;
        let mut by_tick = touched;
        if self.is_cluster && !matches!(op, Op::Unblock(_) | Op::Lock(_, LockOp::Await(_))) {
            // The first write of its own key was that of the call: the tick may have come to the key later.
            let (own, ..) = taken_apart(op);
            while let Some((first, rest)) = by_tick.split_first()
                && *first == own
                && rest.contains(&own)
            {
                by_tick = rest;
            }
        }
        self.and_tick(out, by_tick)
    }

    /// In a cluster, the next tick does what a command left.
    pub(super) fn and_tick(&mut self, mut out: Out, touched: &[usize]) -> Out {
        if self.is_cluster {
            let more = self.tick(!self.shut, touched);
            out.add(more);
        }
        out
    }

    fn command(&mut self, client: u64, may_block: bool, op: &Op<'_>, touched: &[usize]) -> Out {
        if let Op::Unblock(Unblock { client, error }) = *op {
            let reply = self.unblock(client, error, touched);
            self.out.reply = Some(reply);
            return self.done();
        }
        if let Op::Lock(family, LockOp::Await(call)) = op {
            let is_fair = *family == LockFamily::Fair;
            let family = if is_fair { Family::Fair } else { Family::Lock };
            self.out.reply = self.await_end((client, may_block), family, call);
            return self.done();
        }
        self.shut(false);
        let (k, family, verb) = taken_apart(op);
        if unfit_for_a_script(client, verb) || contradicts_itself(family, verb) {
            self.out.reply = Some(Answer::Error("ERR"));
            return self.done();
        }
        let roused = self.rouse(client, k, touched);
        if self.is_something(k)
            && (self.families[k] != family || matches!(self.locks[k], Lock::WrongType))
        {
            let known = self.recall_alone(k, family, verb);
            self.out.reply = known.or(Some(Answer::Error("WRONGTYPE")));
            return self.done();
        }
        self.families[k] = family;
        if let Verb::Acquire(call, mode) = verb {
            let waits = call.queue_ms.is_some() || (call.block_ms.is_some() && may_block);
            let detects = self.settings.deadlock_detection;
            let is_new = !self.is_spent(k, verb);
            if waits && detects && is_new && self.closes_a_circle(k, &text(call.owner), mode) {
                self.out.reply = Some(Answer::Error("DEADLOCK"));
                return self.done();
            }
        }
        self.adopt(k);
        self.end_expired(k);
        // A grant that expired before this call, and was found by it, must not mark the connection unresponsive.
        let was_unresponsive = self.hung.contains(&client);
        self.hung.retain(|&other| other != client);
        self.out.reply = match self.recall(k, verb) {
            Some(answer) => Some(answer),
            None => self.carry_out(k, (client, may_block), verb),
        };
        if self.is_cluster {
            return self.done();
        }
        let beside: Vec<usize> = touched.iter().copied().skip_while(|&other| other != k).collect();
        if was_unresponsive {
            // The first write of its own key was that of the call.
            self.look_at_queues(beside.get(1..).unwrap_or_default(), &self.places_of(client));
        } else if !roused {
            let beside = beside.iter().find(|&&other| other != k);
            assert_eq!(beside, None, "a call touches its own key only");
        }
        self.done()
    }

    fn carry_out(
        &mut self,
        k: usize,
        (client, may_block): (u64, bool),
        verb: Verb<'_>,
    ) -> Option<Answer> {
        Some(match verb {
            Verb::Acquire(call, mode) => {
                // The first waiter comes before the caller.
                self.hand_off(k);
                return self.acquire(k, client, may_block, (call, mode));
            }
            Verb::Release(call, mode) => self.release(k, (call, mode)),
            Verb::Renew(call, mode) => self.renew(k, client, (call, mode)),
            Verb::Fence(owner, token) => self.fence(k, &text(owner), token),
            Verb::Break(owner) => self.break_holds(k, owner),
        })
    }

    /// The machine has written these keys: with a fair lock, its queue.
    pub fn note_written(&mut self, touched: &[usize]) {
        for &k in touched {
            self.saved[k].clone_from(&self.queues[k]);
        }
    }

    fn event(&mut self, event: &'static str, k: usize) {
        self.out.events.push((event, k));
    }

    fn say(&mut self, event: &str, k: usize, hold: &Hold) {
        if let Some(channel) = hold.channel.clone() {
            let Hold { token, owner, told_of, .. } = hold;
            let (long, id_long) = (owner.len(), told_of.len());
            let text = format!("{event} 0 {token} {long} {owner} {id_long} {told_of} {}", KEYS[k]);
            self.out.messages.push((channel, text));
        }
    }

    fn done(&mut self) -> Out {
        self.service = match self.service {
            Service::Starting => Service::Unasked,
            Service::Unasked if !self.shut => Service::Begun,
            other => other,
        };
        // At keys without other work.
        for k in 0..KEYS.len() {
            let is_found = |model: &Self, place: &Place| {
                let blocked = matches!(place.how, How::Blocked { .. }) && model.is_over(place);
                blocked && model.found_over.contains(&place.client)
            };
            while let Some(at) = self.queues[k].iter().position(|place| is_found(self, place)) {
                self.time_out(k, at);
            }
        }
        self.answer_observers();
        std::mem::take(&mut self.out)
    }

    fn in_quarantine(&self) -> bool {
        (self.service == Service::Refused && self.settings.quarantine > 0)
            || self.now < self.quarantine_until
    }
}

/// A RELEASE of one request and of all, or one that closes a lock for readers.
fn contradicts_itself(family: Family, verb: Verb<'_>) -> bool {
    let Verb::Release(call, mode) = verb else { return false };
    let is_of_reader = family == Family::Rw && mode == Mode::Read;
    (call.all && call.reqid.is_some()) || (is_of_reader && call.delay_ms.is_some())
}

fn unfit_for_a_script(client: u64, verb: Verb<'_>) -> bool {
    let unfit = match verb {
        Verb::Acquire(call, _) => call.bind_ms.is_some() || call.queue_ms.is_some(),
        Verb::Renew(call, _) => call.bind_ms.is_some(),
        _ => false,
    };
    client == 0 && unfit
}

fn taken_apart<'a>(op: &'a Op<'a>) -> (usize, Family, Verb<'a>) {
    let (key, verb) = match op {
        Op::Lock(_, LockOp::Acquire(call)) => (call.key, Verb::Acquire(call, Mode::Write)),
        Op::Lock(_, LockOp::Release(call)) => (call.key, Verb::Release(call, Mode::Write)),
        Op::Lock(_, LockOp::Renew(call)) => (call.key, Verb::Renew(call, Mode::Write)),
        Op::Lock(_, LockOp::Fence(call)) => (call.key, Verb::Fence(call.owner, call.token)),
        Op::Lock(_, LockOp::Break(call)) => (call.key, Verb::Break(None)),
        Op::Rw(RwOp::Acquire(call)) => (call.acquire.key, Verb::Acquire(&call.acquire, call.mode)),
        Op::Rw(RwOp::Release(call)) => (call.release.key, Verb::Release(&call.release, call.mode)),
        Op::Rw(RwOp::Renew(call)) => (call.renew.key, Verb::Renew(&call.renew, call.mode)),
        Op::Rw(RwOp::Break(call)) => (call.key, Verb::Break(call.owner)),
        _ => panic!("not modelled: {op:?}"),
    };
    let family = match op {
        Op::Lock(LockFamily::Fair, _) => Family::Fair,
        Op::Rw(_) => Family::Rw,
        _ => Family::Lock,
    };
    (text_key(key), family, verb)
}

fn text_key(key: &[u8]) -> usize {
    KEYS.iter().position(|name| name.as_bytes() == key).expect("a known key")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("plain text")
}
