//! A second model of DLOCK, written from its specification: slow, plain and without a clever
//! thought. It shares no code with the machine; the simulator compares the two.
//!
//! Where the specification leaves open which of several keys comes first (several leases end
//! together), the model is told the order that the machine took and must come to the same end.

use dlock_wire::request::{Acquire, Release, Renew, Request};

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

    // ---- calls ----

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

    fn acquire(
        &mut self,
        k: usize,
        client: u64,
        may_block: bool,
        call: &Acquire<'_>,
    ) -> Option<Answer> {
        let owner = text(call.owner);
        if self.hold_of(k, &owner).is_some() {
            return Some(self.acquire_again(k, client, call));
        }
        let blocks = call.block_ms.is_some() && may_block;
        let waits = blocks || call.queue_ms.is_some();
        let place = self.queues[k].iter().position(|place| place.owner == owner);
        let is_open = matches!(self.locks[k], Lock::Free)
            && !self.in_quarantine()
            && self.queues[k].iter().all(|place| self.is_passed_over(place));
        if is_open && !(waits && place.is_some()) {
            let token = self.next_token();
            let mut hold = self.new_hold(owner, token, self.lease_of(call.lease_ms));
            remember(&mut hold, call.reqid);
            hold.label = text(call.label.unwrap_or_default());
            hold.channel = channel_of(call);
            hold.tie = call.bind_ms.map(|ms| Tie { ms, client, cut: false, at_most: None });
            self.locks[k] = Lock::Held(hold);
            self.out.counters.grants_at_once += 1;
            self.event("acquire", k);
            return Some(Answer::Token(token));
        }
        if !waits {
            let refused = self.in_quarantine() && !matches!(self.locks[k], Lock::Held(_));
            return Some(if refused { Answer::Error("QUARANTINE") } else { Answer::Null });
        }
        let in_all: usize = self.queues.iter().map(Vec::len).sum();
        if place.is_none()
            && (self.queues[k].len() >= self.settings.per_key || in_all >= self.settings.in_all)
        {
            return Some(Answer::Error("LIMIT"));
        }
        let until = call.block_ms.filter(|&ms| ms > 0).map(|ms| self.now + ms);
        let mut new = Place {
            owner: owner.clone(),
            client,
            how: if blocks { How::Blocked { until } } else { How::Queued },
            since: self.now,
            lease: self.lease_of(call.lease_ms),
            queue: call.queue_ms,
            channel: channel_of(call),
            request: call.reqid.map(<[u8]>::to_vec),
            bind: call.bind_ms,
            label: text(call.label.unwrap_or_default()),
        };
        match place {
            Some(at) => {
                let old = &mut self.queues[k][at];
                if let How::Blocked { .. } = old.how {
                    self.out.wakes.push((old.client, Answer::Error("REPLACED")));
                    self.out.counters.replaced += 1;
                }
                new.since = old.since;
                *old = new;
            }
            None => self.queues[k].push(new),
        }
        // The others that wait are passed over, or it is not free: at most the caller is served.
        let admitted = matches!(self.locks[k], Lock::Free) && !self.in_quarantine();
        let first = self.queues[k].iter().position(|place| !self.is_passed_over(place));
        if let Some(at) = first.filter(|_| admitted) {
            let place = self.queues[k].remove(at);
            assert_eq!(place.owner, owner, "whoever else is first has been served before");
            let token = self.next_token();
            let hold = self.hold_for(&place, token);
            self.locks[k] = Lock::Held(hold);
            self.out.counters.grants_at_once += 1;
            self.event("acquire", k);
            return Some(Answer::Token(token));
        }
        self.event("wait", k);
        if blocks { None } else { Some(Answer::Null) }
    }

    fn acquire_again(&mut self, k: usize, client: u64, call: &Acquire<'_>) -> Answer {
        let lease = self.lease_of(call.lease_ms);
        let now = self.lease_now;
        let Lock::Held(hold) = &mut self.locks[k] else { unreachable!() };
        let seen = call.reqid.is_some_and(|id| hold.requests.iter().any(|known| known == id));
        let claims = hold.unclaimed.is_some();
        if !seen && !claims && call.no_reentry {
            return Answer::Error("REENTRY");
        }
        if !seen {
            remember(hold, call.reqid);
            if let Some(label) = call.label {
                hold.label = text(label);
            }
            if let Some(channel) = channel_of(call) {
                hold.channel = Some(channel);
            }
        }
        match call.bind_ms {
            Some(ms) => hold.tie = Some(Tie { ms, client, cut: false, at_most: None }),
            None if claims || seen => follow(hold, client),
            None => {}
        }
        if claims {
            hold.unclaimed = None;
            hold.lease = lease;
            set_end(hold, now + lease);
        } else if !seen {
            hold.count += 1;
            if now + lease > hold.ends {
                hold.lease = lease;
                set_end(hold, now + lease);
            }
        }
        let (token, serial) = (hold.token, hold.serial);
        if !seen && !claims {
            self.out.counters.grants_at_once += 1;
            self.event("acquire", k);
        }
        self.answered(serial, call.reqid.filter(|_| seen && !claims));
        Answer::Token(token)
    }

    fn release(&mut self, k: usize, client: u64, call: &Release<'_>) -> Answer {
        let now = self.lease_now;
        let Some(hold) = self.hold_of(k, &text(call.owner)) else {
            return Answer::Error("NOTHELD");
        };
        if call.token.is_some_and(|token| token != hold.token) {
            return Answer::Error("NOTHELD");
        }
        let seen = call.reqid.is_some_and(|id| hold.requests.iter().any(|known| known == id));
        if seen {
            follow(hold, client);
            if hold.unclaimed.take().is_some() {
                let lease = hold.lease;
                set_end(hold, now + lease);
            }
        } else if call.all || hold.count == 1 {
            self.end(k, "release");
            self.hand_on(k);
            return Answer::Count(0);
        } else {
            hold.count -= 1;
            remember(hold, call.reqid);
        }
        let (count, serial) = (hold.count, hold.serial);
        if !seen {
            self.out.counters.releases += 1;
            self.event("release", k);
        }
        self.answered(serial, None);
        Answer::Count(u64::from(count))
    }

    fn renew(&mut self, k: usize, client: u64, call: &Renew<'_>) -> Answer {
        let now = self.lease_now;
        let Some(hold) = self.hold_of(k, &text(call.owner)) else {
            return Answer::Error("NOTHELD");
        };
        if call.token.is_some_and(|token| token != hold.token) {
            return Answer::Error("NOTHELD");
        }
        if let Some(ms) = call.bind_ms {
            hold.tie = Some(Tie { ms, client, cut: false, at_most: None });
        } else if hold.unclaimed.is_some() {
            follow(hold, client);
        }
        hold.unclaimed = None;
        hold.lease = call.lease_ms.unwrap_or(hold.lease);
        let lease = hold.lease;
        set_end(hold, now + lease);
        let (token, serial) = (hold.token, hold.serial);
        self.answered(serial, None);
        Answer::Token(token)
    }

    fn fence(&mut self, k: usize, owner: &str, token: u64) -> Answer {
        let most = self.last_token.max(self.wall_us + MONTH_US);
        let Some(hold) = self.hold_of(k, owner) else { return Answer::Error("NOTHELD") };
        if token > most {
            return Answer::Error("ERR");
        }
        hold.token = hold.token.max(token);
        let (token, serial) = (hold.token, hold.serial);
        self.last_token = self.last_token.max(token);
        self.answered(serial, None);
        Answer::Token(token)
    }

    fn break_hold(&mut self, k: usize) -> Answer {
        if !matches!(self.locks[k], Lock::Held(_)) {
            return Answer::Count(0);
        }
        self.end(k, "break");
        self.hand_on(k);
        Answer::Count(1)
    }

    fn cancel(&mut self, k: usize, owner: &str) -> Answer {
        if let Some(at) = self.queues[k].iter().position(|place| place.owner == owner) {
            let place = self.queues[k].remove(at);
            if let How::Blocked { .. } = place.how {
                self.out.wakes.push((place.client, Answer::Null));
            }
            self.hand_on(k);
            return Answer::Count(1);
        }
        if self.hold_of(k, owner).is_some_and(|hold| hold.unclaimed.is_some()) {
            self.end(k, "release");
            self.hand_on(k);
            return Answer::Count(1);
        }
        Answer::Count(0)
    }

    fn unblock(&mut self, client: u64, error: bool, touched: &[usize]) -> Answer {
        for k in 0..KEYS.len() {
            let found = self.queues[k].iter().position(|place| {
                place.client == client && matches!(place.how, How::Blocked { .. })
            });
            if let Some(at) = found {
                let answer = if error { Answer::Error("UNBLOCKED") } else { Answer::Null };
                self.out.wakes.push((client, answer));
                self.stop_waiting(k, at);
                self.look_at_queues(touched, &[k]);
                return Answer::Count(1);
            }
        }
        Answer::Count(0)
    }

    // ---- what happens without a call ----

    pub fn tick(&mut self, open: bool, touched: &[usize]) -> Out {
        self.shut = !open;
        for k in 0..KEYS.len() {
            self.drop_overdue(k);
        }
        if open {
            for queue in &mut self.queues {
                let now = self.lease_now;
                queue.retain(|place| !matches!(place.how, How::Absent { until } if until <= now));
            }
            self.settle(touched, &[0, 1, 2]);
        }
        self.done()
    }

    pub fn gone(&mut self, client: u64, touched: &[usize]) -> Out {
        let mut concerned = Vec::new();
        for k in 0..KEYS.len() {
            if self.queues[k].iter().any(|place| place.client == client) {
                concerned.push(k);
                let now = self.lease_now;
                for place in self.queues[k].iter_mut().filter(|place| place.client == client) {
                    place.client = 0;
                    place.how = How::Absent { until: now + place.queue.unwrap_or(0) };
                }
                self.queues[k].retain(|place| place.client != 0 || place.queue.is_some());
            }
        }
        self.hung.retain(|&other| other != client);
        concerned.retain(|&k| !self.queues[k].is_empty() && !self.in_quarantine());
        let sent = self.sent.iter().position(|sent| sent.client == client);
        let sent = sent.map(|at| self.sent.remove(at));
        let sent = sent.filter(|sent| !sent.repeated);
        let taken_back = sent.as_ref().and_then(|sent| self.where_is(sent.serial));
        let tied: Vec<usize> =
            (0..KEYS.len()).filter(|&k| self.tied_to(k) == Some(client)).collect();
        let mut order = touched.to_vec();
        order.extend(taken_back);
        order.extend(&tied);
        order.extend(&concerned);
        self.see_to_woken(false);
        for k in in_order(&order) {
            self.end_what_is_due(k);
            if let Some(sent) = sent.as_ref().filter(|_| taken_back == Some(k)) {
                self.take_back(k, sent);
            }
            self.cut(k, client);
            self.hand_on(k);
        }
        self.see_to_woken(true);
        self.done()
    }

    /// Keys that were looked at, to no other end than that somebody's wait was over.
    fn see_to_woken(&mut self, last: bool) {
        if self.woken_last == last {
            for k in std::mem::take(&mut self.woken) {
                self.hand_on(k);
            }
        }
    }

    fn tied_to(&self, k: usize) -> Option<u64> {
        match &self.locks[k] {
            Lock::Held(hold) => hold.tie.as_ref().map(|tie| tie.client),
            _ => None,
        }
    }

    fn cut(&mut self, k: usize, client: u64) {
        let now = self.lease_now;
        let Lock::Held(hold) = &mut self.locks[k] else { return };
        let Some(tie) = hold.tie.as_mut().filter(|tie| tie.client == client) else { return };
        tie.client = 0;
        if now + tie.ms < hold.ends {
            hold.ends = now + tie.ms;
            tie.cut = true;
        }
        if hold.ends <= now {
            self.end(k, "disconnect");
        }
    }

    pub fn delivered(&mut self, client: u64) {
        self.sent.retain(|sent| sent.client != client);
    }

    pub fn undelivered(&mut self, client: u64, touched: &[usize]) -> Out {
        let at = self.sent.iter().position(|sent| sent.client == client).expect("sent");
        let sent = self.sent.remove(at);
        if let Some(k) = self.where_is(sent.serial).filter(|_| !sent.repeated) {
            self.end_what_is_due(k);
            self.take_back(k, &sent);
            self.hand_on(k);
        } else {
            // The machine may look at the key where it was.
            self.settle(touched, &[]);
        }
        self.done()
    }

    fn take_back(&mut self, k: usize, sent: &Sent) {
        let now = self.lease_now;
        let Lock::Held(hold) = &mut self.locks[k] else { return };
        if hold.serial != sent.serial || sent.repeated {
            return;
        }
        if sent.known {
            if hold.count > 1 {
                hold.count -= 1;
            }
        } else if let Some(queue) = sent.queue {
            hold.unclaimed = Some((0, queue));
            hold.ends = now + queue;
            if let Some(tie) = &mut hold.tie {
                tie.client = 0;
                tie.cut = false;
            }
            let (channel, token, owner) = (hold.channel.clone(), hold.token, hold.owner.clone());
            self.say("granted", k, channel, token, &owner);
        } else {
            self.end(k, "return");
        }
    }

    fn where_is(&self, serial: u64) -> Option<usize> {
        self.locks.iter().position(|lock| matches!(lock, Lock::Held(hold) if hold.serial == serial))
    }

    pub fn unlink(&mut self, k: usize, over: bool, touched: &[usize]) -> Out {
        let new = if over { Lock::Foreign } else { Lock::Free };
        let old = std::mem::replace(&mut self.locks[k], new);
        self.deleted(k, &old);
        self.look_at_queues(touched, &[k]);
        self.done()
    }

    pub fn rename(&mut self, from: usize, to: usize, touched: &[usize]) -> Out {
        let moved = std::mem::replace(&mut self.locks[from], Lock::Free);
        let old = std::mem::replace(&mut self.locks[to], moved);
        self.deleted(to, &old);
        self.look_at_queues(touched, &[to, from]);
        self.done()
    }

    fn deleted(&mut self, k: usize, lock: &Lock) {
        if let Lock::Held(hold) = lock {
            self.say("deleted", k, hold.channel.clone(), hold.token, &hold.owner);
        }
    }

    pub fn is_there(&self, k: usize) -> bool {
        !matches!(self.locks[k], Lock::Free)
    }

    /// The key that a blocked call waits for.
    pub fn blocked_at(&self, client: u64) -> Option<usize> {
        let is_its =
            |place: &Place| place.client == client && matches!(place.how, How::Blocked { .. });
        self.queues.iter().position(|queue| queue.iter().any(is_its))
    }

    /// The token of the hold, if there is one.
    pub fn token(&self, k: usize) -> Option<u64> {
        match &self.locks[k] {
            Lock::Held(hold) => Some(hold.token),
            _ => None,
        }
    }

    pub fn fail_over(&mut self) -> Out {
        for queue in std::mem::take(&mut self.queues) {
            for place in queue {
                if let How::Blocked { .. } = place.how {
                    self.out.wakes.push((place.client, Answer::Error("UNBLOCKED")));
                }
            }
            self.queues.push(Vec::new());
        }
        self.hung.clear();
        self.sent.clear();
        let (now, grace) = (self.lease_now, self.settings.grace);
        for lock in &mut self.locks {
            match lock {
                Lock::Free | Lock::Foreign => {}
                Lock::Closed { until, delay } => *until = now + *delay,
                Lock::Held(hold) => {
                    hold.ends = now + hold.unclaimed.map_or(hold.lease, |(_, queue)| queue);
                    hold.unclaimed = hold.unclaimed.map(|(_, queue)| (0, queue));
                    if let Some(tie) = &mut hold.tie {
                        let at_most = now + tie.ms.max(grace);
                        tie.client = 0;
                        tie.at_most = Some(at_most);
                        tie.cut = at_most < hold.ends;
                        hold.ends = hold.ends.min(at_most);
                    }
                }
            }
        }
        self.shut = false;
        self.quarantine_until = self.now + self.settings.quarantine;
        self.done()
    }

    // ---- what readers see ----

    pub fn info(&self, k: usize) -> Option<Info> {
        let waiters = self.queues[k].iter().filter(|place| !self.is_over(place)).count();
        let mut info = Info { waiters, ..Info::default() };
        match &self.locks[k] {
            Lock::Held(hold) if hold.ends > self.lease_now => {
                info.owner.clone_from(&hold.owner);
                info.token = hold.token;
                info.holds = hold.count;
                info.lease_ms = hold.lease;
                info.ttl_ms = hold.ends - self.lease_now;
                info.held_ms = self.now - hold.since;
                info.label.clone_from(&hold.label);
                info.bound_client = hold.tie.as_ref().map_or(0, |tie| tie.client);
                return Some(info);
            }
            Lock::Closed { until, .. } => info.ttl_ms = until.saturating_sub(self.lease_now),
            _ => {}
        }
        (info.waiters > 0 || info.ttl_ms > 0).then_some(info)
    }

    pub fn is_foreign(&self, k: usize) -> bool {
        matches!(self.locks[k], Lock::Foreign)
    }

    pub fn rows(&self, k: usize) -> Vec<Row> {
        let waiting = self.queues[k].iter().filter(|place| !self.is_over(place));
        let left = |place: &Place| match place.how {
            How::Blocked { until } => until.map(|until| until - self.now),
            How::Queued => None,
            How::Absent { until } => Some(until - self.lease_now),
        };
        waiting
            .map(|place| {
                let waiting = self.now - place.since;
                (place.owner.clone(), place.client, waiting, left(place), place.label.clone())
            })
            .collect()
    }

    pub fn position(&self, k: usize, owner: &str) -> Option<usize> {
        let mut waiting = self.queues[k].iter().filter(|place| !self.is_over(place));
        match waiting.position(|place| place.owner == owner) {
            Some(at) => Some(at + 1),
            None => self.info(k).filter(|info| info.owner == owner).map(|_| 0),
        }
    }

    // ---- rules ----

    /// Whether `owner`, by waiting for `k`, would come to wait for itself.
    fn closes_a_circle(&self, k: usize, owner: &str) -> bool {
        let would_wait = match self.holder(k) {
            Some(holder) => holder != owner,
            None => self.ahead_of(k, owner).any(|place| !self.is_passed_over(place)),
        };
        // Who keeps a place closes nothing that was not closed before.
        if !would_wait || self.queues[k].iter().any(|place| place.owner == owner) {
            return false;
        }
        let mut reached = self.in_the_way(k, owner);
        let mut at = 0;
        while at < reached.len() {
            for other in self.in_any_way(reached[at]) {
                if other == owner {
                    return true;
                }
                if !reached.contains(&other) {
                    reached.push(other);
                }
            }
            at += 1;
        }
        false
    }

    /// For whom `owner` waits at `k`, from its place or from the end of the queue.
    fn in_the_way(&self, k: usize, owner: &str) -> Vec<&str> {
        let ahead = self.ahead_of(k, owner).map(|place| place.owner.as_str());
        self.holder(k).into_iter().chain(ahead).collect()
    }

    /// For whom `owner` waits wherever it has a place.
    fn in_any_way(&self, owner: &str) -> Vec<&str> {
        let waits = |k: &usize| {
            self.queues[*k].iter().any(|place| place.owner == owner && !self.is_over(place))
        };
        (0..KEYS.len()).filter(waits).flat_map(|k| self.in_the_way(k, owner)).collect()
    }

    fn ahead_of(&self, k: usize, owner: &str) -> impl Iterator<Item = &Place> {
        let ahead = self.queues[k].iter().take_while(move |place| place.owner != owner);
        ahead.filter(|place| !self.is_over(place))
    }

    fn holder(&self, k: usize) -> Option<&str> {
        match &self.locks[k] {
            Lock::Held(hold) if hold.ends > self.lease_now => Some(&hold.owner),
            _ => None,
        }
    }

    /// A connection that let a grant lapse is heard of again.
    fn rouse(&mut self, client: u64, k: usize, touched: &[usize]) -> bool {
        if !self.hung.contains(&client) {
            return false;
        }
        self.hung.retain(|&other| other != client);
        // What was written last, if it is the key of the call, was written by the call.
        let before = match touched.split_last() {
            Some((&last, before)) if last == k => before,
            _ => touched,
        };
        self.look_at_queues(before, &self.places_of(client));
        true
    }

    /// The keys at which a connection has places.
    fn places_of(&self, client: u64) -> Vec<usize> {
        let is_its = |place: &Place| place.client == client;
        (0..KEYS.len()).filter(|&k| self.queues[k].iter().any(is_its)).collect()
    }

    /// Hands on in those of `keys` that have a queue.
    fn look_at_queues(&mut self, touched: &[usize], keys: &[usize]) {
        let keys = keys.iter().copied();
        let keys: Vec<usize> =
            keys.filter(|&k| !self.queues[k].is_empty() && !self.in_quarantine()).collect();
        self.settle(touched, &keys);
    }

    /// Brings keys up to date: those that the machine touched, in its order, and others.
    fn settle(&mut self, touched: &[usize], others: &[usize]) {
        if self.shut {
            assert!(touched.is_empty(), "behind a shut gate nothing is written");
            return;
        }
        self.see_to_woken(false);
        for k in in_order(touched) {
            self.end_what_is_due(k);
            self.hand_on(k);
        }
        self.see_to_woken(true);
        for k in in_order(others) {
            self.end_what_is_due(k);
            self.hand_on(k);
        }
    }

    fn end_what_is_due(&mut self, k: usize) {
        if self.shut {
            return;
        }
        match &self.locks[k] {
            Lock::Closed { until, .. } if *until <= self.lease_now => {
                self.locks[k] = Lock::Free;
                self.hand_on(k);
            }
            Lock::Held(hold) if hold.ends <= self.lease_now => {
                let was_cut = hold.tie.as_ref().is_some_and(|tie| tie.cut);
                let why = match hold.unclaimed {
                    Some(_) => "lapse",
                    None if was_cut => "disconnect",
                    None => "expire",
                };
                self.end(k, why);
                self.hand_on(k);
            }
            _ => {}
        }
    }

    fn end(&mut self, k: usize, why: &str) {
        let Lock::Held(hold) = std::mem::replace(&mut self.locks[k], Lock::Free) else {
            unreachable!()
        };
        let counters = &mut self.out.counters;
        let (counter, event, message) = match why {
            "release" | "return" => (&mut counters.releases, "release", None),
            "expire" => (&mut counters.expiries, "expire", Some("expired")),
            "lapse" => (&mut counters.unclaimed, "expire", Some("expired")),
            "disconnect" => (&mut counters.disconnected, "expire", Some("disconnected")),
            "break" => (&mut counters.broken, "break", Some("broken")),
            _ => unreachable!(),
        };
        *counter += 1;
        self.event(event, k);
        if let Some(message) = message {
            self.say(message, k, hold.channel, hold.token, &hold.owner);
        }
        let place = hold.unclaimed.filter(|_| why == "lapse").map_or(0, |(client, _)| client);
        if place != 0 && !self.hung.contains(&place) {
            self.hung.push(place);
        }
        let delay = self.settings.lock_delay;
        let closes = matches!(why, "expire" | "disconnect" | "break") && hold.unclaimed.is_none();
        if closes && delay > 0 {
            self.locks[k] = Lock::Closed { until: self.lease_now + delay, delay };
        }
    }

    fn hand_on(&mut self, k: usize) {
        if self.shut || self.in_quarantine() {
            return;
        }
        if let Lock::Foreign = self.locks[k] {
            for place in std::mem::take(&mut self.queues[k]) {
                if let How::Blocked { .. } = place.how {
                    self.out.wakes.push((place.client, Answer::Error("WRONGTYPE")));
                }
            }
            return;
        }
        while let Lock::Free = self.locks[k] {
            let first = self.queues[k].iter().position(|place| !self.is_passed_over(place));
            let Some(at) = first else { return };
            if self.is_over(&self.queues[k][at]) {
                match self.queues[k][at].how {
                    How::Blocked { .. } => self.time_out(k, at),
                    _ => drop(self.queues[k].remove(at)),
                }
                continue;
            }
            let place = self.queues[k].remove(at);
            let token = self.next_token();
            let mut hold = self.hold_for(&place, token);
            self.out.counters.grants_after_waiting += 1;
            if let How::Blocked { .. } = place.how {
                self.out.wakes.push((place.client, Answer::Token(token)));
                self.sent.push(Sent {
                    client: place.client,
                    serial: hold.serial,
                    request: place.request,
                    queue: place.queue,
                    known: false,
                    repeated: false,
                });
            } else {
                let queue = place.queue.expect("only QUEUE places are not blocked");
                hold.unclaimed = Some((place.client, queue));
                hold.ends = match place.how {
                    How::Absent { until } => until,
                    _ => self.lease_now + queue,
                };
                self.say("granted", k, place.channel, token, &place.owner);
            }
            self.locks[k] = Lock::Held(hold);
            self.event("acquire", k);
        }
    }

    fn drop_overdue(&mut self, k: usize) {
        let over = |model: &Self| {
            model.queues[k]
                .iter()
                .position(|place| matches!(place.how, How::Blocked { .. }) && model.is_over(place))
        };
        while let Some(at) = over(self) {
            self.time_out(k, at);
        }
    }

    fn time_out(&mut self, k: usize, at: usize) {
        self.out.wakes.push((self.queues[k][at].client, Answer::Null));
        self.out.counters.timeouts += 1;
        self.stop_waiting(k, at);
    }

    fn stop_waiting(&mut self, k: usize, at: usize) {
        if self.queues[k][at].queue.is_some() {
            self.queues[k][at].how = How::Queued;
        } else {
            self.queues[k].remove(at);
        }
    }

    fn is_over(&self, place: &Place) -> bool {
        match place.how {
            How::Blocked { until } => until.is_some_and(|until| until <= self.now),
            How::Queued => false,
            How::Absent { until } => until <= self.lease_now,
        }
    }

    fn is_passed_over(&self, place: &Place) -> bool {
        matches!(place.how, How::Queued) && self.hung.contains(&place.client)
    }

    fn in_quarantine(&self) -> bool {
        self.now < self.quarantine_until
    }

    fn hold_of(&mut self, k: usize, owner: &str) -> Option<&mut Hold> {
        match &mut self.locks[k] {
            Lock::Held(hold) if hold.owner == owner => Some(hold),
            _ => None,
        }
    }

    fn hold_for(&mut self, place: &Place, token: u64) -> Hold {
        let mut hold = self.new_hold(place.owner.clone(), token, place.lease);
        remember(&mut hold, place.request.as_deref());
        hold.label.clone_from(&place.label);
        hold.channel.clone_from(&place.channel);
        let client = place.client;
        hold.tie = place.bind.map(|ms| Tie { ms, client, cut: false, at_most: None });
        hold
    }

    fn new_hold(&mut self, owner: String, token: u64, lease: u64) -> Hold {
        self.serials += 1;
        Hold {
            serial: self.serials,
            owner,
            token,
            count: 1,
            ends: self.lease_now + lease,
            lease,
            since: self.now,
            label: String::new(),
            channel: None,
            requests: Vec::new(),
            tie: None,
            unclaimed: None,
        }
    }

    fn next_token(&mut self) -> u64 {
        self.last_token = self.wall_us.max(self.last_token + 1);
        self.last_token
    }

    fn lease_of(&self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(self.settings.default_lease)
    }

    /// The owner was answered for a hold; `repeat` is the id of the request if it was a repeat.
    fn answered(&mut self, serial: u64, repeat: Option<&[u8]>) {
        for sent in self.sent.iter_mut().filter(|sent| sent.serial == serial) {
            sent.known = true;
            sent.repeated |= repeat.is_some() && sent.request.as_deref() == repeat;
        }
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
}

