//! The only interpreter of effects, in one fixed order: park, replicate, notify, publish, wake, then
//! reply. (The keys themselves were changed by the machine through its port.)

use std::ffi::CStr;

use dlock_core::effects::{Effects, Event, Outcome};
use dlock_wire::reply::ErrorCode;

use crate::ffi::{Ctx, Name, OwnedName};
use crate::{command, parking, shell};

/// Carries out `effects` without the reply. The shell must not be lent: keyspace events run other
/// modules, which may call dlock commands.
pub fn perform(ctx: Ctx<'_>, own: Option<(u32, Name<'_>)>, effects: &mut Effects) {
    for record in &effects.records {
        let payload = effects.record_payload(record);
        with_name(ctx, own, record.db, effects.record_key(record), |ctx, name| {
            ctx.signal_modified(name);
            ctx.replicate(name, payload);
        });
    }
    for note in &effects.notes {
        with_name(ctx, own, note.db, effects.note_key(note), |ctx, name| {
            ctx.notify(event_name(note.event), name);
        });
    }
    for message in &effects.messages {
        ctx.publish(&message.channel, &message.text);
    }
    for wake in effects.wakes.drain(..) {
        parking::wake(wake.waiter, wake.outcome);
    }
}

/// Names `key` to the server in its database, by the string of the running command if it is that.
fn with_name(
    ctx: Ctx<'_>,
    own: Option<(u32, Name<'_>)>,
    db: u32,
    key: &[u8],
    tell: impl FnOnce(Ctx<'_>, Name<'_>),
) {
    ctx.with_db(db, |ctx| match own {
        Some((own_db, name)) if own_db == db && name.bytes() == key => tell(ctx, name),
        _ => tell(ctx, OwnedName::new(key).name()),
    });
}

/// Blocks the caller if the machine has parked it; whether it is blocked now.
pub fn park(ctx: Ctx<'_>, effects: &mut Effects) -> bool {
    let Some(waiter) = effects.parked.take() else { return false };
    if parking::park(ctx, waiter) {
        return true;
    }
    let text = "this connection cannot be blocked; ask with QUEUE, or without BLOCK";
    effects.reply = Some(Outcome::fault(ErrorCode::Err, text));
    // What its leaving opens is handed on by the next tick.
    shell::with(|shell| shell.machine.withdraw(waiter));
    false
}

/// Answers the caller of a command.
pub fn answer(ctx: Ctx<'_>, effects: &mut Effects) {
    match effects.reply.take() {
        Some(outcome) => command::reply(ctx, &outcome),
        None => ctx.reply_null(),
    }
}

fn event_name(event: Event) -> &'static CStr {
    match event {
        Event::Acquire => c"dlock.acquire",
        Event::Release => c"dlock.release",
        Event::Expire => c"dlock.expire",
        Event::Break => c"dlock.break",
        Event::Wait => c"dlock.wait",
    }
}
