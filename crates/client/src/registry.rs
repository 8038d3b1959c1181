//! Who of this client waits and who holds, so that what the server says reaches the right task.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dlock_wire::message::{Event, Message};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::acquire::Ask;
use crate::channel::Channels;
use crate::clock::Moment;
use crate::gate::Gate;
use crate::held::{Held, Lost};

/// One per client.
pub(crate) struct Registry {
    pub(crate) gate: Arc<Gate>,
    /// Where what goes on in the background runs.
    pub(crate) runtime: Handle,
    pub(crate) channels: Channels,
    db: u32,
    places: Mutex<HashMap<Box<[u8]>, Arc<Place>>>,
    holds: Mutex<Holds>,
    /// The watchdog has something to do before its time.
    pub(crate) renew_now: Notify,
    /// A hold was granted by a message: the watchdog should claim it soon.
    pub(crate) claim_soon: Notify,
    /// It knows.
    claiming: AtomicBool,
    /// The first deadline is earlier than it was.
    pub(crate) earlier: Notify,
    /// How often a flush of the database was heard of.
    flushes: AtomicU64,
    /// Acquires that are being taken back, by place: how many.
    undoing: Mutex<HashMap<Box<[u8]>, usize>>,
    undone: Notify,
    /// Calls that wait on connections of their own.
    blocked: AtomicUsize,
}

/// A call that waits on a connection of its own, until this is dropped.
pub(crate) struct Blocked<'a>(&'a AtomicUsize);

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a message said to a task that waits.
pub(crate) enum Told {
    /// Its own request was granted: the token or permit id.
    Granted(Vec<u8>),
    /// Another request of that owner was, or the message is forged: only the server knows.
    Other,
}

/// A task that waits in a queue of the server.
pub(crate) struct Place {
    /// The acquire that waits, where it can be taken back over the shared connection.
    acquire: Weak<Ask>,
    told: Mutex<Option<Told>>,
    /// Ids of this owner that ended before anybody here knew that they had begun.
    ended: Mutex<Vec<(Box<[u8]>, Lost)>>,
    news: Notify,
}

#[derive(Default)]
struct Holds {
    /// More than one where an owner holds a lock several times: they share the token.
    by_id: HashMap<Box<[u8]>, Vec<Weak<Held>>>,
    by_deadline: BTreeMap<(Moment, u64), Weak<Held>>,
    /// Every hold that was not given back, also those that are lost; by address.
    kept: HashMap<usize, Weak<Held>>,
    sequence: u64,
    /// How many of them are tied to a connection.
    tied: usize,
    /// When whoever ends holds will look next without being called.
    next_look: Option<Moment>,
}

impl Registry {
    pub(crate) fn new(db: u32, runtime: Handle) -> Self {
        Self {
            gate: Arc::default(),
            runtime,
            channels: Channels::new(),
            db,
            places: Mutex::default(),
            holds: Mutex::default(),
            renew_now: Notify::new(),
            claim_soon: Notify::new(),
            claiming: AtomicBool::new(false),
            earlier: Notify::new(),
            flushes: AtomicU64::new(0),
            undoing: Mutex::default(),
            undone: Notify::new(),
            blocked: AtomicUsize::new(0),
        }
    }

    pub(crate) fn connected(&self) {
        // Holds may be tied to the connection that was lost, or be close to their end.
        self.renew_now.notify_one();
    }

    /// The connection to that server is lost, which was alive then: holds that are tied to it have so much left from
    /// then, at most.
    pub(crate) fn disconnected(&self, server: &str, alive: Moment) {
        for held in self.tied().into_iter().filter(|held| held.is_at(server)) {
            held.untied(alive);
        }
    }

    // Places

    /// From now on, messages about this owner and key reach `Place`. A place of the same name is replaced.
    pub(crate) fn enter(&self, key: &[u8], owner: &[u8], acquire: Weak<Ask>) -> Entered<'_> {
        let name = place_name(key, owner);
        let place = Arc::new(Place {
            acquire,
            told: Mutex::default(),
            ended: Mutex::default(),
            news: Notify::new(),
        });
        self.places().insert(name.clone(), place.clone());
        Entered { registry: self, name, place }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Arc<Place>>> {
        lock(&self.places)
    }

    /// Every acquire that can be taken back over the shared connection.
    pub(crate) fn acquires(&self) -> Vec<Arc<Ask>> {
        self.places().values().filter_map(|place| place.acquire.upgrade()).collect()
    }

    /// An acquire of that key and owner is about to be taken back: until the answer is dropped, others of the same
    /// name wait.
    pub(crate) fn begin_undo(self: &Arc<Self>, key: &[u8], owner: &[u8]) -> Undoing {
        let name = place_name(key, owner);
        *lock(&self.undoing).entry(name.clone()).or_default() += 1;
        Undoing { registry: self.clone(), name }
    }

