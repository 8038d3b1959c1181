//! The only interpreter of effects, in one fixed order: replicate, notify, publish, wake, then
//! reply or park. (The keys themselves were changed by the machine through its port.)

use std::ffi::CStr;

use dlock_core::effects::{Effects, Event};

use crate::ffi::{Ctx, Name, OwnedName};
use crate::{command, parking, shell};

/// Carries out `effects` without the reply. The shell must not be lent: keyspace events run other
/// modules, which may call dlock commands.
pub fn perform(ctx: Ctx<'_>, own: Option<(u32, Name<'_>)>, effects: &mut Effects) {
    for record in &effects.records {
        let payload = effects.record_payload(record);
        with_name(ctx, own, record.db, effects.record_key(record), |ctx, name| {
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

/// Answers the caller of a command, or blocks it.
pub fn answer(ctx: Ctx<'_>, effects: &mut Effects) {
    if let Some(outcome) = effects.reply.take() {
        command::reply(ctx, &outcome);
        return;
    }
    let Some(waiter) = effects.parked.take() else {
        return ctx.reply_null();
    };
    if !parking::park(ctx, waiter) {
        ctx.reply_error("ERR this connection cannot be blocked; ask with QUEUE, or without BLOCK");
        // What its leaving opens is handed on by the next tick.
        shell::with(|shell| shell.machine.withdraw(waiter));
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
