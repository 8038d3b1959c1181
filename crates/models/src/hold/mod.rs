//! A model of one client, the connections between it and a server, and the server's hold: every interleaving within the
//! bounds below. The client must never count on a hold that the server may have given to another owner.

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
    renewals: u64,
    probes: u64,
    connections: usize,
    /// `max_hold` of the hold.
    max_hold: Option<u64>,
    /// An operator may break the hold, and the client may release it.
    other_ends: bool,
}

/// Connections that are lost and replaced.
const CONNECTIONS: Bounds =
    Bounds { ticks: 4, renewals: 2, probes: 0, connections: 2, max_hold: None, other_ends: false };
/// The same with a probe, and less time.
const PROBED: Bounds =
    Bounds { ticks: 3, renewals: 1, probes: 1, connections: 2, max_hold: None, other_ends: false };
/// One connection, more renewals on it, and other ends of the hold.
const ENDS: Bounds =
    Bounds { ticks: 4, renewals: 3, probes: 0, connections: 1, max_hold: None, other_ends: true };
/// A hold that lasts for a limited time, however often it is renewed.
const LIMITED: Bounds = Bounds {
    ticks: 5,
    renewals: 2,
    probes: 0,
    connections: 2,
    max_hold: Some(4),
    other_ends: false,
};

const TICK: Duration = Duration::from_secs(10);
const SHORT: u64 = 1;
const LONG: u64 = 3;

/// Declares `Bug`, and the list of all of them.
macro_rules! bugs {
    ($($bug:ident,)*) => {
        /// A mistake in one transition of [`HoldState`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Bug {
            $($bug,)*
        }

        const BUGS: &[Bug] = &[$(Bug::$bug,)*];
    };
}

bugs! {
    BeginDoesNotShorten,
    AnyReplyCountsAsTheLast,
    StraysAreIgnored,
    InflightIsIgnored,
    UnknownIsForgotten,
    CopiesAreForgotten,
    RenewalsBindAnyway,
    ExpiryIsUndone,
    DisconnectIsIgnored,
    DisconnectCountsFromNow,
    LossIsForgotten,
    ReleaseIsForgotten,
    AcceptedDoesNotExtend,
    BindingIsNeverRestored,
    MaxHoldIsExceeded,
    MaxHoldIsNotRequested,
    ConnectionsCountAsAlive,
    AnswersCountFromNow,
    ProbesAreIgnored,
}

fn at(tick: u64) -> Moment {
    // Not 0: a duration that is subtracted by mistake shows.
    Moment::from_nanos(1_000_000_000_000).after(TICK * u32::try_from(tick).unwrap())
}

fn ticks(count: u64) -> Duration {
    TICK * u32::try_from(count).unwrap()
}

/// A renewal, or a probe, on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Request {
    /// None: a probe.
    renewal: Option<InflightRenewal>,
    lease: u64,
    sent: u64,
    /// There is, or was, another copy on a connection that the client has given up.
    is_copy: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Connection {
    client_has_it: bool,
    server_has_it: bool,
    to_server: Vec<Request>,
    to_client: Vec<(Request, bool)>,
    /// When the most recently answered request was sent.
    alive: u64,
}

impl Connection {
    fn new(now: u64) -> Self {
        Self {
            client_has_it: true,
            server_has_it: true,
            to_server: vec![],
            to_client: vec![],
            alive: now,
        }
    }
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
    /// Numbered from 1; the last one is the current one.
    connections: Vec<Connection>,
    /// To be sent again over the next connection.
    again: Vec<Request>,
    /// The connection whose life counts for the client.
    pulse: usize,
    probes: u64,
    hold: Option<ServerHold>,
    /// An operator broke it.
    is_broken: bool,
    heard_of_it: bool,
    is_released: bool,
    was_invalid: bool,
}

