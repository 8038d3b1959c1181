//! The channels on which servers tell this client about its waiters and holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_wire::names::default_channel;
use dlock_wire::request::Channel;

use crate::base::slot::Slot;

/// The channels of one client.
pub(crate) struct Channels {
    /// No other client has this name.
    name: String,
    plain: Vec<u8>,
    /// Shard channels that servers were told to publish on, oldest first. Holds may still have them.
    sharded: Mutex<Vec<(Slot, Arc<[u8]>)>>,
}

impl Channels {
    pub(crate) fn new() -> Self {
        let name = crate::base::random::name();
        let plain = default_channel(name.as_bytes());
        Self { name, plain, sharded: Mutex::default() }
    }

    /// The channel that the client listens to at every server.
    pub(crate) fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// That shard channel, or the plain one.
    pub(crate) fn or_plain<'a>(&'a self, sharded: Option<&'a [u8]>) -> Channel<'a> {
        sharded.map_or(Channel::Plain(&self.plain), Channel::Sharded)
    }

    /// The shard channel in that slot: the same whenever it is asked for.
    pub(crate) fn in_slot(&self, slot: Slot) -> Arc<[u8]> {
        let mut sharded = self.sharded();
        if let Some((_, channel)) = sharded.iter().find(|(known, _)| *known == slot) {
            return channel.clone();
        }
        let owner = format!("{{{}}}:{}", tag(slot), self.name);
        let channel: Arc<[u8]> = default_channel(owner.as_bytes()).into();
        sharded.push((slot, channel.clone()));
        channel
    }

    /// Slots that have a shard channel, oldest first.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.sharded().iter().map(|(slot, _)| *slot).collect()
    }

    fn sharded(&self) -> MutexGuard<'_, Vec<(Slot, Arc<[u8]>)>> {
        self.sharded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hash tag of that slot. It takes 16,384 tries on average.
fn tag(slot: Slot) -> String {
    let tags = (0_u32..).map(|n| format!("{n:x}"));
    tags.into_iter().find(|tag| Slot::for_key(tag) == slot).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_channel_is_in_the_slot_that_it_was_made_for() {
        let channels = Channels::new();
        for number in [0, 1, 5_461, 12_345, 16_383] {
            let slot = Slot::new(number).unwrap();
            let channel = channels.in_slot(slot);
            assert_eq!(Slot::for_key(&channel), slot);
            assert!(channel.starts_with(b"dlock:notify:{"), "{channel:?}");
            assert_eq!(channels.in_slot(slot), channel);
        }
        assert_eq!(channels.slots().len(), 5);
        let others = Channels::new();
        let slot = Slot::new(7).unwrap();
        assert_ne!(channels.in_slot(slot), others.in_slot(slot));
    }
}
