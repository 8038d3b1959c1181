//! Keeps holds alive that have no lease of their own, and ends those whose time is over.
//!
//! All holds of a server are renewed together, in one pipeline every third of the lease: one round trip, however
//! many there are. Holds that were granted by a message are claimed the same way, a little after: most of them are
//! released before that.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use crate::clock::{Moment, sleep_until};
use crate::core::Core;
use crate::error::ErrorKind;
use crate::held::{Held, Lost};
use crate::route::Server;

/// Both tasks end when the client is gone.
pub(crate) fn start(core: &Arc<Core>) {
    core.runtime.spawn(renew(Arc::downgrade(core)));
    core.runtime.spawn(expire(Arc::downgrade(core)));
}

async fn expire(core: Weak<Core>) {
    loop {
        let registry = match core.upgrade() {
            Some(core) => core.registry.clone(),
            None => return,
        };
        let (due, next) = registry.due(Moment::now());
        for held in due {
            held.lose(Lost::Expired);
        }
        // The client may be dropped meanwhile: it is looked for now and then.
        let look = tokio::time::sleep(Duration::from_mins(1));
        tokio::select! {
            () = sleep_until(next) => {}
            () = registry.earlier.notified() => {}
            () = look => {}
        }
    }
}

async fn renew(core: Weak<Core>) {
    let Some((period, claim_after, registry)) = core.upgrade().map(|core| {
        let settings = &core.settings;
        (settings.lease / 3, claim_delay(settings.queue, settings.lease), core.registry.clone())
    }) else {
        return;
    };
    let mut next = Instant::now() + period;
    let mut claim = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(claim.map_or(next, |claim| next.min(claim))) => {}
            () = registry.renew_now.notified() => {}
            () = registry.claim_soon.notified() => {
                if claim.is_none() {
                    claim = Some(Instant::now() + claim_after);
                }
                continue;
            }
        }
        let Some(core) = core.upgrade() else { return };
        let now = Instant::now();
        let only_unclaimed = now < next && claim.is_some_and(|claim| claim <= now);
        if !only_unclaimed {
            next = now + period;
        }
        claim = None;
        round(&core, only_unclaimed).await;
    }
}

/// How long after its grant a hold is claimed that a message told us of: well before it would lapse.
pub(crate) fn claim_delay(queue: Duration, lease: Duration) -> Duration {
    (queue / 10).min(lease / 10)
}

/// Renews all that are to be renewed, all servers at a time.
async fn round(core: &Arc<Core>, only_unclaimed: bool) {
    let mut by_server: HashMap<usize, (Arc<Server>, Vec<Arc<Held>>)> = HashMap::new();
    for held in core.registry.all() {
        if held.is_watched()
            && (!only_unclaimed || held.is_unclaimed())
            && let Some(server) = core.routes.server_of(held.key())
        {
            let of_server = by_server
                .entry(Arc::as_ptr(&server).addr())
                .or_insert_with(|| (server, Vec::new()));
            of_server.1.push(held);
        }
    }
    let rounds: Vec<_> = by_server
        .into_values()
        .map(|(server, holds)| tokio::spawn(renew_at(core.clone(), server, holds)))
        .collect();
    for round in rounds {
        // A round that panicked renews nothing: its holds end by their deadlines.
        let _ = round.await;
    }
}

/// One round trip for all holds of one server.
async fn renew_at(core: Arc<Core>, server: Arc<Server>, holds: Vec<Arc<Held>>) {
    let until = Instant::now() + core.settings.response_timeout;
    // Without a connection there is nothing to do: as soon as there is one, it begins with a round.
    let Ok(mut live) = server.link.live(until).await else { return };
    let mut pipeline = redis::pipe();
    let holds: Vec<_> = holds.into_iter().filter(|held| held.is_watched()).collect();
    for held in &holds {
        pipeline.add_command(held.renewal(held.lease()));
    }
    if holds.is_empty() {
        return;
    }
    let sent = Moment::now();
    match live.connection.send_packed_commands(&pipeline, 0, holds.len()).await {
        Ok(replies) => {
            server.link.answered();
            for (held, reply) in holds.iter().zip(replies) {
                settle(&core, held, reply, sent);
            }
        }
        Err(error) if error.code().is_none() => server.link.report_broken(live.generation),
        Err(_) => {}
    }
}

/// What the server said to one renewal.
fn settle(core: &Arc<Core>, held: &Arc<Held>, reply: Value, sent: Moment) {
    match reply.extract_error() {
        // One that ended meanwhile stays ended: another client may have been told otherwise.
        Ok(_) if held.lost_now().is_none() => held.renewed(sent, held.lease()),
        Ok(_) => {}
        Err(error) if crate::Error::from(error.clone()).kind() == ErrorKind::NotHeld => {
            held.lose(Lost::Refused);
        }
        // Moved, read-only, busy: by itself, as often as it takes.
        Err(_) => {
            let held = held.clone();
            core.runtime.spawn(async move {
                if held.is_watched() {
                    let _ = held.renew(held.lease()).await;
                }
            });
        }
    }
}