impl World {
    fn new(bind: Option<u64>, max_hold: Option<u64>) -> Self {
        let terms = LeaseTerms {
            lease: ticks(LONG),
            watched: true,
            bind: bind.map(ticks),
            unclaimed: false,
            ends_by: max_hold.map(at),
            own_name: true,
        };
        Self {
            now: 0,
            client: HoldState::new(terms, at(0), at(0).after(certain(ticks(LONG)))),
            connections: vec![Connection::new(0)],
            again: vec![],
            pulse: 1,
            probes: 0,
            hold: Some(ServerHold { ends: LONG, bound: 1 }),
            is_broken: false,
            heard_of_it: false,
            is_released: false,
            was_invalid: false,
        }
    }

    /// The connection that the hold is bound to was alive then.
    fn alive(&self, bug: Option<Bug>) -> Moment {
        let is_bug = bug == Some(Bug::ConnectionsCountAsAlive);
        at(if is_bug { self.now } else { self.connections[self.pulse - 1].alive })
    }

    /// The current connection of the client; 0: none.
    fn current(&self) -> usize {
        if self.connections.last().is_some_and(|last| last.client_has_it) {
            self.connections.len()
        } else {
            0
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
                let over = self.current();
                let deadline = self.client.deadline;
                let mut requested = self.client.capped_lease(now, ticks(lease));
                if bug == Some(Bug::MaxHoldIsNotRequested) {
                    requested = ticks(lease);
                }
                let (renewal, _) = self.client.begin_renewal(now, requested, over as u64);
                if bug == Some(Bug::BeginDoesNotShorten) {
                    self.client.deadline = deadline;
                }
                let lease = u64::try_from(requested.as_nanos() / TICK.as_nanos()).unwrap();
                let lasts_until = at(self.now + lease);
                if self.client.capped(lasts_until) < lasts_until && lease > 0 {
                    return Err("a renewal asks for more than max_hold".to_owned());
                }
                let renewal = Some(renewal);
                let request = Request { renewal, lease, sent: self.now, is_copy: false };
                self.connections[over - 1].to_server.push(request);
            }
            Event::Probe => {
                self.probes += 1;
                let over = self.current();
                let probe = Request { renewal: None, lease: 0, sent: self.now, is_copy: false };
                self.connections[over - 1].to_server.push(probe);
            }
            Event::Look => drop(self.client.expire(now, self.alive(bug))),
            Event::ServerReads(n) => self.server_reads(n),
            Event::ServerCloses(n) => self.server_closes(n, bind),
            Event::ClientReads => {
                let current = self.current();
                let (request, is_accepted) = self.connections[current - 1].to_client.remove(0);
                let is_late = bug == Some(Bug::AnswersCountFromNow);
                let is_deaf = bug == Some(Bug::ProbesAreIgnored);
                let connection = &mut self.connections[current - 1];
                if !is_deaf {
                    let alive = if is_late { self.now } else { request.sent };
                    connection.alive = connection.alive.max(alive);
                }
                if let Some(renewal) = request.renewal {
                    self.read(&request, renewal, is_accepted, bug)?;
                } else if self.connections[current - 1].alive < request.sent {
                    return Err("an answered probe does not show that the connection lives".into());
                }
            }
            Event::ClientLoses { retries } => self.lose_connection(retries, bug),
            Event::ClientConnects => {
                self.connections.push(Connection::new(self.now));
            }
            Event::SendAgain => {
                let over = self.current();
                self.connections[over - 1].to_server.append(&mut self.again);
            }
            Event::Break => {
                self.hold = None;
                self.is_broken = true;
            }
            Event::ClientHearsOfBreak => {
                self.heard_of_it = true;
                let before = self.client.clone();
                let _ = self.client.lose(Lost::Broken);
                if bug == Some(Bug::LossIsForgotten) {
                    self.client = before;
                }
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
        self.check(bug)
    }

    fn server_reads(&mut self, n: usize) {
        let request = self.connections[n - 1].to_server.remove(0);
        let is_accepted = self.hold.is_some();
        if let (Some(hold), Some(_)) = (&mut self.hold, request.renewal) {
            *hold = ServerHold { ends: self.now + request.lease, bound: n };
        }
        self.connections[n - 1].to_client.push((request, is_accepted));
    }

    fn server_closes(&mut self, n: usize, bind: Option<u64>) {
        self.connections[n - 1].server_has_it = false;
        self.connections[n - 1].to_server.clear();
        if let (Some(hold), Some(bind)) = (&mut self.hold, bind)
            && hold.bound == n
        {
            hold.ends = hold.ends.min(self.now + bind);
            self.hold = self.hold.filter(|hold| hold.ends > self.now);
        }
    }

    fn read(
        &mut self,
        request: &Request,
        renewal: InflightRenewal,
        is_accepted: bool,
        bug: Option<Bug>,
    ) -> Result<(), String> {
        let (now, current) = (at(self.now), self.current());
        if is_accepted && renewal.is_over(current as u64) {
            self.pulse = current;
        }
        let (alive, current) = (self.alive(bug), current as u64);
        let client = &mut self.client;
        let before = client.clone();
        let reply = match (is_accepted, request.is_copy) {
            (true, false) => RenewalReply::Accepted,
            (true, true) => RenewalReply::AcceptedCopy,
            (false, _) => RenewalReply::Refused,
        };
        if bug == Some(Bug::StraysAreIgnored) {
            client.stray = None;
        }
        if bug == Some(Bug::InflightIsIgnored) {
            client.inflight.retain(|other| other.number == renewal.number);
        }
        let _ = client.end_renewal(now, renewal, reply, current, alive);
        if !is_accepted {
            let _ = client.lose(Lost::Refused);
            return Ok(());
        }
        match bug {
            Some(Bug::AnyReplyCountsAsTheLast) if !client.has_ended() => {
                client.deadline = renewal.until();
            }
            Some(Bug::CopiesAreForgotten) => client.stray = before.stray,
            Some(Bug::RenewalsBindAnyway) if renewal.number == client.renewals => {
                client.unbound = false;
                client.deadline = renewal.until();
            }
            Some(Bug::ExpiryIsUndone) if before.deadline <= now => {
                client.phase = before.phase;
                client.deadline = renewal.until();
            }
            Some(Bug::MaxHoldIsExceeded) if renewal.number == client.renewals => {
                client.deadline = renewal.until();
                return Ok(());
            }
            Some(Bug::AcceptedDoesNotExtend) => client.deadline = before.deadline,
            Some(Bug::BindingIsNeverRestored) => client.unbound = before.unbound,
            _ => {}
        }
        // What a client without trouble may count on: else a state that is always lost would pass.
        let is_calm = client.stray.is_none() && client.inflight.is_empty();
        let is_last = renewal.number == client.renewals && renewal.over == current;
        if is_calm && is_last && renewal.disconnects == client.disconnects && !client.has_ended() {
            if client.deadline != client.capped(renewal.until()) {
                return Err("an accepted renewal does not set the deadline".to_owned());
            }
            if client.is_unbound() {
                return Err("an accepted renewal does not bind the hold".to_owned());
            }
        }
        Ok(())
    }

    fn lose_connection(&mut self, retries: bool, bug: Option<Bug>) {
        let current = self.current();
        let connection = &mut self.connections[current - 1];
        connection.client_has_it = false;
        // Replies on their way are lost, and which requests the server has read or will read is unknown.
        let unread = connection.to_server.iter().cloned();
        let unanswered = connection.to_client.drain(..).map(|(request, _)| request);
        let lost: Vec<Request> = unanswered.chain(unread).collect();
        let alive = at(connection.alive);
        let deadline = self.client.deadline;
        let _ = match bug {
            Some(Bug::DisconnectCountsFromNow) => self.client.disconnected(at(self.now)),
            _ => self.client.disconnected(alive),
        };
        if bug == Some(Bug::DisconnectIsIgnored) {
            self.client.deadline = deadline;
        }
        for request in lost {
            let Some(renewal) = request.renewal else { continue };
            if retries {
                self.again.push(Request { is_copy: true, ..request });
            } else {
                let stray = self.client.stray;
                let reply = RenewalReply::Unknown;
                let _ = self.client.end_renewal(at(self.now), renewal, reply, 0, alive);
                if bug == Some(Bug::UnknownIsForgotten) {
                    self.client.stray = stray;
                }
            }
        }
    }
}
