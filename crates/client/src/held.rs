//! A hold, as the client sees it: what it is, until when it is certain, and whether it was lost.

mod give_back;
mod grip;
mod lost;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dlock_wire::names::LEASE_MAX_MS;
use redis::Cmd;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) use self::grip::Grip;
pub use self::lost::{Lost, Released};
use crate::clock::{Moment, by_the_clock, sleep_until};
use crate::core::Core;
use crate::error::{Error, ErrorKind};

pub(crate) struct Held {
    pub(crate) core: Arc<Core>,
    pub(crate) grip: Grip,
    /// The lease of a renewal, in nanoseconds.
    lease: AtomicU64,
    /// Whether the watchdog renews it.
    watched: bool,
    bind: Option<Duration>,
    /// Granted by a message, and not yet claimed by a renewal.
    unclaimed: AtomicBool,
    /// How many renewals were sent.
    renewals: AtomicU64,
    /// Its tie was to a connection that is lost.
    untied: AtomicBool,
    /// In nanoseconds of our clock: the hold is certain until then.
    deadline: AtomicU64,
    /// When its lease ends, whatever the loss of a connection has cut off that.
    lease_ends: AtomicU64,
    /// Neither renewed nor watched any more: given back, or lost.
    ended: AtomicBool,
    given_back: AtomicBool,
    own_name: bool,
    /// The request id of its release, however often that is sent.
    release_id: OnceLock<String>,
    lost: watch::Sender<Option<Lost>>,
    /// Where the registry has it.
    pub(crate) armed: Armed,
}

/// A key of the registry's map of deadlines; only the registry touches it, under its lock.
#[derive(Default)]
pub(crate) struct Armed(Mutex<Option<(Moment, u64)>>);

impl Armed {
    pub(crate) fn set(&self, entry: (Moment, u64)) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }

    pub(crate) fn get(&self) -> (Moment, u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or((Moment::NEVER, u64::MAX))
    }
}

/// What is taken off a lease for clocks that do not run alike: 1 % and 2 ms, as in the Redlock algorithm of the
/// Redis documentation.
pub(crate) fn certain(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}

/// How long a hold lasts and who keeps it alive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) watched: bool,
    pub(crate) bind: Option<Duration>,
    pub(crate) unclaimed: bool,
    /// Nobody else acts for the owner: a release that is sent twice counts once without a request id.
    pub(crate) own_name: bool,
}

/// A renewal that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewing {
    /// Which of the hold's renewals: 1, 2, 3, …
    number: u64,
    sent: Moment,
    lease: Duration,
    /// Over which of the shared connections; 0: not known.
    over: u64,
}

impl Renewing {
    /// How long the hold is certain if the server gets it.
    fn until(self) -> Moment {
        self.sent.after(certain(self.lease))
    }
}

impl Held {
    /// A hold that is certain until `deadline`, from now on watched.
    pub(crate) fn new(core: &Arc<Core>, grip: Grip, terms: Terms, deadline: Moment) -> Arc<Self> {
        let held = Arc::new(Self {
            core: core.clone(),
            grip,
            lease: AtomicU64::new(nanos(terms.lease)),
            watched: terms.watched,
            bind: terms.bind,
            unclaimed: AtomicBool::new(terms.unclaimed),
            renewals: AtomicU64::new(0),
            untied: AtomicBool::new(false),
            deadline: AtomicU64::new(deadline.nanos()),
            lease_ends: AtomicU64::new(deadline.nanos()),
            ended: AtomicBool::new(false),
            given_back: AtomicBool::new(false),
            own_name: terms.own_name,
            release_id: OnceLock::new(),
            lost: watch::Sender::new(None),
            armed: Armed::default(),
        });
        core.registry.add(&held);
        if terms.unclaimed {
            core.registry.claim_before_long();
        }
        held
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn valid_for(&self) -> Duration {
        if self.lost_now().is_some() || self.has_ended() {
            Duration::ZERO
        } else {
            self.deadline().since(Moment::now())
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched && !self.has_ended()
    }

    pub(crate) fn is_tied(&self) -> bool {
        self.bind.is_some()
    }

    pub(crate) fn is_unclaimed(&self) -> bool {
        self.unclaimed.load(Ordering::Relaxed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The hold is over; says it once.
    pub(crate) fn lose(&self, how: Lost) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.core.registry.remove(self);
            self.lost.send_replace(Some(how));
        }
    }

    /// How it was lost, if it was; a hold whose time is over is lost, whether or not somebody has noticed.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        if !self.has_ended() && self.deadline() <= Moment::now() {
            self.lose(Lost::Expired);
        }
        *self.lost.borrow()
    }

