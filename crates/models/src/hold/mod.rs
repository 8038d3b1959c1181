//! A model of one client, the connections between it and a server, and the server's hold: every interleaving within the
//! bounds below. The client must never count on a hold that the server may have given to another owner.
//!
//! Requests and replies are on their way for as long as they like, come in any order, more than once or never: whether
//! the client has given up the connection, or sent the request again, makes no difference to that.

mod checks;
mod events;
mod release;
mod search;

use std::time::Duration;

use self::events::Event;
use super::hold_state::*;
use crate::base::clock::{Moment, certain};
use crate::base::lost::Lost;

/// How far the model goes.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    ticks: u64,
    renewals: usize,
    /// Requests that come more than once.
    copies: usize,
    connections: usize,
    /// `max_hold` of the hold.
    max_hold: Option<u64>,
    /// An operator may break the hold, and the client may release it.
    other_ends: bool,
}

/// Connections that are lost and replaced.
const CONNECTIONS: Bounds =
    Bounds { ticks: 5, renewals: 2, copies: 1, connections: 2, max_hold: None, other_ends: false };
/// One connection, and other ends of the hold.
const ENDS: Bounds =
    Bounds { ticks: 5, renewals: 3, copies: 0, connections: 1, max_hold: None, other_ends: true };
/// A hold that lasts for a limited time, however often it is renewed.
const LIMITED: Bounds = Bounds {
    ticks: 6,
    renewals: 2,
    copies: 1,
    connections: 1,
    max_hold: Some(4),
    other_ends: false,
};

const TICK: Duration = Duration::from_secs(10);
const SHORT: u64 = 1;
const LONG: u64 = 3;

/// Declares `Bug`, and the list of all of them.
macro_rules! bugs {
    ($($bug:ident,)*) => {
        /// A mistake in one transition of [`HoldState`], or of the server.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Bug {
            $($bug,)*
        }

        const BUGS: &[Bug] = &[$(Bug::$bug,)*];
    };
}

bugs! {
    CountsFromTheReply,
    BindingIsIgnored,
    AnswersShorten,
    AcceptedDoesNotExtend,
    UnconfirmedExtends,
    ExpiryIsUndone,
    LossIsForgotten,
    ReleaseIsForgotten,
    MaxHoldIsExceeded,
    MaxHoldIsNotRequested,
    ServerShortens,
    ServerBindsForLess,
}

fn at(tick: u64) -> Moment {
    // Not 0: a duration that is subtracted by mistake shows.
    Moment::from_nanos(1_000_000_000_000).after(TICK * u32::try_from(tick).unwrap())
}

fn ticks(count: u64) -> Duration {
    TICK * u32::try_from(count).unwrap()
}

/// A renewal on its way to the server, or its reply on the way back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Request {
    asked: Asked,
    lease: u64,
    /// The number of its connection.
    over: usize,
}

/// The server's hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ServerHold {
    ends: u64,
    /// Number of the connection that it is bound to.
    bound: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct World {
    now: u64,
    client: HoldState,
    /// Whether the server has each connection still. The client uses the last one.
    connections: Vec<bool>,
    renewals: usize,
    copies: usize,
    to_server: Vec<Request>,
    to_client: Vec<(Request, bool)>,
    hold: Option<ServerHold>,
    /// An operator broke it.
    is_broken: bool,
    /// The server told the client.
    heard_of_it: bool,
    is_released: bool,
    was_invalid: bool,
}

impl World {
    fn new(bind: Option<u64>, max_hold: Option<u64>) -> Self {
        let lease = ticks(LONG);
        let (bind, ends_by) = (bind.map(ticks), max_hold.map(at));
        let terms = LeaseTerms { lease, watched: true, bind, ends_by };
        Self {
            now: 0,
            client: HoldState::new(terms, Asked { sent: at(0), lease }),
            connections: vec![true],
            renewals: 0,
            copies: 0,
            to_server: vec![],
            to_client: vec![],
            hold: Some(ServerHold { ends: LONG, bound: 1 }),
            is_broken: false,
            heard_of_it: false,
            is_released: false,
            was_invalid: false,
        }
    }

