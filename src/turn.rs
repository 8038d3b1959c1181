//! Every turn of the machine, of a command and of the loop, as a list.
//!
//! The order is fixed: ask the server whether it accepts writes, drain what callbacks noted, execute, perform the
//! effects, answer. Nothing is written before the answer to the first is known, and what was noted precedes the
//! operation. [`perform`] says in which order effects leave: parked calls first, records before answers.

use dlock_core::base::key::Key;
use dlock_core::base::shares::User;
use dlock_core::base::time::Now;
use dlock_core::events::tick::Progress;
use dlock_core::machine::{Fact, ServerEvent};
use dlock_core::ops::counts_by_user;
use dlock_core::ports::effects::{Answer, Effects, Outcome};
use dlock_core::ports::turn::{Caller, Turn};
use dlock_core::tables::regime::{Gate, Role};
use dlock_core::value::hold::NO_CLIENT;
use dlock_wire::permit::PermitId;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{LatchOp, LockOp, Op, Read, SemOp};

use crate::ffi::{self, Ctx, Mode};
use crate::inbox::{self, Notice};
use crate::keyspace::{KeyArgs, Keys, Named, Reached, Scope};
use crate::shell::{self, BUSY};
use crate::work::{Allowed, ask_gate, on_keys};
use crate::{cluster, notices, perform, permit_id, reply};

/// How long one turn of the loop works on due tasks before it serves clients again.
const TURN_US: u64 = 1_000;

/// Units of work between two reads of the clock.
const CHUNK: usize = 64;

/// Blocked calls that are answered before other clients are served: the server writes their replies after the turn.
const WOKEN_AT_ONCE: usize = 256;

/// The turn of a command that may change keys, or wait.
pub fn operation(ctx: Ctx<'_>, keys: KeyArgs<'_>, op: &Op<'_>) {
    let caller = Calling::of(ctx);
    let reached = keys.in_db(caller.db);
    let plan = match Plan::of(ctx, caller, op) {
        Ok(plan) => plan,
        Err(error) => return ctx.reply_error(&error),
    };
    if plan.mode == Mode::Write {
        drain(ctx, Allowed { gate: plan.gate, scope: reached.1 });
    } else {
        catch_up(ctx, reached);
    }
    shell::with_effects(|fx| match execute(ctx, reached, caller, &plan, op, fx) {
        Ok(()) => perform::conclude(ctx, reached, fx),
        Err(error) => ctx.reply_error(error),
    });
    if plan.mode == Mode::Read {
        ring_if_noted();
    }
}

/// The turn of a command that changes nothing and never waits.
pub fn read(ctx: Ctx<'_>, keys: KeyArgs<'_>, call: &Read<'_>) {
    let reached = keys.in_db(ctx.db());
    catch_up(ctx, reached);
    let (named, scope) = reached;
    let view = shell::with(|shell| {
        let mut keys = Keys::new(ctx, Mode::Read, scope, named);
        let view = shell.machine.read(&mut keys, shell::now(), ctx.db(), call);
        view.map_err(|_| named.wrong_type(&shell.machine.tables().waits, &mut keys))
    });
    match view {
        Some(Ok(view)) => reply::show(ctx, &view),
        Some(Err(text)) => ctx.reply_error(&format!("{} {text}", ErrorCode::WrongType)),
        None => ctx.reply_error(BUSY),
    }
    ring_if_noted();
}

/// The turn of the loop, which began at `begun`. Returns the server's last answer to whether it accepts writes, and
/// whether all that was due is done.
pub fn of_loop(ctx: Ctx<'_>, begun: Now, paused: bool) -> (Gate, Progress) {
    let gate = if paused { Gate::Shut } else { Gate::Unknown };
    let mut allowed = Allowed { gate, scope: Scope::Everywhere };
    if !inbox::is_empty() {
        allowed.ask(ctx);
    }
    drain(ctx, allowed);
    let progress = do_due_work(ctx, begun, &mut allowed);
    cluster::check(ctx, begun);
    (allowed.gate, progress)
}

/// Processes what callbacks noted.
#[inline]
fn drain(ctx: Ctx<'_>, allowed: Allowed) {
    if !inbox::is_empty() {
        notices::drain(ctx, allowed);
    }
}

/// How the operation of a command runs.
struct Plan {
    /// How it opens its keys.
    mode: Mode,
    /// Whether the server accepts writes; unknown for an operation that does not write.
    gate: Gate,
    /// Whether a replica runs it, too.
    is_for_replicas: bool,
    /// The ACL user of the caller, where it counts.
    user: User,
    /// The id of the permits that it is granted.
    permit: PermitId,
}

impl Plan {
    /// AWAIT changes nothing, so it works wherever reading commands do, but it may block.
    const AWAIT: Self = Self {
        mode: Mode::Read,
        gate: Gate::Unknown,
        is_for_replicas: true,
        user: User::UNKNOWN,
        permit: [0; size_of::<PermitId>()],
    };

