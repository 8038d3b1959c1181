//! Keeps holds alive that have no lease of their own, and ends those whose time is over.
//!
//! All holds of a server are renewed together, in one pipeline every third of the lease: one round trip, however
//! many there are. Holds that were granted by a message are claimed the same way, a little after: most of them are
//! released before that.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, timeout};

use crate::clock::{Moment, sleep_until};
use crate::core::Core;
use crate::error::ErrorKind;
use crate::held::{Held, InflightRenewal, Lost, RenewalReply};
use crate::route::Server;

/// How often a cluster is asked about its slots while somebody waits, or a hold is tied to a connection.
const LOOK_FOR_MOVES: Duration = Duration::from_secs(2);

/// How often a task looks whether its client is still there.
const LOOK: Duration = Duration::from_mins(1);
/// When to try again where a server refused to renew.
const REFUSED: Duration = Duration::from_millis(100);
/// When to try again where a server is not there, and another may have its slots soon.
const ELSEWHERE: Duration = Duration::from_millis(500);

/// All tasks end when the client is gone.
pub(crate) fn start(core: &Arc<Core>) {
    core.runtime.spawn(renew(Arc::downgrade(core)));
    // Made before the task is: one that the runtime drops before it ran says so, too.
    let at_the_end = NobodyRenews(Arc::downgrade(core));
    core.runtime.spawn(expire(Arc::downgrade(core), at_the_end));
    if core.routes.is_cluster() {
        core.runtime.spawn(look_for_moves(Arc::downgrade(core)));
    }
}

/// When a slot moves, places in its queues are dropped and ties are cut without a word: while somebody waits or has tied
/// something, the cluster is asked now and then who has which slots.
async fn look_for_moves(core: Weak<Core>) {
    loop {
        tokio::time::sleep(LOOK_FOR_MOVES).await;
        let Some(core) = core.upgrade() else { return };
        if core.registry.gate.refusal().is_some() {
            return;
        }
        if core.registry.needs_heartbeat() {
            // The next look will do.
            let _ = core.routes.refresh(Instant::now() + LOOK_FOR_MOVES).await;
        }
    }
}

/// Says of every hold that nobody renews it, and to every call that nobody sends it, when the runtime drops the task that
/// has this.
struct NobodyRenews(Weak<Core>);

impl Drop for NobodyRenews {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.registry.gate.abandon();
        }
        for held in self.0.upgrade().iter().flat_map(|core| core.registry.all()) {
            held.lose(Lost::Abandoned);
        }
    }
}

async fn expire(core: Weak<Core>, _at_the_end: NobodyRenews) {
    loop {
        let registry = match core.upgrade() {
            Some(core) if core.registry.gate.refusal().is_none() => core.registry.clone(),
            _ => return,
        };
        let (due, next) = registry.due(Moment::now());
        for held in due {
            held.lose(Lost::Expired);
        }
        // The client may be dropped meanwhile: it is looked for now and then.
        let look = tokio::time::sleep(LOOK);
        tokio::select! {
            () = sleep_until(next) => {}
            () = registry.earlier.notified() => {}
            () = registry.gate.shut() => {}
            () = look => {}
        }
    }
}

async fn renew(core: Weak<Core>) {
    let Some((period, claim_after, registry)) = core.upgrade().map(|core| {
        let settings = &core.settings;
        (
            settings.lease / 3,
            claim_delay(settings.announced(), settings.lease),
            core.registry.clone(),
        )
    }) else {
        return;
    };
    let mut next = Instant::now() + period;
    let mut claim = None;
    let mut flushes = 0;
    loop {
        let mut called = false;
        tokio::select! {
            () = tokio::time::sleep_until(claim.map_or(next, |claim| next.min(claim)).min(Instant::now() + LOOK)) => {}
            () = registry.renew_now.notified() => called = true,
            () = registry.gate.shut() => return,
            () = registry.claim_soon.notified() => {
                if claim.is_none() {
                    claim = Some(Instant::now() + claim_after);
                }
                continue;
            }
        }
        let Some(core) = core.upgrade() else { return };
        let now = Instant::now();
        if now < next && claim.is_none_or(|claim| now < claim) && !called {
            continue;
        }
        let heard = registry.flushes();
        let why = if heard != flushes {
            flushes = heard;
            Why::Flush
        } else if now < next && claim.is_some_and(|claim| claim <= now) {
            Why::Claim
        } else {
            Why::Lease
        };
        if why != Why::Claim {
            next = now + period;
        }
        claim = None;
        registry.claims();
        round(&core, why);
    }
}

/// What a round is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The third of a lease is over, or a connection is new.
    Lease,
    /// Holds were granted by messages.
    Claim,
    /// A database was flushed: is it ours, and what is left?
    Flush,
}

/// How long after its grant a hold is claimed that a message told us of: well before it would lapse.
pub(crate) fn claim_delay(announced: Duration, lease: Duration) -> Duration {
    (announced / 10).min(lease / 10)
}

