//! A ledger of promises: each answered request means that its hold lasts at least PX from when the request was sent. A
//! hold that ends, or gets shorter, before a promise of a request that is not released fails the run. What may end it:
//! RELEASE of the request, or without an id; BREAK; what is done to the key. BIND shortens as announced, when the
//! connection of a hold closes whose answered requests all had it. If its server is another one now, it has a grace.
//!
//! The ledger knows calls, answers and messages, and what INFO and PERMITS show; it knows nothing of the machine. It
//! counts in the time of the clients. During a pause leases stand still, so they can only end later.

mod changes;
mod promise;

use dlock_core::base::key::Key;
use dlock_core::base::kind::Kind;
use dlock_core::ports::effects::Outcome;
use dlock_core::ports::store::Store;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::Tables;
use dlock_core::{base::time::Now, view};
use dlock_wire::message::{Event, Message};
use dlock_wire::permit;
use dlock_wire::reply::Info;
use dlock_wire::request::{
    Acquire, LockFamily, LockOp, Mode, MultiOp, Op, Release, Renew, RwOp, SemOp,
};
use promise::{Open, Promised};
use std::collections::{BTreeMap, BTreeSet};

/// A key: its database and its name.
type At = (u32, Vec<u8>);

/// The fencing token of a hold, or the text of a permit id.
type Name = Vec<u8>;

/// The settings that promises depend on, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    pub default_lease: u64,
    pub claim: u64,
    pub grace: u64,
}

/// See the module documentation. Times are in milliseconds.
#[derive(Debug, Default)]
pub struct Ledger {
    now: u64,
    terms: Terms,
    /// By key and name: RESTORE can bring a hold to two keys.
    holds: BTreeMap<(At, Name), Promised>,
    /// The last waiting request of each owner at each key, and that of each blocked connection.
    places: BTreeMap<(At, Vec<u8>), Asked>,
    blocked: BTreeMap<u64, Asked>,
    /// Connections that closed. Some tests use such a number again; the machine may see to its end then.
    closed: BTreeSet<u64>,
    last: u64,
    /// The last number when the call under way began.
    before: u64,
    /// Number of promises that were noted.
    noted: u64,
}

/// A request for a hold.
#[derive(Debug, Clone)]
struct Asked {
    kind: Kind,
    mode: Option<Mode>,
    keys: Vec<At>,
    owner: Vec<u8>,
    id: Option<Vec<u8>>,
    lease: u64,
    queue: Option<u64>,
    bind: Option<u64>,
    client: u64,
}

/// How an answer came.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Reply,
    /// To a blocked call: it may not arrive.
    Wake,
    Message,
}

impl Ledger {
    pub fn at(&mut self, now: u64, terms: Terms) {
        (self.now, self.terms) = (now, terms);
    }

    /// A call begins. It may be blocked and woken in one step.
    pub fn calls(&mut self, caller: Caller, op: &Op<'_>) {
        self.before = self.last;
        if let Some(asked) = self.asked(caller, op) {
            self.blocked.insert(caller.client, asked);
        }
    }

