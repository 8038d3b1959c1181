//! Drives an [`Attempt`]: sends its calls, and passes it the answers and the time.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use dlock_client::internal::{self, CloseGuard, Moment, Options, millis, sleep_until};
use dlock_client::{Client, Error, ErrorKind, Lost};
use dlock_wire::request::{Acquire, Fence, LockFamily, LockOp, Op, Release, Renew};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};

use crate::attempt::{Answer, Attempt, QuorumCall, QuorumRequest, Standing, Terms};
use crate::tally::Tally;
use crate::view::View;

/// What the calls of one attempt are made of.
struct Requests {
    servers: Arc<[Client]>,
    key: Arc<[u8]>,
    /// Of this attempt alone: no other task releases or renews its grants.
    owner: String,
    /// One for each server.
    reqids: Vec<String>,
    contacts: Vec<Contact>,
    options: Options,
    terms: Terms,
}

/// Whether a server was asked for the lock. Nothing is sent to one that is down, so nothing has to be released there
/// later: locks that come and go while it is down leave nothing behind that waits for it.
#[derive(Default)]
struct Contact {
    /// None: not yet.
    asked: OnceLock<bool>,
    /// It is not to be asked any more.
    given_up: Notify,
}

impl Contact {
    /// To be called before the ACQUIRE is sent. False: it must not be.
    fn may_send(&self) -> bool {
        *self.asked.get_or_init(|| true)
    }

    /// True if it was never asked, and will not be.
    fn give_up(&self) -> bool {
        let never = !self.asked.get_or_init(|| false);
        if never {
            self.given_up.notify_one();
        }
        never
    }
}

struct AnsweredCall {
    call: QuorumCall,
    answer: Result<Answer, Error>,
}

/// The task of one attempt.
pub(crate) struct Driver {
    requests: Arc<Requests>,
    runtime: Handle,
    attempt: Attempt,
    begun: Moment,
    renew_at: Option<Moment>,
    answers: mpsc::UnboundedSender<AnsweredCall>,
    /// One for each server.
    open_calls: Vec<OpenCalls>,
    view: watch::Sender<View>,
}

/// Calls to one server that have no answer.
struct OpenCalls {
    calls: usize,
    /// A client that closes waits for this: none of its server's holds is left when it is dropped.
    cleanup: Option<CloseGuard>,
}

impl OpenCalls {
    fn to(server: &Client) -> Self {
        Self { calls: 0, cleanup: Some(internal::begin_cleanup(server)) }
    }
}

