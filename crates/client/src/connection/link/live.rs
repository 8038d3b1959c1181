//! A connection that is up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::shard::{ChannelState, Shard};
use crate::base::dialer::Dial;
use crate::base::error::Error;
use crate::base::pulse::Pulse;
use crate::base::replicas::{Acknowledged, Confirmed, Replicas};

/// The waits for replicas over one shared connection. One WAIT serves all tasks whose writes were answered before it.
#[derive(Default)]
pub(crate) struct Confirmations {
    /// Number of waits that have begun.
    begun: AtomicU64,
    last: Mutex<LastWait>,
}

/// The last one that was answered.
#[derive(Default)]
struct LastWait {
    /// Which of those that have begun, from 1.
    number: u64,
    found: Acknowledged,
    wanted: u32,
    on_disk: bool,
}

/// A connection that was usable when it was handed out.
#[derive(Clone)]
pub(crate) struct Live {
    pub(super) connection: MultiplexedConnection,
    /// Which connection this is, from 1; later ones have larger numbers.
    pub(crate) generation: u64,
    pub(crate) opened: Instant,
    /// What it was opened with, for dedicated connections to the same server.
    pub(crate) dialer: Arc<dyn Dial>,
    pub(crate) pulse: Arc<Pulse>,
    /// The shard channel, in a cluster.
    pub(crate) shard: Option<Arc<Shard>>,
    pub(crate) confirmations: Arc<Confirmations>,
}

impl Live {
    /// Sends a command, and returns its reply. The reply may be an error of the server.
    pub(crate) async fn send(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        let reply = self.connection.send_packed_command(cmd);
        match &self.shard {
            None => reply.await,
            Some(shard) => shard.checked(reply).await,
        }
    }

    /// Sends `count` commands in one go, and returns their replies in the same order. Each may be an error of the
    /// server.
    pub(crate) async fn send_all(
        &mut self,
        commands: &Pipeline,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let replies = self.connection.send_packed_commands(commands, 0, count);
        match &self.shard {
            None => replies.await,
            Some(shard) => shard.checked(replies).await,
        }
    }

    /// Whether replies over this connection count.
    pub(super) fn is_usable(&self) -> bool {
        self.shard.as_ref().is_none_or(|shard| !shard.has_ended())
    }

    /// Where to publish what concerns requests over this connection.
    pub(crate) fn channel_state(&self) -> ChannelState<'_> {
        self.shard.as_ref().map_or(ChannelState::On(None), |shard| shard.channel_state())
    }

    /// The shard channel, if there is one by now.
    pub(crate) fn settled_channel(&self) -> Option<Arc<[u8]>> {
        match self.channel_state() {
            ChannelState::On(channel) => channel,
            ChannelState::Open(_) => None,
        }
    }

    /// Subscribes to that shard channel.
    pub(crate) async fn subscribe(&self, channel: &[u8]) -> RedisResult<()> {
        let mut subscribe = redis::cmd("SSUBSCRIBE");
        subscribe.arg(channel);
        self.clone().send(&subscribe).await.and_then(Value::extract_error).map(drop)
    }

    /// Waits until replicas have what was written over this connection and answered before this call.
    ///
    /// # Errors
    ///
    /// `Replicas`: fewer have it in time. Another kind: the connection does not answer.
    pub(crate) async fn confirm(&mut self, replicas: Replicas) -> Result<Confirmed, Error> {
        // A connection that does not answer delays no task by more than that, however many wait for each other.
        let confirmed = timeout(replicas.timeout * 3, self.confirm_in_turn(replicas)).await;
        confirmed.unwrap_or_else(|_| Err(Error::unavailable("no answer in time")))
    }

    async fn confirm_in_turn(&mut self, replicas: Replicas) -> Result<Confirmed, Error> {
        let confirmations = self.confirmations.clone();
        let before = confirmations.begun.load(Ordering::Acquire);
        let mut last = confirmations.last.lock().await;
        // Not that of a wait for fewer, or for memory instead of disks.
        let is_alike = (last.on_disk, last.wanted) == (replicas.on_disk, replicas.wanted);
        if last.number <= before || !is_alike {
            let number = confirmations.begun.fetch_add(1, Ordering::AcqRel) + 1;
            let mut pipeline = redis::pipe();
            let requests = replicas.requests();
            for request in &requests {
                pipeline.add_command(request.clone());
            }
            let replies = self.send_all(&pipeline, requests.len()).await;
            let found = replicas.read(replies.map_err(Error::from_redis)?)?;
            // Not before the answer: a task that is cancelled here answers for no other one.
            let Replicas { wanted, on_disk, .. } = replicas;
            *last = LastWait { number, found, wanted, on_disk };
        }
        replicas.enough(last.found)
    }
}
