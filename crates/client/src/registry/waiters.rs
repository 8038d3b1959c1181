//! Acquires that wait for the server, by the ids of their requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dlock_wire::message::Event;
use tokio::sync::Notify;

use crate::base::lost::Lost;

/// An acquire that can be given up.
pub(crate) trait PendingRequest: Send + Sync {
    /// Releases in the background what it has. It sends nothing more.
    fn give_up(self: Arc<Self>);
}

/// The acquires of one client.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<Box<[u8]>, WaitingAcquire>>);

struct WaitingAcquire {
    request: Weak<dyn PendingRequest>,
    heard: Arc<Heard>,
}

/// What messages say to one acquire.
#[derive(Default)]
struct Heard {
    last: Mutex<Option<Announcement>>,
    news: Notify,
}

/// A message about an acquire.
pub(crate) enum Announcement {
    /// It was granted: the token or permit id. Only the server knows the id of the request, and says this once.
    Granted(Vec<u8>),
    /// Anything else, perhaps that its hold has ended so. The server knows.
    Other(Option<Lost>),
    /// A later request of that owner took over its place.
    Replaced,
}

impl Waiters {
    fn waiting(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, WaitingAcquire>> {
        lock(&self.0)
    }

    /// From now on, messages with this id reach the acquire.
    pub(crate) fn register(
        &self,
        reqid: &str,
        request: Weak<dyn PendingRequest>,
    ) -> Registered<'_> {
        let (reqid, heard): (Box<[u8]>, _) = (reqid.as_bytes().into(), Arc::<Heard>::default());
        self.waiting().insert(reqid.clone(), WaitingAcquire { request, heard: heard.clone() });
        Registered { waiters: self, reqid, heard }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Every acquire under way.
    pub(crate) fn requests(&self) -> Vec<Arc<dyn PendingRequest>> {
        self.waiting().values().filter_map(|acquire| acquire.request.upgrade()).collect()
    }

    /// A message about the request with this id, or about its hold.
    pub(super) fn hear(&self, event: Event, id: &[u8], reqid: &[u8]) {
        if let Some(acquire) = self.waiting().get(reqid) {
            acquire.heard.tell(match event {
                Event::Granted => Announcement::Granted(id.to_vec()),
                Event::Replaced => Announcement::Replaced,
                _ => Announcement::Other(ended(event)),
            });
        }
    }

    /// Every acquire asks the server again.
    pub(super) fn ask_all(&self) {
        for acquire in self.waiting().values() {
            acquire.heard.tell(Announcement::Other(Some(Lost::Flushed)));
        }
    }
}

impl Heard {
    fn tell(&self, what: Announcement) {
        *lock(&self.last) = Some(what);
        self.news.notify_one();
    }
}

/// An acquire in the registry, until this is dropped.
pub(crate) struct Registered<'a> {
    waiters: &'a Waiters,
    reqid: Box<[u8]>,
    heard: Arc<Heard>,
}

impl Registered<'_> {
    /// The last announcement since the last call.
    pub(crate) fn take_announcement(&self) -> Option<Announcement> {
        lock(&self.heard.last).take()
    }

    /// Returns when there is news.
    pub(crate) async fn news(&self) {
        self.heard.news.notified().await;
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.waiters.waiting().remove(&self.reqid);
    }
}

/// How a hold ended, if a message says that one has.
pub(super) fn ended(event: Event) -> Option<Lost> {
    match event {
        Event::Broken => Some(Lost::Broken),
        Event::Deleted => Some(Lost::Deleted),
        Event::Disconnected => Some(Lost::Disconnected),
        Event::Expired => Some(Lost::Expired),
        Event::Granted | Event::Offered | Event::Replaced | Event::Deadlock => None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
