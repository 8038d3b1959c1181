//! A model of one release: copies that are delayed or lost in either direction, a server that may forget, and a hold
//! that may end at any time. What the client says of it must be true.

use super::*;

const LEASE: u64 = 3;
const COPIES: usize = 3;
const TICKS: u64 = 5;

/// A mistake in how a client takes the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    UnknownIsARelease,
    UnknownIsALoss,
    AnExpiryOnTheWayIsALoss,
    ALossIsARelease,
    /// A hold that ended under the work, by the client's own clock.
    AnExpiryUnderTheWorkIsARelease,
}

const BUGS: [Bug; 5] = [
    Bug::UnknownIsARelease,
    Bug::UnknownIsALoss,
    Bug::AnExpiryOnTheWayIsALoss,
    Bug::ALossIsARelease,
    Bug::AnExpiryUnderTheWorkIsARelease,
];

#[derive(Debug, Clone)]
struct World {
    now: u64,
    client: HoldState,
    /// The server's hold, until its lease ends.
    hold: Option<u64>,
    /// What the server remembers of the request: how its hold ended.
    seen: Option<Verdict>,
    /// A copy released it.
    is_released: bool,
    /// It ended before the work did.
    ended_early: bool,
    /// The server has lost what it knew.
    has_forgotten: bool,
    /// Copies that were sent: on their way, or answered.
    sent: usize,
    on_their_way: usize,
    reply: Option<Verdict>,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Tick,
    /// The first copy, or the reply to the last one did not come.
    Send,
    /// One copy comes; its reply reaches the client, or is lost.
    ServerReads {
        reply_is_lost: bool,
    },
    /// An operator ends the hold.
    Break,
    /// The server loses what it remembers: a restart without it, or too many requests.
    Forget,
    /// The same, and the hold: a failover to a replica that knew neither.
    LoseAll,
}

impl World {
    /// The work is done at tick `now`, and its release is about to be sent. `broken`: an operator ended it before.
    fn new(now: u64, broken: bool) -> Self {
        let lease = ticks(LEASE);
        let terms = LeaseTerms { lease, watched: false, bind: None, ends_by: None };
        let mut client = HoldState::new(terms, Asked { sent: at(0), lease });
        let _ = client.expire(at(now));
        let _ = client.end();
        let is_expired = now >= LEASE;
        let broken = broken.then_some(Verdict::Lost(Lost::Broken));
        Self {
            now,
            client,
            hold: (broken.is_none() && !is_expired).then_some(LEASE),
            seen: broken.or(is_expired.then_some(Verdict::Lost(Lost::Expired))),
            is_released: false,
            ended_early: broken.is_some() || is_expired,
            has_forgotten: false,
            sent: 0,
            on_their_way: 0,
            reply: None,
        }
    }

