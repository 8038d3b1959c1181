//! The servers of one client: which has a key, and what is on its way to each over the shared connection.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::hold_state::Asked;
use super::slot::{Place, SLOTS, Slot};
use super::slots::ClusterSlots;
use super::tracked::TrackedHold;
use crate::base::clock::Moment;
use crate::base::command::NodeAddress;
use crate::base::error::Error;
use crate::base::replicas::Replicas;

/// How many entries travel at a time over one connection.
pub(crate) const FLYING: usize = 512;

/// Who gets the replies.
pub(crate) enum To {
    /// That call, if it has sent nothing since.
    Call(u64, u32),
    Renewals(Vec<Renewing>),
    /// Nobody: whether they come is what counts.
    Nobody,
}

/// One hold in a round of renewals.
pub(crate) struct Renewing {
    pub(crate) hold: Arc<TrackedHold>,
    pub(crate) asked: Asked,
    pub(crate) commands: usize,
}

/// Commands that are to be sent, in this order.
pub(crate) struct Entry {
    pub(crate) to: To,
    pub(crate) place: Place,
    pub(crate) commands: Arc<[Cmd]>,
    pub(crate) confirm: Option<Replicas>,
    /// Behind ASKING: for a slot that is on its way to this server.
    pub(crate) asking: bool,
}

/// What is on its way.
pub(crate) struct Flight {
    pub(crate) entry: Entry,
    pub(crate) sent: Moment,
    /// Over a connection of its own: how long the replies may take.
    pub(crate) alone: Option<Duration>,
}

impl Flight {
    /// What leaves now for that entry. Replies behind its own are about replicas.
    pub(crate) fn of(entry: Entry, alone: Option<Duration>, now: Moment) -> (Self, Arc<[Cmd]>) {
        let mut commands = entry.commands.clone();
        if entry.asking || entry.confirm.is_some() {
            let asking = entry.asking.then(|| redis::cmd("ASKING")).into_iter();
            let confirm = entry.confirm.iter().flat_map(|replicas| replicas.requests());
            commands = asking.chain(commands.iter().cloned()).chain(confirm).collect();
        }
        (Self { entry, sent: now, alone }, commands)
    }
}

/// One server.
pub(crate) struct Server {
    pub(crate) name: String,
    /// No slot belongs to it any more.
    pub(crate) is_gone: bool,
    pub(crate) is_up: bool,
    /// Why there is no connection.
    pub(crate) error: Option<Error>,
    outbox: VecDeque<Entry>,
    /// How much is on its way over the shared connection.
    pub(crate) flying: usize,
    /// When the last reply came, or the first batch of those on their way was sent.
    pub(crate) progress: Moment,
    /// If no reply came in time since: until when there is more time.
    pub(crate) overdue: Option<Moment>,
    /// Connections of their own that calls block.
    blocked: usize,
}

/// See the module.
pub(crate) struct Servers {
    pub(crate) all: Vec<Server>,
    by_name: HashMap<String, usize>,
    /// Of a cluster.
    owners: Option<Vec<Option<usize>>>,
    most_blocked: usize,
    /// Entries for slots that no known server has.
    unrouted: Vec<Entry>,
    /// How many wait to be sent, or more.
    queued: usize,
}

