//! Renews holds that have no lease of their own, and ends those whose time is over.
//!
//! All holds of a server are renewed together, in one pipeline every third of the lease: one round trip, however many
//! there are. Holds that a message announced are claimed the same way, a little later: most of them are released before
//! that.

mod round;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use self::round::{Round, start_rounds};
use crate::base::clock::{Moment, sleep_until};
use crate::base::context::Context;
use crate::base::lost::Lost;
use crate::connection::link::events::Events as _;
use crate::hold::Hold;
use crate::registry::{Core, Registry};

/// How often a cluster is asked about its slots while an acquire waits, or a hold is bound to a connection.
const POLL_SLOTS: Duration = Duration::from_secs(2);
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

/// When a slot moves, the server drops waiters and shortens bound holds without a message.
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
    let period = ctx.settings.lease / 3;
    let claim_after = claim_delay(ctx.settings.announced(), ctx.settings.lease);
    let mut next = Instant::now() + period;
    let mut claim: Option<Instant> = None;
    // Of holds that last for less than the others.
    let mut soon: Option<Instant> = None;
    let mut flushes = 0;
    loop {
        let mut is_called = false;
        let poll = Instant::now() + POLL_CLIENT;
        let due = [claim, soon].into_iter().flatten().fold(next.min(poll), Instant::min);
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            () = registry.renew.notified() => is_called = true,
            () = ctx.gate.shut() => return,
            () = registry.claim_soon.notified() => {
                claim = claim.or_else(|| Some(Instant::now() + claim_after));
                continue;
            }
            () = registry.renew_soon.notified() => {
                let by = Instant::now() + registry.take_renew_by().since(Moment::now()).min(period);
                soon = Some(soon.map_or(by, |soon| soon.min(by)));
                continue;
            }
            () = registry.doubted.notified() => {
                verify_doubts(&core, &registry);
                continue;
            }
        }
        let Some(core) = core.upgrade() else { return };
        let now = Instant::now();
        let heard = registry.flushes();
        let round = if heard != flushes {
            flushes = heard;
            Round::Flush
        } else if now >= next || is_called {
            Round::Lease
        } else if soon.take_if(|soon| *soon <= now).is_some() {
            Round::Soon
        } else if claim.is_some_and(|claim| claim <= now) {
            Round::Claim
        } else {
            continue;
        };
        if matches!(round, Round::Lease | Round::Flush) {
            next = now + period;
        }
        if round != Round::Soon {
            claim = None;
            registry.begin_claims();
        }
        start_rounds(&core, round);
    }
}

fn verify_doubts(core: &Weak<Core>, registry: &Registry) {
    for doubt in registry.take_doubts() {
        if let Some(core) = core.upgrade() {
            let hold = Hold::new(core.clone(), doubt.hold);
            core.ctx.runtime.spawn(hold.verify(doubt.how));
        }
    }
}

/// How long after its grant an announced hold is claimed: well before it would lapse.
fn claim_delay(announced: Duration, lease: Duration) -> Duration {
    (announced / 10).min(lease / 10)
}
