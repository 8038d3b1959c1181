//! Waiting on a dedicated connection, also for replicas.

use std::sync::atomic::Ordering;

use redis::Value;

use super::pending::{Grant, PendingAcquire, WaitRequest};
use crate::base::clock::Moment;
use crate::base::command::Draft;
use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::base::replicas::Replicas;
use crate::connection::dedicated::{BlockedCalls, LONG_BLOCK};

impl PendingAcquire {
    /// Waits with blocked calls, and for replicas if the options say so.
    pub(super) async fn blocked(&self, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let ctx = &self.core.ctx;
        let mut calls = BlockedCalls::new(&self.core.routes, self.key(), deadline);
        // A call for several locks loses its position when it is repeated.
        let longest = if self.target.is_several() { LONG_BLOCK } else { ctx.settings.queue };
        loop {
            let (wait, block_ms) = if deadline == Deadline::Now {
                (WaitRequest::Now, 0)
            } else {
                let block_ms = deadline.block_ms(longest);
                (WaitRequest::Block(block_ms), block_ms)
            };
            let replicas = self.replicas();
            let wait_ms = replicas.map_or(0, Replicas::timeout_ms);
            let mut drafts = vec![self.draft(wait)];
            drafts.extend(replicas.into_iter().flat_map(Replicas::requests).map(Draft::from));
            let limit_ms = block_ms.saturating_add(wait_ms);
            let before = self.remains.load(Ordering::Relaxed);
            let (sent, reply, confirmation) = match self.call(&mut calls, &drafts, limit_ms).await {
                Ok(replies) => replies,
                Err(error) => {
                    if error.is_refusal() {
                        self.remains.store(before, Ordering::Relaxed);
                    }
                    calls.after(error).await?;
                    continue;
                }
            };
            calls.answered();
            if let Some(mut grant) = self.granted(reply, sent)? {
                if let Some(replicas) = replicas {
                    match replicas.check(confirmation) {
                        Ok(found) if found.quarantine.is_on => {
                            return Err(self.in_quarantine().await);
                        }
                        // One that ended during the wait: a renewal is to be confirmed.
                        Ok(found) => grant.is_confirmed = found.grants(sent),
                        Err(error) => return Err(self.unconfirmed(error).await),
                    }
                }
                return Ok(Some(grant));
            }
            if deadline.is_over() {
                if deadline == Deadline::Now {
                    self.remains.store(before, Ordering::Relaxed);
                } else {
                    self.leave().await;
                }
                return Ok(None);
            }
        }
    }

    /// Over a dedicated connection: when it was sent, the reply to the acquire, and those about replicas.
    async fn call(
        &self,
        calls: &mut BlockedCalls<'_>,
        drafts: &[Draft<'_>],
        limit_ms: u64,
    ) -> Result<(Moment, Value, Vec<Value>), Error> {
        let connection = calls.open(drafts).await?;
        self.remains.store(true, Ordering::Relaxed);
        let sent = Moment::now();
        let mut replies = connection.call(drafts, limit_ms).await?.into_iter();
        let reply = replies.next().unwrap_or(Value::Nil);
        let reply = reply.extract_error().map_err(Error::from_redis)?;
        Ok((sent, reply, replies.collect()))
    }
}