    /// Returns when no acquire of that key and owner is being taken back.
    pub(crate) async fn undone(&self, key: &[u8], owner: &[u8]) {
        let name = place_name(key, owner);
        loop {
            let mut undone = std::pin::pin!(self.undone.notified());
            undone.as_mut().enable();
            if !lock(&self.undoing).contains_key(&name) {
                return;
            }
            undone.await;
        }
    }

    /// A hold was granted by a message, and is to be claimed before long.
    pub(crate) fn claim_before_long(&self) {
        if !self.claiming.swap(true, Ordering::AcqRel) {
            self.claim_soon.notify_one();
        }
    }

    /// All that were granted by messages until now are about to be claimed.
    pub(crate) fn claims(&self) {
        self.claiming.store(false, Ordering::Release);
    }

    /// How often a flush of the database was heard of.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Whether a connection that dies without a word has to be noticed before the next renewal: somebody waits for a
    /// message, a hold is tied to it, or a call waits on a connection of its own, which may be dead if this one is.
    pub(crate) fn needs_heartbeat(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) > 0 || self.has_places() || self.holds().tied > 0
    }

    /// A call begins to wait on a connection of its own.
    pub(crate) fn blocked(&self) -> Blocked<'_> {
        self.blocked.fetch_add(1, Ordering::Relaxed);
        Blocked(&self.blocked)
    }

    /// Whether anybody waits.
    pub(crate) fn has_places(&self) -> bool {
        !self.places().is_empty()
    }

    // Holds

    /// From now on, messages about this hold reach it, its deadline is watched and, if it wants that, it is renewed.
    pub(crate) fn add(&self, held: &Arc<Held>) {
        let mut holds = self.holds();
        for id in held.grip.names() {
            holds.by_id.entry(id).or_default().push(Arc::downgrade(held));
        }
        holds.kept.insert(Arc::as_ptr(held).addr(), Arc::downgrade(held));
        holds.sequence += 1;
        holds.tied += usize::from(held.is_tied());
        let entry = (held.deadline(), holds.sequence);
        held.armed.set(entry);
        holds.by_deadline.insert(entry, Arc::downgrade(held));
        self.look_in_time(holds, entry.0);
    }

    /// Calls whoever ends holds if `deadline` comes before the next look.
    fn look_in_time(&self, mut holds: MutexGuard<'_, Holds>, deadline: Moment) {
        // None: it is looking, or about to.
        if holds.next_look.take_if(|next| deadline < *next).is_some() {
            drop(holds);
            self.earlier.notify_one();
        }
    }

    /// The hold is released or lost: nobody asks about it any more.
    pub(crate) fn remove(&self, held: &Held) {
        let mut holds = self.holds();
        for id in held.grip.names() {
            if let Entry::Occupied(mut same) = holds.by_id.entry(id) {
                same.get_mut().retain(|other| !std::ptr::eq(other.as_ptr(), held));
                if same.get().is_empty() {
                    same.remove();
                }
            }
        }
        if holds.by_deadline.remove(&held.armed.get()).is_some() {
            holds.tied -= usize::from(held.is_tied());
        }
    }

    /// The hold is about to be given back.
    pub(crate) fn given_back(&self, held: &Held) {
        self.holds().kept.remove(&std::ptr::from_ref(held).addr());
    }

    /// Every hold that was not given back, also those that are lost.
    pub(crate) fn kept(&self) -> Vec<Arc<Held>> {
        self.holds().kept.values().filter_map(Weak::upgrade).collect()
    }

    /// The deadline of this hold has come nearer.
    pub(crate) fn rearm(&self, held: &Held) {
        let mut holds = self.holds();
        let old = held.armed.get();
        if let Some(weak) = holds.by_deadline.remove(&old) {
            let entry = (held.deadline(), old.1);
            held.armed.set(entry);
            holds.by_deadline.insert(entry, weak);
            self.look_in_time(holds, entry.0);
        }
    }

    /// Holds whose deadline has passed, and the next deadline.
    pub(crate) fn due(&self, now: Moment) -> (Vec<Arc<Held>>, Moment) {
        let mut due = Vec::new();
        let mut holds = self.holds();
        while let Some(first) = holds.by_deadline.first_entry().filter(|first| first.key().0 <= now)
        {
            let ((_, sequence), weak) = first.remove_entry();
            let Some(held) = weak.upgrade() else { continue };
            let deadline = held.deadline();
            if deadline <= now {
                holds.tied -= usize::from(held.is_tied());
                due.push(held);
            } else {
                // It was renewed since: renewals do not touch this map.
                let entry = (deadline, sequence);
                held.armed.set(entry);
                holds.by_deadline.insert(entry, weak);
            }
        }
        let next = holds.by_deadline.first_key_value().map_or(Moment::NEVER, |(first, _)| first.0);
        holds.next_look = Some(next);
        (due, next)
    }

    /// The other guards of what this owner holds: they share token and lease.
    pub(crate) fn siblings(&self, held: &Held) -> Vec<Arc<Held>> {
        let ids = held.grip.names();
        let holds = self.holds();
        let same = ids.iter().filter_map(|id| holds.by_id.get(id)).flatten();
        same.filter_map(Weak::upgrade)
            .filter(|other| !std::ptr::eq(&raw const **other, held))
            .collect()
    }

    /// Every hold that is tied to a connection.
    pub(crate) fn tied(&self) -> Vec<Arc<Held>> {
        let holds = self.holds();
        if holds.tied == 0 {
            return Vec::new();
        }
        let all = holds.by_deadline.values().filter_map(Weak::upgrade);
        all.filter(|held| held.is_tied()).collect()
    }

    /// Every hold there is.
    pub(crate) fn all(&self) -> Vec<Arc<Held>> {
        self.holds().by_deadline.values().filter_map(Weak::upgrade).collect()
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        lock(&self.holds)
    }

    // Messages

    /// Passes on what the server said on one of our channels.
    pub(crate) fn hear(&self, text: &[u8]) {
        match Message::parse(text) {
            Some(Message::Hold { event: Event::Granted, db, id, owner, reqid, key })
                if db == self.db =>
            {
                let place = self.places().get(&*place_name(key, owner)).cloned();
                if let Some(place) = place {
                    place.tell(id, reqid);
                }
            }
            Some(Message::Hold { event, db, id, owner, key, .. }) if db == self.db => {
                let how = match event {
                    Event::Broken => Lost::Broken,
                    Event::Deleted => Lost::Deleted,
                    Event::Disconnected => Lost::Disconnected,
                    Event::Expired | Event::Granted => Lost::Expired,
                };
                // First here, then to the holds: whoever adds a hold looks here after that, so nothing falls between.
                let place = self.places().get(&*place_name(key, owner)).cloned();
                if let Some(place) = place {
                    place.end(hold_name(id, key), how);
                }
                let same = self.holds().by_id.get(&*hold_name(id, key)).cloned();
                for held in same.into_iter().flatten().filter_map(|held| held.upgrade()) {
                    held.is_said_to_be_lost(how);
                }
            }
            Some(Message::Flushed { db }) if db == self.db => {
                // In a cluster it may have been another node; the watchdog asks for each hold.
                self.flushes.fetch_add(1, Ordering::AcqRel);
                self.renew_now.notify_one();
            }
            // Of another database, or of a later version of the server.
            _ => {}
        }
    }
}