    /// A call was carried out; `reply`: `None` if it is blocked.
    pub fn called(&mut self, caller: Caller, op: &Op<'_>, reply: Option<&Outcome>) {
        if let Some(asked) = self.asked(caller, op) {
            self.acquired(asked, caller, reply);
            return;
        }
        let at = |name: &[u8]| (caller.db, name.to_vec());
        match *op {
            Op::Lock(family, LockOp::Release(ref call)) => {
                self.released(kind_of(family), None, (at(call.key), call), reply);
            }
            Op::Rw(RwOp::Release(ref call)) => {
                let call_at = (at(call.release.key), &call.release);
                self.released(Kind::Rw, Some(call.mode), call_at, reply);
            }
            Op::Sem(SemOp::Release(call)) => {
                let key = at(call.key);
                self.holds.retain(|name, hold| {
                    let is_here = hold.at == key && hold.kind == Kind::Semaphore;
                    let is_its = *hold.owner == *call.holder;
                    let is_named = hold
                        .open
                        .iter()
                        .any(|open| open.id.is_some() && open.id.as_deref() == call.reqid);
                    let ends = if call.reqid.is_some() || call.all {
                        is_its && (call.all || is_named)
                    } else {
                        *name.1 == *call.holder
                    };
                    !(is_here && ends)
                });
            }
            Op::Multi(MultiOp::Release(call)) => {
                for &name in call.keys {
                    let one = Release { reqid: call.reqid, ..Release::new(name, call.owner) };
                    let done = Outcome::Count(0);
                    self.released(Kind::Lock, None, (at(name), &one), Some(&done));
                }
            }
            Op::Lock(family, LockOp::Renew(ref call)) => {
                self.renewed(caller, (kind_of(family), None), call, reply);
            }
            Op::Rw(RwOp::Renew(ref call)) => {
                self.renewed(caller, (Kind::Rw, Some(call.mode)), &call.renew, reply);
            }
            Op::Multi(MultiOp::Renew(call)) if matches!(reply, Some(Outcome::Count(_))) => {
                for &name in call.keys {
                    let (lease_ms, bind_ms) = (call.lease_ms, call.bind_ms);
                    let one = Renew { lease_ms, bind_ms, ..Renew::new(name, call.owner) };
                    let done = Outcome::Token(0);
                    self.renewed(caller, (Kind::Lock, None), &one, Some(&done));
                }
            }
            Op::Sem(SemOp::Renew(call)) if matches!(reply, Some(Outcome::Count(1))) => {
                if let Some(hold) =
                    self.holds.get_mut(&(at(call.key), permit::text(&call.permit).to_vec()))
                {
                    let bind = call.bind_ms.map(|ms| (ms, caller.client));
                    hold.answer(call.lease_ms.map(|ms| self.now + ms), bind);
                    if hold.bind.is_some() && self.closed.contains(&caller.client) {
                        hold.until = hold.until.min(self.now);
                    }
                }
            }
            Op::Lock(_, LockOp::Fence(call)) => {
                if let Some(&Outcome::Token(token)) = reply {
                    let (key, owner) = (at(call.key), call.owner);
                    let is_it = |hold: &Promised| hold.at == key && *hold.owner == *owner;
                    let old = self.holds.iter().find(|(_, hold)| is_it(hold));
                    if let Some(name) = old.map(|(name, _)| name.clone())
                        && let Some(hold) = self.holds.remove(&name)
                    {
                        self.holds.insert((key, token.to_string().into_bytes()), hold);
                    }
                }
            }
            Op::Lock(family, LockOp::Break(call)) => {
                let (kind, key) = (kind_of(family), at(call.key));
                let before = self.before;
                self.holds.retain(|_, hold| {
                    !(hold.kind == kind && hold.at == key) || hold.may_outlast_break(before)
                });
            }
            Op::Rw(RwOp::Break(call)) => {
                let (key, before) = (at(call.key), self.before);
                self.holds.retain(|_, hold| {
                    let is_meant = call.owner.is_none_or(|owner| *owner == *hold.owner);
                    !(hold.kind == Kind::Rw && hold.at == key && is_meant)
                        || hold.may_outlast_break(before)
                });
            }
            Op::Sem(SemOp::Break(call)) => {
                self.holds.remove(&(at(call.key), permit::text(&call.permit).to_vec()));
            }
            _ => {}
        }
    }

    fn asked(&self, caller: Caller, op: &Op<'_>) -> Option<Asked> {
        let (kind, mode, keys, call): (_, _, Vec<&[u8]>, Acquire<'_>) = match *op {
            Op::Lock(family, LockOp::Acquire(call)) => {
                (kind_of(family), None, vec![call.key], call)
            }
            Op::Rw(RwOp::Acquire(call)) => {
                (Kind::Rw, Some(call.mode), vec![call.acquire.key], call.acquire)
            }
            Op::Sem(SemOp::Acquire(call)) => {
                (Kind::Semaphore, None, vec![call.acquire.key], call.acquire)
            }
            Op::Multi(MultiOp::Acquire(call) | MultiOp::AnyAcquire(call)) => {
                (Kind::Lock, None, call.keys.to_vec(), call.for_key(call.keys[0]))
            }
            _ => return None,
        };
        Some(Asked {
            kind,
            mode,
            keys: keys.into_iter().map(|name| (caller.db, name.to_vec())).collect(),
            owner: call.owner.to_vec(),
            id: call.reqid.map(<[u8]>::to_vec),
            lease: call.lease_ms.unwrap_or(self.terms.default_lease),
            queue: call.queue_ms,
            bind: call.bind_ms,
            client: caller.client,
        })
    }

