//! What to do about errors that have a usual cause.

use super::Error;

/// An attempt to connect that the client ended.
pub(crate) const CONNECTING_TAKES_TOO_LONG: &str = "connecting takes too long";

/// For keys of different slots.
pub(super) const SAME_SLOT: &str =
    "in a cluster, the keys of one call need the same part in braces: {orders}:1, {orders}:2";

impl Error {
    /// Why connecting failed, where TLS is spoken or is not. To a TLS greeting, a port without TLS says nothing, or
    /// something else; a TLS port closes a connection that begins without TLS.
    pub(crate) fn of_port(self, has_tls: bool) -> Self {
        let source = self.0.source.as_ref();
        let is_silent = self.0.text == CONNECTING_TAKES_TOO_LONG
            || source.is_some_and(redis::RedisError::is_timeout);
        let is_closed = source
            .is_some_and(|error| error.is_connection_dropped() && !error.is_connection_refusal());
        if has_tls && (is_silent || self.0.text.contains("corrupt message")) {
            self.hint("if this port has no TLS, use redis:// in place of rediss://")
        } else if !has_tls && is_closed {
            self.hint("if this port has TLS, use rediss:// in place of redis://")
        } else {
            self
        }
    }
}