/// An acquire that is being taken back; over when dropped.
pub(crate) struct Undoing {
    registry: Arc<Registry>,
    name: Box<[u8]>,
}

impl Drop for Undoing {
    fn drop(&mut self) {
        let mut undoing = lock(&self.registry.undoing);
        if let Entry::Occupied(mut count) = undoing.entry(self.name.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(undoing);
        self.registry.undone.notify_waiters();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the registry; leaves it when dropped.
pub(crate) struct Entered<'a> {
    registry: &'a Registry,
    name: Box<[u8]>,
    place: Arc<Place>,
}

impl Entered<'_> {
    /// What the last message said that came since this was asked.
    pub(crate) fn take_told(&self) -> Option<Told> {
        lock(&self.place.told).take()
    }

    /// Whether the server said that this hold has ended, before the registry knew it.
    pub(crate) fn ended(&self, held: &Held) -> Option<Lost> {
        let ended = lock(&self.place.ended);
        let of_held = held.grip.names();
        ended.iter().find(|(id, _)| of_held.contains(id)).map(|(_, how)| *how)
    }

    /// Returns when there is news.
    pub(crate) async fn news(&self) {
        self.place.news.notified().await;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut places = self.registry.places();
        if places.get(&self.name).is_some_and(|place| Arc::ptr_eq(place, &self.place)) {
            places.remove(&self.name);
        }
    }
}

impl Place {
    fn end(&self, id: Box<[u8]>, how: Lost) {
        lock(&self.ended).push((id, how));
    }

    /// A message said that request `reqid` was granted `id`. Anyone who may publish on our channel can say so, but does
    /// not know the ids of our requests.
    fn tell(&self, id: &[u8], reqid: &[u8]) {
        let is_ours = self.acquire.upgrade().is_some_and(|ask| ask.is_request(reqid));
        *lock(&self.told) = Some(if is_ours { Told::Granted(id.to_vec()) } else { Told::Other });
        self.news.notify_one();
    }
}

fn place_name(key: &[u8], owner: &[u8]) -> Box<[u8]> {
    // An owner has at most 256 bytes: two are enough to tell where it ends.
    let length = u16::try_from(owner.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&length[..], owner, key].concat().into()
}

/// How a hold is found by what a message says of it.
pub(crate) fn hold_name(id: &[u8], key: &[u8]) -> Box<[u8]> {
    [id, b" ", key].concat().into()
}
