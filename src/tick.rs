//! What happens without a call: notices are worked off and what is due is done.
//!
//! The server calls [`after_sleep`] in each turn of its loop, right after it has waited for
//! events and before it serves any. That is the one place where we may write outside a command.

use std::collections::VecDeque;

use dlock_core::effects::Effects;
use dlock_core::machine::{Gate, Progress, Role};
use dlock_core::store::Key;
use dlock_core::time::{Instant, Now};

use crate::ffi::{self, Alarm, Ctx, Mode, Verdict};
use crate::inbox::{self, Load, Notice};
use crate::keyspace::Keys;
use crate::parking::{self, Parted};
use crate::shell::{self, Shell};
use crate::{cluster, perform};

/// How long one turn of the loop works on what is due before it serves clients again.
const TURN_US: u64 = 1_000;

/// When an alarm rings that is no deadline, and so cannot be late: the loop shall not sleep.
const AT_ONCE: Instant = Instant(1);

/// Pieces of work between two looks at the clock.
const CHUNK: usize = 64;

/// The loop has just slept.
pub fn after_sleep(ctx: Ctx<'_>) {
    let paused = ffi::avoid_replica_traffic();
    let now = shell::read_clocks();
    let due = shell::with(|shell| {
        shell.machine.observe(now.mono, paused);
        let is_due = shell.armed.is_some_and(|at| at <= now.mono);
        is_due || !shell.started
    });
    if due == Some(false) && inbox::is_empty() {
        return;
    }
    let gate = gate(ctx, paused, now);
    let _ = shell::with(|shell| begin(shell, now));
    work_off_notices(ctx, gate);
    do_what_is_due(ctx, now, gate);
    cluster::check(ctx, now);
}

