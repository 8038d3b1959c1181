//! A connection that is up.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};

use super::dialer::Dialer;
use super::shard::{ChannelState, Shard};
use crate::pulse::Pulse;
use crate::replicas::Confirmations;

/// A connection that was usable when it was handed out.
#[derive(Clone)]
pub(crate) struct Live {
    pub(super) connection: MultiplexedConnection,
    /// Which connection this is, from 1; later ones have larger numbers.
    pub(crate) generation: u64,
    /// What it was opened with, for dedicated connections to the same server.
    pub(crate) dialer: Arc<Dialer>,
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
}
