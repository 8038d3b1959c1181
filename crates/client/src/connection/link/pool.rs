//! Dedicated connections at rest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use super::live::Live;
use crate::base::context::Context;
use crate::base::error::Error;

/// How long a dedicated connection rests before it is closed.
const REST: Duration = Duration::from_secs(60);

/// Dedicated connections, for calls that block theirs. As many as the limit allows; those at rest are used again.
pub(crate) struct Pool {
    idle: Arc<Mutex<Idle>>,
    ctx: Arc<Context>,
}

#[derive(Default)]
struct Idle {
    at_rest: Vec<AtRest>,
    /// A task closes those that have rested for long enough.
    is_watched: bool,
}

struct AtRest {
    since: Instant,
    /// Of the shared connection at its time: after that one was replaced, it is dead, or leads to a server that is not
    /// the primary any more.
    generation: u64,
    connection: MultiplexedConnection,
}

impl Pool {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        Self { idle: Arc::default(), ctx }
    }

    /// One at rest (which may have died in the meantime), or a new one. The caller has a permit of the limit.
    pub(crate) async fn take(
        &self,
        live: &Live,
        until: Instant,
    ) -> Result<MultiplexedConnection, Error> {
        let at_rest = {
            let mut idle = self.idle();
            idle.at_rest.retain(|one| one.generation == live.generation);
            idle.at_rest.pop()
        };
        if let Some(at_rest) = at_rest {
            return Ok(at_rest.connection);
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
            idle.at_rest.push(AtRest { since: Instant::now(), generation, connection });
            if !std::mem::replace(&mut idle.is_watched, true) {
                self.ctx.runtime.spawn(close_idle(Arc::downgrade(&self.idle)));
            }
        }
    }

    /// Closes those at rest: their server is gone.
    pub(crate) fn clear(&self) {
        self.idle().at_rest.clear();
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        lock(&self.idle)
    }
}

/// Closes connections that have rested for long enough, until none is left.
async fn close_idle(idle: Weak<Mutex<Idle>>) {
    loop {
        tokio::time::sleep(REST).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle = lock(&idle);
        idle.at_rest.retain(|one| one.since.elapsed() < REST);
        idle.is_watched = !idle.at_rest.is_empty();
        if !idle.is_watched {
            return;
        }
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