    /// The error is that of a call that the server does not let the caller make now.
    fn of(ctx: Ctx<'_>, caller: Calling, op: &Op<'_>) -> Result<Self, String> {
        if let Op::Latch(LatchOp::Await(_)) | Op::Lock(_, LockOp::Await(_)) = op {
            return Ok(Self::AWAIT);
        }
        let permit = permit_for(op).map_err(|error| format!("ERR {error}"))?;
        if let Some(channel) = op.notify()
            && caller.has_user
            && !ctx.may_publish(channel.name())
        {
            return Err(format!(
                "NOPERM this user may not publish on the channel that {} names",
                channel.option()
            ));
        }
        let user = if counts_by_user(op) { ctx.user() } else { User::UNKNOWN };
        // The server has accepted this write, so it accepts the module's writes. Two exceptions: UNBLOCK is not a
        // write and always runs, and the server does not check calls of other modules.
        let is_unblock = matches!(op, Op::Unblock(_) | Op::EndAbsent(_));
        if is_unblock {
            hear(ctx);
        }
        let is_checked = !is_unblock && caller.has_user;
        let gate = if is_checked { Gate::Open } else { ask_gate(ctx) };
        if gate != Gate::Open && !is_unblock && shell::is_primary() {
            return Err("NOREPLICAS the server refuses writes now, so dlock does, too".to_owned());
        }
        Ok(Self { mode: Mode::Write, gate, is_for_replicas: is_unblock, user, permit })
    }
}

/// A new id for the permits of DSEM.ACQUIRE; no other operation needs one.
fn permit_for(op: &Op<'_>) -> Result<PermitId, String> {
    if let Op::Sem(SemOp::Acquire(_)) = op { permit_id::next() } else { Ok(PermitId::default()) }
}

/// Lets the machine execute an operation. The error is the reply of an operation that cannot run here.
#[inline]
fn execute(
    ctx: Ctx<'_>,
    (named, scope): Reached<'_>,
    caller: Calling,
    plan: &Plan,
    op: &Op<'_>,
    fx: &mut Effects,
) -> Result<(), &'static str> {
    let executed = shell::with(|shell| {
        if shell.machine.tables().regime.role() == Role::Replica && !plan.is_for_replicas {
            return Err("READONLY dlock grants nothing on a replica");
        }
        let now = shell::now();
        if plan.gate != Gate::Unknown {
            shell.gate = plan.gate;
        }
        shell.machine.learn(Fact::Gate(plan.gate, now.mono));
        let keys = &mut Keys::new(ctx, plan.mode, scope, named).of_user(plan.user, caller.has_user);
        let turn = &mut Turn { keys, now, caller: caller.as_core(), fx };
        shell.machine.execute(turn, op, plan.permit);
        if let Some(Answer::Now(Outcome::Fault(fault))) = &mut turn.fx.answer
            && fault.code == ErrorCode::WrongType
        {
            fault.text = named.wrong_type(&shell.machine.tables().waits, turn.keys);
        }
        Ok(())
    });
    executed.unwrap_or(Err(BUSY))
}

/// Before a reading command: processes pending notices, if that is allowed here.
fn catch_up(ctx: Ctx<'_>, (named, scope): Reached<'_>) {
    hear(ctx);
    let is_behind = || {
        let key = named.first().map(|name| Key { db: ctx.db(), name: name.bytes() })?;
        shell::with(|shell| shell.machine.tables().waits.is_behind(key))
            .filter(|is_behind| *is_behind)
            .map(|_| key)
    };
    if (!inbox::is_empty() || is_behind().is_some()) && may_write_in_reader(ctx, named) {
        let allowed = Allowed { gate: Gate::Open, scope };
        drain(ctx, allowed);
        if let Some(key) = is_behind() {
            on_keys(ctx, allowed, |shell, turn| {
                shell.machine.event(turn, ServerEvent::Asked(key));
            });
        }
    }
}

/// After a reading command: sets the alarm for notices that it could not process.
fn ring_if_noted() {
    if !inbox::is_empty() {
        ffi::Alarm::ring();
    }
}

/// Whether a reading command may process the effects of other commands on our keys: after a DEL its reply should show
/// the new holder. Not where a write is not allowed.
fn may_write_in_reader(ctx: Ctx<'_>, named: Named<'_>) -> bool {
    let flags = ctx.flags();
    flags.primary()
        && !flags.deny_blocking()
        && !flags.loading()
        && !ffi::avoid_replica_traffic()
        && ctx.accepts_writes(named.first().map_or(&b"dlock"[..], |key| key.bytes()))
            == ffi::Verdict::Accepts
}

/// Notes that a connection with skipped waiters is active again, for commands that cannot hand off locks themselves.
fn hear(ctx: Ctx<'_>) {
    let heard = shell::with(|shell| {
        let connections = &shell.machine.tables().connections;
        if !connections.any_unresponsive() {
            return None;
        }
        let client = Calling::of(ctx).client;
        connections.is_unresponsive(client).then_some(client)
    });
    if let Some(client) = heard.flatten() {
        inbox::push(Notice::Heard(client));
    }
}

/// The caller, and what the server allows on its connection.
#[derive(Clone, Copy)]
struct Calling {
    client: u64,
    db: u32,
    may_block: bool,
    /// An ACL user exists: the caller is a client or its script, not another module.
    has_user: bool,
}

impl Calling {
    fn of(ctx: Ctx<'_>) -> Self {
        let flags = ctx.flags();
        let id = ctx.client_id();
        // The server runs a script under another client id. So it does for a call of another module; inside MULTI the
        // only sign of that is that no client is connected under the id.
        let is_direct =
            !flags.lua() && (!flags.deny_blocking() || (flags.multi() && ffi::client_alive(id)));
        Self {
            client: if is_direct { id } else { NO_CLIENT },
            db: ctx.db(),
            may_block: is_direct && !flags.multi() && !flags.deny_blocking(),
            has_user: is_direct || flags.lua(),
        }
    }

    fn as_core(self) -> Caller {
        Caller { client: self.client, db: self.db, may_block: self.may_block }
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

/// Does what is due, until that takes too long or too many calls were answered.
fn do_due_work(ctx: Ctx<'_>, begun: Now, allowed: &mut Allowed) -> Progress {
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
            return progress;
        }
    }
}