    fn acquired(&mut self, asked: Asked, caller: Caller, reply: Option<&Outcome>) {
        match reply {
            None | Some(Outcome::Null) => {
                if reply.is_some() {
                    self.blocked.remove(&caller.client);
                }
                if asked.queue.is_some() {
                    self.places.insert((asked.keys[0].clone(), asked.owner.clone()), asked);
                }
            }
            Some(outcome) => {
                self.blocked.remove(&caller.client);
                self.granted(&asked, outcome, Way::Reply);
            }
        }
    }

    /// An answer to a blocked call.
    pub fn woken(&mut self, client: u64, outcome: &Outcome) {
        if let Some(asked) = self.blocked.remove(&client) {
            self.granted(&asked, outcome, Way::Wake);
        }
    }

    /// A message was published.
    pub fn told(&mut self, text: &[u8]) {
        let Some(Message::Hold { event: Event::Granted, db, id, owner, reqid, key }) =
            Message::parse(text)
        else {
            return;
        };
        let place = ((db, key.to_vec()), owner.to_vec());
        let asked = self.places.remove(&place);
        if let Some(asked) = asked.filter(|asked| *reqid == *asked.id.as_deref().unwrap_or(b"")) {
            self.note(&asked, &place.0, id.to_vec(), Way::Message);
        }
    }

    fn granted(&mut self, asked: &Asked, outcome: &Outcome, way: Way) {
        let token = |token: u64| token.to_string().into_bytes();
        match outcome {
            Outcome::Token(one) => self.note(asked, &asked.keys[0], token(*one), way),
            Outcome::Tokens(all) => {
                for (at, one) in asked.keys.iter().zip(all) {
                    self.note(asked, at, token(*one), way);
                }
            }
            Outcome::Granted { key, token: one } => {
                self.note(asked, &(asked.keys[0].0, key.clone()), token(*one), way);
            }
            Outcome::Permit(id) => {
                self.note(asked, &asked.keys[0], permit::text(id).to_vec(), way);
            }
            _ => {}
        }
    }

    /// An answered request for a hold.
    fn note(&mut self, asked: &Asked, at: &At, name: Name, way: Way) {
        let lease = match (way, asked.queue) {
            // A grant to a place.
            (Way::Message, Some(queue)) => asked.lease.max(queue.min(self.terms.claim)),
            _ => asked.lease,
        };
        let is_closed = asked.bind.is_some() && self.closed.contains(&asked.client);
        let until = self.now + if is_closed { 0 } else { lease };
        let bind = asked.bind.map(|ms| (ms, asked.client));
        let in_flight = (way == Way::Wake).then_some(asked.client);
        self.noted += 1;
        self.last += 1;
        let name = (at.clone(), name);
        let is_first = !self.holds.contains_key(&name);
        let open = Open { number: self.last, id: asked.id.clone(), in_flight, is_first };
        let Some(hold) = self.holds.get_mut(&name) else {
            let hold = Promised {
                at: at.clone(),
                kind: asked.kind,
                mode: asked.mode,
                owner: asked.owner.clone(),
                until,
                open: vec![open],
                bind,
                is_untouched: way == Way::Message,
                is_known: false,
            };
            self.holds.insert(name, hold);
            return;
        };
        let is_taken_over = asked.id.is_none() && hold.is_untouched && hold.open[0].id.is_none();
        let known = hold.open.iter_mut().find(|known| known.id.is_some() && known.id == open.id);
        if let Some(known) = known {
            known.in_flight = None;
        } else if !is_taken_over {
            hold.open.push(open);
        }
        hold.until = hold.until.max(until);
        (hold.is_untouched, hold.is_known) = (false, true);
        hold.bind_again(bind);
        if hold.bind.is_some() && is_closed {
            hold.until = hold.until.min(self.now);
        }
    }

