//! The only interpreter of effects, in one fixed order: park, replicate, notify, publish, wake, then reply. (The
//! machine has already changed the keys themselves.)

use dlock_core::base::ids::WaiterId;
use dlock_core::base::key::Key;
use dlock_core::machine::ServerEvent;
use std::ffi::CStr;

use dlock_core::events::diverged::NO_KEY;
use dlock_core::ports::effects::{Answer, Effects, Event, Outcome};
use dlock_core::ports::turn::Turn;
use dlock_wire::reply::ErrorCode;

use crate::ffi::{Ctx, Mode, Name, OwnedName};
use crate::keyspace::{Keys, Named, Reached, in_turn};
use crate::{parking, reply, shell};

/// Carries out the effects of a command, including the reply to its caller.
pub fn conclude(ctx: Ctx<'_>, reached: Reached<'_>, effects: &mut Effects) {
    // Parks first: a client or module that reacts to an event may wake the caller.
    let outcome = match effects.answer.take() {
        Some(Answer::Parked(waiter)) => park(ctx, reached, waiter).err(),
        Some(Answer::Now(outcome)) => Some(outcome),
        None => Some(Outcome::Null),
    };
    perform(ctx, reached.0, effects);
    if let Some(outcome) = outcome {
        reply::reply(ctx, &outcome);
    }
}

/// Carries out `effects` without the reply. The shell must not be lent: keyspace events run other modules, which may
/// call dlock commands.
pub fn perform(ctx: Ctx<'_>, named: Named<'_>, effects: &mut Effects) {
    let mut strings = Strings { named, last: 0, made: Vec::new(), last_made: 0 };
    for record in &effects.records {
        let payload = effects.record_payload(record);
        let key = Key { db: record.db, name: effects.record_key(record) };
        strings.with(ctx, key, |ctx, name| {
            ctx.signal_modified(name);
            ctx.replicate(name, payload);
        });
    }
    for note in &effects.notes {
        let key = Key { db: note.db, name: effects.note_key(note) };
        strings.with(ctx, key, |ctx, name| ctx.notify(event_name(note.event), name));
    }
    for message in &effects.messages {
        ctx.publish(&message.channel, &message.text, message.is_sharded);
    }
    if !effects.wakes.is_empty() {
        for wake in effects.wakes.drain(..) {
            parking::wake(wake.waiter, wake.outcome);
        }
    }
}

/// Sends a record that belongs to no key to the AOF and the replicas. Must not be called during
/// [`crate::ffi::avoid_replica_traffic`].
pub fn tell(ctx: Ctx<'_>, payload: &[u8]) {
    ctx.replicate(OwnedName::new(NO_KEY.name).name(), payload);
}

/// The keys of effects as strings of the server. Records and events name them in the same order, so a string that is
/// not an argument of the command is made once for both.
struct Strings<'a> {
    named: Named<'a>,
    last: usize,
    made: Vec<(u32, OwnedName)>,
    last_made: usize,
}

impl Strings<'_> {
    /// Passes `key` to the server, with its database selected.
    #[inline]
    fn with(&mut self, ctx: Ctx<'_>, key: Key<'_>, tell: impl FnOnce(Ctx<'_>, Name<'_>)) {
        if let Some(at) = self.named.find(key, self.last)
            && let Some(name) = self.named.name(at)
        {
            self.last = at;
            tell(ctx, name);
        } else {
            self.with_made(ctx, key, tell);
        }
    }

    /// The same for a key that is not an argument of the command.
    #[inline(never)]
    fn with_made(&mut self, ctx: Ctx<'_>, key: Key<'_>, tell: impl FnOnce(Ctx<'_>, Name<'_>)) {
        let is_it =
            |(db, made): &(u32, OwnedName)| *db == key.db && made.name().bytes() == key.name;
        let found = in_turn(self.last_made, |at| self.made.get(at).is_some_and(is_it));
        self.last_made = found.unwrap_or(self.made.len());
        if found.is_none() {
            self.made.push((key.db, OwnedName::new(key.name)));
        }
        if let Some((db, made)) = self.made.get(self.last_made) {
            ctx.with_db(*db, |ctx| tell(ctx, made.name()));
        }
    }
}

/// Blocks the caller, which the machine has parked. An error if its connection cannot be blocked.
fn park(ctx: Ctx<'_>, (named, scope): Reached<'_>, waiter: WaiterId) -> Result<(), Outcome> {
    if parking::park(ctx, waiter) {
        return Ok(());
    }
    // The next tick hands off what its leaving makes grantable.
    shell::with(|shell| {
        let keys = &mut Keys::new(ctx, Mode::Peek, scope, named);
        let mut none = Effects::default();
        let turn = &mut Turn::without_caller(keys, shell::now(), &mut none);
        shell.machine.event(turn, ServerEvent::Withdrawn(waiter));
    });
    let text =
        "this connection cannot be blocked; ask without BLOCK (with QUEUE if the command has it)";
    Err(Outcome::fault(ErrorCode::Err, text))
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
