//! On which channel a server tells this client about its waiters and holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::{Routes, Routing, Server, read};
use crate::base::error::Error;
use crate::base::slot::Slot;
use crate::connection::link::live::Live;
use crate::connection::link::shard::{ChannelState, Shard};

/// How long a subscription waits for a node to say which slots it has.
const LEARN_WITHIN: Duration = Duration::from_millis(500);

/// Why a shard channel is not settled.
enum Unsettled {
    /// Not now: the plain channel has to do for this time.
    Plain,
    /// The connection does not work.
    Failed(Error),
}

impl Routes {
    /// The shard channel of that connection, for a request about `key`; None: the plain channel. The first request over
    /// a connection subscribes to one.
    pub(crate) async fn channel(
        &self,
        server: &Arc<Server>,
        live: &Live,
        key: &[u8],
        until: Instant,
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let shard = match live.channel_state() {
            ChannelState::On(channel) => return Ok(channel),
            ChannelState::Open(shard) => shard,
        };
        let settled = shard.settled(self.subscribe(server, live, shard, key, until));
        // Once for each connection: kept out of the size of every call.
        match Box::pin(timeout_at(until, settled)).await {
            Ok(Ok(channel)) => Ok(channel),
            // The caller's time is over: it is told so by its request.
            Ok(Err(Unsettled::Plain)) | Err(_) => Ok(None),
            Ok(Err(Unsettled::Failed(error))) => {
                server.link.report_broken(live.generation);
                Err(error)
            }
        }
    }

    async fn subscribe(
        &self,
        server: &Arc<Server>,
        live: &Live,
        shard: &Shard,
        key: &[u8],
        until: Instant,
    ) -> Result<Option<Arc<[u8]>>, Unsettled> {
        let channels = &self.ctx.channels;
        let is_strange = |slots: Vec<Slot>| {
            !slots.is_empty() && !slots.into_iter().any(|slot| self.has(server, slot))
        };
        if shard.have_slots_changed() || is_strange(channels.slots()) {
            // After a failover, the server may have the slot of a channel that holds already have.
            self.refresh_from(server, until).await;
        }
        for _ in 0..2 {
            let of_key = Slot::for_key(key);
            let mut slots = channels.slots().into_iter().chain([of_key]);
            // A replica would accept the subscription, too: the request itself is about to be sent elsewhere.
            let Some(slot) = slots.find(|slot| self.has(server, *slot)) else {
                return Err(Unsettled::Plain);
            };
            let channel = channels.in_slot(slot);
            let subscribed = timeout(self.ctx.settings.response_timeout, live.subscribe(&channel));
            let error = match subscribed.await {
                Ok(Ok(())) => return Ok(Some(channel)),
                Ok(Err(error)) => error,
                Err(_) => return Err(Unsettled::Failed(Error::unavailable("no answer in time"))),
            };
            match error.code() {
                None => return Err(Unsettled::Failed(Error::from_redis(error))),
                Some("MOVED" | "ASK") => {
                    self.refresh_from(server, until).await;
                }
                Some("CLUSTERDOWN" | "MASTERDOWN" | "LOADING" | "TRYAGAIN" | "BUSY") => {
                    return Err(Unsettled::Plain);
                }
                // The ACL, or a server without sharded pub/sub.
                Some(_) => return Ok(None),
            }
        }
        Err(Unsettled::Plain)
    }

    /// Whether that server has the slot, as far as is known.
    fn has(&self, server: &Arc<Server>, slot: Slot) -> bool {
        let Routing::Cluster { slots, .. } = &self.routing else { return false };
        read(slots).owners.get(&slot).is_some_and(|owner| Arc::ptr_eq(owner, server))
    }

    /// Learns from that server which slots belong to whom, if it says so before long.
    async fn refresh_from(&self, server: &Arc<Server>, until: Instant) {
        let Routing::Cluster { refreshing, .. } = &self.routing else { return };
        let until = until.min(Instant::now() + LEARN_WITHIN);
        if let Ok(_one_at_a_time) = timeout_at(until, refreshing.lock()).await {
            let _ = self.learn_from(server, until).await;
        }
    }
}