    fn renewed(
        &mut self,
        caller: Caller,
        (kind, mode): (Kind, Option<Mode>),
        call: &Renew<'_>,
        reply: Option<&Outcome>,
    ) {
        if !matches!(reply, Some(Outcome::Token(_))) {
            return;
        }
        let (key, now) = ((caller.db, call.key.to_vec()), self.now);
        for hold in self.holds.values_mut().filter(|hold| {
            hold.at == key && (hold.kind, hold.mode) == (kind, mode) && *hold.owner == *call.owner
        }) {
            self.noted += 1;
            let bind = call.bind_ms.map(|ms| (ms, caller.client));
            hold.answer(call.lease_ms.map(|ms| now + ms), bind);
            if hold.bind.is_some() && self.closed.contains(&caller.client) {
                hold.until = hold.until.min(now);
            }
        }
    }

    fn released(
        &mut self,
        kind: Kind,
        mode: Option<Mode>,
        (at, call): (At, &Release<'_>),
        reply: Option<&Outcome>,
    ) {
        let counts = matches!(reply, Some(Outcome::Count(_)));
        self.holds.retain(|name, hold| {
            let is_its = hold.at == at && *hold.owner == *call.owner;
            if !is_its || (hold.kind, hold.mode) != (kind, mode) {
                return true;
            }
            let token = call.token.map(|token| token.to_string().into_bytes());
            let is_it = token.is_none_or(|token| token == name.1);
            match call.reqid {
                Some(id) => {
                    let known = hold.open.iter().position(|open| open.id.as_deref() == Some(id));
                    if let Some(at) = known {
                        hold.open.remove(at);
                        hold.is_known = true;
                    }
                }
                None if call.all && is_it => return false,
                None if counts => hold.take_one(),
                None => {}
            }
            !hold.open.is_empty()
        });
    }

    /// Fails if a promise is broken.
    pub fn check(&mut self, tables: &Tables, store: &mut dyn Store, now: Now) {
        let mut seen: BTreeMap<(At, String), BTreeMap<Name, u64>> = BTreeMap::new();
        let at_ms = self.now;
        self.holds.retain(|name, hold| {
            // A hold that is over may have been at a key that has another type now.
            let kind = format!("{:?}", hold.kind);
            let shown = seen.entry((hold.at.clone(), kind)).or_insert_with(|| {
                shown(tables, store, now, hold.kind, Key { db: hold.at.0, name: &hold.at.1 })
            });
            let name = &name.1;
            let left = shown.get(name).copied();
            let promised = hold.until.saturating_sub(at_ms);
            // What is shown is in whole milliseconds.
            assert!(
                promised == 0 || left.is_some_and(|left| left >= promised),
                "a broken promise: {promised} ms of {} are left, shown {left:?}: {hold:?}",
                String::from_utf8_lossy(name)
            );
            left.is_some()
        });
    }
}

/// The holds that a key shows, with the milliseconds that they have left.
fn shown(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    kind: Kind,
    key: Key<'_>,
) -> BTreeMap<Name, u64> {
    let millis = |left: std::time::Duration| u64::try_from(left.as_millis()).expect("a time");
    if kind == Kind::Semaphore {
        let rows = view::permits(tables, store, now, key).unwrap_or_default();
        return rows.iter().map(|row| (row.id.as_bytes().to_vec(), millis(row.left))).collect();
    }
    let info = view::info(tables, store, now, kind, key).ok().flatten();
    let holders = info.iter().flat_map(Info::holders);
    holders.map(|hold| (hold.token.to_string().into_bytes(), millis(hold.left))).collect()
}

fn kind_of(family: LockFamily) -> Kind {
    match family {
        LockFamily::Lock => Kind::Lock,
        LockFamily::Fair => Kind::Fair,
    }
}
