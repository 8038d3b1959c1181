//! Renews holds that have no lease of their own, and ends those whose time is over.
//!
//! The holds of a server are renewed together, in one pipeline every third of the lease: one round trip, however many
//! there are.

mod round;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use self::round::start_rounds;
use crate::base::clock::{Moment, sleep_until};
use crate::base::context::Context;
use crate::base::lost::Lost;
use crate::connection::link::events::Events as _;
use crate::registry::{Core, Registry};

/// How often a cluster is asked about its slots while an acquire waits.
const POLL_SLOTS: Duration = Duration::from_secs(2);
/// Flushes are followed up at most this often.
const FLUSHES: Duration = Duration::from_secs(1);
/// How often a task checks whether its client is still there.
const POLL_CLIENT: Duration = Duration::from_secs(60);

/// All tasks end when the client is gone.
pub(crate) fn start(core: &Arc<Core>) {
    let runtime = &core.ctx.runtime;
    runtime.spawn(renew(Arc::downgrade(core), core.ctx.clone(), core.registry.clone()));
    // Made before the task is: one that the runtime drops before it ran reports that, too.
    let runtime_end = RuntimeEnd(Arc::downgrade(core));
    runtime.spawn(expire(Arc::downgrade(core), runtime_end));
    if core.routes.is_cluster() {
        runtime.spawn(poll_slots(Arc::downgrade(core)));
    }
}

/// When a slot moves, the server drops waiters without a message.
async fn poll_slots(core: Weak<Core>) {
    loop {
        tokio::time::sleep(POLL_SLOTS).await;
        let Some(core) = core.upgrade() else { return };
        if core.ctx.gate.refusal().is_some() {
            return;
        }
        if core.registry.needs_heartbeat() {
            // An error: the next poll may succeed.
            let _ = core.routes.refresh(Instant::now() + POLL_SLOTS).await;
        }
    }
}

/// When the runtime drops the task that has this, every hold is lost, and every call fails.
struct RuntimeEnd(Weak<Core>);

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        let Some(core) = self.0.upgrade() else { return };
        core.ctx.gate.abandon();
        for hold in core.registry.holds.all() {
            core.registry.lose(&hold, Lost::Abandoned);
        }
    }
}

async fn expire(core: Weak<Core>, _runtime_end: RuntimeEnd) {
    loop {
        let Some(core) = core.upgrade().filter(|core| core.ctx.gate.refusal().is_none()) else {
            return;
        };
        let (registry, gate) = (core.registry.clone(), core.ctx.gate.clone());
        drop(core);
        let due = registry.holds.due(Moment::now());
        for (hold, change) in due.holds {
            registry.apply(&hold, change);
        }
        tokio::select! {
            () = sleep_until(due.next) => {}
            () = registry.holds.earlier.notified() => {}
            () = gate.shut() => {}
            () = tokio::time::sleep(POLL_CLIENT) => {}
        }
    }
}

async fn renew(core: Weak<Core>, ctx: Arc<Context>, registry: Arc<Registry>) {
    // The flushes that were followed up, and when the next one may be.
    let (mut flushes, mut flush_from) = (0, Instant::now());
    loop {
        let is_flushed = registry.flushes() != flushes;
        let now = Instant::now();
        let mut due = now + registry.next_renewal().since(Moment::now()).min(POLL_CLIENT);
        if is_flushed {
            due = due.min(flush_from.max(now));
        }
        let mut is_called = false;
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            () = registry.renew.notified() => is_called = true,
            () = registry.renew_soon.notified() => continue,
            () = ctx.gate.shut() => return,
        }
        let Some(core) = core.upgrade() else { return };
        if is_flushed && flush_from <= Instant::now() {
            flush_from = Instant::now() + FLUSHES;
            flushes = registry.flushes();
            registry.follow_flush();
        }
        start_rounds(&core, is_called);
    }
}