/// Begins to renew all that are to be renewed: each server by itself, so that one that hangs delays only its own.
fn round(core: &Arc<Core>, why: Why) {
    let mut by_server: HashMap<usize, (Arc<Server>, Vec<Arc<Held>>)> = HashMap::new();
    for held in core.registry.all() {
        let wanted = match why {
            Why::Lease => held.is_watched() || held.is_untied(),
            Why::Claim => held.is_watched() && held.is_unclaimed(),
            Why::Flush => true,
        };
        if wanted && let Some(server) = core.routes.server_of(held.key()) {
            let of_server = by_server
                .entry(Arc::as_ptr(&server).addr())
                .or_insert_with(|| (server, Vec::new()));
            of_server.1.push(held);
        }
    }
    for (server, holds) in by_server.into_values() {
        core.runtime.spawn(renew_at(core.clone(), server, holds, why));
    }
}

/// One round trip for all holds of one server.
async fn renew_at(core: Arc<Core>, server: Arc<Server>, holds: Vec<Arc<Held>>, why: Why) {
    // After that it is time for the next round.
    let limit = core.settings.response_timeout.min(core.settings.lease / 3);
    // In a cluster, another node may have the slots of one that is gone: no long wait for it to come back.
    let patience = if core.routes.is_cluster() { limit.min(ELSEWHERE) } else { limit };
    let Ok(mut live) = server.link.live(Instant::now() + patience).await else {
        return soon_again(&core, ELSEWHERE).await;
    };
    if let Some(held) = holds.first() {
        // After a failover, the new primary publishes on the channel that the holds have. No channel is no reason not to renew.
        let until = Instant::now() + patience;
        let _ = core.routes.channel(&server, &live, held.key(), until).await;
    }
    let mut pipeline = redis::pipe();
    let mut asked = Vec::with_capacity(holds.len());
    let mut commands = 0;
    for held in holds.into_iter().filter(|held| !held.has_ended()) {
        if why == Why::Flush && !held.is_watched() {
            match held.grip.check() {
                Some(check) => {
                    pipeline.add_command(check);
                    commands += 1;
                    asked.push((held, None, 1));
                }
                // There is no way to ask.
                None => held.lose(Lost::Flushed),
            }
            continue;
        }
        let (renewals, renewal) = held.watchdog_renewal(live.generation);
        commands += renewals.len();
        asked.push((held, Some(renewal), renewals.len()));
        for renewal in renewals {
            pipeline.add_command(renewal);
        }
    }
    if asked.is_empty() {
        return;
    }
    let sent = Moment::now();
    match timeout(limit, live.send_all(&pipeline, commands)).await {
        Ok(Ok(replies)) => {
            server.link.answered(sent);
            let mut refused = false;
            let mut replies = replies.into_iter();
            for (held, renewal, count) in &asked {
                let of_hold: Vec<_> = replies.by_ref().take(*count).collect();
                let answer = of_hold.into_iter().map(Value::extract_error).collect();
                refused |= !settle(held, *renewal, answer, why);
            }
            if refused {
                soon_again(&core, REFUSED).await;
            }
        }
        Ok(Err(error)) if error.code().is_some() => {
            end_all(&asked, RenewalReply::Refused);
            soon_again(&core, REFUSED).await;
        }
        failed => {
            // A timeout leaves the connection open: the server may read the requests later.
            let is_closed = failed.is_ok();
            end_all(&asked, if is_closed { RenewalReply::Closed } else { RenewalReply::Unknown });
            server.link.report_broken(live.generation);
            soon_again(&core, ELSEWHERE).await;
        }
    }
}

/// The same reply to all renewals of a round.
fn end_all(asked: &[(Arc<Held>, Option<InflightRenewal>, usize)], reply: RenewalReply) {
    for (held, renewal, _) in asked {
        if let Some(renewal) = renewal {
            held.end_renewal(*renewal, reply);
        }
    }
}

/// What the server said about one hold. False: nothing that helps, ask again.
fn settle(
    held: &Held,
    renewal: Option<InflightRenewal>,
    answer: redis::RedisResult<Vec<Value>>,
    why: Why,
) -> bool {
    match answer {
        Ok(_) => {
            if let Some(renewal) = renewal {
                held.end_renewal(renewal, RenewalReply::Accepted);
            }
            true
        }
        Err(error) => match crate::Error::from(error).kind() {
            ErrorKind::NotHeld | ErrorKind::Stale => {
                held.lose(if why == Why::Flush { Lost::Flushed } else { Lost::Refused });
                true
            }
            // Moved, read-only, loading.
            _ => {
                if let Some(renewal) = renewal {
                    held.end_renewal(renewal, RenewalReply::Refused);
                }
                false
            }
        },
    }
}

/// Another round before its time, after a look at who has which slots now.
async fn soon_again(core: &Arc<Core>, pause: Duration) {
    if core.routes.is_cluster() {
        let _ = core.routes.refresh(Instant::now() + pause).await;
    } else if pause == ELSEWHERE {
        // As soon as there is a connection, it begins with a round.
        return;
    }
    tokio::time::sleep(pause).await;
    core.registry.renew_now.notify_one();
}
