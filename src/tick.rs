//! Work that no command triggers: notices are processed and expired leases and waits end.
//!
//! The server calls [`after_sleep`] in each turn of its loop, after it has waited for events and before it serves
//! any. Only there may the module write outside a command.

use dlock_core::effects::Effects;
use dlock_core::events::tick::Progress;
use dlock_core::key::Key;
use dlock_core::machine::{Fact, Machine, ServerEvent};
use dlock_core::queues::waiter::WaiterId;
use dlock_core::regime::{Gate, Role};
use dlock_core::time::{Instant, Now};
use dlock_core::turn::Turn;

use crate::ffi::{self, Alarm, Ctx, Mode, Verdict};
use crate::inbox::{self, Batch, Load, Notice, Of, Wait};
use crate::keyspace::{Keys, Named, Scope};
use crate::parking::{self, Detached};
use crate::shell::{self, Shell};
use crate::{cluster, perform, persist};

/// How long one turn of the loop works on due tasks before it serves clients again.
const TURN_US: u64 = 1_000;

/// Alarm value meaning "run again immediately"; it does not count as late.
const AT_ONCE: Instant = Instant(1);

/// Pause between two turns that index loaded keys, in milliseconds: clients get half of the time.
const LOADED_MS: u64 = 1;

/// Units of work between two reads of the clock.
const CHUNK: usize = 64;

/// Blocked calls that are answered before other clients are served: the server writes their replies after the turn.
const WOKEN_AT_ONCE: usize = 256;

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
    let gate = if paused { Gate::Shut } else { Gate::Unknown };
    let mut allowed = Allowed { gate, scope: Scope::Everywhere };
    if !inbox::is_empty() {
        allowed.ask(ctx);
    }
    drain_notices(ctx, allowed);
    run_due_work(ctx, now, &mut allowed);
    cluster::check(ctx, now);
    let _ = shell::with(|shell| {
        shell.gate = allowed.gate;
        if allowed.gate != Gate::Shut {
            shell.check(ctx);
        }
    });
}

/// A replica is online. The server is executing a command of the replica, so the shell is not lent.
pub fn replica_attached() {
    let _ = shell::with(|shell| shell.machine.learn(Fact::ReplicaAttached(shell::now().mono)));
}

/// What the machine may do in this turn.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    /// Whether the server would accept a client's write. Only an open gate lets the machine write.
    pub gate: Gate,
    /// The keys that may be accessed.
    pub scope: Scope,
}

impl Allowed {
    /// Asks the server about the gate, unless that is known. Once per turn is enough, because no other command runs
    /// in it.
    fn ask(&mut self, ctx: Ctx<'_>) {
        if self.gate == Gate::Unknown {
            self.gate = ask_gate(ctx);
        }
    }
}

