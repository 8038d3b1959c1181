//! Waiting in the server's queue, over the shared connection: a message reports the grant.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::give_up::LEAVE_WITHIN;
use super::pending::{Grant, PendingAcquire, WaitRequest};
use crate::base::clock::Moment;
use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::connection::route::Server;
use crate::registry::{Announcement, Registered};
use crate::state::hold_state::Asked;

impl PendingAcquire {
    /// Waits in the queue until a message reports the grant.
    pub(super) async fn queue(
        &self,
        deadline: Deadline,
        registered: &Registered<'_>,
    ) -> Result<Option<Grant>, Error> {
        let routes = &self.core.routes;
        let repeat_after = self.core.ctx.settings.queue / 2;
        // When the first copy was sent: no grant is older.
        let mut first = None;
        loop {
            let server = routes.server_of(self.key());
            let until = match deadline {
                // However short the wait: the server is given time to say no.
                Deadline::At(end) => end.max(Instant::now() + LEAVE_WITHIN),
                _ => self.core.ctx.retry_until(),
            };
            let begun = Moment::now();
            let reply = match self.send(WaitRequest::Queue, until).await {
                // An answer: the wait goes on. A copy before it may have got a place.
                Err(error) if error.is_passing_reply() && !deadline.is_over() => {
                    first.get_or_insert(begun);
                    continue;
                }
                reply => reply?,
            };
            let first = *first.get_or_insert(reply.first);
            if let Some(grant) = self.granted(reply.value, reply.sent)? {
                return Ok(Some(grant));
            }
            let end = deadline.within(repeat_after);
            loop {
                match registered.take_announcement() {
                    Some(Announcement::Granted(id)) => {
                        let Some(hold) = self.announced_hold(&id) else { break };
                        let granted = Asked { sent: first, lease: self.lease };
                        let begun = Moment::now();
                        return Ok(Some(Grant { hold, granted, begun, is_confirmed: false }));
                    }
                    Some(Announcement::Replaced) => {
                        return Err(Error::replaced(self.key(), &self.owner));
                    }
                    // The next copy asks.
                    Some(Announcement::Other(_)) => break,
                    None => {}
                }
                tokio::select! {
                    biased;
                    () = registered.news() => {}
                    () = self.waiter_lost(server.as_ref(), reply.generation) => break,
                    () = tokio::time::sleep_until(end) => break,
                }
            }
            if deadline.is_over() {
                self.leave().await;
                return Ok(None);
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
}
