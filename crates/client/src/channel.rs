//! The channels on which servers tell this client about its places and holds, and requests that name one of them.

use std::borrow::Cow;

use dlock_wire::names::default_channel;
use dlock_wire::request::Channel;
use redis::Cmd;

/// The channels of one client.
pub(crate) struct Channels {
    plain: Vec<u8>,
}

impl Channels {
    pub(crate) fn new() -> Self {
        Self { plain: default_channel(crate::random::name().as_bytes()) }
    }

    /// The channel that the client listens to at every server.
    pub(crate) fn plain(&self) -> &[u8] {
        &self.plain
    }
}

/// A request before it is known which server gets it.
pub(crate) enum Draft<'a> {
    /// It names no channel.
    Fixed(Cow<'a, Cmd>),
    /// It names the channel of the server that gets it.
    Notified(Box<dyn Fn(Channel<'_>) -> Cmd + Send + Sync + 'a>),
}

impl<'a> Draft<'a> {
    pub(crate) fn notified(write: impl Fn(Channel<'_>) -> Cmd + Send + Sync + 'a) -> Self {
        Self::Notified(Box::new(write))
    }

    /// The command for a server that publishes on that channel.
    pub(crate) fn command(&self, channel: Channel<'_>) -> Cow<'_, Cmd> {
        match self {
            Self::Fixed(cmd) => Cow::Borrowed(cmd),
            Self::Notified(write) => Cow::Owned(write(channel)),
        }
    }
}

impl From<Cmd> for Draft<'_> {
    fn from(cmd: Cmd) -> Self {
        Self::Fixed(Cow::Owned(cmd))
    }
}

impl<'a> From<&'a Cmd> for Draft<'a> {
    fn from(cmd: &'a Cmd) -> Self {
        Self::Fixed(Cow::Borrowed(cmd))
    }
}