    fn apply(&mut self, event: Event, bind: Option<u64>, bug: Option<Bug>) -> Result<(), String> {
        let now = at(self.now);
        match event {
            Event::Tick => {
                self.now += 1;
                self.hold = self.hold.filter(|hold| hold.ends > self.now);
            }
            Event::Renew(lease) => {
                self.renewals += 1;
                let mut requested = self.client.capped_lease(now, ticks(lease));
                if bug == Some(Bug::MaxHoldIsNotRequested) {
                    requested = ticks(lease);
                }
                let _ = self.client.begin_renewal(now);
                let lease = u64::try_from(requested.as_nanos() / TICK.as_nanos()).unwrap();
                let ends = at(self.now + lease);
                let is_late = |ends_by: Moment| lease > 0 && ends > ends_by;
                if self.client.terms.ends_by.is_some_and(is_late) {
                    return Err("a renewal asks for more than max_hold".to_owned());
                }
                let asked = Asked { sent: now, lease: requested };
                let over = self.connections.len();
                self.to_server.push(Request { asked, lease, over });
            }
            Event::Look => drop(self.client.expire(now)),
            Event::ServerReads { n, again } => self.server_reads(n, again, bind, bug),
            Event::ServerCloses(n) => {
                self.connections[n - 1] = false;
                self.unbind(n, bind, bug);
            }
            Event::ClientReads { n, confirmed } => {
                let (request, is_accepted) = self.to_client.remove(n);
                self.read(&request, is_accepted, confirmed, bug)?;
            }
            Event::ClientConnects => self.connections.push(true),
            Event::Break => {
                self.hold = None;
                self.is_broken = true;
            }
            Event::Release => {
                self.is_released = true;
                let before = self.client.clone();
                let _ = self.client.end();
                if bug == Some(Bug::ReleaseIsForgotten) {
                    self.client = before;
                }
            }
        }
        self.check()
    }

    fn server_reads(&mut self, n: usize, again: bool, bind: Option<u64>, bug: Option<Bug>) {
        let request = if again { self.to_server[n].clone() } else { self.to_server.remove(n) };
        self.copies += usize::from(again);
        let is_accepted = self.hold.is_some();
        if let Some(hold) = &mut self.hold {
            let ends = self.now + request.lease;
            hold.ends = if bug == Some(Bug::ServerShortens) { ends } else { hold.ends.max(ends) };
            hold.bound = request.over;
        }
        if !self.connections[request.over - 1] {
            self.unbind(request.over, bind, bug);
        }
        self.hold = self.hold.filter(|hold| hold.ends > self.now);
        self.to_client.push((request, is_accepted));
    }

    /// The connection with this number is closed at the server.
    fn unbind(&mut self, n: usize, bind: Option<u64>, bug: Option<Bug>) {
        let is_less = bug == Some(Bug::ServerBindsForLess);
        if let (Some(hold), Some(bind)) = (&mut self.hold, bind)
            && hold.bound == n
        {
            hold.ends = hold.ends.min(self.now + bind - u64::from(is_less));
        }
        self.hold = self.hold.filter(|hold| hold.ends > self.now);
    }

    fn read(
        &mut self,
        request: &Request,
        is_accepted: bool,
        confirmed: bool,
        bug: Option<Bug>,
    ) -> Result<(), String> {
        let now = at(self.now);
        let client = &mut self.client;
        let before = client.clone();
        if !is_accepted {
            self.heard_of_it |= self.is_broken;
            let _ = client.lose(Lost::Refused);
            if bug == Some(Bug::LossIsForgotten) {
                *client = before;
            }
            return Ok(());
        }
        let mut asked = request.asked;
        if bug == Some(Bug::CountsFromTheReply) {
            asked.sent = now;
        }
        let is_confirmed = confirmed || bug == Some(Bug::UnconfirmedExtends);
        let reply = if is_confirmed { RenewalReply::Accepted } else { RenewalReply::Unconfirmed };
        let _ = client.end_renewal(now, asked, reply);
        let lease_ends = asked.sent.after(certain(asked.lease));
        match bug {
            Some(Bug::BindingIsIgnored) if confirmed => {
                client.deadline = client.deadline.max(lease_ends);
            }
            Some(Bug::AnswersShorten) if confirmed => {
                client.deadline = client.terms.certain_until(asked);
            }
            Some(Bug::AcceptedDoesNotExtend) => client.deadline = before.deadline,
            Some(Bug::ExpiryIsUndone) if before.deadline <= now => {
                client.phase = before.phase;
                client.deadline = client.terms.certain_until(asked);
            }
            Some(Bug::MaxHoldIsExceeded) => client.deadline = client.deadline.max(lease_ends),
            _ => {}
        }
        if client.has_ended() {
            return Ok(());
        }
        let promised = before.terms.certain_until(request.asked);
        let expected = if confirmed { before.deadline.max(promised) } else { before.deadline };
        if client.deadline < expected {
            return Err("an accepted renewal does not extend, or shortens".to_owned());
        }
        if !confirmed && client.deadline > before.deadline {
            return Err("a renewal counts that replicas do not have".to_owned());
        }
        Ok(())
    }
}
