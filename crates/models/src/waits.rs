//! A model of one acquire: the client's machine, a server with one lock, another owner, and all that is on its way
//! between them. Every interleaving within the bounds: copies, replies and messages are delayed, lost and overtaken,
//! and the client may give up at any time. The client must never believe in a grant that the server may have given to
//! another owner, and nothing may be left of an acquire that has ended.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use crate::base::clock::Moment;
use crate::machine::acquire::{Acquire, Answer, Copy, Heard, Limit, Rules, Step};
use crate::machine::hold_state::{Asked, LeaseTerms};
use crate::machine::patience::Seen;

const TICK: Duration = Duration::from_secs(10);
/// Of the copies, and of the hold.
const SHORT: u64 = 2;
const LEASE: u64 = 3;
const RETRY_FOR: Duration = Duration::from_secs(1_000);

/// How far the model goes.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    ticks: u64,
    copies: usize,
    /// When the acquire ends; None: it is a try, which ends then.
    is_try: bool,
    confirms: bool,
    bug: Option<Bug>,
}

/// A mistake of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    AReplyCountsFromItsArrival,
    UnconfirmedCounts,
    ALostReplyLeavesNothing,
    SpentIsAskedAgain,
    ALateReplyCounts,
}

const BUGS: [Bug; 5] = [
    Bug::AReplyCountsFromItsArrival,
    Bug::UnconfirmedCounts,
    Bug::ALostReplyLeavesNothing,
    Bug::SpentIsAskedAgain,
    Bug::ALateReplyCounts,
];

fn at(tick: u64) -> Moment {
    Moment::from_nanos(1_000_000_000_000).after(TICK * u32::try_from(tick).unwrap())
}

fn ticks(count: u64) -> Duration {
    TICK * u32::try_from(count).unwrap()
}

/// On its way to the server. The number is that of the request, and another after that was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Sent {
    Copy { number: u8, copy: u8, queues: bool, at: u64 },
    Renewal { number: u8, copy: u8, at: u64 },
    Release { number: u8 },
}

/// On its way to the client: an answer to a copy, and when that was sent; or a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Came {
    Reply { copy: u8, answer: Answer, at: u64 },
    Renewed { copy: u8, accepted: bool, at: u64 },
    Granted { number: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    Other,
    Ours { number: u8, ends: u64 },
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Tick,
    /// Something is read; perhaps it comes a second time, or never.
    ServerReads(usize, Fate),
    ClientReads(usize, bool),
    LostOnTheWay(usize),
    OtherReleases,
    /// The time of the client has come.
    Wake,
    Cancel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Once,
    /// A copy of it comes later, too.
    Twice,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    client: Acquire,
    number: u8,
    copy: u8,
    copies: usize,
    twice: bool,
    /// Its end, and the hold that the client believes in until then.
    is_over: bool,
    believes: Option<(u8, Moment)>,
    to_server: Vec<Sent>,
    to_client: Vec<Came>,
    holder: Option<Holder>,
    place: Option<u8>,
    spent: BTreeSet<u8>,
    given_up: BTreeSet<u8>,
}

impl World {
    fn new(bounds: Bounds) -> Self {
        let terms = LeaseTerms { lease: ticks(LEASE), ends_by: None, watched: true, bind: None };
        let end = at(bounds.ticks - 1);
        let limit = if bounds.is_try { Limit::Try(end) } else { Limit::At(end) };
        let (lease, queue, block) = (ticks(SHORT), ticks(2), None);
        let (asks_first, confirms) = (false, bounds.confirms);
        let rules = Rules { limit, terms, lease, queue, block, asks_first, confirms };
        let mut world = Self {
            now: 0,
            client: Acquire::new(rules, RETRY_FOR, at(0)),
            number: 1,
            copy: 0,
            copies: 0,
            twice: false,
            is_over: false,
            believes: None,
            to_server: vec![],
            to_client: vec![],
            holder: Some(Holder::Other),
            place: None,
            spent: BTreeSet::new(),
            given_up: BTreeSet::new(),
        };
        let step = world.client.send(at(0));
        world.follow(step, bounds);
        world
    }

