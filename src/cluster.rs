//! Checks the slots of waiting keys. In a cluster, a slot can move to another node without an event for keys that
//! have waiters but no value. So all waiting keys are checked once a second, a few queues at a time. Above
//! 100,000 queues a check of all takes longer: 10 ms for each 1,000.

use dlock_core::base::ids::QueueId;
use dlock_core::base::key::{Key, Place};
use dlock_core::base::time::{Instant, Now};
use dlock_core::ports::store::Lookup;
use dlock_core::tables::regime::Gate;
use std::ops::Range;

use crate::ffi::{self, Ctx, Verdict};
use crate::keyspace::{KeyArgs, Scope};
use crate::round::Portion;
use crate::shell::{self, Shell};
use crate::slot::slot;
use crate::work::{self, Allowed};

/// When the next check is due; `None` if none is needed.
pub fn next_check(shell: &Shell) -> Option<Instant> {
    let needed =
        shell.machine.tables().settings.cluster && !shell.machine.tables().waits.is_empty();
    needed.then_some(shell.slot_round.due())
}

/// If a check is due, ends the waits for keys whose slot this node no longer serves.
pub fn check(ctx: Ctx<'_>, now: Now) {
    let due = |shell: &Shell| next_check(shell).is_some_and(|at| at <= now.mono);
    let next = shell::with(|shell| {
        due(shell).then(|| shell.slot_round.next(&shell.machine.tables().waits, now))
    });
    let Some(Portion { queues, names, mut lost }) = next.flatten() else { return };
    if !ctx.cluster_is_up() {
        return end_calls(ctx, queues, now);
    }
    let names = names.into_iter();
    let not_ours = names.filter(|(_, name)| ctx.accepts_writes(name) == Verdict::NotOurSlot);
    lost.extend(not_ours.map(|(slot, _)| slot));
    if lost.is_empty() {
        return;
    }
    if ctx.knows_its_slots() {
        let allowed = Allowed { gate: Gate::Unknown, scope: Scope::Everywhere };
        work::on_keys(ctx, allowed, |shell, turn| {
            // A key that exists may be one that is being imported, with its queue if it is a fair lock.
            let place = |key: Key<'_>| {
                if !lost.contains(&slot(key.name)) {
                    Place::Here
                } else if matches!(turn.keys.get(key), Lookup::Missing | Lookup::Elsewhere) {
                    Place::Gone
                } else if turn.keys.is_away(key) {
                    Place::Away
                } else {
                    Place::Here
                }
            };
            let end = queues.end;
            let next = shell.machine.slot_lost(queues, place, turn.fx);
            if next < end {
                shell.slot_round.resume(next, now);
            }
        });
    }
    let _ = shell::with(|shell| shell.slot_round.note_lost(lost));
}

/// The cluster is down: ends the blocked calls in these queues, as servers do with their own. Redis has done it by
/// then, Valkey leaves those of modules alone.
fn end_calls(ctx: Ctx<'_>, queues: Range<QueueId>, now: Now) {
    let allowed = Allowed { gate: Gate::Shut, scope: Scope::Everywhere };
    work::on_keys(ctx, allowed, |shell, turn| {
        let end = queues.end;
        let next = shell.machine.cluster_down(turn, queues);
        if next < end {
            shell.slot_round.resume(next, now);
        }
    });
}

/// Error for a call with several keys that this cluster node cannot serve.
///
/// The server itself checks only the first key (see the registration of commands). This function checks that the
/// others are in the same slot, and that all exist while the slot moves: a missing key may have moved already.
pub fn refusal(ctx: Ctx<'_>, named: KeyArgs<'_>) -> Option<&'static str> {
    if !ffi::is_cluster() {
        return None;
    }
    let KeyArgs { args, first, keys, .. } = named;
    let mut slots = keys.iter().map(|key| slot(key));
    let one = slots.next()?;
    if slots.any(|other| other != one) {
        return Some("CROSSSLOT Keys in request don't hash to the same slot");
    }
    // The server has admitted the first key. If it refuses it here, its verdicts are unreliable and do not count.
    let moves = !ctx.serves_all(&args, first, keys.len())
        && keys.first().is_some_and(|key| ctx.accepts_writes(key) != Verdict::NotOurSlot);
    moves.then_some("TRYAGAIN Multiple keys request during rehashing of slot")
}
