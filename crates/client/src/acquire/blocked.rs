//! Waiting on a dedicated connection, also for replicas.

use std::sync::atomic::Ordering;

use redis::Value;

use super::pending::{Grant, PendingAcquire, WaitRequest};
use crate::base::clock::Moment;
use crate::base::command::Draft;
use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::base::hold_ref::HoldRef;
use crate::base::replicas::{Confirmed, Replicas};
use crate::connection::dedicated::{BlockedCalls, LONG_BLOCK};

impl PendingAcquire {
    /// Waits with blocked calls, and for replicas if the options say so.
    pub(super) async fn blocked(&self, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let ctx = &self.core.ctx;
        let mut calls = BlockedCalls::new(&self.core.routes, self.key(), deadline);
        // A call for several locks loses its position when it is repeated.
        let longest = if self.target.is_several() { LONG_BLOCK } else { ctx.settings.queue };
        // The first request whose outcome is not known: a later reply may repeat its grant.
        let mut first = None;
        loop {
            let (wait, block_ms) = if deadline == Deadline::Now {
                (WaitRequest::Now, 0)
            } else {
                let block_ms = deadline.block_ms(longest);
                (WaitRequest::Block(block_ms), block_ms)
            };
            let sent = first.get_or_insert_with(|| self.sent_now()).clone();
            let replicas = self.replicas();
            let wait_ms = replicas.map_or(0, Replicas::timeout_ms);
            let mut drafts = vec![self.draft(wait)];
            drafts.extend(replicas.into_iter().flat_map(Replicas::requests).map(Draft::from));
            let limit_ms = block_ms.saturating_add(wait_ms);
            let (reply, confirmation) = match self.call(&mut calls, &drafts, limit_ms).await {
                Ok(replies) => replies,
                Err(error) => {
                    calls.after(self.note(error)).await?;
                    self.is_stray.store(true, Ordering::Relaxed);
                    continue;
                }
            };
            calls.answered();
            let was_sent = self.was_sent.swap(true, Ordering::Relaxed);
            if let Some(mut grant) = self.granted(reply, sent)? {
                if let Some(replicas) = replicas {
                    match replicas.check(confirmation) {
                        Ok(Confirmed { in_quarantine: false }) => {}
                        Ok(Confirmed { in_quarantine: true }) => {
                            return Err(self.in_quarantine().await);
                        }
                        Err(error) => return Err(self.unconfirmed(error).await),
                    }
                    grant.is_confirmed = true;
                }
                if let Some(grant) = self.settle(grant).await? {
                    return Ok(Some(grant));
                }
            } else if deadline.is_over() {
                if deadline != Deadline::Now && !self.target.is_several() {
                    return Ok(self.leave().await);
                }
                // The server keeps no waiter for this request.
                if !was_sent || self.target.is_several() {
                    self.may_remain.store(false, Ordering::Relaxed);
                }
                return Ok(None);
            }
            first = None;
        }
    }

    /// Over a dedicated connection: the reply to the acquire, and those about replicas.
    async fn call(
        &self,
        calls: &mut BlockedCalls<'_>,
        drafts: &[Draft<'_>],
        limit_ms: u64,
    ) -> Result<(Value, Vec<Value>), Error> {
        let connection = calls.open(drafts).await?;
        self.may_remain.store(true, Ordering::Relaxed);
        let mut replies = connection.call(drafts, limit_ms).await?.into_iter();
        let reply = replies.next().unwrap_or(Value::Nil);
        Ok((reply.extract_error().map_err(Error::from_redis)?, replies.collect()))
    }

    /// A grant that came over a dedicated connection after a wait: its lease began between the request and now. After a
    /// long wait, or if it is to be bound to the shared connection, it begins again. None: it has lapsed.
    async fn settle(&self, mut grant: Grant) -> Result<Option<Grant>, Error> {
        let waited = Moment::now().since(grant.sent.at);
        if self.terms.bind.is_none() && waited < self.terms.lease / 4 {
            return Ok(Some(grant));
        }
        if self.terms.bind.is_some() && matches!(grant.hold, HoldRef::Multi { .. }) {
            // MRENEW binds nothing. The same request again moves the binding to the shared connection.
            match self.now().await? {
                Some(again) => grant = again,
                None => return Ok(None),
            }
        }
        self.claim(grant).await
    }
}