    /// Resolves when it is lost; never, if it is released before.
    pub(crate) fn lost(self: &Arc<Self>) -> impl Future<Output = Lost> + Send + 'static {
        let mut lost = self.lost.subscribe();
        let held = self.clone();
        let clock = self.clone();
        let told = async move {
            loop {
                if let Some(how) = *lost.borrow_and_update() {
                    return how;
                }
                // The client's own runtime may have ended: whoever waits looks at the clock, too.
                let own_look = async {
                    if Handle::try_current().is_ok() && !held.has_ended() {
                        sleep_until(held.deadline()).await;
                    } else {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    changed = lost.changed() => if changed.is_err() {
                        std::future::pending::<()>().await;
                    },
                    () = own_look => {
                        held.lost_now();
                    }
                }
            }
        };
        by_the_clock(move || clock.lost_now(), told)
    }

    /// Whether its key belongs to that server, as far as is known.
    pub(crate) fn is_at(&self, server: &str) -> bool {
        self.core.routes.server_of(self.key()).is_none_or(|now| now.name == server)
    }

    /// Which connection to its server is up; 0: none.
    fn connection(&self) -> u64 {
        self.core.routes.server_of(self.key()).map_or(0, |server| server.link.generation())
    }

    /// A connection was lost that was last known to live at `alive`: if the hold was tied to it, the server may have cut
    /// its lease since.
    pub(crate) fn untied(&self, alive: Moment) {
        let Some(bind) = self.bind else { return };
        self.untied.store(true, Ordering::Release);
        self.not_after(alive.after(certain(bind)));
    }

    /// The server may end it then.
    fn not_after(&self, moment: Moment) {
        if self.deadline.fetch_min(moment.nanos(), Ordering::AcqRel) > moment.nanos() {
            self.core.registry.rearm(self);
        }
    }

    /// It is to be tied anew: its connection was lost, and a new one may be there.
    pub(crate) fn is_untied(&self) -> bool {
        self.untied.load(Ordering::Acquire) && !self.has_ended()
    }

    /// A renewal for so long, about to be sent over that connection. From now on the hold may end when that lease does:
    /// nobody knows when the server gets the request, nor whether its answer arrives.
    fn renewing(&self, lease: Duration, over: u64) -> Renewing {
        let number = self.renewals.fetch_add(1, Ordering::AcqRel) + 1;
        let renewing = Renewing { number, sent: Moment::now(), lease, over };
        self.not_after(renewing.until());
        self.siblings_not_after(renewing.until());
        renewing
    }

    /// A renewal of one guard's hold sets the end for all guards that share it.
    fn siblings_not_after(&self, moment: Moment) {
        if !self.own_name {
            for sibling in self.core.registry.siblings(self) {
                sibling.not_after(moment);
            }
        }
    }

    /// The server has renewed it.
    fn renewed(&self, renewing: Renewing) {
        let until = renewing.until();
        self.unclaimed.store(false, Ordering::Relaxed);
        // Of several renewals on their way the one that was sent last is true, but their answers may come in another
        // order. And one that the loss of its connection has overtaken does not undo that its tie was cut.
        let last = renewing.number == self.renewals.load(Ordering::Acquire);
        let tied = || self.bind.is_none() || renewing.over == self.connection();
        if last {
            self.lease_ends.store(until.nanos(), Ordering::Release);
        }
        if last && tied() {
            self.untied.store(false, Ordering::Release);
            let before = self.deadline.swap(until.nanos(), Ordering::AcqRel);
            if before > until.nanos() {
                self.core.registry.rearm(self);
            }
            if !tied() {
                // Lost in this moment: the cut may be what was just overwritten.
                self.untied.store(true, Ordering::Release);
                self.not_after(Moment::from_nanos(before));
            }
        } else {
            self.not_after(until);
        }
        // One of them may have come after the renewal was sent.
        self.siblings_not_after(until);
    }