impl Servers {
    pub(crate) fn new(is_cluster: bool, most_blocked: usize) -> Self {
        Self {
            all: Vec::new(),
            by_name: HashMap::new(),
            owners: is_cluster.then(|| vec![None; usize::from(SLOTS)]),
            most_blocked,
            unrouted: Vec::new(),
            queued: 0,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.owners.is_some()
    }

    /// The server of that name, and whether it is new, or was gone.
    pub(crate) fn named(&mut self, name: &str) -> (usize, bool) {
        if let Some(&server) = self.by_name.get(name) {
            let is_gone = self.all.get_mut(server).map(|server| &mut server.is_gone);
            return (server, is_gone.is_some_and(std::mem::take));
        }
        self.all.push(Server {
            name: name.to_owned(),
            is_gone: false,
            is_up: false,
            error: None,
            outbox: VecDeque::new(),
            flying: 0,
            progress: Moment::from_nanos(0),
            overdue: None,
            blocked: 0,
        });
        self.by_name.insert(name.to_owned(), self.all.len() - 1);
        (self.all.len() - 1, true)
    }

    /// The server that another one names. An empty host is its own.
    pub(crate) fn at(&mut self, to: &NodeAddress, by: usize) -> (usize, bool) {
        let own = self.all.get(by).map_or("", |server| &server.name);
        let own = own.rsplit_once(':').map_or("", |(host, _)| host);
        let host = if to.host.is_empty() { own } else { &to.host };
        let name = format!("{host}:{}", to.port);
        self.named(&name)
    }

    pub(crate) fn of(&self, place: Place) -> Option<usize> {
        match (place, &self.owners) {
            (Place::Server(server), _) => Some(server),
            (Place::Slot(_), None) => Some(0),
            (Place::Slot(slot), Some(owners)) => owners.get(slot.index()).copied().flatten(),
        }
    }

    /// Those that are not gone. Those that are up come first: time must not be spent on a node that is not there.
    pub(crate) fn known(&self) -> Vec<usize> {
        let of = |is_up| {
            let servers = self.all.iter().enumerate();
            let known = servers.filter(move |(_, one)| !one.is_gone && one.is_up == is_up);
            known.map(|(number, _)| number)
        };
        of(true).chain(of(false)).collect()
    }

    /// Those that have keys, by number and name.
    pub(crate) fn with_keys(&self) -> Vec<(usize, String)> {
        let mut found: Vec<_> = match &self.owners {
            None => vec![0],
            Some(owners) => owners.iter().flatten().copied().collect(),
        };
        found.sort_unstable();
        found.dedup();
        let name = |server: usize| Some((server, self.all.get(server)?.name.clone()));
        found.into_iter().filter_map(name).collect()
    }

    /// That server has the slot. True if it had another server before.
    pub(crate) fn moved(&mut self, slot: Slot, to: usize) -> bool {
        let owner = self.owners.as_mut().and_then(|all| all.get_mut(slot.index()));
        let before = owner.and_then(|owner| owner.replace(to));
        before.is_some_and(|before| before != to)
    }

    /// Server `by` said which server has which slots. Returns those that have moved, the servers that are new, and
    /// those without slots.
    pub(crate) fn learn(
        &mut self,
        slots: &ClusterSlots,
        by: usize,
    ) -> (HashSet<Slot>, Vec<usize>, Vec<usize>) {
        let (mut moved, mut new) = (HashSet::new(), Vec::new());
        for range in &slots.ranges {
            let (server, is_new) = self.at(&range.primary, by);
            if is_new {
                new.push(server);
            }
            for slot in (range.first..=range.last).filter_map(Slot::new) {
                if self.moved(slot, server) {
                    moved.insert(slot);
                }
            }
        }
        let mut gone = Vec::new();
        let owners = self.owners.iter().flatten().flatten().copied().collect::<Vec<_>>();
        for (number, server) in self.all.iter_mut().enumerate() {
            // The one that told us stays, in case it is the only one that is named.
            if number != by && !server.is_gone && !owners.contains(&number) {
                server.is_gone = true;
                gone.push(number);
            }
        }
        (moved, new, gone)
    }

    /// Puts an entry where it is to be sent. None: no known server has the slot.
    pub(crate) fn push(&mut self, entry: Entry) -> Option<usize> {
        self.queued += 1;
        let server = self.of(entry.place);
        match server.and_then(|server| self.all.get_mut(server)) {
            Some(server) => server.outbox.push_back(entry),
            None => self.unrouted.push(entry),
        }
        server
    }

    /// Forgets entries that do not count any more, if there may be more than `most`.
    pub(crate) fn prune(&mut self, most: usize, counts: impl Fn(&To) -> bool) {
        if self.queued > most {
            self.unrouted.retain(|entry| counts(&entry.to));
            self.queued = self.unrouted.len();
            for server in &mut self.all {
                server.outbox.retain(|entry| counts(&entry.to));
                self.queued += server.outbox.len();
            }
        }
    }

    /// Puts an entry in front of a server, wherever its slot belongs.
    pub(crate) fn push_to(&mut self, server: usize, entry: Entry) {
        if let Some(server) = self.all.get_mut(server) {
            server.outbox.push_back(entry);
        }
    }

    /// What has not been sent yet goes to the servers of its slots, whose numbers are returned.
    pub(crate) fn route_again(&mut self) -> Vec<usize> {
        let mut entries = std::mem::take(&mut self.unrouted);
        for server in &mut self.all {
            entries.extend(std::mem::take(&mut server.outbox));
        }
        entries.into_iter().filter_map(|entry| self.push(entry)).collect()
    }

    /// What waits for a connection to that server.
    pub(crate) fn take_outbox(&mut self, server: usize) -> Vec<Entry> {
        self.all.get_mut(server).map_or(Vec::new(), |server| server.outbox.drain(..).collect())
    }

    /// Whether one more call may block a connection of its own.
    pub(crate) fn may_block(&mut self, server: usize) -> bool {
        let most = self.most_blocked;
        let server = self.all.get_mut(server).filter(|server| server.blocked < most);
        server.map(|server| server.blocked += 1).is_some()
    }

    pub(crate) fn unblock(&mut self, server: usize) {
        if let Some(server) = self.all.get_mut(server) {
            server.blocked = server.blocked.saturating_sub(1);
        }
    }

    /// What leaves next for that server; `written` hears of it, and says whether it still counts.
    pub(crate) fn next(
        &mut self,
        server: usize,
        now: Moment,
        mut written: impl FnMut(&mut To) -> bool,
    ) -> Option<(Flight, Arc<[Cmd]>)> {
        let server = self.all.get_mut(server).filter(|server| server.is_up)?;
        while server.flying < FLYING
            && let Some(mut entry) = server.outbox.pop_front()
        {
            if written(&mut entry.to) {
                if server.flying == 0 {
                    server.progress = now;
                }
                server.flying += 1;
                return Some(Flight::of(entry, None, now));
            }
        }
        None
    }
}
