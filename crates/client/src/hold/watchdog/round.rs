//! One round of renewals: one pipeline for each server, so that a server that hangs delays only its own holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::{Instant, timeout};

use crate::base::clock::Moment;
use crate::base::command::refuses_writes;
use crate::base::error::Error;
use crate::base::lost::Lost;
use crate::base::replicas::Replicas;
use crate::connection::link::live::Live;
use crate::connection::route::Server;
use crate::hold::Hold;
use crate::registry::Core;
use crate::state::hold_state::{InflightRenewal, RenewalReply};
use crate::telemetry;

/// When to try again where a server refused to renew.
const REFUSED: Duration = Duration::from_millis(100);
/// When to try again where a server does not answer, and another may have its slots soon.
const ELSEWHERE: Duration = Duration::from_millis(500);

/// What a round is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// The third of a lease is over, or a connection is new.
    Lease,
    /// Some holds last for less than the others.
    Soon,
    /// Messages announced holds.
    Claim,
    /// A database was flushed, perhaps ours: which holds are left?
    Flush,
}

#[derive(Default)]
struct Batch {
    pipeline: Pipeline,
    commands: usize,
    holds: Vec<SentHold>,
}

/// One hold in a batch.
struct SentHold {
    hold: Hold,
    /// None: a check.
    renewal: Option<InflightRenewal>,
    commands: usize,
}

/// Begins a round at every server.
pub(super) fn start_rounds(core: &Arc<Core>, round: Round) {
    let mut by_server: HashMap<usize, (Arc<Server>, Vec<Hold>)> = HashMap::new();
    let (now, usual) = (Moment::now(), core.ctx.settings.lease);
    // After that it is time for the next round.
    let mut within = usual / 3;
    for tracked in core.registry.holds.all() {
        let is_wanted = match round {
            Round::Lease => tracked.is_watched() || tracked.state().is_unbound(),
            Round::Soon => {
                let renew_at = tracked.state().renew_at(usual);
                let due = renew_at.filter(|renew_at| renew_at.from <= now);
                if due.is_none() {
                    core.registry.renew_by(renew_at);
                }
                within = due.map_or(within, |due| due.within.min(within));
                due.is_some()
            }
            Round::Claim => tracked.is_watched() && tracked.terms().unclaimed,
            Round::Flush => true,
        };
        if is_wanted && let Some(server) = core.routes.server_of(tracked.key()) {
            let address = Arc::as_ptr(&server).addr();
            let (_, holds) = by_server.entry(address).or_insert_with(|| (server, Vec::new()));
            holds.push(Hold::new(core.clone(), tracked));
        }
    }
    for (server, holds) in by_server.into_values() {
        // Without a connection: it begins with a round.
        if round != Round::Soon || server.link.generation() != 0 {
            core.ctx.runtime.spawn(run(core.clone(), server, holds, round, within));
        }
    }
}

/// One round trip for all holds of one server.
async fn run(
    core: Arc<Core>,
    server: Arc<Server>,
    holds: Vec<Hold>,
    round: Round,
    within: Duration,
) {
    let limit = core.ctx.settings.response_timeout.min(within);
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
    let batch = Batch::of(holds, round, live.generation);
    if batch.holds.is_empty() {
        return;
    }
    let sent = Moment::now();
    match timeout(limit, live.send_all(&batch.pipeline, batch.commands)).await {
        Ok(Ok(replies)) => {
            hear(&replies, round, sent, &server, &live);
            let replicas = Replicas::of(&core.ctx.settings);
            let is_confirmed = match replicas {
                Some(replicas) => live.confirm(replicas).await.is_ok(),
                None => true,
            };
            if batch.settle(replies, round, is_confirmed) {
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
            // The server may read the requests later: a proxy may still have them when it closes our side.
            batch.end_all(RenewalReply::Unknown);
            server.link.report_broken(live.generation);
            retry_soon(&core, ELSEWHERE).await;
        }
    }
}

/// What the replies of a round tell about the server behind the connection.
fn hear(replies: &[Value], round: Round, sent: Moment, server: &Server, live: &Live) {
    let errors: Vec<_> =
        replies.iter().filter_map(|reply| reply.clone().extract_error().err()).collect();
    if errors.iter().any(|error| error.code() == Some("READONLY")) {
        server.link.report_read_only(live.generation);
    }
    // Only the round after a flush also asks without writing.
    if round != Round::Flush && errors.len() < replies.len() {
        live.pulse.wrote(sent);
    } else if errors.iter().any(refuses_writes) {
        live.pulse.refused(Moment::now());
    } else {
        live.pulse.answered(sent);
    }
}

impl Batch {
    /// The requests of a round over connection `over`.
    fn of(holds: Vec<Hold>, round: Round, over: u64) -> Self {
        let mut batch = Self::default();
        for hold in holds.into_iter().filter(|hold| !hold.tracked.has_ended()) {
            let (requests, renewal) = if round == Round::Flush && !hold.tracked.is_watched() {
                let Some(checks) = hold.checks() else {
                    // There is no way to ask.
                    hold.lose(Lost::Flushed);
                    continue;
                };
                (checks, None)
            } else {
                let tracked = &hold.tracked;
                telemetry::renewing(&tracked.report, &tracked.hold_ref, || tracked.late_renewal());
                let renewal = hold.watchdog_renewal(over);
                (renewal.requests, Some(renewal.inflight))
            };
            batch.commands += requests.len();
            batch.holds.push(SentHold { hold, renewal, commands: requests.len() });
            for request in requests {
                batch.pipeline.add_command(request);
            }
        }
        batch
    }

    /// The same reply to all renewals.
    fn end_all(&self, reply: RenewalReply) {
        for sent in &self.holds {
            sent.end(reply);
        }
    }

    /// Notes the replies, and whether replicas have what they accepted. True: some did not help, ask again.
    fn settle(&self, replies: Vec<Value>, round: Round, is_confirmed: bool) -> bool {
        let mut is_refused = false;
        let mut replies = replies.into_iter();
        for sent in &self.holds {
            let replies = replies.by_ref().take(sent.commands).collect();
            is_refused |= !sent.settle(replies, round, is_confirmed);
        }
        is_refused
    }
}

impl SentHold {
    fn end(&self, reply: RenewalReply) {
        if let Some(renewal) = self.renewal {
            self.hold.end_renewal(renewal, reply);
        }
    }

    /// What the server said about one hold. False: it did not help, ask again.
    fn settle(&self, replies: Vec<Value>, round: Round, is_confirmed: bool) -> bool {
        let errors =
            replies.into_iter().map(|reply| reply.extract_error().map_err(Error::from_redis).err());
        let errors = errors.zip(self.hold.tracked.hold_ref.keys());
        let errors: Vec<_> = errors.filter_map(|(error, key)| Some((error?, key))).collect();
        let is_accepted = errors.is_empty();
        let gone: Vec<_> =
            errors.into_iter().filter(|(error, _)| error.is_gone()).map(|(_, key)| key).collect();
        if !gone.is_empty() {
            let how = if round == Round::Flush { Lost::Flushed } else { Lost::Refused };
            self.hold.lose_keys(how, gone);
            return true;
        }
        // Refused: moved, read-only, loading.
        self.end(match (is_accepted, is_confirmed) {
            (true, true) => RenewalReply::Accepted,
            (true, false) => RenewalReply::Unconfirmed,
            (false, _) => RenewalReply::Refused,
        });
        is_accepted
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