/// Returns when one of these clients closes, or its runtime ends.
pub(crate) async fn any_closes(servers: &[Client]) {
    let mut all: Vec<_> =
        servers.iter().map(|client| Box::pin(internal::closing(client))).collect();
    std::future::poll_fn(|context| {
        // Each of them: only those that are polled wake this task.
        let closing =
            all.iter_mut().filter_map(|one| one.as_mut().poll(context).is_ready().then_some(()));
        if closing.count() > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl Driver {
    /// Begins an attempt. It goes on until the sender is dropped or used, or the lock is lost, and until all is given
    /// back.
    pub(crate) fn start(
        servers: &Arc<[Client]>,
        key: &Arc<[u8]>,
        options: &Options,
        terms: Terms,
    ) -> Result<(mpsc::Sender<()>, watch::Receiver<View>), Error> {
        let Some(runtime) = servers.first().map(internal::runtime) else {
            return Err(internal::invalid("a quorum lock needs at least one server"));
        };
        let requests = Requests {
            servers: servers.clone(),
            key: key.clone(),
            owner: internal::unique_name(),
            reqids: servers.iter().map(|_| internal::unique_name()).collect(),
            contacts: servers.iter().map(|_| Contact::default()).collect(),
            options: options.clone(),
            terms,
        };
        let (orders, ordered) = mpsc::channel(1);
        let begun = Moment::now();
        // A lease that nothing renews ends by itself.
        let max_hold = options.max_hold.filter(|_| !options.is_fixed);
        let (attempt, calls) = Attempt::start(servers.len(), terms);
        let (view, seen) = watch::channel(View {
            standing: Standing::Pending,
            until: begun,
            ends_by: max_hold.map_or(Moment::NEVER, |time| begun.after(time)),
            overdue: false,
            tally: Tally::default(),
            closed: false,
            settled: false,
            error: None,
        });
        let (answers, answered) = mpsc::unbounded_channel();
        let mut driver = Self {
            requests: Arc::new(requests),
            runtime: runtime.clone(),
            attempt,
            begun,
            renew_at: None,
            answers,
            open_calls: servers.iter().map(OpenCalls::to).collect(),
            view,
        };
        driver.send(calls);
        runtime.spawn(driver.run(answered, ordered));
        Ok((orders, seen))
    }

    async fn run(
        mut self,
        mut answered: mpsc::UnboundedReceiver<AnsweredCall>,
        mut ordered: mpsc::Receiver<()>,
    ) {
        let mut released = false;
        let requests = self.requests.clone();
        let mut closing = pin!(any_closes(&requests.servers));
        loop {
            self.tick();
            self.publish();
            if self.is_settled() {
                return;
            }
            self.forget_servers_without_holds();
            tokio::select! {
                biased;
                Some(answered) = answered.recv() => {
                    self.hear(answered);
                    continue;
                }
                _ = ordered.recv(), if !released => {}
                () = &mut closing, if !released => {
                    let is_over = self.attempt.is_over();
                    self.view.send_modify(|view| view.closed = !is_over);
                }
                () = sleep_until(self.overdue_at()), if !released => {
                    self.view.send_modify(|view| view.overdue = true);
                }
                () = sleep_until(self.due()) => continue,
            }
            released = true;
            let calls = self.attempt.release();
            self.send(calls);
        }
    }

    fn is_settled(&self) -> bool {
        self.attempt.is_over() && self.open_calls.iter().all(|server| server.calls == 0)
    }

    /// A client that closes need not wait for the answers of other servers.
    fn forget_servers_without_holds(&mut self) {
        if self.attempt.is_over() {
            for server in self.open_calls.iter_mut().filter(|server| server.calls == 0) {
                server.cleanup = None;
            }
        }
    }

    fn now(&self) -> Duration {
        Moment::now().since(self.begun)
    }

    /// When to look at the clock next.
    fn due(&self) -> Moment {
        let tick = self.attempt.next_tick().map(|due| self.begun.after(due));
        [tick, self.renew_at].into_iter().flatten().min().unwrap_or(Moment::NEVER)
    }

    /// When the lock, if it is held, has been held for too long.
    fn overdue_at(&self) -> Moment {
        match self.attempt.standing() {
            Standing::Held { .. } => self.view.borrow().ends_by,
            _ => Moment::NEVER,
        }
    }

    fn tick(&mut self) {
        let calls = self.attempt.tick(self.now());
        self.send(calls);
        let held = matches!(self.attempt.standing(), Standing::Held { .. });
        let third = self.requests.terms.lease / 3;
        match self.renew_at {
            _ if !held || self.requests.options.is_fixed => self.renew_at = None,
            None => self.renew_at = Some(self.begun.after(third)),
            Some(at) if at <= Moment::now() => {
                // The time from which the renewed lease is counted, before anything is sent.
                let now = Moment::now();
                let calls = self.attempt.renew(now.since(self.begun));
                self.send(calls);
                self.renew_at = Some(now.after(third));
            }
            Some(_) => {}
        }
    }

    fn hear(&mut self, answered: AnsweredCall) {
        let AnsweredCall { call, answer } = answered;
        if let Some(server) = self.open_calls.get_mut(call.server) {
            server.calls -= 1;
        }
        if call.request == QuorumRequest::End {
            self.view.send_modify(|view| match answer {
                Ok(Answer::Token(_)) => view.tally.released += 1,
                Ok(Answer::No) => view.tally.gone += 1,
                Ok(Answer::Unknown) => view.tally.unknown += 1,
                Err(_) => {}
            });
        }
        let answer = answer.unwrap_or_else(|error| {
            self.view.send_modify(|view| {
                let telling = |error: &Error| error.kind() != ErrorKind::Unavailable;
                if view.error.as_ref().is_none_or(|known| !telling(known) && telling(&error)) {
                    view.error = Some(error);
                }
            });
            Answer::Unknown
        });
        let calls = self.attempt.answered(self.now(), call, answer);
        self.send(calls);
    }

    fn publish(&self) {
        let standing = self.attempt.standing();
        let settled = self.is_settled();
        self.view.send_if_modified(|view| {
            let changed = view.standing != standing || view.settled != settled;
            view.standing = standing;
            view.settled = settled;
            if let Standing::Held { until, .. } = standing {
                view.until = self.begun.after(until).min(view.ends_by);
            }
            changed
        });
    }

    fn send(&mut self, calls: Vec<QuorumCall>) {
        let parts = calls.iter().filter(|call| call.request == QuorumRequest::End).count();
        if parts > 0 {
            self.view.send_modify(|view| view.tally.parts += parts);
        }
        for call in calls {
            if let Some(server) = self.open_calls.get_mut(call.server) {
                server.calls += 1;
            }
            let (requests, answers) = (self.requests.clone(), self.answers.clone());
            self.runtime.spawn(async move {
                let answer = requests.send(call).await;
                // An error: the runtime ends.
                let _ = answers.send(AnsweredCall { call, answer });
            });
        }
    }
}

impl Requests {
    /// Asks one server, and understands its answer.
    async fn send(&self, call: QuorumCall) -> Result<Answer, Error> {
        let server = call.server;
        let (Some(client), Some(reqid), Some(contact)) =
            (self.servers.get(server), self.reqids.get(server), self.contacts.get(server))
        else {
            return Ok(Answer::No);
        };
        match call.request {
            QuorumRequest::Acquire => {
                let connected = client.core().connected(&self.key, self.terms.timeout);
                tokio::select! {
                    connected = connected => if let Err(error) = connected {
                        contact.give_up();
                        return Err(error);
                    },
                    () = contact.given_up.notified() => {}
                }
                if !contact.may_send() {
                    return Err(internal::error(ErrorKind::Unavailable, "no connection in time"));
                }
            }
            QuorumRequest::Release if contact.give_up() => return Ok(Answer::Unknown),
            _ => {}
        }
        let (key, owner) = (&*self.key, self.owner.as_bytes());
        let lease_ms = Some(millis(self.terms.lease));
        let reqid = Some(reqid.as_bytes());
        let (op, within) = match call.request {
            QuorumRequest::Acquire => {
                let mut acquire = Acquire::new(key, owner);
                acquire.lease_ms = lease_ms;
                acquire.reqid = reqid;
                acquire.label = self.options.label.as_deref();
                (LockOp::Acquire(acquire), self.terms.timeout)
            }
            QuorumRequest::Fence(token) => {
                (LockOp::Fence(Fence { key, owner, token }), self.terms.timeout)
            }
            QuorumRequest::Renew { token, .. } => {
                let renew = Renew { key, owner, lease_ms, token: Some(token), bind_ms: None };
                (LockOp::Renew(renew), self.terms.lease / 3)
            }
            QuorumRequest::Release | QuorumRequest::End => {
                // After a lease there is nothing left to release.
                let within = self.terms.lease.min(internal::retry_for(client));
                (LockOp::Release(Release { reqid, ..Release::new(key, owner) }), within)
            }
        };
        let request = internal::command(Op::Lock(LockFamily::Lock, op));
        match client.core().ask(key, request, within).await {
            Ok(reply) => Ok(internal::read_or_null(reply)?.map_or(Answer::No, Answer::Token)),
            Err(error) => match error.kind() {
                // A lease that ended after the work covered it.
                ErrorKind::Lost { reason: Lost::Expired, .. } => Ok(Answer::Token(0)),
                ErrorKind::Lost { .. }
                | ErrorKind::NotHeld
                | ErrorKind::Quarantine
                | ErrorKind::Diverged => Ok(Answer::No),
                ErrorKind::ReleaseUnknown => Ok(Answer::Unknown),
                _ => Err(error),
            },
        }
    }
}
