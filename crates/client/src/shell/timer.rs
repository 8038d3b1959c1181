//! The task that tells the machine the time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::yield_now;

use super::Core;
use crate::base::clock::{Moment, sleep_until};
use crate::machine::Machine;

/// How often it is looked whether connections have rested for too long, and the client is still there.
const LOOK: Duration = Duration::from_secs(60);

/// The task ends when the client is gone.
pub(super) fn start(core: &Arc<Core>) {
    // Made before the task is: one that the runtime drops before it ran reports that, too.
    let runtime_end = RuntimeEnd(Arc::downgrade(core));
    core.runtime.spawn(tick(Arc::downgrade(core), runtime_end));
}

/// When the runtime drops the task that has this, every hold is lost, and every call fails.
struct RuntimeEnd(Weak<Core>);

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.with(Machine::abandon);
        }
    }
}

async fn tick(weak: Weak<Core>, _runtime_end: RuntimeEnd) {
    let Some(signals) = weak.upgrade().map(|core| core.signals.clone()) else { return };
    let mut look = Moment::now().after(LOOK);
    loop {
        let Some(at) = weak.upgrade().and_then(|core| {
            let inner = core.inner();
            inner.machine.refusal().is_none().then(|| inner.machine.wake_at())
        }) else {
            return;
        };
        tokio::select! {
            biased;
            () = signals.timer.notified() => continue,
            () = sleep_until(at.min(look)) => {}
        }
        // After a computation that kept the runtime busy, what has arrived meanwhile is read first.
        yield_now().await;
        yield_now().await;
        let Some(core) = weak.upgrade() else { return };
        if at <= Moment::now() {
            core.with(Machine::tick);
        }
        if look <= Moment::now() {
            core.inner().close_idle();
            look = Moment::now().after(LOOK);
        }
    }
}
