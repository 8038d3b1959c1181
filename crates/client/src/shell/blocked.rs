//! Calls that block their connection, each on one of its own.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value};
use tokio::time::{Instant, timeout};

use super::{Core, Inner, exchange};
use crate::base::error::Error;
use crate::base::error::hints::CONNECTING_TAKES_TOO_LONG;
use crate::machine::Blocked;
use crate::machine::servers::{Flight, To};

/// How long such a connection rests before it is closed.
pub(super) const REST: Duration = Duration::from_secs(60);

/// A connection at rest.
pub(super) struct Idle {
    since: Instant,
    /// Of the shared connection at its time: after that one was replaced, it is dead, or leads to a server that is not
    /// the primary any more.
    generation: u64,
    connection: MultiplexedConnection,
}

impl Inner {
    pub(super) fn block(&mut self, core: &Core, blocked: Blocked) {
        let Some(core) = core.this.upgrade() else { return };
        let Blocked { server, flight, commands } = blocked;
        let To::Call(call, copy) = flight.entry.to else { return };
        let task = core.runtime.clone().spawn(async move {
            let replies = run(&core, server, &flight, &commands).await;
            core.inner().blocked.remove(&(call, copy));
            core.with(|machine, now| machine.replied(server, flight, replies, now));
        });
        self.blocked.insert((call, copy), task.abort_handle());
    }

    /// Closes connections that have rested for long enough.
    pub(super) fn close_idle(&mut self) {
        for wire in &mut self.wires {
            wire.idle.retain(|idle| idle.since.elapsed() < REST);
        }
    }
}

async fn run(
    core: &Core,
    server: usize,
    flight: &Flight,
    commands: &[Cmd],
) -> Result<Vec<Value>, Error> {
    let (mut connection, generation) = connection(core, server).await?;
    let replies = exchange(&mut connection, commands, usize::from(flight.entry.asking));
    let replies = timeout(flight.alone.unwrap_or_default(), replies).await;
    let replies = replies.map_err(|_| Error::unavailable("no answer in time"))?;
    let replies = replies.map_err(Error::from_redis)?;
    // Perhaps of a server that becomes a replica, and closes its connections.
    let ends = |reply: &Value| matches!(reply, Value::ServerError(error) if matches!(error.code(), "READONLY" | "UNBLOCKED"));
    let mut inner = core.inner();
    if !replies.iter().any(ends)
        && inner.machine.refusal().is_none()
        && let Some(wire) = inner.wires.get_mut(server)
        && wire.link.generation() == generation
    {
        wire.idle.push(Idle { since: Instant::now(), generation, connection });
    }
    Ok(replies)
}

/// One at rest, which may have died in the meantime, or a new one.
async fn connection(core: &Core, server: usize) -> Result<(MultiplexedConnection, u64), Error> {
    let (dialer, generation) = {
        let mut inner = core.inner();
        let wire = inner.wires.get_mut(server).ok_or_else(Error::closed)?;
        let (dialer, generation) = wire.link.dialer()?;
        wire.idle.retain(|idle| idle.generation == generation);
        if let Some(idle) = wire.idle.pop() {
            return Ok((idle.connection, generation));
        }
        (dialer, generation)
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(core.settings.connect_timeout))
        .set_response_timeout(None);
    let opened = timeout(core.settings.connect_timeout, dialer.open(&config)).await;
    let opened = opened.map_err(|_| Error::unavailable(CONNECTING_TAKES_TOO_LONG))?;
    Ok((opened.map_err(Error::from_redis)?, generation))
}