/// First turn of the loop: everything loaded before it belongs to the start of this process.
fn begin(ctx: Ctx<'_>, shell: &mut Shell, now: Now) {
    if !shell.started {
        shell.started = true;
        persist::warn_at_start(ctx, &shell.machine);
        persist::doubt_at_start(&mut shell.machine);
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

/// Asks the server whether it would accept a client's write now.
pub fn ask_gate(ctx: Ctx<'_>) -> Gate {
    if ffi::avoid_replica_traffic() {
        return Gate::Shut;
    }
    let flags = ctx.flags();
    if flags.loading() || flags.async_loading() || !flags.primary() {
        return Gate::Shut;
    }
    match ctx.accepts_writes(b"dlock") {
        Verdict::Accepts => Gate::Open,
        // Another node, or none, serves the slot of this word. It only matters that the cluster is up.
        Verdict::NotOurSlot if ctx.cluster_is_up() => Gate::Open,
        Verdict::NotOurSlot | Verdict::Refused(_) => Gate::Shut,
    }
}

/// Processes the notices of callbacks, oldest first. Unless the gate is open, notices that need a write are deferred.
/// A command in a cluster also defers notices about other keys.
pub fn drain_notices(ctx: Ctx<'_>, allowed: Allowed) {
    if inbox::is_empty() {
        return;
    }
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
    while let Some((number, notice)) = batch.next() {
        let is_closed = is_closed();
        if is_closed && notice.writes() {
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
        } else if matches!(notice, Notice::Forked | Notice::Forgiven)
            && ffi::avoid_replica_traffic()
        {
            batch.put_off((number, notice), Wait::Gate);
        } else {
            apply_notice(ctx, allowed, notice, before_load);
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
            on_keys(ctx, allowed, |shell, turn| shell.machine.tables().regime.tell_mark(turn.fx))
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
    if !ctx.flags().aof() {
        return;
    }
    let records = shell::with(|shell| shell.machine.tables().records_beside(ffi::wall_us()));
    for payload in records.unwrap_or_default() {
        perform::tell(ctx, &payload);
    }
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

/// Indexes a few keys of a loaded data set. On a primary that needs write access: their leases may have expired.
fn adopt_some(ctx: Ctx<'_>, allowed: Allowed) -> Progress {
    if !inbox::has_loaded() || (allowed.gate != Gate::Open && shell::is_primary()) {
        return Progress::Done;
    }
    on_keys(ctx, allowed, |shell, turn| {
        for (db, name) in inbox::take_loaded(CHUNK) {
            shell.machine.event(turn, ServerEvent::Adopted(Key { db, name: &name }));
        }
    });
    Progress::More
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

/// Lets the machine work on keys, and performs the effects.
pub fn on_keys(ctx: Ctx<'_>, allowed: Allowed, run: impl FnOnce(&mut Shell, &mut Turn<'_>)) {
    shell::with_effects(|effects| {
        let asked = shell::with(|shell| {
            let now = shell::now();
            shell.machine.learn(Fact::Gate(allowed.gate, now.mono));
            let mut keys = Keys::new(ctx, Mode::Write, allowed.scope, Named::none());
            run(shell, &mut Turn::without_caller(&mut keys, now, effects));
        });
        if asked.is_some() {
            perform::perform(ctx, Named::none(), effects);
        }
    });
}

fn run_due_work(ctx: Ctx<'_>, begun: Now, allowed: &mut Allowed) {
    let mut woken = 0;
    loop {
        let wants = shell::with(|shell| shell.machine.tables().wants_to_write(shell::now()));
        if wants.unwrap_or(false) || inbox::has_loaded() {
            allowed.ask(ctx);
        }
        let allowed = *allowed;
        let mut progress = adopt_some(ctx, allowed);
        on_keys(ctx, allowed, |shell, turn| {
            if shell.machine.tick(turn, allowed.gate, CHUNK) == Progress::More {
                progress = Progress::More;
            }
            // Expired leases may have released a lock. To grant it is a write, so the server is asked first.
            if allowed.gate == Gate::Unknown && shell.machine.tables().wants_to_write(turn.now) {
                progress = Progress::More;
            }
            woken += turn.fx.wakes.len();
        });
        let spent = ffi::monotonic_us().saturating_sub(begun.mono.0);
        if progress == Progress::Done || spent > TURN_US || woken >= WOKEN_AT_ONCE {
            return;
        }
    }
}

/// The loop is about to sleep: sets the alarm.
pub fn before_sleep() {
    let _ = shell::with(|shell| {
        let now = shell::now();
        let mut next = shell.machine.next_alarm(now, shell.gate);
        if let Some(check) = cluster::next_check(shell) {
            next = Some(next.map_or(check, |next| next.min(check)));
        }
        if inbox::has_loaded() {
            let is_shut = shell.gate == Gate::Shut;
            let soon =
                now.mono + if is_shut { dlock_core::events::tick::RETRY_MS } else { LOADED_MS };
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        if inbox::has_news() {
            next = Some(AT_ONCE);
        } else if !inbox::is_empty() {
            // They wait for the gate: try again soon.
            let retry = now.mono + dlock_core::events::tick::RETRY_MS;
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