/// First turn of the loop: whatever was loaded before is the start of this process.
fn begin(shell: &mut Shell, now: Now) {
    if !shell.started {
        shell.started = true;
        shell.machine.loaded(now);
        if shell.machine.role() == Role::Primary {
            shell.machine.begin_quarantine(now.mono);
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

/// Whether the server would take a client's write now.
pub fn gate(ctx: Ctx<'_>, paused: bool, now: Now) -> Gate {
    if paused {
        return Gate::Shut;
    }
    let wants = shell::with(|shell| shell.machine.wants_to_write(now)).unwrap_or(false);
    if !wants && inbox::is_empty() {
        return Gate::Open;
    }
    let flags = ctx.flags();
    if flags.loading() || flags.async_loading() || !flags.primary() {
        return Gate::Shut;
    }
    match ctx.accepts_writes(b"dlock") {
        // Some other node serves the slot of this word; what matters is that the cluster is up.
        Verdict::Accepts | Verdict::NotOurSlot => Gate::Open,
        Verdict::Refused(_) => Gate::Shut,
    }
}

/// Works off what callbacks have noted, oldest first. Behind a shut gate, what would write waits.
pub fn work_off_notices(ctx: Ctx<'_>, gate: Gate) {
    if inbox::is_empty() {
        return;
    }
    let mut waiting = VecDeque::new();
    let mut notices = inbox::take();
    let _ = shell::with(|shell| shell.machine.set_gate(gate));
    let is_loaded_later = notices.iter().any(|notice| matches!(notice, Notice::Loading));
    // A value that moved must be followed before its old name is looked at.
    for notice in &notices {
        if let Notice::Moved { db, name } = notice {
            on_keys(ctx, |shell, keys, _, _| {
                shell.machine.moved(keys, Key { db: *db, name });
            });
        }
    }
    while let Some(notice) = notices.pop_front() {
        let writes = matches!(
            notice,
            Notice::ClientGone(_)
                | Notice::Heard(_)
                | Notice::Undelivered(_)
                | Notice::Unlinked { .. }
                | Notice::Flushed(_)
                | Notice::Swapped(..)
                | Notice::Loaded { .. }
        );
        if writes && gate == Gate::Shut && shell::is_primary() {
            waiting.push_back(notice);
        } else {
            work_off(ctx, notice, is_loaded_later);
        }
    }
    inbox::put_back(waiting);
}

fn work_off(ctx: Ctx<'_>, notice: Notice, is_loaded_later: bool) {
    match notice {
        Notice::ClientGone(client) => on_keys(ctx, |shell, keys, now, fx| {
            shell.machine.client_gone(keys, now, client, fx);
        }),
        Notice::Heard(client) => on_keys(ctx, |shell, keys, now, fx| {
            shell.machine.rouse(keys, now, client, fx);
        }),
        Notice::HandleGone(handle) => match parking::part(handle) {
            Parted::Waiting(waiter) => on_keys(ctx, |shell, keys, now, fx| {
                shell.machine.abandoned(keys, now, waiter, fx);
            }),
            Parted::Sent(waiter) => inbox::push(Notice::Undelivered(waiter)),
            Parted::Unknown => {}
        },
        Notice::Undelivered(waiter) => on_keys(ctx, |shell, keys, now, fx| {
            shell.machine.undelivered(keys, now, waiter, fx);
        }),
        Notice::Unlinked { db, name, lost } => on_keys(ctx, |shell, keys, now, fx| {
            let key = Key { db, name: &name };
            shell.machine.unlinked(keys, now, key, lost.as_ref(), fx);
        }),
        Notice::Loaded { db, name, aside: true } => {
            let _ = shell::with(|shell| shell.aside.push((db, name)));
        }
        Notice::Flushed(db) => on_keys(ctx, |shell, keys, now, fx| {
            shell.machine.flushed(keys, now, db, !is_loaded_later, fx);
        }),
        Notice::Swapped(a, b) => on_keys(ctx, |shell, keys, now, fx| {
            shell.machine.swapped(keys, now, (a, b), fx);
        }),
        Notice::Role { primary } => on_keys(ctx, |shell, _, now, fx| {
            if primary { shell.machine.promote(now) } else { shell.machine.demote(fx) }
        }),
        // Its entry has been followed already; a value that was loaded just before has none yet.
        Notice::Moved { db, name } | Notice::Loaded { db, name, aside: false } => {
            adopt(ctx, db, &name);
        }
        Notice::Loading | Notice::AsyncLoading(Load::Started) => {}
        Notice::AsyncLoading(Load::Failed) => {
            let _ = shell::with(|shell| shell.aside = Vec::new());
        }
        Notice::AsyncLoading(Load::Ended) => {
            on_keys(ctx, |shell, keys, now, fx| {
                shell.machine.flushed(keys, now, None, false, fx);
            });
            let loaded = shell::with(|shell| std::mem::take(&mut shell.aside));
            adopt_what_was_loaded_aside(ctx, &loaded.unwrap_or_default());
        }
    }
}

fn adopt_what_was_loaded_aside(ctx: Ctx<'_>, loaded: &[(u32, Box<[u8]>)]) {
    let sizes = (0..).map_while(|db| Some((db, ctx.db_size(db)?)));
    let used: Vec<u32> = sizes.filter(|&(_, size)| size > 0).map(|(db, _)| db).collect();
    for (db, name) in loaded {
        if *db == 0 {
            // Redis 7.0 says 0 of every database while it loads aside.
            used.iter().for_each(|&db| adopt(ctx, db, name));
        } else {
            adopt(ctx, *db, name);
        }
    }
}

fn adopt(ctx: Ctx<'_>, db: u32, name: &[u8]) {
    on_keys(ctx, |shell, keys, now, fx| {
        shell.machine.adopt(keys, now, Key { db, name }, fx);
    });
}

/// Asks the machine something about keys, and performs what it says.
pub fn on_keys(ctx: Ctx<'_>, ask: impl FnOnce(&mut Shell, &mut Keys<'_>, Now, &mut Effects)) {
    shell::with_effects(|effects| {
        let asked = shell::with(|shell| {
            let mut keys = Keys::new(ctx, Mode::Write, None);
            ask(shell, &mut keys, shell::now(), effects);
        });
        if asked.is_some() {
            perform::perform(ctx, None, effects);
        }
    });
}

fn do_what_is_due(ctx: Ctx<'_>, begun: Now, gate: Gate) {
    loop {
        let mut progress = Progress::Done;
        on_keys(ctx, |shell, keys, now, fx| {
            progress = shell.machine.tick(keys, now, gate, CHUNK, fx);
        });
        let spent = ffi::monotonic_us().saturating_sub(begun.mono.0);
        if progress == Progress::Done || spent > TURN_US {
            return;
        }
    }
}

/// The loop is about to sleep: sets the alarm.
pub fn before_sleep() {
    let _ = shell::with(|shell| {
        let now = shell::now();
        let mut next = shell.machine.next_alarm(now);
        if let Some(check) = cluster::next_check(shell) {
            next = Some(next.map_or(check, |next| next.min(check)));
        }
        if inbox::has_news() {
            next = Some(AT_ONCE);
        } else if !inbox::is_empty() {
            // Waits behind a shut gate: is tried again soon.
            let retry = now.mono + dlock_core::machine::RETRY_MS;
            next = Some(next.map_or(retry, |next| next.min(retry)));
        }
        // An alarm that should have rung may have done so in the middle of a script, unheard.
        if next != shell.armed || next.is_some_and(|at| at <= now.mono) {
            shell.armed = next;
            match next {
                Some(at) => Alarm::set(at.0),
                None => Alarm::disarm(),
            }
        }
    });
}
