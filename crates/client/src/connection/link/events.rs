//! What connections report about the client's waiters and holds, and ask about them.

/// The registry, as connections and routes know it.
pub(crate) trait Events: Send + Sync {
    /// A connection is new: the watchdog renews now.
    fn renew_now(&self);

    /// The server published `text` on one of the client's channels.
    fn message(&self, text: &[u8]);

    /// Whether a connection that dies silently must be noticed before the next renewal.
    fn needs_heartbeat(&self) -> bool;
}
