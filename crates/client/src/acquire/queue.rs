//! Waiting in the server's queue, over the shared connection: a message reports the grant.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::pending::{Grant, LEAVE_WITHIN, PendingAcquire, WaitRequest};
use crate::base::clock::{Moment, certain};
use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::connection::exchange::Sent;
use crate::connection::route::Server;
use crate::registry::{Announcement, Registered};

impl PendingAcquire {
    /// Waits in the queue until a message reports the grant.
    pub(super) async fn queue(
        &self,
        deadline: Deadline,
        registered: &Registered<'_>,
    ) -> Result<Option<Grant>, Error> {
        let routes = &self.core.routes;
        let repeat_after = self.core.ctx.settings.queue / 2;
        // From the first message on, and after a lost connection, others may know the id of this request. Then a
        // message could be forged, and is not trusted without asking the server.
        let mut is_secret = true;
        loop {
            let server = routes.server_of(self.key());
            let until = match deadline {
                // However short the wait: the server is given time to say no.
                Deadline::At(end) => end.max(Instant::now() + LEAVE_WITHIN),
                _ => self.core.ctx.retry_until(),
            };
            let (reply, sent) = self.send(WaitRequest::Queue, until).await?;
            self.was_sent.store(true, Ordering::Relaxed);
            if let Some(grant) = self.granted(reply, sent.clone())? {
                return Ok(Some(grant));
            }
            // Not ours when this was answered. From here on, a message can say that it is.
            let end = deadline.within(repeat_after);
            // A message that is here by now may have come before the answer: of a grant that had lapsed by then.
            let mut after_answer = false;
            loop {
                match registered.take_announcement() {
                    Some(Announcement::Granted(id)) => {
                        let was_secret = std::mem::replace(&mut is_secret, false);
                        match self.announced(&id, sent.clone(), after_answer && was_secret).await? {
                            Some(grant) => return Ok(Some(grant)),
                            None => break,
                        }
                    }
                    Some(Announcement::Replaced) => {
                        // CANCEL would end the wait of the later request.
                        self.may_remain.store(false, Ordering::Relaxed);
                        return Err(Error::replaced(self.key(), &self.owner));
                    }
                    // It says nothing for certain. The server knows.
                    Some(Announcement::Other) => break,
                    None => {}
                }
                tokio::select! {
                    biased;
                    () = registered.news() => after_answer = true,
                    () = self.waiter_lost(server.as_ref(), sent.generation()) => {
                        is_secret = false;
                        break;
                    }
                    () = tokio::time::sleep_until(end) => break,
                }
            }
            if deadline.is_over() {
                return Ok(self.leave().await);
            }
        }
    }

    /// Returns when another connection replaced that of the request, or the key has moved to another server.
    async fn waiter_lost(&self, server: Option<&Arc<Server>>, generation: u64) {
        match server {
            Some(server) => tokio::select! {
                () = server.link.replaced(generation) => {}
                () = self.core.routes.left(self.key(), server) => {}
            },
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }

    /// A message reported the grant. The server made it after it answered our last request, and it lasts for QUEUE from
    /// then on (at most the server's `dlock.claim-ms`): for that long it is certain without asking, if the message came
    /// after the answer and cannot be forged (`is_certain`).
    async fn announced(
        &self,
        id: &[u8],
        sent: Sent,
        is_certain: bool,
    ) -> Result<Option<Grant>, Error> {
        let lasts = self.core.ctx.settings.announced();
        let Some(hold) = self.announced_hold(id) else { return Ok(None) };
        let certain_for = sent.at.after(certain(lasts)).since(Moment::now());
        let written_over = 0;
        let grant = Grant { hold, sent, written_over, lasts, unclaimed: true, is_confirmed: false };
        // With a QUEUE of 10 s, at most half of it has passed since the request, unless this process was held up.
        // A message about a named owner may be an old one, of an earlier hold of the same name.
        if is_certain
            && self.terms.watched
            && self.terms.own_name
            && self.terms.bind.is_none()
            // A renewal makes the shared connection wait for replicas that have the grant.
            && self.replicas().is_none()
            && certain_for >= lasts / 3
        {
            return Ok(Some(grant));
        }
        // Else it is claimed before it counts; that also begins a lease of its own, and binds it.
        self.claim(grant).await
    }
}
