//! The single entry point: parses a call and picks what runs it.

use dlock_core::base::key::Key;
use dlock_core::events::diverged::Source;
use dlock_core::machine::Fact;
use dlock_wire::reply::{Shape as _, quote};
use dlock_wire::request::{Apply, Log, Op, Request};
use dlock_wire::table::CommandId;

use crate::ffi::{Args, Ctx, Level, Mode, log};
use crate::keyspace::{KeyArgs, Keys};
use crate::shell::{self, BUSY};
use crate::{cluster, turn};

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
    let request = match dlock_wire::parse(id, slices) {
        Ok(request) => request,
        Err(error) => return ctx.reply_error(&format!("ERR {error}")),
    };
    let (first, keys) = match &request {
        Request::Op(Op::Unblock(_) | Op::EndAbsent(_)) | Request::Log(_) => (0, &[][..]),
        Request::Op(Op::Multi(op)) => (1, op.keys()),
        _ => (0, slices.get(..1).unwrap_or_default()),
    };
    let has_several = keys.len() > 1;
    let keys = KeyArgs { args: *args, first, keys, command: id.name() };
    if has_several && let Some(error) = cluster::refusal(ctx, keys) {
        return ctx.reply_error(error);
    }
    match &request {
        Request::Op(op) => turn::operation(ctx, keys, op),
        Request::Read(call) => turn::read(ctx, keys, call),
        Request::Apply(call) => apply(ctx, keys, *call),
        Request::Log(call) => log_of_events(ctx, *call),
    }
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

/// `DLOCK.APPLY`: a record of the primary, or of the server's own AOF.
fn apply(ctx: Ctx<'_>, keys: KeyArgs<'_>, call: Apply<'_>) {
    let payload = call.payload;
    let flags = ctx.flags();
    // During async loading the server also serves clients, and clients must not call this.
    if !(flags.replicated() || flags.loading()) {
        return ctx.reply_error("ERR DLOCK.APPLY is for replication and the append-only file");
    }
    let key = Key { db: ctx.db(), name: call.key };
    let (named, scope) = keys.in_db(key.db);
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