    /// A key that tells the server.
    pub(crate) fn key(&self) -> &[u8] {
        self.grip.key()
    }

    /// How long a renewal is to be for that nobody has asked for. Never less than what another guard of the same hold
    /// counts on: a renewal sets the end for all of them.
    fn lease(&self) -> Duration {
        let lease = Duration::from_nanos(self.lease.load(Ordering::Acquire));
        if self.own_name {
            return lease;
        }
        let siblings = self.core.registry.siblings(self);
        // A sibling's rest has its margin taken off already: the server's is longer by 1 % and 2 ms.
        let rest = siblings.iter().map(|sibling| sibling.valid_for()).max().unwrap_or_default();
        lease.max(rest + rest / 64 + Duration::from_millis(3)).min(LEASE_MAX)
    }

    /// What the watchdog sends over that connection, all of which must succeed: a renewal; or, for a hold that it does not
    /// renew, what ties it anew for what is left of its lease.
    pub(crate) fn watchdog_renewal(&self, over: u64) -> (Vec<Cmd>, Renewing) {
        let lease = if self.watched {
            self.lease()
        } else {
            let ends = Moment::from_nanos(self.lease_ends.load(Ordering::Acquire));
            ends.since(Moment::now()).max(Duration::from_millis(1))
        };
        let renewing = self.renewing(lease, over);
        (self.renewals(lease), renewing)
    }

    /// What came of it: one that ended meanwhile stays ended, because another client may have been told otherwise.
    pub(crate) fn watchdog_renewed(&self, renewing: Renewing) {
        if self.lost_now().is_none() {
            self.renewed(renewing);
        }
    }

    /// The requests that renew it.
    fn renewals(&self, lease: Duration) -> Vec<Cmd> {
        match &self.grip {
            Grip::Multi { .. } if !self.own_name => self.grip.renewals_by_token(lease, self.bind),
            grip => vec![grip.renewal(lease, self.bind)],
        }
    }

    /// Sends requests of which each has to succeed.
    async fn send_all(&self, requests: &[Cmd]) -> Result<(), Error> {
        for request in requests {
            self.core.send(self.key(), request, self.core.patience()).await?;
        }
        Ok(())
    }

    /// What a message says.
    pub(crate) fn is_said_to_be_lost(self: &Arc<Self>, how: Lost) {
        if how == Lost::Deleted && self.core.routes.is_cluster() {
            // A key that moves to another node is deleted at this one.
            self.core.runtime.spawn(self.clone().verify(how));
        } else {
            self.lose(how);
        }
    }

    /// The server said that it is gone, which may mean that it is elsewhere: asks, and loses it only if that is so.
    pub(crate) async fn verify(self: Arc<Self>, how: Lost) {
        let (questions, renewing) = if self.is_watched() {
            let (renewals, renewing) = self.watchdog_renewal(self.connection());
            (renewals, Some(renewing))
        } else {
            (Vec::from_iter(self.grip.check()), None)
        };
        if questions.is_empty() {
            return self.lose(how);
        }
        match self.send_all(&questions).await {
            Ok(()) => {
                if let Some(renewing) = renewing {
                    self.watchdog_renewed(renewing);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Stale) => {
                self.lose(how);
            }
            // Nobody knows: its deadline stays.
            Err(_) => {}
        }
    }

    /// Renews it now, for so long; a watched hold also from now on.
    pub(crate) async fn renew(&self, lease: Duration) -> Result<(), Error> {
        if let Some(lost) = self.lost_now() {
            return Err(Error::lost(lost));
        }
        self.lease.store(nanos(lease), Ordering::Release);
        let renewing = self.renewing(lease, self.connection());
        match self.send_all(&self.renewals(lease)).await {
            Ok(()) => {
                // It may have been over while the answer was on its way: then nobody may count on it any more.
                if let Some(lost) = self.lost_now() {
                    return Err(Error::lost(lost));
                }
                self.renewed(renewing);
                Ok(())
            }
            Err(error) => {
                if error.kind() == ErrorKind::NotHeld {
                    self.lose(Lost::Refused);
                }
                Err(error)
            }
        }
    }

    /// No more renewals.
    pub(crate) fn end(&self) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.core.registry.remove(self);
        }
    }
}

/// The longest lease there is.
const LEASE_MAX: Duration = Duration::from_millis(LEASE_MAX_MS);

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
