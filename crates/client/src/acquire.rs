//! How locks and permits are acquired: the one engine behind all handles.

mod blocked;
mod give_up;
mod pending;
mod queue;
mod requests;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::give_up::GiveUpOnDrop;
pub(crate) use self::pending::Handle;
use self::pending::PendingAcquire;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind};
use crate::base::lost::Lost;
use crate::base::settings::{Wait, lease_ms};
use crate::hold::Hold;
use crate::registry::Announcement;
use crate::telemetry::acquiring;

/// How long after its request was used up an acquire begins again.
const SPENT: Duration = Duration::from_millis(5);
/// How long after a quarantine was told an acquire begins again at the earliest.
const QUARANTINE: Duration = Duration::from_millis(100);

/// Acquires what the handle names. None: not granted in time.
pub(crate) async fn acquire(handle: &Handle, deadline: Deadline) -> Result<Option<Hold>, Error> {
    let Handle { core, target, keys, .. } = handle;
    let server = || core.routes.server_of(keys.first()).map(|server| server.name.clone());
    let call = pin!(admitted(handle, deadline));
    let acquired = acquiring(Some(*target), keys.first(), server, Hold::token, call).await;
    if let Ok(Some(hold)) = &acquired {
        // In the span of the caller.
        hold.tracked.report.open(&hold.tracked.hold_ref);
    }
    acquired
}

/// As [`acquire`], reported by it.
async fn admitted(handle: &Handle, deadline: Deadline) -> Result<Option<Hold>, Error> {
    let gate = &handle.core.ctx.gate;
    let _call = gate.call();
    loop {
        let attempt = pin!(attempt(handle, deadline));
        match gate.admit(attempt).await {
            // What it was granted has ended: nothing is held, and the same request id is never granted again.
            Err(error) if error.kind() == ErrorKind::Spent => tokio::time::sleep(SPENT).await,
            Err(error) if error.kind() == ErrorKind::Quarantine && !deadline.is_over() => {
                let end = deadline.within(error.time_left().max(QUARANTINE));
                tokio::time::sleep_until(end).await;
            }
            outcome => return outcome,
        }
    }
}

/// As [`acquire`], with one request id.
async fn attempt(handle: &Handle, deadline: Deadline) -> Result<Option<Hold>, Error> {
    let Handle { core, target, keys, options } = handle;
    options.check()?;
    target.check()?;
    keys.check()?;
    // What is seldom needed is kept out of every waiting task: there may be a hundred thousand.
    let wait = options.wait.unwrap_or(core.ctx.settings.wait);
    let blocks = options.replicas.is_some()
        || (deadline != Deadline::Now && (target.is_several() || wait == Wait::Blocking));
    let queues = !blocks && deadline != Deadline::Now;
    let pending = Arc::new(PendingAcquire::new(handle, queues));
    lease_ms(pending.lease)?;
    if pending.core.ctx.settings.replicas.is_some() {
        Box::pin(pending.require_quarantine(deadline)).await?;
    }
    let registry = &core.registry;
    let flushes = registry.flushes();
    // From now on, messages about this request are heard.
    let request = Arc::downgrade(&pending);
    let registered = registry.waiters.register(&pending.reqid, request);
    let give_up = GiveUpOnDrop(pending.clone());
    let granted = if blocks {
        Box::pin(pending.blocked(deadline)).await
    } else if queues {
        pending.queue(deadline, &registered).await
    } else {
        pending.now().await
    };
    let Some(mut grant) = granted? else { return Ok(None) };
    if pending.is_short(&grant) {
        grant = Box::pin(pending.renewed(grant)).await?;
    }
    let hold = pending.track(grant);
    pending.remains.store(false, Ordering::Relaxed);
    drop(give_up);
    // Messages that came before the registry knew the hold count, too.
    let ended = match registered.take_announcement() {
        Some(Announcement::Other(how)) => how,
        _ => None,
    };
    let is_flushed = registry.flushes() != flushes;
    if let Some(how) = ended.or(is_flushed.then_some(Lost::Flushed)) {
        registry.hint(&hold.tracked, how);
    }
    Ok(Some(hold))
}
