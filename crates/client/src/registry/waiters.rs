//! Acquires that wait for the server, and those that are being rolled back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::base::hold_ref::hold_name;
use crate::base::lost::Lost;
use crate::state::tracked::TrackedHold;

/// An acquire that can be rolled back over the shared connection.
pub(crate) trait PendingRequest: Send + Sync {
    /// Whether its requests carry this id.
    fn is_request(&self, id: &[u8]) -> bool;

    /// Cancels it in the background, and releases what it was granted. It sends nothing more.
    fn roll_back(self: Arc<Self>);
}

type ByName = HashMap<Box<[u8]>, Vec<Arc<WaitingAcquire>>>;

/// The acquires of one client, by key and owner.
#[derive(Default)]
pub(crate) struct Waiters {
    /// More than one where tasks use one owner at a time.
    waiting: Mutex<ByName>,
    /// How many acquires of that name are being rolled back.
    rollbacks: Mutex<HashMap<Box<[u8]>, usize>>,
    rolled_back: Notify,
}

type EndedHold = (Box<[u8]>, Box<[u8]>, Lost);

/// What messages say to one acquire.
pub(crate) struct WaitingAcquire {
    request: Option<Weak<dyn PendingRequest>>,
    announcement: Mutex<Option<Announcement>>,
    /// Holds of this owner that ended before the registry knew them: name, key, and how.
    ended: Mutex<Vec<EndedHold>>,
    news: Notify,
}

/// A message that an acquire was granted.
pub(crate) enum Announcement {
    /// It names our own request: the token or permit id.
    Granted(Vec<u8>),
    /// It names another request of that owner, is forged, or ended a wait: only the server knows.
    Other,
    /// A later request of that owner took over the place of our own.
    Replaced,
}

impl Waiters {
    fn waiting(&self) -> MutexGuard<'_, ByName> {
        lock(&self.waiting)
    }

    /// From now on, messages about this owner and key reach the acquire.
    pub(crate) fn register(
        &self,
        key: &[u8],
        owner: &[u8],
        request: Option<Weak<dyn PendingRequest>>,
    ) -> Registered<'_> {
        let name = waiter_name(key, owner);
        let acquire = Arc::new(WaitingAcquire {
            request,
            announcement: Mutex::default(),
            ended: Mutex::default(),
            news: Notify::new(),
        });
        self.waiting().entry(name.clone()).or_default().push(acquire.clone());
        Registered { waiters: self, name, acquire }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Every acquire that can be rolled back over the shared connection.
    pub(crate) fn requests(&self) -> Vec<Arc<dyn PendingRequest>> {
        let requests = |acquire: &Arc<WaitingAcquire>| acquire.request.as_ref()?.upgrade();
        self.waiting().values().flatten().filter_map(requests).collect()
    }

    /// The acquires of that key and owner: only the one that made request `reqid`, if there is one.
    pub(crate) fn find(&self, key: &[u8], owner: &[u8], reqid: &[u8]) -> Vec<Arc<WaitingAcquire>> {
        let waiting = self.waiting();
        let Some(same) = waiting.get(&*waiter_name(key, owner)) else { return Vec::new() };
        match same.iter().find(|acquire| acquire.is_request(reqid)) {
            Some(acquire) => vec![acquire.clone()],
            None => same.clone(),
        }
    }

    /// A rollback begins: until the result is dropped, other acquires of that key and owner wait.
    pub(crate) fn begin_rollback(self: &Arc<Self>, key: &[u8], owner: &[u8]) -> Rollback {
        let name = waiter_name(key, owner);
        *lock(&self.rollbacks).entry(name.clone()).or_default() += 1;
        Rollback { waiters: self.clone(), name }
    }

    /// Returns when no acquire of that key and owner is being rolled back.
    pub(crate) async fn rolled_back(&self, key: &[u8], owner: &[u8]) {
        let name = waiter_name(key, owner);
        loop {
            let mut rolled_back = std::pin::pin!(self.rolled_back.notified());
            rolled_back.as_mut().enable();
            if !lock(&self.rollbacks).contains_key(&name) {
                return;
            }
            rolled_back.await;
        }
    }
}

/// An acquire that is being rolled back, until this is dropped.
pub(crate) struct Rollback {
    waiters: Arc<Waiters>,
    name: Box<[u8]>,
}

impl Drop for Rollback {
    fn drop(&mut self) {
        let mut rollbacks = lock(&self.waiters.rollbacks);
        if let Entry::Occupied(mut count) = rollbacks.entry(self.name.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(rollbacks);
        self.waiters.rolled_back.notify_waiters();
    }
}

/// An acquire in the registry, until this is dropped.
pub(crate) struct Registered<'a> {
    waiters: &'a Waiters,
    name: Box<[u8]>,
    acquire: Arc<WaitingAcquire>,
}

impl Registered<'_> {
    /// The last announcement since the last call.
    pub(crate) fn take_announcement(&self) -> Option<Announcement> {
        lock(&self.acquire.announcement).take()
    }

    /// Whether the server said that this hold has ended, before the registry knew it: how, and at which key.
    pub(crate) fn ended(&self, hold: &TrackedHold) -> Option<(Lost, Box<[u8]>)> {
        let ended = lock(&self.acquire.ended);
        if ended.is_empty() {
            return None;
        }
        let names = hold.hold_ref.names();
        let found = ended.iter().find(|(name, ..)| names.contains(name));
        found.map(|(_, key, how)| (*how, key.clone()))
    }

    /// Returns when there is news.
    pub(crate) async fn news(&self) {
        self.acquire.news.notified().await;
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        let mut waiting = self.waiters.waiting();
        if let Entry::Occupied(mut same) = waiting.entry(name) {
            same.get_mut().retain(|acquire| !Arc::ptr_eq(acquire, &self.acquire));
            if same.get().is_empty() {
                same.remove();
            }
        }
    }
}

impl WaitingAcquire {
    /// A message said that a hold of this owner has ended.
    pub(super) fn report_ended(&self, id: &[u8], key: &[u8], how: Lost) {
        lock(&self.ended).push((hold_name(id, key), key.into(), how));
    }

    /// A message said that request `reqid` was granted `id`. Any client that may publish on our channel can send it,
    /// but it does not know the ids of our requests.
    pub(super) fn announce(&self, id: &[u8], reqid: &[u8]) {
        let is_ours = self.is_request(reqid);
        let announcement =
            if is_ours { Announcement::Granted(id.to_vec()) } else { Announcement::Other };
        *lock(&self.announcement) = Some(announcement);
        self.news.notify_one();
    }

    /// A message said that the place of request `reqid` was taken over.
    pub(super) fn report_replaced(&self, reqid: &[u8]) {
        if self.is_request(reqid) {
            *lock(&self.announcement) = Some(Announcement::Replaced);
            self.news.notify_one();
        }
    }

    /// A message said that request `reqid` waits no more: the server knows why.
    pub(super) fn ask_again(&self, reqid: &[u8]) {
        if self.is_request(reqid) {
            *lock(&self.announcement) = Some(Announcement::Other);
            self.news.notify_one();
        }
    }

    fn is_request(&self, reqid: &[u8]) -> bool {
        let request = self.request.as_ref().and_then(Weak::upgrade);
        request.is_some_and(|request| request.is_request(reqid))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn waiter_name(key: &[u8], owner: &[u8]) -> Box<[u8]> {
    // An owner has at most 256 bytes: two are enough to tell where it ends.
    let length = u16::try_from(owner.len()).unwrap_or(u16::MAX).to_le_bytes();
    [&length[..], owner, key].concat().into()
}
