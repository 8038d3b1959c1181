//! The notices of callbacks: when each is processed, and what the machine learns from it.

use dlock_core::base::ids::WaiterId;
use dlock_core::base::key::Key;
use dlock_core::machine::{Fact, Machine, ServerEvent};
use dlock_core::ports::effects::Effects;
use dlock_core::ports::turn::Turn;
use dlock_core::tables::regime::Gate;

use crate::ffi::{self, Ctx, Mode};
use crate::inbox::{self, Batch, Load, Notice, Of, Wait};
use crate::keyspace::{Keys, Named, Scope};
use crate::parking::{self, Detached};
use crate::work::{Allowed, on_keys};
use crate::{perform, shell};

/// Processes the notices of callbacks, oldest first. Unless the gate is open, notices that need a write are deferred.
/// A command in a cluster also defers notices about other keys.
pub fn drain(ctx: Ctx<'_>, allowed: Allowed) {
    // Read again for each notice: one of them may say that this server has become a primary.
    let is_closed = || allowed.gate != Gate::Open && shell::is_primary();
    let of = match allowed.scope {
        _ if is_closed() => Of::News,
        Scope::Everywhere => Of::All,
        Scope::Command(slot) => slot.map_or(Of::News, Of::Slot),
    };
    let mut batch = Batch::take(of, allowed.scope != Scope::Everywhere);
    // A data set is or was loaded after these events.
    let before_load = batch.iter().any(|notice| matches!(notice, Notice::Loading));
    // A value that moved must be followed before its old name is checked.
    for notice in batch.iter() {
        if let Notice::Moved { db, name } = notice
            && allowed.scope.reaches(name)
        {
            follow(ctx, allowed, *db, name);
        }
    }
    // A load determines what a flush meant, so the two stay together.
    let has_flush = batch.iter().any(|notice| matches!(notice, Notice::Flushed { .. }))
        || inbox::awaits_flush();
    let keeps_load = has_flush && (is_closed() || allowed.scope != Scope::Everywhere);
    let mut gone = Vec::new();
    while let Some((number, notice)) = batch.next() {
        let is_closed = is_closed();
        if is_closed && let Notice::ClientGone(client) = notice {
            gone.push((number, client));
        } else if is_closed && notice.writes() {
            batch.put_off((number, notice), Wait::Gate);
        } else if waits_for_tick(&notice, allowed.scope) {
            forget_holders(&notice);
            batch.put_off((number, notice), Wait::Tick);
        } else if keeps_load && matches!(notice, Notice::Loading) {
            batch.put_off((number, notice), if is_closed { Wait::Gate } else { Wait::Tick });
        } else if let Notice::ClientGone(client) = notice {
            if !client_gone(ctx, allowed, client) {
                batch.put_off((number, notice), Wait::Tick);
            }
        } else if notice.is_for_files() && ffi::avoid_replica_traffic() {
            batch.put_off((number, notice), Wait::Gate);
        } else {
            apply_notice(ctx, allowed, notice, before_load);
        }
    }
    // Last, when their calls have ended: most have nothing else, and need not be remembered until the gate opens.
    for (number, client) in gone {
        if shell::knows_client(client) && !client_gone(ctx, allowed, client) {
            batch.put_off((number, Notice::ClientGone(client)), Wait::Gate);
        }
    }
    // Once for all notices: their number has no bound.
    on_keys(ctx, allowed, |shell, turn| {
        shell.machine.event(turn, ServerEvent::Drained);
    });
}

/// Whether a notice is about keys that a command may not access. A notice that needs no key is never deferred, so
/// that no command takes a closed connection for a waiting one.
fn waits_for_tick(notice: &Notice, scope: Scope) -> bool {
    if scope == Scope::Everywhere {
        return false;
    }
    match notice {
        Notice::Unlinked { name, .. }
        | Notice::Moved { name, .. }
        | Notice::Loaded { name, aside: false, .. } => !scope.reaches(name),
        Notice::Flushed { .. }
        | Notice::Swapped
        | Notice::Undelivered(_)
        | Notice::Forked
        | Notice::Forgiven
        | Notice::AsyncLoading(_) => true,
        Notice::ClientGone(_)
        | Notice::Heard(_)
        | Notice::HandleGone(_)
        | Notice::Loaded { aside: true, .. }
        | Notice::Role { .. }
        | Notice::Loading => false,
    }
}

/// A value in another slot is gone; the tick will process that. Until then no owner may count as a holder of the key,
/// because the search for deadlocks reads the queue.
fn forget_holders(notice: &Notice) {
    if let Notice::Unlinked { db, name, .. } = notice {
        let _ = shell::with(|shell| shell.machine.learn(Fact::HoldersGone(Key { db: *db, name })));
    }
}

/// Returns `false` if its notice must wait for the tick.
fn client_gone(ctx: Ctx<'_>, allowed: Allowed, client: u64) -> bool {
    let mut is_done = false;
    on_keys(ctx, allowed, |shell, turn| {
        is_done = shell.machine.event(turn, ServerEvent::ClientGone(client));
    });
    is_done
}

