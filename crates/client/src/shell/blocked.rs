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
            let ran = run(&core, server, &flight, &commands).await;
            core.inner().blocked.remove(&(call, copy));
            let (replies, idle) =
                ran.map_or_else(|error| (Err(error), None), |(replies, idle)| (Ok(replies), idle));
            let is_sound = core.with(|machine, now| machine.replied(server, flight, replies, now));
            if let Some(idle) = idle.filter(|_| is_sound) {
                core.inner().rest(server, idle);
            }
        });
        self.blocked.insert((call, copy), task.abort_handle());
    }

    /// Keeps a connection for the next call, unless the shared one was replaced since.
    fn rest(&mut self, server: usize, idle: Idle) {
        if self.machine.refusal().is_none()
            && let Some(wire) = self.wires.get_mut(server)
            && wire.is_up(idle.generation)
        {
            wire.idle.push(idle);
        }
    }

    /// Closes connections that have rested for long enough.
    pub(super) fn close_idle(&mut self) {
        for wire in &mut self.wires {
            wire.idle.retain(|idle| idle.since.elapsed() < REST);
        }
    }
}

/// The replies, and the connection if it can be used again.
async fn run(
    core: &Core,
    server: usize,
    flight: &Flight,
    commands: &[Cmd],
) -> Result<(Vec<Value>, Option<Idle>), Error> {
    let (skip, within) = (usize::from(flight.entry.asking), flight.alone.unwrap_or_default());
    let (connection, generation, replies) = loop {
        let (mut connection, generation, has_rested) = connection(core, server).await?;
        let replies = timeout(within, exchange(&mut connection, commands, skip)).await;
        match replies.map_err(|_| Error::unavailable("no answer in time"))? {
            // It died at rest, and so did the others, perhaps. What it sent may be sent twice.
            Err(_) if has_rested => {
                if let Some(wire) = core.inner().wires.get_mut(server) {
                    wire.idle.clear();
                }
            }
            replies => break (connection, generation, replies.map_err(Error::from_redis)?),
        }
    };
    // Perhaps of a server that becomes a replica, and closes its connections.
    let ends = |reply: &Value| matches!(reply, Value::ServerError(error) if matches!(error.code(), "READONLY" | "UNBLOCKED"));
    let idle = Idle { since: Instant::now(), generation, connection };
    let idle = Some(idle).filter(|_| !replies.iter().any(ends));
    Ok((replies, idle))
}

/// A new one, or one at rest (true), which may have died in the meantime.
async fn connection(
    core: &Core,
    server: usize,
) -> Result<(MultiplexedConnection, u64, bool), Error> {
    let (dialer, generation) = {
        let mut inner = core.inner();
        let wire = inner.wires.get_mut(server).ok_or_else(Error::closed)?;
        let (generation, dialer) = wire.dialer().ok_or_else(|| wire.lost())?;
        wire.idle.retain(|idle| idle.generation == generation);
        if let Some(idle) = wire.idle.pop() {
            return Ok((idle.connection, generation, true));
        }
        (dialer, generation)
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(core.settings.connect_timeout))
        .set_response_timeout(None);
    let opened = timeout(core.settings.connect_timeout, dialer.open(&config)).await;
    let opened = opened.map_err(|_| Error::unavailable(CONNECTING_TAKES_TOO_LONG))?;
    Ok((opened.map_err(Error::from_redis)?, generation, false))
}
