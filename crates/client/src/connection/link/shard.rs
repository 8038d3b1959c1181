//! The shard channel of a connection to a node of a cluster.
//!
//! When the slot of the channel moves away, the server ends the subscription and sends the message `sunsubscribe`.
//! redis-rs takes it for the reply to the oldest request on its way, and gives each later request the reply to the one
//! before. So no reply counts that comes after this message, and the link replaces the connection.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::{RedisError, RedisResult};
use tokio::sync::{Notify, OnceCell};

/// The shard channel of the connection before, which the link keeps for the next.
#[derive(Debug, Clone, Default)]
pub(super) enum Before {
    /// There was none.
    #[default]
    None,
    /// The connection was lost, not the channel.
    Subscribed(Arc<[u8]>),
    /// The server ended the subscription: its slots have changed.
    Ended,
}

/// The subscription of one connection.
pub(crate) struct Shard {
    /// The channel, once it is settled; None inside: the server allows none.
    channel: OnceCell<Option<Arc<[u8]>>>,
    /// For the next connection.
    after: Arc<Mutex<Before>>,
    /// The server ended the subscription of the connection before this one.
    slots_changed: bool,
    /// The server has accepted a request with SNOTIFY.
    proven: AtomicBool,
    /// The server does not know SNOTIFY.
    unknown: AtomicBool,
    ended: AtomicBool,
    end: Notify,
}

impl Shard {
    pub(super) fn new(link: &Arc<Mutex<Before>>) -> Self {
        let before = link.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            channel: OnceCell::new(),
            after: link.clone(),
            slots_changed: matches!(before, Before::Ended),
            proven: AtomicBool::new(false),
            unknown: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            end: Notify::new(),
        }
    }

    fn note(&self, before: Before) {
        *self.after.lock().unwrap_or_else(PoisonError::into_inner) = before;
    }

    /// The channel of the connection before this one, if it only has to be subscribed to again.
    pub(super) fn before(&self) -> Option<Arc<[u8]>> {
        match &*self.after.lock().unwrap_or_else(PoisonError::into_inner) {
            Before::Subscribed(channel) => Some(channel.clone()),
            Before::None | Before::Ended => None,
        }
    }

    /// The connection is subscribed to that channel.
    pub(super) fn resumed(&self, channel: Arc<[u8]>) {
        // An error: it is subscribed to another one already, which does as well.
        let _ = self.channel.set(Some(channel));
    }

    /// The server has ended the subscription. Called before redis-rs passes the message on as a reply.
    pub(super) fn ended(&self) {
        self.note(Before::Ended);
        self.ended.store(true, Ordering::Release);
        self.end.notify_waiters();
    }

    /// The reply, or an error if it may belong to another request.
    pub(super) async fn checked<T>(
        &self,
        reply: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let end = self.end.notified();
        if self.has_ended() {
            return Err(mixed_up());
        }
        tokio::select! {
            biased;
            reply = reply => if self.has_ended() { Err(mixed_up()) } else { reply },
            // redis-rs has given the last reply away: this request would wait forever.
            () = end => Err(mixed_up()),
        }
    }

    /// Whether the slots of the server have changed since the connection before this one was made.
    pub(crate) fn have_slots_changed(&self) -> bool {
        self.slots_changed
    }

    /// The channel. If it is not settled, one task settles it and the others wait; an error leaves it unsettled.
    pub(crate) async fn settled<E>(
        &self,
        settle: impl Future<Output = Result<Option<Arc<[u8]>>, E>>,
    ) -> Result<Option<Arc<[u8]>>, E> {
        let channel = self.channel.get_or_try_init(|| settle).await?;
        if let (Some(channel), false) = (channel, self.has_ended()) {
            self.note(Before::Subscribed(channel.clone()));
        }
        Ok(channel.clone())
    }

    /// Whether a server that answered a request with SNOTIFY by `ERR` may just not know that word.
    pub(crate) fn may_not_know_snotify(&self) -> bool {
        !self.proven.load(Ordering::Relaxed)
    }

    /// The server has accepted a request with SNOTIFY.
    pub(crate) fn snotify_is_known(&self) {
        if self.may_not_know_snotify() {
            self.proven.store(true, Ordering::Relaxed);
        }
    }

    /// The server does not know SNOTIFY.
    pub(crate) fn snotify_is_unknown(&self) {
        self.unknown.store(true, Ordering::Relaxed);
    }

    /// Whether the server has ended the subscription.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn channel_state(&self) -> ChannelState<'_> {
        if self.unknown.load(Ordering::Relaxed) {
            return ChannelState::On(None);
        }
        self.channel.get().cloned().map_or(ChannelState::Open(self), ChannelState::On)
    }
}

/// Where to publish what concerns the requests of a connection.
pub(crate) enum ChannelState<'a> {
    /// Here; None: on the plain channel.
    On(Option<Arc<[u8]>>),
    /// This is not settled yet.
    Open(&'a Shard),
}

fn mixed_up() -> RedisError {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server ended a subscription").into()
}