/// Each key once, in the order of its first mention.
fn in_order(keys: &[usize]) -> Vec<usize> {
    let mut order = Vec::new();
    for &k in keys {
        if !order.contains(&k) {
            order.push(k);
        }
    }
    order
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

fn channel_of(call: &Acquire<'_>) -> Option<String> {
    match (call.notify, call.queue_ms) {
        (Some(channel), _) => Some(text(channel)),
        (None, Some(_)) => Some(format!("dlock:notify:{}", text(call.owner))),
        (None, None) => None,
    }
}

fn remember(hold: &mut Hold, id: Option<&[u8]>) {
    if let Some(id) = id {
        hold.requests.push(id.to_vec());
        if hold.requests.len() > 8 {
            hold.requests.remove(0);
        }
    }
}

/// The tie goes to the connection that claims or repeats.
fn follow(hold: &mut Hold, client: u64) {
    if let Some(tie) = hold.tie.as_mut().filter(|_| client != 0) {
        *tie = Tie { ms: tie.ms, client, cut: false, at_most: None };
    }
}

/// The lease is set anew; an orphan that was not tied anew has its limit.
fn set_end(hold: &mut Hold, ends: u64) {
    hold.ends = ends;
    if let Some(tie) = &mut hold.tie {
        tie.cut = tie.at_most.is_some_and(|at_most| at_most < ends);
        hold.ends = tie.at_most.map_or(ends, |at_most| at_most.min(ends));
    }
}
