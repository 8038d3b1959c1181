//! Dedicated connections at rest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use super::live::Live;
use crate::context::Context;
use crate::error::Error;

/// Dedicated connections, for calls that block theirs. As many as the limit allows; those at rest are used again.
pub(crate) struct Pool {
    /// With the generation of the shared connection at their time: after that one was replaced, they are dead, or lead
    /// to a server that is not the primary any more.
    idle: Mutex<Vec<(u64, MultiplexedConnection)>>,
    ctx: Arc<Context>,
}

impl Pool {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        Self { idle: Mutex::default(), ctx }
    }

    /// One at rest (which may have died in the meantime), or a new one. The caller has a permit of the limit.
    pub(crate) async fn take(
        &self,
        live: &Live,
        until: Instant,
    ) -> Result<MultiplexedConnection, Error> {
        let at_rest = {
            let mut idle = self.idle();
            idle.retain(|(generation, _)| *generation == live.generation);
            idle.pop()
        };
        if let Some((_, connection)) = at_rest {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.ctx.settings.connect_timeout))
            .set_response_timeout(None);
        let opened = live.dialer.open(&config);
        let opened = timeout_at(until, opened).await;
        opened
            .map_err(|_| Error::unavailable("connecting takes too long"))?
            .map_err(Error::from_redis)
    }

    /// Puts one back that is not blocked and works.
    pub(crate) fn put_back(&self, generation: u64, connection: MultiplexedConnection) {
        let mut idle = self.idle();
        // Looked at under the lock, and closing the client clears after it has shut the gate: none is left behind.
        if self.ctx.gate.refusal().is_none() {
            idle.push((generation, connection));
        }
    }

    /// Closes those at rest: their server is gone.
    pub(crate) fn clear(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(u64, MultiplexedConnection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
