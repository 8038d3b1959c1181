//! A hold and its requests: renewals, releases, and the tasks that wait for its loss. [`HoldState`] decides.

mod give_back;
mod grip;
mod lost;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
use crate::hold_state::{Change, HoldState};
pub(crate) use crate::hold_state::{InflightRenewal, LeaseTerms, RenewalReply, certain};

pub(crate) struct Held {
    pub(crate) core: Arc<Core>,
    pub(crate) grip: Grip,
    /// Never locked while the registry is called, which locks it.
    state: Mutex<HoldState>,
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

impl Held {
    /// A hold that is certain until `deadline`. The registry tracks it from now on.
    pub(crate) fn new(
        core: &Arc<Core>,
        grip: Grip,
        terms: LeaseTerms,
        deadline: Moment,
    ) -> Arc<Self> {
        let held = Arc::new(Self {
            core: core.clone(),
            grip,
            state: Mutex::new(HoldState::new(terms, deadline)),
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

    fn state(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn terms(&self) -> LeaseTerms {
        self.state().terms()
    }

    /// Tells the registry and the waiting tasks what a transition changed.
    fn apply(&self, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Earlier => self.core.registry.rearm(self),
            Change::Ended => self.core.registry.remove(self),
            Change::Lost(how) => {
                self.core.registry.remove(self);
                self.lost.send_replace(Some(how));
            }
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.state().deadline()
    }

    /// How long the hold is certain from now; zero once it is lost or being released.
    pub(crate) fn valid_for(&self) -> Duration {
        self.lost_now();
        self.state().valid_for(Moment::now())
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.terms().watched && !self.has_ended()
    }

    pub(crate) fn is_tied(&self) -> bool {
        self.terms().bind.is_some()
    }

    pub(crate) fn is_unclaimed(&self) -> bool {
        self.terms().unclaimed
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().has_ended()
    }

    /// The hold is over. Tasks that wait for its loss hear of it once.
    pub(crate) fn lose(&self, how: Lost) {
        let change = self.state().lose(how);
        self.apply(change);
    }

    /// How it was lost, if it was. An expired hold is lost, whether or not a timer has noticed.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        let (change, lost) = {
            let mut state = self.state();
            (state.expire(Moment::now()), state.lost())
        };
        self.apply(change);
        lost
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

    /// A connection was lost that was alive at `alive`: if the hold was bound to it, the server may have cut its lease.
    pub(crate) fn untied(&self, alive: Moment) {
        let change = self.state().disconnected(alive);
        self.apply(change);
    }

    /// The watchdog has to bind it again: its connection was lost.
    pub(crate) fn is_untied(&self) -> bool {
        self.state().is_unbound()
    }

    /// A renewal is about to be sent over that connection (0: unknown).
    fn begin_renewal(&self, lease: Duration, over: u64) -> InflightRenewal {
        let (renewal, change) = self.state().begin_renewal(Moment::now(), lease, over);
        self.apply(change);
        self.siblings_not_after(renewal.until());
        renewal
    }

    /// The reply to a renewal, or none.
    pub(crate) fn end_renewal(&self, renewal: InflightRenewal, reply: RenewalReply) {
        // Read before the state is locked: if the connection is lost in between, the state counts that.
        let connection = self.connection();
        let change = self.state().end_renewal(Moment::now(), renewal, reply, connection);
        self.apply(change);
        if matches!(reply, RenewalReply::Accepted | RenewalReply::AcceptedCopy) {
            // A sibling may have been granted after this renewal was sent.
            self.siblings_not_after(renewal.until());
        }
        if matches!(reply, RenewalReply::Unknown | RenewalReply::AcceptedCopy) {
            for sibling in self.siblings() {
                sibling.state().add_stray(renewal);
            }
        }
    }

    /// The other guards of the same hold of the server. An owner that no other task acts for has none.
    fn siblings(&self) -> Vec<Arc<Held>> {
        if self.terms().own_name { Vec::new() } else { self.core.registry.siblings(self) }
    }

    /// A renewal through one guard sets the end for all guards that share the hold.
    fn siblings_not_after(&self, moment: Moment) {
        for sibling in self.siblings() {
            let change = sibling.state().not_after(moment);
            sibling.apply(change);
        }
    }

    /// A key that tells the server.
    pub(crate) fn key(&self) -> &[u8] {
        self.grip.key()
    }

    /// The lease of a renewal by the watchdog. Never less than another guard of the same hold counts on: a renewal sets
    /// the end for all of them.
    fn lease(&self) -> Duration {
        let siblings = self.siblings();
        // A sibling's rest has its margin taken off already: the server's is longer by 1 % and 2 ms.
        let rest = siblings.iter().map(|sibling| sibling.valid_for()).max().unwrap_or_default();
        let rest = if siblings.is_empty() {
            Duration::ZERO
        } else {
            (rest + rest / 64 + Duration::from_millis(3)).min(LEASE_MAX)
        };
        self.terms().lease.max(rest)
    }

    /// What the watchdog sends over that connection, all of which must succeed: a renewal, or, for a hold that it does not
    /// renew, a request that binds it again for the rest of its lease.
    pub(crate) fn watchdog_renewal(&self, over: u64) -> (Vec<Cmd>, InflightRenewal) {
        let lease = if self.terms().watched {
            self.lease()
        } else {
            self.state().rest_of_lease(Moment::now())
        };
        let renewal = self.begin_renewal(lease, over);
        (self.renewals(lease), renewal)
    }

    /// The requests that renew it.
    fn renewals(&self, lease: Duration) -> Vec<Cmd> {
        let terms = self.terms();
        match &self.grip {
            Grip::Multi { .. } if !terms.own_name => self.grip.renewals_by_token(lease, terms.bind),
            grip => vec![grip.renewal(lease, terms.bind)],
        }
    }

    /// Sends requests of which each has to succeed. Whether one of them was sent more than once.
    async fn send_all(&self, requests: &[Cmd]) -> Result<bool, Error> {
        let mut repeated = false;
        for request in requests {
            let answer = self.core.exchange(self.key(), request, self.core.patience()).await?;
            repeated |= answer.repeated;
        }
        Ok(repeated)
    }

    /// As [`Held::send_all`], for the requests of a renewal, and notes the reply.
    async fn send_renewal(&self, requests: &[Cmd], renewal: InflightRenewal) -> Result<(), Error> {
        let sent = self.send_all(requests).await;
        self.end_renewal(
            renewal,
            match &sent {
                Ok(false) => RenewalReply::Accepted,
                Ok(true) => RenewalReply::AcceptedCopy,
                Err(error) if error.is_refusal() && !error.is_repeated() && requests.len() == 1 => {
                    RenewalReply::Refused
                }
                Err(_) => RenewalReply::Unknown,
            },
        );
        sent.map(drop)
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
        let sent = if self.is_watched() {
            let (renewals, renewal) = self.watchdog_renewal(self.connection());
            self.send_renewal(&renewals, renewal).await
        } else {
            let Some(check) = self.grip.check() else { return self.lose(how) };
            self.send_all(&[check]).await.map(drop)
        };
        match sent {
            Err(error) if matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Stale) => {
                self.lose(how);
            }
            // Held, or unknown: then its deadline stays.
            Ok(()) | Err(_) => {}
        }
    }

    /// Renews it now, for so long; a watched hold also from now on.
    pub(crate) async fn renew(&self, lease: Duration) -> Result<(), Error> {
        if let Some(lost) = self.lost_now() {
            return Err(Error::lost(lost));
        }
        self.state().set_lease(lease);
        let renewal = self.begin_renewal(lease, self.connection());
        match self.send_renewal(&self.renewals(lease), renewal).await {
            // It may have expired while the reply was on its way.
            Ok(()) => self.lost_now().map_or(Ok(()), |lost| Err(Error::lost(lost))),
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
        let change = self.state().end();
        self.apply(change);
    }
}

/// The longest lease there is.
const LEASE_MAX: Duration = Duration::from_millis(LEASE_MAX_MS);
