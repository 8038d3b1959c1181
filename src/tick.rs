//! When the loop takes a turn, and when the alarm wakes it for the next one.
//!
//! The server calls [`after_sleep`] in each turn of its loop, after it has waited for events and before it serves
//! any. Only there may the module write outside a command.

use dlock_core::base::time::{Instant, Now};
use dlock_core::events::tick::Progress;
use dlock_core::machine::Fact;
use dlock_core::tables::regime::{Gate, Role};

use crate::ffi::{self, Alarm, Ctx};
#[cfg(debug_assertions)]
use crate::keyspace::{Keys, Named, Scope};
use crate::shell::{self, Shell};
use crate::{cluster, inbox, persist, turn};

/// Alarm value meaning "run again immediately"; it does not count as late.
const AT_ONCE: Instant = Instant(1);

/// Pause between two turns that index loaded keys, in milliseconds: clients get half of the time.
const LOADED_MS: u64 = 1;

/// Up to this number of keys and waiters, debug builds check all invariants after each turn.
#[cfg(debug_assertions)]
const CHECKED_UP_TO: usize = 512;

/// The loop has just slept.
pub fn after_sleep(ctx: Ctx<'_>) {
    let paused = ffi::avoid_replica_traffic();
    let now = shell::read_clocks();
    ffi::avoid_page_ends(now.mono.0);
    let due = shell::with(|shell| {
        shell.machine.learn(Fact::Paused(paused, now.mono));
        let is_due = shell.armed.is_some_and(|at| at <= now.mono);
        is_due || !shell.started
    });
    // Notices that wait for the gate are not news: the alarm is set for the next attempt.
    if due == Some(false) && !inbox::has_news() {
        return;
    }
    let _ = shell::with(|shell| begin(ctx, shell, now));
    let (gate, progress) = turn::of_loop(ctx, now, paused);
    let _ = shell::with(|shell| {
        shell.gate = gate;
        shell.progress = progress;
        if gate != Gate::Shut {
            check_invariants(ctx, shell);
        }
    });
}

/// In debug builds: checks the invariants, as long as that is cheap.
#[cfg(debug_assertions)]
fn check_invariants(ctx: Ctx<'_>, shell: &Shell) {
    use dlock_core::invariants::broken_invariant;

    let size = shell.machine.tables().waits.len() + shell.machine.tables().leases.len();
    if size <= CHECKED_UP_TO && inbox::is_empty() && !inbox::has_loaded() {
        // A check must not remove expired keys.
        let mut keys = Keys::new(ctx, ffi::Mode::Peek, Scope::Everywhere, Named::none());
        let broken = broken_invariant(shell.machine.tables(), &mut keys, shell::now());
        assert!(broken.is_none(), "this does not hold: {}", broken.unwrap_or_default());
    }
}

/// In debug builds: checks the invariants.
#[cfg(not(debug_assertions))]
fn check_invariants(_ctx: Ctx<'_>, _shell: &Shell) {}

/// A replica is online. The server is executing a command of the replica, so the shell is not lent.
pub fn replica_attached() {
    let _ = shell::with(|shell| shell.machine.learn(Fact::ReplicaAttached(shell::now().mono)));
}

/// First turn of the loop: everything loaded before it belongs to the start of this process.
fn begin(ctx: Ctx<'_>, shell: &mut Shell, now: Now) {
    if !shell.started {
        shell.started = true;
        persist::warn_at_start(ctx, &shell.machine);
        shell.machine.learn(Fact::Loaded(now));
        if shell.machine.tables().regime.role() == Role::Primary {
            shell.machine.learn(Fact::InService(now.mono));
        }
    }
    if let Some(at) = shell.armed.take().filter(|&at| at <= now.mono) {
        let late = now.mono.0 - at.0;
        if at > AT_ONCE {
            shell.lateness.last_us = late;
            shell.lateness.worst_us = shell.lateness.worst_us.max(late);
        }
    }
}

/// The loop is about to sleep: sets the alarm.
pub fn before_sleep() {
    let _ = shell::with(|shell| {
        let now = shell::now();
        let mut next = shell.machine.next_alarm(now, shell.gate);
        // What is due and was not left over is not late: a wheel may ask for a turn in the past.
        if shell.progress == Progress::Done {
            next = next.map(|next| if next <= now.mono { AT_ONCE } else { next });
        }
        if let Some(check) = cluster::next_check(shell) {
            next = Some(next.map_or(check, |next| next.min(check)));
        }
        if inbox::has_loaded() {
            let is_shut = shell.gate == Gate::Shut;
            let soon =
                now.mono + if is_shut { dlock_core::tables::portions::RETRY_MS } else { LOADED_MS };
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        if inbox::has_news() {
            next = Some(AT_ONCE);
        } else if !inbox::is_empty() {
            // They wait for the gate: try again soon.
            let retry = now.mono + dlock_core::tables::portions::RETRY_MS;
            next = Some(next.map_or(retry, |next| next.min(retry)));
        }
        // Keeps an earlier alarm: a retry counts from the first attempt, however often the loop turns. If the alarm
        // is no longer needed, it costs one check.
        next = next.map(|next| shell.armed.map_or(next, |armed| armed.min(next)));
        shell.armed = next;
        match next {
            Some(at) => Alarm::set(at.0),
            None => Alarm::disarm(),
        }
    });
}
