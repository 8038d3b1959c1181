//! The one door in: parse, look at the clock, open the key, ask the machine, perform.

use dlock_core::hold::NO_CLIENT;
use dlock_core::machine::{Caller, Gate, Role};
use dlock_core::store::Key;
use dlock_wire::request::{self, Request};
use dlock_wire::table::CommandId;

use crate::command::lock;
use crate::ffi::{self, Args, Ctx, Level, Mode, Name, log};
use crate::inbox::Notice;
use crate::keyspace::Keys;
use crate::shell;
use crate::{inbox, perform, tick};

/// Prepares the module for its first command.
pub fn start(ctx: Ctx<'_>) -> Result<(), String> {
    shell::start(ctx)
}

/// Carries out one command and answers it, now or (when it blocks) later.
pub fn command(ctx: Ctx<'_>, id: CommandId, args: &Args<'_>) {
    let slices = args.slices();
    let request = match request::parse(id, &slices) {
        Ok(request) => request,
        Err(error) => return ctx.reply_error(&format!("ERR {error}")),
    };
    let own = args.name(0).map(|name| (ctx.db(), name));
    match request {
        Request::Apply { key, payload } => apply(ctx, own, key, payload),
        Request::Check { .. }
        | Request::Info { .. }
        | Request::Waiters { .. }
        | Request::Position { .. } => read(ctx, own, &request),
        Request::Unblock { .. } => write(ctx, None, &request),
        _ => write(ctx, own, &request),
    }
}

fn write(ctx: Ctx<'_>, own: Option<(u32, Name<'_>)>, request: &Request<'_>) {
    let caller = caller(ctx);
    if let Request::Acquire(call) = request
        && let Some(channel) = call.notify
        && caller.has_user
        && !ctx.may_publish(channel)
    {
        return ctx
            .reply_error("NOPERM this user may not publish on the channel that NOTIFY names");
    }
    // The server has taken this write, so it takes ours; only UNBLOCK is none, and runs always.
    let is_unblock = matches!(request, Request::Unblock { .. });
    let gate = if is_unblock {
        hear(ctx);
        tick::gate(ctx, ffi::avoid_replica_traffic(), shell::now())
    } else {
        Gate::Open
    };
    tick::work_off_notices(ctx, gate);
    shell::with_effects(|effects| {
        let asked = shell::with(|shell| {
            if shell.machine.role() == Role::Replica && !is_unblock {
                return false;
            }
            shell.machine.set_gate(gate);
            let caller = caller.as_core();
            let mut keys = Keys::new(ctx, Mode::Write, own);
            lock::write(&mut shell.machine, &mut keys, shell::now(), caller, request, effects);
            true
        });
        match asked {
            Some(true) => {
                // Parked before others hear of it: whoever reacts to an event may wake it.
                let parked = perform::park(ctx, effects);
                perform::perform(ctx, own, effects);
                if !parked {
                    perform::answer(ctx, effects);
                }
            }
            Some(false) => ctx.reply_error("READONLY dlock grants nothing on a replica"),
            None => ctx.reply_error(BUSY),
        }
    });
}

fn read(ctx: Ctx<'_>, own: Option<(u32, Name<'_>)>, request: &Request<'_>) {
    hear(ctx);
    if !inbox::is_empty() && may_write_in_reader(ctx) {
        tick::work_off_notices(ctx, Gate::Open);
    }
    let view = shell::with(|shell| {
        let caller = Caller { client: NO_CLIENT, db: ctx.db(), may_block: false };
        let mut keys = Keys::new(ctx, Mode::Read, own);
        lock::read(&shell.machine, &mut keys, shell::now(), caller, request)
    });
    match view.flatten() {
        Some(Ok(view)) => lock::reply(ctx, &view),
        Some(Err(_)) => ctx.reply_wrong_type(),
        None => ctx.reply_error(BUSY),
    }
    if !inbox::is_empty() {
        ffi::Alarm::ring();
    }
}

/// Whether what other commands did to our keys may be followed up inside a reading command: after
/// a DEL its answer should show the new holder. Not where a write is not allowed.
fn may_write_in_reader(ctx: Ctx<'_>) -> bool {
    let flags = ctx.flags();
    flags.primary()
        && !flags.deny_blocking()
        && !flags.loading()
        && !ffi::avoid_replica_traffic()
        && ctx.accepts_writes(b"dlock") == ffi::Verdict::Accepts
}

/// Notes that a connection was heard of whose places are passed over, for commands that cannot
/// hand on themselves.
fn hear(ctx: Ctx<'_>) {
    let heard = shell::with(|shell| {
        let connections = shell.machine.connections();
        if !connections.any_hung() {
            return None;
        }
        let client = caller(ctx).client;
        connections.is_hung(client).then_some(client)
    });
    if let Some(client) = heard.flatten() {
        inbox::push(Notice::Heard(client));
    }
}

/// Who calls, and what the server allows on that connection.
#[derive(Clone, Copy)]
struct Calling {
    client: u64,
    db: u32,
    may_block: bool,
    /// There is an ACL user to ask for: it is a client or its script, not another module.
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
    // A script's client is not the one that sent it; nor is that of another module's call, which inside MULTI can
    // only be told by the fact that nobody is connected under its id.
    let is_direct =
        !flags.lua() && (!flags.deny_blocking() || (flags.multi() && ffi::client_alive(id)));
    Calling {
        client: if is_direct { id } else { NO_CLIENT },
        db: ctx.db(),
        may_block: is_direct && !flags.multi() && !flags.deny_blocking(),
        has_user: is_direct || flags.lua(),
    }
}

/// `DLOCK.APPLY`: a record of our primary, or of our own AOF.
fn apply(ctx: Ctx<'_>, own: Option<(u32, Name<'_>)>, key: &[u8], payload: &[u8]) {
    let flags = ctx.flags();
    // Loading aside is a state of the server: clients are served meanwhile, and this is not for them.
    if !(flags.replicated() || flags.loading()) {
        return ctx.reply_error("ERR DLOCK.APPLY is for replication and the append-only file");
    }
    let key = Key { db: ctx.db(), name: key };
    let replayed = shell::with(|shell| {
        let mut keys = Keys::new(ctx, Mode::Write, own);
        shell.machine.replay(&mut keys, shell::now(), key, payload)
    });
    match replayed {
        Some(Ok(())) => {
            if let Some((_, name)) = own {
                ctx.signal_modified(name);
                if flags.replicated() {
                    // For the replica's own AOF; its replicas get the primary's stream as it is.
                    ctx.replicate(name, payload);
                }
            }
            ctx.reply_ok();
        }
        failed => {
            let text = format!("a record cannot be replayed, the key is left as it is: {failed:?}");
            log(Level::Warning, &text);
            ctx.reply_error(&format!("ERR {text}"));
        }
    }
}

/// Another module called us in the middle of our own call to the server.
const BUSY: &str = "ERR dlock is busy with the call that this one came from";
