//! How locks and permits are acquired: the one engine behind all handles.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::clock::{Moment, millis};
use crate::base::error::Error;
use crate::base::options::Options;
use crate::base::random::Name;
use crate::base::replicas::{Replicas, quarantine_ms};
use crate::base::settings::{Wait, checked_ms};
use crate::base::target::{Keys, Target};
use crate::hold::{Hold, Owning};
use crate::machine::acquire::{Acquire, Limit, Rules};
use crate::machine::calls::{AcquireCall, LONG_BLOCK, Outcome};
use crate::machine::hold_state::LeaseTerms;
use crate::machine::request::Request;
use crate::shell::Core;
use crate::telemetry::acquiring;

/// What a handle acquires, and how.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    pub(crate) target: Target,
    pub(crate) keys: Keys,
    pub(crate) options: Arc<Options>,
}

impl Handle {
    pub(crate) fn new(core: &Arc<Core>, target: Target, keys: Keys) -> Self {
        Self { core: core.clone(), target, keys, options: Arc::default() }
    }

    pub(crate) fn options_mut(&mut self) -> &mut Options {
        Arc::make_mut(&mut self.options)
    }

    /// Until when `acquire` and `with` wait.
    pub(crate) fn deadline(&self) -> Moment {
        self.options.timeout.map_or(Moment::NEVER, |time| Moment::now().after(time))
    }

    pub(crate) fn not_acquired(&self) -> Error {
        Error::not_acquired().of_key(self.keys.first())
    }
}

/// Acquires what the handle names, and waits for that until a deadline, if there is one. None: not granted in time.
pub(crate) async fn acquire<G: Owning>(
    handle: &Handle,
    deadline: Option<Moment>,
) -> Result<Option<G>, Error> {
    let limit = match deadline {
        None => Limit::Try(Moment::now().after(handle.core.settings.response_timeout)),
        Some(Moment::NEVER) => Limit::Never,
        Some(end) => Limit::At(end),
    };
    match acquire_within(handle, limit).await {
        // In a quarantine, say: a server was there, and the time is over.
        Err(error) if error.is_reply() && error.passes() => Ok(None),
        acquired => acquired,
    }
}

/// As [`acquire`], also for a try that ends at its own time. An error of the server that passes is one.
pub(crate) async fn acquire_within<G: Owning>(
    handle: &Handle,
    limit: Limit,
) -> Result<Option<G>, Error> {
    let Handle { core, target, keys, .. } = handle;
    let server = || core.server_of(keys.first());
    let call = run::<G>(handle, limit);
    let token = |guard: &G| guard.as_hold().token();
    let acquired = acquiring(Some(*target), keys.first(), server, token, call).await;
    if let Ok(Some(guard)) = &acquired {
        // In the span of the caller.
        let tracked = &guard.as_hold().tracked;
        tracked.report.open(&tracked.hold_ref);
    }
    acquired
}

async fn run<G: Owning>(handle: &Handle, limit: Limit) -> Result<Option<G>, Error> {
    let core = &handle.core;
    handle.options.check()?;
    handle.target.check()?;
    handle.keys.check()?;
    // Neither this nor the call is kept in a waiting task: there may be a hundred thousand.
    if core.settings.replicas.is_some() {
        Box::pin(require_quarantine(handle, limit)).await?;
    }
    let pending = core.begin(call(handle, limit)?, true)?;
    match pending.await {
        Outcome::Held(tracked) => {
            let (core, options) = (core.clone(), handle.options.clone());
            Ok(Some(G::new(Hold { core, tracked, options })))
        }
        Outcome::NotHeld(error) => error.map_or(Ok(None), Err),
        Outcome::Granted(_) | Outcome::Answered(_) => Err(Error::closed()),
    }
}

fn call(handle: &Handle, limit: Limit) -> Result<AcquireCall, Error> {
    let Handle { core, target, keys, options } = handle;
    let settings = &core.settings;
    let is_try = matches!(limit, Limit::Try(_));
    let blocks = target.is_several() || options.wait.unwrap_or(settings.wait) == Wait::Blocking;
    let longest = if target.is_several() { LONG_BLOCK } else { settings.queue };
    let lease = options.lease_within(settings);
    checked_ms("lease", lease)?;
    let terms = LeaseTerms { lease, ends_by: None, watched: !options.is_fixed, bind: options.bind };
    // A waiter that dies with its place costs the others the lease that it asked for, so that is short. The first
    // renewal asks for all of it.
    let queues = !is_try && !blocks && terms.watched;
    let first_lease = if queues { lease.min(settings.queue) } else { lease };
    let all = Replicas::of(settings);
    let own = options.replicas.map(|own| Replicas { checks_quarantine: all.is_some(), ..own });
    // The larger number: an option does not weaken the setting.
    let replicas = own.filter(|own| all.is_none_or(|all| own.wanted >= all.wanted)).or(all);
    let replicas = replicas.map(|replicas| Replicas { lease, ..replicas });
    let rules = Rules {
        limit,
        terms,
        lease: first_lease,
        queue: settings.queue,
        block: blocks.then_some(longest),
        asks_first: target.is_several(),
        confirms: replicas.is_some(),
    };
    let request = Request {
        target: *target,
        keys: keys.clone(),
        owner: options.owner(),
        reqid: Name::new(),
        lease: first_lease,
        terms,
        queue_ms: millis(settings.queue),
        channel: core.channel.clone(),
        label: options.label.clone(),
        no_reentry: options.no_reentry,
    };
    let state = Acquire::new(rules, settings.retry_for, Moment::now());
    Ok(AcquireCall::new(request, state, replicas, options.max_hold_within(settings)))
}

/// An error for a lease that outlives the quarantine of the server: the belief in it could outlive a failover.
async fn require_quarantine(handle: &Handle, limit: Limit) -> Result<(), Error> {
    let Handle { core, keys, options, .. } = handle;
    let (lease, safe) = (millis(options.lease_within(&core.settings)), &core.safe_lease_ms);
    if lease <= safe.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut info = redis::cmd("INFO");
    info.arg("dlock_keys");
    let within = limit.end().since(Moment::now()).min(core.settings.retry_for);
    let info = core.ask(keys.first(), info, within).await?;
    // A server that does not tell is believed.
    let length = quarantine_ms(&info, "length")?.unwrap_or(u64::MAX);
    safe.store(length, Ordering::Relaxed);
    if lease <= length {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a lease of {lease} ms is above the server's dlock.restart-quarantine-ms {length}"
    )))
}