    fn follow(&mut self, step: Step, bounds: Bounds) {
        if std::mem::take(&mut self.client.begins_anew) {
            self.give_up();
            if bounds.bug != Some(Bug::SpentIsAskedAgain) {
                self.number += 1;
            }
        }
        match step {
            Step::Rest => {}
            Step::Send(copy) => {
                self.copy += 1;
                self.copies += 1;
                self.client.written(at(self.now));
                let (number, copy, queues) = (self.number, self.copy, copy != Copy::Now);
                self.to_server.push(Sent::Copy { number, copy, queues, at: self.now });
            }
            Step::Renew => {
                self.copy += 1;
                let (number, copy) = (self.number, self.copy);
                self.to_server.push(Sent::Renewal { number, copy, at: self.now });
            }
            Step::Held(asked) => {
                self.is_over = true;
                let mut asked = asked;
                if bounds.bug == Some(Bug::AReplyCountsFromItsArrival) {
                    asked.sent = at(self.now);
                }
                let terms =
                    LeaseTerms { lease: asked.lease, ends_by: None, watched: true, bind: None };
                self.believes = Some((self.number, terms.certain_until(asked)));
            }
            Step::Over(_) => self.end(bounds),
        }
    }

    fn end(&mut self, bounds: Bounds) {
        self.is_over = true;
        if self.client.is_pending && bounds.bug != Some(Bug::ALostReplyLeavesNothing) {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.given_up.insert(self.number);
        self.to_server.push(Sent::Release { number: self.number });
    }

    fn events(&self, bounds: Bounds) -> Vec<Event> {
        let mut events = vec![];
        if self.now < bounds.ticks {
            events.push(Event::Tick);
        }
        for (n, sent) in self.to_server.iter().enumerate() {
            events.push(Event::ServerReads(n, Fate::Once));
            // No network doubles what one connection carries: but a copy may overtake the one before.
            if !self.twice && !bounds.is_try && matches!(sent, Sent::Copy { .. }) {
                events.push(Event::ServerReads(n, Fate::Twice));
            }
        }
        for n in 0..self.to_client.len() {
            events.push(Event::ClientReads(n, true));
            if bounds.confirms {
                events.push(Event::ClientReads(n, false));
            }
            events.push(Event::LostOnTheWay(n));
        }
        if self.holder == Some(Holder::Other) {
            events.push(Event::OtherReleases);
        }
        if !self.is_over {
            let may_send = self.copies < bounds.copies || !self.client.rests();
            if may_send && self.client.wake_at() < at(self.now + 1) {
                events.push(Event::Wake);
            }
            events.push(Event::Cancel);
        }
        events
    }

    fn apply(&mut self, event: Event, bounds: Bounds) -> Result<(), String> {
        let now = at(self.now);
        match event {
            Event::Tick => {
                self.now += 1;
                self.expire();
            }
            Event::ServerReads(n, fate) => {
                let sent =
                    if fate == Fate::Twice { self.to_server[n] } else { self.to_server.remove(n) };
                self.twice |= fate == Fate::Twice;
                self.server_reads(sent);
            }
            Event::ClientReads(n, confirmed) => {
                let came = self.to_client.remove(n);
                self.client_reads(came, confirmed, bounds);
            }
            Event::LostOnTheWay(n) => {
                self.to_client.remove(n);
            }
            Event::OtherReleases => {
                self.holder = None;
                self.hand_over();
            }
            Event::Wake => {
                let wake_at = self.client.wake_at().max(now);
                if !self.client.rests() {
                    self.copy += 1; // what comes for it from now on comes too late
                }
                let step = self.client.tick(wake_at, false, 0.0);
                self.follow(step, bounds);
            }
            Event::Cancel => self.end(bounds),
        }
        self.check()
    }

    fn expire(&mut self) {
        if let Some(Holder::Ours { number, ends }) = self.holder
            && ends <= self.now
        {
            self.spent.insert(number);
            self.holder = None;
            self.hand_over();
        }
    }

    /// The lock is free: the place of the client gets it, else the other owner does.
    fn hand_over(&mut self) {
        self.holder = Some(match self.place.take() {
            Some(number) => {
                self.to_client.push(Came::Granted { number });
                Holder::Ours { number, ends: self.now + SHORT }
            }
            None if self.is_over || self.now > 0 => Holder::Other,
            None => return self.holder = None,
        });
    }

    fn server_reads(&mut self, sent: Sent) {
        match sent {
            Sent::Copy { number, copy, queues, at } => {
                let answer = match self.holder {
                    _ if self.spent.contains(&number) => Answer::Spent,
                    Some(Holder::Ours { number: of, ends }) if of == number => {
                        self.holder =
                            Some(Holder::Ours { number, ends: ends.max(self.now + SHORT) });
                        Answer::Granted
                    }
                    None => {
                        self.holder = Some(Holder::Ours { number, ends: self.now + SHORT });
                        Answer::Granted
                    }
                    Some(_) => {
                        self.place = if queues { Some(number) } else { self.place };
                        Answer::Null
                    }
                };
                self.to_client.push(Came::Reply { copy, answer, at });
            }
            Sent::Renewal { number, copy, at } => {
                let is_held =
                    matches!(self.holder, Some(Holder::Ours { number: of, .. }) if of == number);
                if is_held {
                    self.holder = Some(Holder::Ours { number, ends: self.now + LEASE });
                }
                self.to_client.push(Came::Renewed { copy, accepted: is_held, at });
            }
            Sent::Release { number } => {
                self.spent.insert(number);
                self.place = self.place.filter(|of| *of != number);
                if matches!(self.holder, Some(Holder::Ours { number: of, .. }) if of == number) {
                    self.holder = Some(Holder::Other);
                }
            }
        }
    }

    fn client_reads(&mut self, came: Came, confirmed: bool, bounds: Bounds) {
        let now = at(self.now);
        let is_late_fine = bounds.bug == Some(Bug::ALateReplyCounts);
        if self.is_over {
            return;
        }
        let step = match came {
            Came::Reply { copy, answer, .. } if copy == self.copy || is_late_fine => {
                self.copy += 1;
                self.client.replied(now, answer, 0.0)
            }
            Came::Renewed { copy, accepted, at: sent } if copy == self.copy => {
                self.copy += 1;
                let counts =
                    confirmed || !bounds.confirms || bounds.bug == Some(Bug::UnconfirmedCounts);
                let asked = Asked { sent: at(sent), lease: ticks(LEASE) };
                let renewed = if accepted && counts { Ok(asked) } else { Err(Seen::Passing) };
                self.client.renewed(now, renewed, 0.0)
            }
            Came::Granted { number } if number == self.number => {
                self.client.heard(now, Heard::Granted)
            }
            _ => return,
        };
        self.follow(step, bounds);
        if self.believes.is_some() && bounds.confirms && !confirmed {
            self.believes = Some((0, Moment::NEVER));
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some((number, until)) = self.believes
            && at(self.now) < until
        {
            match self.holder {
                _ if number == 0 => {
                    return Err("a grant counts that replicas do not have".to_owned());
                }
                Some(Holder::Ours { number: of, .. }) if of == number => {}
                _ => {
                    return Err(
                        "the client believes in a hold that the server has ended".to_owned()
                    );
                }
            }
        }
        // Once all has arrived, nothing is left of an acquire that has ended, but for what ends by itself.
        if self.is_over
            && self.believes.is_none()
            && self.to_server.is_empty()
            && self.place.is_some()
        {
            return Err("a place is left of an acquire that has ended".to_owned());
        }
        let held = matches!(self.holder, Some(Holder::Ours { .. }));
        if self.is_over && self.believes.is_none() && self.to_server.is_empty() && held {
            return Err("a hold is left of an acquire that has ended".to_owned());
        }
        Ok(())
    }
}

/// The first violation, with the events that lead to it, and how many states there are.
fn explore(bounds: Bounds) -> (Option<(String, Vec<Event>)>, usize) {
    let (hasher, mut seen, mut path) = (RandomState::new(), HashSet::new(), vec![]);
    let violation = dive(&World::new(bounds), bounds, &mut path, &mut |world| {
        seen.insert(hasher.hash_one(world))
    });
    (violation.map(|violation| (violation, path)), seen.len())
}

fn dive(
    world: &World,
    bounds: Bounds,
    path: &mut Vec<Event>,
    is_new: &mut impl FnMut(&World) -> bool,
) -> Option<String> {
    for event in world.events(bounds) {
        let mut next = world.clone();
        path.push(event);
        if let Err(violation) = next.apply(event, bounds) {
            return Some(violation);
        }
        if is_new(&next)
            && let Some(violation) = dive(&next, bounds, path, is_new)
        {
            return Some(violation);
        }
        path.pop();
    }
    None
}

const WAITS: Bounds = Bounds { ticks: 4, copies: 3, is_try: false, confirms: false, bug: None };
const TRIES: Bounds = Bounds { is_try: true, ..WAITS };
const REPLICAS: Bounds = Bounds { ticks: 3, confirms: true, ..WAITS };

#[test]
fn no_interleaving_makes_an_acquire_believe_too_much_or_leave_something() {
    for bounds in [WAITS, TRIES, REPLICAS] {
        let (violation, states) = explore(bounds);
        assert!(violation.is_none(), "{bounds:?}: {violation:#?}");
        println!("{bounds:?}: {states} states");
        assert!(states > 400, "the model does not run far: {states}");
    }
}

#[test]
fn a_mistake_of_the_client_is_found() {
    for bug in BUGS {
        let cases = [WAITS, TRIES, REPLICAS].map(|bounds| Bounds { bug: Some(bug), ..bounds });
        match cases.into_iter().find_map(|bounds| explore(bounds).0) {
            Some((violation, path)) => println!("{bug:?}: {violation}: {path:?}"),
            None => panic!("{bug:?} is not found"),
        }
    }
}