    fn events(&self) -> Vec<Event> {
        let mut events = vec![];
        if self.reply.is_some() {
            return events;
        }
        if self.now < TICKS {
            events.push(Event::Tick);
        }
        if self.sent < COPIES {
            events.push(Event::Send);
        }
        if self.on_their_way > 0 {
            // Only the last copy is waited for; the replies to the others have no receiver.
            events.push(Event::ServerReads { reply_is_lost: true });
            events.push(Event::ServerReads { reply_is_lost: false });
        }
        if self.hold.is_some() {
            events.extend([Event::Break, Event::LoseAll]);
        }
        if self.seen.is_some() {
            events.push(Event::Forget);
        }
        events
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Tick => {
                self.now += 1;
                if self.hold.is_some_and(|ends| ends <= self.now) {
                    self.hold = None;
                    self.seen = Some(Verdict::Lost(Lost::Expired));
                }
            }
            Event::Send => {
                self.sent += 1;
                self.on_their_way += 1;
            }
            Event::ServerReads { reply_is_lost } => {
                self.on_their_way -= 1;
                let answer = self.carry_out();
                if !reply_is_lost {
                    self.reply = Some(answer);
                }
            }
            Event::Break => {
                self.hold = None;
                self.seen = Some(Verdict::Lost(Lost::Broken));
            }
            Event::Forget => (self.seen, self.has_forgotten) = (None, true),
            Event::LoseAll => (self.hold, self.seen, self.has_forgotten) = (None, None, true),
        }
    }

    /// As `dlock_core` does.
    fn carry_out(&mut self) -> Verdict {
        if self.hold.take().is_some() {
            self.is_released = true;
            self.seen = Some(Verdict::Released);
        }
        *self.seen.get_or_insert(Verdict::Unknown)
    }

    /// What the client makes of the reply.
    fn verdict(&self, answer: Verdict, bug: Option<Bug>) -> Verdict {
        match (bug, answer) {
            (Some(Bug::UnknownIsARelease), Verdict::Unknown)
            | (Some(Bug::ALossIsARelease), Verdict::Lost(_)) => Verdict::Released,
            (Some(Bug::UnknownIsALoss), Verdict::Unknown) => Verdict::Lost(Lost::Refused),
            (Some(Bug::AnExpiryOnTheWayIsALoss), Verdict::Lost(how)) => Verdict::Lost(how),
            (Some(Bug::AnExpiryUnderTheWorkIsARelease), Verdict::Lost(Lost::Expired)) => {
                Verdict::Released
            }
            _ => self.client.released(answer),
        }
    }

    fn check(&self, bug: Option<Bug>) -> Result<(), String> {
        let Some(answer) = self.reply else { return Ok(()) };
        let told = self.client.lost().is_some();
        match self.verdict(answer, bug) {
            Verdict::Released if self.ended_early => Err("a loss is a success".to_owned()),
            Verdict::Lost(_) if self.is_released => Err("a released hold is lost".to_owned()),
            Verdict::Lost(Lost::Expired) if !told => {
                Err("a hold that outlasted the work is lost".to_owned())
            }
            Verdict::Released | Verdict::Unknown if told => {
                Err("a loss that was told is taken back".to_owned())
            }
            Verdict::Unknown if !self.has_forgotten => {
                Err("the client does not believe the server".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The first violation, and how many worlds there are.
fn explore(world: &World, bug: Option<Bug>, count: &mut usize) -> Option<String> {
    *count += 1;
    if let Err(violation) = world.check(bug) {
        return Some(format!("{violation}: {world:?}"));
    }
    world.events().into_iter().find_map(|event| {
        let mut next = world.clone();
        next.apply(event);
        explore(&next, bug, count)
    })
}

fn explore_all(bug: Option<Bug>) -> (Option<String>, usize) {
    let mut count = 0;
    let begins = [(1, false), (1, true), (LEASE, false)];
    let violation = begins
        .into_iter()
        .find_map(|(now, broken)| explore(&World::new(now, broken), bug, &mut count));
    (violation, count)
}

#[test]
fn what_a_client_says_of_a_release_is_true() {
    assert!(certain(ticks(LEASE)) > TICK * 2);
    let (violation, count) = explore_all(None);
    assert!(violation.is_none(), "{violation:#?}");
    assert!(count > 1_000, "the model does not run far: {count}");
}

#[test]
fn a_mistake_about_a_release_is_found() {
    for bug in BUGS {
        assert!(explore_all(Some(bug)).0.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn a_loss_that_is_known_already_is_the_reason() {
    let mut client = World::new(1, false).client;
    let answers = [Verdict::Released, Verdict::Lost(Lost::Expired), Verdict::Unknown];
    client.phase = Phase::Lost(Lost::Broken);
    for answer in answers {
        assert_eq!(client.released(answer), Verdict::Lost(Lost::Broken));
    }
}

/// Of a hold that is bound and has a lease of its own, the binding is renewed, and the lease is not.
#[test]
fn a_binding_is_renewed_until_only_the_lease_counts() {
    let (lease, bind) = (ticks(3), ticks(1));
    let terms = LeaseTerms { lease, watched: false, bind: Some(bind), ends_by: None };
    let mut client = HoldState::new(terms, Asked { sent: at(0), lease });
    assert_eq!(client.renew_by(), Some(at(0).after(bind / 3)));
    let ends = at(0).after(certain(lease));
    for tenths in (4..).step_by(4) {
        let now = at(0).after(bind * tenths / 10);
        if client.renew_by().is_none_or(|by| by > now) {
            break;
        }
        let asked = Asked { sent: now, lease: client.lease(now) };
        let _ = client.begin_renewal(now);
        let _ = client.end_renewal(now, asked, RenewalReply::Accepted);
        assert!(client.deadline() <= ends);
    }
    assert_eq!(client.renew_by(), None);
    assert!(ends.since(client.deadline()) < bind / 10, "{client:?}");
}
