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
        let (key, payload) = (effects.record_key(record), effects.record_payload(record));
        ctx.with_db(record.db, |ctx| ctx.replicate(key, payload));
    }
    for note in &effects.notes {
        let key = effects.note_key(note);
        ctx.with_db(note.db, |ctx| match own {
            Some((db, name)) if db == note.db && name.bytes() == key => {
                ctx.notify(event_name(note.event), name);
            }
            _ => ctx.notify(event_name(note.event), OwnedName::new(key).name()),
        });
    }
    for message in &effects.messages {
        ctx.publish(&message.channel, &message.text);
    }
    for wake in effects.wakes.drain(..) {
        parking::wake(wake.waiter, wake.outcome);
    }
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
