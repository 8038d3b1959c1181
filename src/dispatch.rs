//! The single entry point: parses the command, reads the clock, opens the key, runs the machine, performs the
//! effects.

use dlock_core::effects::Effects;
use dlock_core::events::diverged::Source;
use dlock_core::key::Key;
use dlock_core::machine::{Fact, ServerEvent};
use dlock_core::op::counts_by_user;
use dlock_core::regime::{Gate, Role};
use dlock_core::shares::User;
use dlock_core::state::hold::NO_CLIENT;
use dlock_core::turn::{Caller, Turn};
use dlock_wire::permit::PermitId;
use dlock_wire::reply::{Shape as _, quote};
use dlock_wire::request::{self, Apply, Channel, LatchOp, LockOp, Log, Op, Read, Request, SemOp};
use dlock_wire::table::CommandId;

use crate::ffi::{self, Args, Ctx, Level, Mode, log};
use crate::inbox::Notice;
use crate::keyspace::{Keys, Named, Reached, Scope};
use crate::tick::{self, Allowed};
use crate::{cluster, inbox, perform, permit_id, reply, shell};

/// Prepares the module for its first command.
pub fn start(ctx: Ctx<'_>) -> Result<(), String> {
    shell::start(ctx)
}

/// Executes one command and answers it, now or (when it blocks) later.
pub fn command(ctx: Ctx<'_>, id: CommandId, args: &Args<'_>) {
    args.with_slices(|slices| carry_out(ctx, id, args, slices));
}

#[inline]
fn carry_out(ctx: Ctx<'_>, id: CommandId, args: &Args<'_>, slices: &[&[u8]]) {
    let request = match request::parse(id, slices) {
        Ok(request) => request,
        Err(error) => return ctx.reply_error(&format!("ERR {error}")),
    };
    let (first, keys) = match &request {
        Request::Op(Op::Unblock(_) | Op::EndAbsent(_)) | Request::Log(_) => (0, &[][..]),
        Request::Op(Op::Multi(op)) => (1, op.keys()),
        _ => (0, slices.get(..1).unwrap_or_default()),
    };
    if keys.len() > 1
        && let Some(error) = cluster::refusal(ctx, args, first, keys)
    {
        return ctx.reply_error(error);
    }
    let named = Named::new(ctx.db(), *args, first, keys);
    let named = (named, Scope::of_command(shell::is_cluster(), keys));
    match &request {
        Request::Op(op @ (Op::Latch(LatchOp::Await(_)) | Op::Lock(_, LockOp::Await(_)))) => {
            wait(ctx, named, op);
        }
        Request::Op(op) => write(ctx, named, op),
        Request::Read(call) => read(ctx, named, call),
        Request::Apply(call) => apply(ctx, named, *call),
        Request::Log(call) => log_of_events(ctx, *call),
    }
}

/// A new id for the permits of DSEM.ACQUIRE; no other operation needs one.
fn permit_for(op: &Op<'_>) -> Result<PermitId, String> {
    if let Op::Sem(SemOp::Acquire(_)) = op { permit_id::next() } else { Ok(PermitId::default()) }
}

fn write(ctx: Ctx<'_>, (named, scope): Reached<'_>, op: &Op<'_>) {
    let permit = match permit_for(op) {
        Ok(permit) => permit,
        Err(error) => return ctx.reply_error(&format!("ERR {error}")),
    };
    let caller = caller(ctx);
    if let Some(channel) = op.notify()
        && caller.has_user
        && !ctx.may_publish(channel.name())
    {
        return ctx.reply_error(match channel {
            Channel::Plain(_) => {
                "NOPERM this user may not publish on the channel that NOTIFY names"
            }
            Channel::Sharded(_) => {
                "NOPERM this user may not publish on the channel that SNOTIFY names"
            }
        });
    }
    let user = if counts_by_user(op) { ctx.user() } else { User::UNKNOWN };
    // The server has accepted this write, so it accepts the module's writes. Two exceptions: UNBLOCK is not a write
    // and always runs, and the server does not check calls of other modules.
    let is_unblock = matches!(op, Op::Unblock(_) | Op::EndAbsent(_));
    if is_unblock {
        hear(ctx);
    }
    let is_checked = !is_unblock && caller.has_user;
    let gate = if is_checked { Gate::Open } else { tick::ask_gate(ctx) };
    if gate != Gate::Open && !is_unblock && shell::is_primary() {
        return ctx.reply_error("NOREPLICAS the server refuses writes now, so dlock does, too");
    }
    tick::drain_notices(ctx, Allowed { gate, scope });
    shell::with_effects(|fx| {
        let asked = shell::with(|shell| {
            if shell.machine.tables().regime.role() == Role::Replica && !is_unblock {
                return false;
            }
            shell.gate = gate;
            let now = shell::now();
            shell.machine.learn(Fact::Gate(gate, now.mono));
            let keys = &mut Keys::new(ctx, Mode::Write, scope, named).of_user(user);
            let turn = &mut Turn { keys, now, caller: caller.as_core(), fx };
            shell.machine.execute(turn, op, permit);
            true
        });
        match asked {
            Some(true) => conclude(ctx, (named, scope), fx),
            Some(false) => ctx.reply_error("READONLY dlock grants nothing on a replica"),
            None => ctx.reply_error(BUSY),
        }
    });
}

