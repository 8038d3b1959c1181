//! One round of renewals: one pipeline for each server, so that a server that hangs delays only its own holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::{Instant, timeout};

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::lost::Lost;
use crate::base::replicas::Replicas;
use crate::connection::route::Server;
use crate::hold::Hold;
use crate::registry::Core;
use crate::state::hold_state::{Asked, RenewalReply};
use crate::telemetry;

/// When to try again where a server refused to renew.
const REFUSED: Duration = Duration::from_millis(100);
/// When to try again where a server does not answer, and another may have its slots soon.
const ELSEWHERE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Batch {
    pipeline: Pipeline,
    commands: usize,
    holds: Vec<SentHold>,
}

/// One hold in a batch.
struct SentHold {
    hold: Hold,
    asked: Asked,
    commands: usize,
}

/// Begins a round at every server: for the holds whose time it is, or for all.
pub(super) fn start_rounds(core: &Arc<Core>, all: bool) {
    let mut by_server: HashMap<usize, (Arc<Server>, Vec<Hold>)> = HashMap::new();
    let (now, registry) = (Moment::now(), &core.registry);
    registry.begin_round();
    let mut within = core.ctx.settings.response_timeout;
    for tracked in registry.holds.all() {
        let (is_due, renew_by) = {
            let mut state = tracked.state();
            let is_due = all || state.is_due(now);
            if is_due {
                within = within.min(state.span() / 3);
                // Also where no connection is: the next one begins with a round.
                state.begin_renewal(now);
            }
            (is_due, state.renew_by())
        };
        registry.renew_by(renew_by);
        if is_due && let Some(server) = core.routes.server_of(tracked.key()) {
            let address = Arc::as_ptr(&server).addr();
            let (_, holds) = by_server.entry(address).or_insert_with(|| (server, Vec::new()));
            holds.push(Hold::new(core.clone(), tracked));
        }
    }
    for (server, holds) in by_server.into_values() {
        core.ctx.runtime.spawn(run(core.clone(), server, holds, within));
    }
}

/// One round trip for all holds of one server.
async fn run(core: Arc<Core>, server: Arc<Server>, holds: Vec<Hold>, limit: Duration) {
    // In a cluster, another node may have the slots of one that is gone: no long wait for it to come back.
    let connect_within = if core.routes.is_cluster() { limit.min(ELSEWHERE) } else { limit };
    let Ok(mut live) = server.link.live(Instant::now() + connect_within).await else {
        return retry_soon(&core, ELSEWHERE).await;
    };
    if let Some(hold) = holds.first() {
        // After a failover, the new primary publishes on the channel that the holds have. Without a channel, renew
        // anyway.
        let until = Instant::now() + connect_within;
        let _ = core.routes.channel(&server, &live, hold.key(), until).await;
    }
    let batch = Batch::of(holds);
    if batch.holds.is_empty() {
        return;
    }
    let sent = Moment::now();
    match timeout(limit, live.send_all(&batch.pipeline, batch.commands)).await {
        Ok(Ok(replies)) if batch.fits(&replies) => {
            live.pulse.answered(sent);
            let is_read_only = |reply: &Value| matches!(reply, Value::ServerError(error) if error.code() == "READONLY");
            if replies.iter().any(is_read_only) {
                server.link.report_read_only(live.generation);
            }
            let replicas = Replicas::of(&core.ctx.settings);
            let is_confirmed = match replicas {
                Some(replicas) => {
                    live.confirm(replicas).await.is_ok_and(|found| found.covers(sent))
                }
                None => true,
            };
            if batch.settle(replies, is_confirmed) {
                retry_soon(&core, REFUSED).await;
            } else if let Some(replicas) = replicas.filter(|_| !is_confirmed) {
                // The connection serves nothing else while it waits for replicas: not more than half of the time.
                retry_soon(&core, replicas.timeout).await;
            }
        }
        Ok(Err(error)) if error.code().is_some() => {
            batch.end_all(RenewalReply::Refused);
            retry_soon(&core, REFUSED).await;
        }
        _ => {
            batch.end_all(RenewalReply::Unknown);
            server.link.report_broken(live.generation);
            retry_soon(&core, ELSEWHERE).await;
        }
    }
}

impl Batch {
    fn of(holds: Vec<Hold>) -> Self {
        let mut batch = Self::default();
        for hold in holds.into_iter().filter(|hold| !hold.tracked.has_ended()) {
            let tracked = &hold.tracked;
            telemetry::renewing(&tracked.report, &tracked.hold_ref, || tracked.late_renewal());
            let sent = Moment::now();
            let lease = tracked.state().lease(sent);
            let requests = hold.renewals(lease);
            batch.commands += requests.len();
            for request in &requests {
                batch.pipeline.add_command(request.clone());
            }
            let (asked, commands) = (Asked { sent, lease }, requests.len());
            batch.holds.push(SentHold { hold, asked, commands });
        }
        batch
    }

    /// Whether these can be the replies to it, and are not those to other requests.
    fn fits(&self, replies: &[Value]) -> bool {
        let parts = self.holds.iter().flat_map(|sent| sent.hold.tracked.hold_ref.parts());
        replies
            .iter()
            .zip(parts)
            .all(|(reply, part)| *reply == part.renewed() || matches!(reply, Value::ServerError(_)))
    }

    /// The same reply to all renewals.
    fn end_all(&self, reply: RenewalReply) {
        for sent in &self.holds {
            sent.hold.end_renewal(sent.asked, reply);
        }
    }

    /// Notes the replies, and whether replicas have what they accepted. True: some did not help, ask again soon.
    fn settle(&self, replies: Vec<Value>, is_confirmed: bool) -> bool {
        let mut is_refused = false;
        let mut replies = replies.into_iter();
        for sent in &self.holds {
            let replies = replies.by_ref().take(sent.commands).collect();
            is_refused |= !sent.settle(replies, is_confirmed);
        }
        is_refused
    }
}

impl SentHold {
    /// What the server said about one hold. False: it did not help, ask again before its next third.
    fn settle(&self, replies: Vec<Value>, is_confirmed: bool) -> bool {
        let errors =
            replies.into_iter().map(|reply| reply.extract_error().map_err(Error::from_redis).err());
        let errors = errors.zip(self.hold.tracked.hold_ref.keys());
        let errors: Vec<_> = errors.filter_map(|(error, key)| Some((error?, key))).collect();
        let is_accepted = errors.is_empty();
        let passes = errors.iter().all(|(error, _)| error.passes());
        let (mut how, mut gone) = (Lost::Refused, Vec::new());
        for (error, key) in errors.into_iter().filter(|(error, _)| error.is_gone()) {
            how = error.gone();
            gone.push(key);
        }
        if !gone.is_empty() {
            self.hold.lose_keys(how, gone);
            return true;
        }
        // Refused: moved, read-only, loading.
        let reply = match (is_accepted, is_confirmed) {
            (true, true) => RenewalReply::Accepted,
            (true, false) => RenewalReply::Unconfirmed,
            (false, _) => RenewalReply::Refused,
        };
        self.hold.end_renewal(self.asked, reply);
        is_accepted || !passes
    }
}

/// Another round before its time, after the slots were learnt again.
async fn retry_soon(core: &Arc<Core>, pause: Duration) {
    if core.routes.is_cluster() {
        let _ = core.routes.refresh(Instant::now() + pause).await;
    } else if pause == ELSEWHERE {
        // As soon as there is a connection, it begins with a round.
        return;
    }
    tokio::time::sleep(pause).await;
    core.registry.renew.notify_one();
}
