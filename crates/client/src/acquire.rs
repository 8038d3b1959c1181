//! How locks and permits are acquired: the one engine behind all handles.

mod blocked;
mod pending;
mod queue;
mod requests;
mod rollback;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use self::pending::Handle;
use self::pending::PendingAcquire;
use self::rollback::RollbackOnDrop;
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind};
use crate::base::lost::Lost;
use crate::base::settings::{Wait, lease_ms};
use crate::hold::Hold;
use crate::registry::{Registered, Registry};
use crate::state::tracked::TrackedHold;
use crate::telemetry::acquiring;

/// How long after its request was used up an acquire begins again.
const SPENT: Duration = Duration::from_millis(5);
/// How long after a grant that came before a quarantine an acquire begins again. A new one waits at the server.
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
            // A copy of the request was granted, and that hold ended before its answer came: nothing is held, and the
            // same request id is never granted again.
            Err(error) if error.kind() == ErrorKind::Spent => tokio::time::sleep(SPENT).await,
            Err(error) if error.kind() == ErrorKind::Quarantine && !deadline.is_over() => {
                tokio::time::sleep(QUARANTINE).await;
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
    let pending = Arc::new(PendingAcquire::new(handle));
    lease_ms(pending.terms.lease)?;
    let registry = &core.registry;
    let owner = &pending.owner;
    if !pending.terms.own_name {
        // The rollback of an earlier acquire of this owner must not cancel this one with it.
        registry.waiters.rolled_back(keys.first(), owner).await;
    }
    let mut flushes = registry.flushes();
    // From now on, messages about these keys are heard.
    let others: Vec<_> =
        keys.others().map(|key| registry.waiters.register(key, owner, None)).collect();
    let request = Arc::downgrade(&pending);
    let request = (!target.is_several()).then_some(request as _);
    let registered = registry.waiters.register(keys.first(), owner, request);
    let rollback = RollbackOnDrop(pending);
    let pending = &rollback.0;
    // What is seldom needed is kept out of every waiting task: there may be a hundred thousand.
    let wait = options.wait.unwrap_or(core.ctx.settings.wait);
    let granted = if options.replicas.is_some() {
        Box::pin(pending.blocked(deadline)).await
    } else if deadline == Deadline::Now {
        pending.now().await
    } else if target.is_several() || wait == Wait::Blocking {
        Box::pin(pending.blocked(deadline)).await
    } else {
        pending.queue(deadline, &registered).await
    };
    let Some(mut grant) = granted? else { return Ok(None) };
    loop {
        let checked = if registry.flushes() != flushes {
            Box::pin(pending.verify(grant, &mut flushes)).await?
        } else if let Some(replicas) = pending.replicas().filter(|_| !grant.is_confirmed) {
            Box::pin(pending.confirm(grant, replicas)).await?
        } else {
            break;
        };
        match checked {
            Some(checked) => grant = checked,
            None => return Ok(None),
        }
    }
    let sent = grant.sent.clone();
    let hold = pending.track(grant);
    pending.may_remain.store(false, Ordering::Relaxed);
    if hold.tracked.bind().is_some() && !pending.is_up(&sent) {
        // The disconnect handler may have run before this hold was registered.
        hold.unbind(sent.at);
    }
    catch_up(registry, &hold.tracked, flushes, [&registered].into_iter().chain(&others));
    Ok(Some(hold))
}

/// Messages that came before the registry knew the hold count, too.
fn catch_up<'a>(
    registry: &Registry,
    hold: &Arc<TrackedHold>,
    flushes: u64,
    mut registered: impl Iterator<Item = &'a Registered<'a>>,
) {
    if registry.flushes() != flushes {
        registry.doubt(hold, Lost::Flushed);
    }
    if let Some((how, key)) = registered.find_map(|one| one.ended(hold)) {
        registry.report_lost(hold, how, &key);
    }
}