/// AWAIT changes nothing, so it works wherever reading commands do, but it may block.
fn wait(ctx: Ctx<'_>, reached: Reached<'_>, op: &Op<'_>) {
    catch_up(ctx, reached);
    let (named, scope) = reached;
    shell::with_effects(|fx| {
        let asked = shell::with(|shell| {
            let keys = &mut Keys::new(ctx, Mode::Read, scope, named);
            let turn = &mut Turn { keys, now: shell::now(), caller: caller(ctx).as_core(), fx };
            shell.machine.execute(turn, op, PermitId::default());
        });
        match asked {
            Some(()) => conclude(ctx, reached, fx),
            None => ctx.reply_error(BUSY),
        }
    });
    ring_if_noted();
}

/// Carries out the effects, including the reply to the caller.
fn conclude(ctx: Ctx<'_>, reached: Reached<'_>, effects: &mut Effects) {
    // Parks first: a client or module that reacts to an event may wake the caller.
    let parked = perform::park(ctx, reached, effects);
    perform::perform(ctx, reached.0, effects);
    if !parked {
        perform::answer(ctx, effects);
    }
}

fn read(ctx: Ctx<'_>, reached: Reached<'_>, call: &Read<'_>) {
    catch_up(ctx, reached);
    let (named, scope) = reached;
    let view = shell::with(|shell| {
        let mut keys = Keys::new(ctx, Mode::Read, scope, named);
        shell.machine.read(&mut keys, shell::now(), ctx.db(), call)
    });
    match view {
        Some(Ok(view)) => reply::show(ctx, &view),
        Some(Err(_)) => ctx.reply_wrong_type(),
        None => ctx.reply_error(BUSY),
    }
    ring_if_noted();
}

/// `DLOCK.LOG`.
fn log_of_events(mut ctx: Ctx<'_>, call: Log) {
    let answered = shell::with(|shell| match call {
        Log::Get { count } => shell.machine.tables().log.write(count, &mut ctx),
        Log::Len => (shell.machine.tables().log.len() as u64).write(&mut ctx),
        Log::Reset => {
            shell.machine.learn(Fact::LogReset);
            ctx.reply_ok();
        }
    });
    if answered.is_none() {
        ctx.reply_error(BUSY);
    }
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
        tick::drain_notices(ctx, allowed);
        if let Some(key) = is_behind() {
            tick::on_keys(ctx, allowed, |shell, turn| {
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
        let client = caller(ctx).client;
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
    fn as_core(self) -> Caller {
        Caller { client: self.client, db: self.db, may_block: self.may_block }
    }
}

fn caller(ctx: Ctx<'_>) -> Calling {
    let flags = ctx.flags();
    let id = ctx.client_id();
    // The server runs a script under another client id. So it does for a call of another module; inside MULTI the
    // only sign of that is that no client is connected under the id.
    let is_direct =
        !flags.lua() && (!flags.deny_blocking() || (flags.multi() && ffi::client_alive(id)));
    Calling {
        client: if is_direct { id } else { NO_CLIENT },
        db: ctx.db(),
        may_block: is_direct && !flags.multi() && !flags.deny_blocking(),
        has_user: is_direct || flags.lua(),
    }
}

/// `DLOCK.APPLY`: a record of the primary, or of the server's own AOF.
fn apply(ctx: Ctx<'_>, (named, scope): Reached<'_>, call: Apply<'_>) {
    let payload = call.payload;
    let flags = ctx.flags();
    // During async loading the server also serves clients, and clients must not call this.
    if !(flags.replicated() || flags.loading()) {
        return ctx.reply_error("ERR DLOCK.APPLY is for replication and the append-only file");
    }
    let key = Key { db: ctx.db(), name: call.key };
    let source = if flags.replicated() { Source::Primary } else { Source::File };
    let replayed = shell::with(|shell| {
        let mut keys = Keys::new(ctx, Mode::Write, scope, named);
        let replayed = shell.machine.replay(&mut keys, shell::now(), key, payload, source);
        (replayed, shell.machine.tables().regime.own_record(payload))
    });
    let Some((replayed, own)) = replayed else { return ctx.reply_error(BUSY) };
    if let Some(name) = named.first()
        && source == Source::Primary
    {
        // For the replica's AOF; its replicas get the primary's stream unchanged.
        ctx.replicate(name, own.as_deref().unwrap_or(payload));
    }
    match replayed {
        Ok(()) => {
            if let Some(name) = named.first() {
                ctx.signal_modified(name);
            }
            ctx.reply_ok();
        }
        Err(error) => {
            let text = format!(
                "a record cannot be replayed, so this server is diverged and grants nothing: {error} (key {})",
                quote(call.key)
            );
            log(Level::Warning, &text);
            ctx.reply_error(&format!("ERR {text}"));
        }
    }
}

/// Error for a re-entrant call: another module called a dlock command during a call of dlock to the server.
const BUSY: &str = "ERR re-entrant call: dlock is already executing a command";
