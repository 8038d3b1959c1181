//! What all parts of a client share: settings, the state of closing, channels, and the runtime.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::base::channel::Channels;
use crate::base::gate::{Count, Counted, Gate};
use crate::base::settings::Settings;

/// What all parts of one client share, whatever its connections.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) gate: Arc<Gate>,
    pub(crate) channels: Channels,
    /// Where background work runs.
    pub(crate) runtime: Handle,
    /// The longest lease that is known not to outlive the quarantine of the server.
    pub(crate) safe_lease_ms: AtomicU64,
    /// Calls that block a dedicated connection.
    blocked: Arc<Count>,
}

impl Context {
    pub(crate) fn new(settings: Settings, runtime: Handle) -> Self {
        Self {
            settings,
            gate: Arc::default(),
            channels: Channels::new(),
            runtime,
            safe_lease_ms: AtomicU64::new(0),
            blocked: Arc::default(),
        }
    }

    /// When a request that begins now, and has no timeout of its own, is given up.
    pub(crate) fn retry_until(&self) -> Instant {
        Instant::now() + self.settings.retry_for
    }

    /// A call begins to block a dedicated connection.
    pub(crate) fn begin_blocked(&self) -> Counted {
        self.blocked.begin()
    }

    /// Whether any call blocks a dedicated connection.
    pub(crate) fn has_blocked(&self) -> bool {
        !self.blocked.is_zero()
    }
}