fn apply_notice(ctx: Ctx<'_>, allowed: Allowed, notice: Notice, before_load: bool) {
    match notice {
        Notice::ClientGone(client) => {
            client_gone(ctx, allowed, client);
        }
        Notice::Heard(client) => on_keys(ctx, allowed, |shell, turn| {
            shell.machine.event(turn, ServerEvent::ClientActive(client));
        }),
        Notice::HandleGone(call) => match parking::part(call) {
            Detached::Waiting(waiter) => {
                let _ = shell::with(|shell| {
                    let keys = &mut Keys::new(ctx, Mode::Peek, allowed.scope, Named::none());
                    // Without effects.
                    let mut none = Effects::default();
                    let turn = &mut Turn::without_caller(keys, shell::now(), &mut none);
                    // The notice of its closed connection may still wait for the gate.
                    let event = if is_connected(&shell.machine, waiter) {
                        ServerEvent::Withdrawn(waiter)
                    } else {
                        ServerEvent::HungUp(waiter)
                    };
                    shell.machine.event(turn, event);
                });
            }
            Detached::Sent(waiter)
                if allowed.gate == Gate::Open && allowed.scope == Scope::Everywhere =>
            {
                undelivered(ctx, allowed, waiter);
            }
            Detached::Sent(waiter) => inbox::push(Notice::Undelivered(waiter)),
            Detached::Unknown => {}
        },
        Notice::Undelivered(waiter) => undelivered(ctx, allowed, waiter),
        Notice::Unlinked { db, name, lost, .. } => on_keys(ctx, allowed, |shell, turn| {
            shell.machine.event(
                turn,
                ServerEvent::Unlinked(Key { db, name: &name }, lost.map(|lost| *lost)),
            );
        }),
        Notice::Loaded { db, name, aside: true, .. } => {
            let _ = shell::with(|shell| shell.aside.push((db, name)));
        }
        Notice::Flushed { is_all, databases, missing } => on_keys(ctx, allowed, |shell, turn| {
            shell.machine.event(
                turn,
                ServerEvent::Flushed { databases: &databases, announce: !before_load },
            );
            if is_all && !before_load {
                // On a replica this notice does not wait for the gate, so the server may be paused.
                if !shell.machine.learn(Fact::Forgiven(missing)) {
                    inbox::push(Notice::Forgiven);
                }
            }
        }),
        Notice::Swapped => on_keys(ctx, allowed, |shell, turn| {
            shell.machine.event(turn, ServerEvent::Swapped);
        }),
        Notice::Role { primary } => on_keys(ctx, allowed, |shell, turn| {
            let role = if primary { Fact::Promoted(turn.now) } else { Fact::Demoted };
            shell.machine.learn(role);
        }),
        Notice::Forked => log_rest(ctx),
        Notice::Forgiven => {
            on_keys(ctx, allowed, |shell, turn| shell.machine.tables().regime.tell_mark(turn.fx));
        }
        Notice::Moved { db, name } => {
            // Checked again: a SWAPDB may have moved its entry since. A key that was just loaded has none yet.
            follow(ctx, allowed, db, &name);
            adopt(ctx, allowed, db, &name);
        }
        Notice::Loaded { db, name, aside: false, waiters } => {
            adopt(ctx, allowed, db, &name);
            // From here on the machine counts them.
            drop(waiters);
        }
        Notice::Loading | Notice::AsyncLoading(Load::Started) => {}
        Notice::AsyncLoading(Load::Failed) => {
            let _ = shell::with(|shell| shell.aside = Vec::new());
        }
        Notice::AsyncLoading(Load::Ended) => {
            on_keys(ctx, allowed, |shell, turn| {
                shell.machine.event(turn, ServerEvent::Flushed { databases: &[], announce: false });
            });
            let loaded = shell::with(|shell| std::mem::take(&mut shell.aside));
            serve_staged_data(ctx, &loaded.unwrap_or_default());
        }
    }
}

/// An AOF rewrite without an RDB preamble stores only keys. So its first records carry the rest.
fn log_rest(ctx: Ctx<'_>) {
    if ctx.flags().aof() {
        let records = shell::with(|shell| shell.machine.tables().records_beside(ffi::wall_us()));
        for payload in records.unwrap_or_default() {
            perform::tell(ctx, &payload);
        }
    }
    ffi::records_written();
}

/// Whether the connection of a waiter is open.
fn is_connected(machine: &Machine, waiter: WaiterId) -> bool {
    machine.tables().waits.by_id(waiter).is_some_and(|waiter| ffi::client_alive(waiter.client))
}

/// A staged data set is now served: its keys are indexed a few at a time.
fn serve_staged_data(ctx: Ctx<'_>, loaded: &[(u32, Box<[u8]>)]) {
    let sizes = (0..).map_while(|db| Some((db, ctx.db_size(db)?)));
    let used: Vec<u32> = sizes.filter(|&(_, size)| size > 0).map(|(db, _)| db).collect();
    for (db, name) in loaded {
        if *db == 0 {
            // Redis 7.0 reports 0 keys for every database while it loads a second data set.
            for &db in &used {
                inbox::push_loaded(db, name);
            }
        } else {
            inbox::push_loaded(*db, name);
        }
    }
}

fn follow(ctx: Ctx<'_>, allowed: Allowed, db: u32, name: &[u8]) {
    on_keys(ctx, allowed, |shell, turn| {
        shell.machine.event(turn, ServerEvent::Moved(Key { db, name }));
    });
}

fn adopt(ctx: Ctx<'_>, allowed: Allowed, db: u32, name: &[u8]) {
    on_keys(ctx, allowed, |shell, turn| {
        shell.machine.event(turn, ServerEvent::Adopted(Key { db, name }));
    });
}

fn undelivered(ctx: Ctx<'_>, allowed: Allowed, waiter: WaiterId) {
    on_keys(ctx, allowed, |shell, turn| {
        shell.machine.event(turn, ServerEvent::Undelivered(waiter));
    });
}
