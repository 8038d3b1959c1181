//! A model of one release: copies that are delayed or lost in either direction, a server that may forget, and a hold
//! that may end at any time. What the client says of it must be true.

use super::*;
use crate::state::hold_state::release::Refusal;

const LEASE: u64 = 3;
const COPIES: usize = 3;
const TICKS: u64 = 5;

/// A mistake in how a client takes the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// A copy that finds nothing means that the first one worked.
    NotHeldToACopyIsARelease,
    NotHeldToACopyIsALoss,
    AnExpiryOnTheWayIsALoss,
    SpentIsARelease,
    SpentIsAlwaysOfTheFirst,
    AnyServerKnows,
}

const BUGS: [Bug; 6] = [
    Bug::NotHeldToACopyIsARelease,
    Bug::NotHeldToACopyIsALoss,
    Bug::AnExpiryOnTheWayIsALoss,
    Bug::SpentIsARelease,
    Bug::SpentIsAlwaysOfTheFirst,
    Bug::AnyServerKnows,
];

/// What the server remembers of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Released,
    NoHold,
}

/// What it answers to a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Integer,
    NotHeld,
    Spent,
}

#[derive(Debug, Clone)]
struct World {
    now: u64,
    client: HoldState,
    /// The server's hold, until its lease ends.
    hold: Option<u64>,
    seen: Option<Seen>,
    /// The first copy that came released the hold, or found none.
    first: Option<Seen>,
    /// The hold ended by its lease or with its server, after the release began.
    is_expired: bool,
    /// The server that answers: 0 is the one that was connected when the release began.
    server: u8,
    /// The one that the first copy was sent to.
    first_to: u8,
    /// Copies that were sent: on their way, or answered.
    sent: usize,
    on_their_way: usize,
    reply: Option<Answer>,
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
    /// An operator ends the hold, or a failover or flush loses it.
    Break,
    /// The server loses what it remembers: a restart without it, or too many requests.
    Forget,
    /// The same, and the hold: a failover to a replica that knew neither. Connections are lost, and what was on its
    /// way.
    LoseAll,
}

impl World {
    /// The work is done at tick 1, and its release is about to be sent.
    fn new(stands: bool) -> Self {
        let terms = LeaseTerms {
            lease: ticks(LEASE),
            watched: false,
            bind: None,
            unclaimed: false,
            ends_by: None,
            own_name: true,
        };
        let mut client = HoldState::new(terms, at(0), at(0).after(certain(ticks(LEASE))));
        let _ = client.end();
        Self {
            now: 1,
            client,
            hold: stands.then_some(LEASE),
            seen: None,
            first: None,
            is_expired: false,
            server: 0,
            first_to: 0,
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
                    self.is_expired = true;
                }
            }
            Event::Send => {
                if self.sent == 0 {
                    self.first_to = self.server;
                }
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
            Event::Break => self.hold = None,
            Event::Forget => self.seen = None,
            Event::LoseAll => {
                (self.hold, self.seen, self.on_their_way) = (None, None, 0);
                self.is_expired = true;
                self.server += 1;
            }
        }
    }

    /// As `dlock_core` does.
    fn carry_out(&mut self) -> Answer {
        match (self.seen, self.hold.take()) {
            (Some(Seen::Released), hold) => {
                self.hold = hold;
                Answer::Integer
            }
            (Some(Seen::NoHold), _) => Answer::Spent,
            (None, Some(_)) => {
                self.see(Seen::Released);
                Answer::Integer
            }
            (None, None) => {
                self.see(Seen::NoHold);
                Answer::NotHeld
            }
        }
    }

    fn see(&mut self, seen: Seen) {
        self.seen = Some(seen);
        self.first.get_or_insert(seen);
    }

    /// What the client makes of the reply.
    fn verdict(&self, answer: Answer, bug: Option<Bug>) -> Verdict {
        let unanswered = match (answer, bug) {
            (Answer::NotHeld, Some(Bug::NotHeldToACopyIsALoss)) => 0,
            (Answer::Spent, Some(Bug::SpentIsAlwaysOfTheFirst)) => 1,
            _ => u32::try_from(self.sent - 1).unwrap(),
        };
        let is_first_server = self.first_to == 0 || bug == Some(Bug::AnyServerKnows);
        let refused = |refusal| ReleaseReply::refused(refusal, unanswered, is_first_server);
        let reply = match answer {
            Answer::Integer => ReleaseReply::Released,
            Answer::Spent if bug == Some(Bug::SpentIsARelease) => ReleaseReply::Released,
            Answer::NotHeld if self.sent > 1 && bug == Some(Bug::NotHeldToACopyIsARelease) => {
                ReleaseReply::Released
            }
            Answer::Spent => refused(Refusal::Spent),
            Answer::NotHeld => refused(Refusal::NotHeld),
        };
        let now = if bug == Some(Bug::AnExpiryOnTheWayIsALoss) { at(1) } else { at(self.now) };
        self.client.released(now, at(0), reply)
    }

    fn check(&self, bug: Option<Bug>) -> Result<(), String> {
        let Some(answer) = self.reply else { return Ok(()) };
        match (self.verdict(answer, bug), self.first) {
            (Verdict::Released, Some(Seen::NoHold)) => Err("a loss is a success".to_owned()),
            (Verdict::Lost(_), Some(Seen::Released)) => Err("a released hold is lost".to_owned()),
            (Verdict::Lost(_), _) if self.is_expired => {
                Err("a hold that outlasted the work is lost".to_owned())
            }
            // The server knows, and the lease is not over: so the client knows, too.
            (Verdict::Unknown, _)
                if self.first_to == 0
                    && self.sent <= if answer == Answer::NotHeld { 1 } else { 2 }
                    && self.now < LEASE - 1 =>
            {
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
    let violation =
        [true, false].into_iter().find_map(|stands| explore(&World::new(stands), bug, &mut count));
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
    let mut client = World::new(true).client;
    let gone = ReleaseReply::Gone(Lost::Refused);
    assert_eq!(client.released(at(1), at(0), gone), Verdict::Lost(Lost::Refused));
    client.phase = Phase::Lost(Lost::Broken);
    for reply in [gone, ReleaseReply::Forgotten] {
        assert_eq!(client.released(at(9), at(0), reply), Verdict::Lost(Lost::Broken));
    }
    assert_eq!(client.released(at(9), at(0), ReleaseReply::Released), Verdict::Released);
}

#[test]
fn a_bound_hold_is_certain_for_as_long_as_its_connection() {
    let mut client = World::new(true).client;
    client.terms.bind = Some(TICK);
    let gone = ReleaseReply::Gone(Lost::Refused);
    assert_eq!(client.released(at(1), at(1), gone), Verdict::Lost(Lost::Refused));
    assert_eq!(client.released(at(1), at(0), gone), Verdict::Unknown);
}

#[test]
fn a_key_that_was_overwritten_is_a_loss() {
    let reply =
        |unanswered, is_first| ReleaseReply::refused(Refusal::WrongType, unanswered, is_first);
    assert_eq!(reply(0, true), ReleaseReply::Gone(Lost::Deleted));
    assert_eq!([reply(1, true), reply(0, false)], [ReleaseReply::Forgotten; 2]);
}
