//! BREAK of every family: an operator ends holds by force.

use crate::answers::wrong_type;
use crate::effects::Outcome;
use crate::ids::HoldId;
use crate::kind::Kind;
use crate::machine::{End, Machine};
use crate::turn::Turn;
use alloc::vec::Vec;
use dlock_wire::request::{OneKey, OnePermit, RwBreak};

impl Machine {
    /// DLOCK.BREAK and DFAIR.BREAK (`kind`): ends the hold of any owner. 1 if there was one, else 0.
    pub fn break_lock(&mut self, turn: &mut Turn<'_>, kind: Kind, call: &OneKey<'_>) {
        let answer = self.on_call(turn, kind, call.key, |machine, step, resource| {
            if resource.lock().hold().is_none() {
                return Outcome::Count(0);
            }
            machine.end_hold(step, resource, crate::ids::ALONE, End::Broken);
            machine.hand_off(step, resource);
            Outcome::Count(1)
        });
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// DRW.BREAK: ends all holds, or those of `owner`. Returns their number. Even very many readers stop at once; the
    /// tick does the rest for each of them.
    pub fn rw_break(&mut self, turn: &mut Turn<'_>, call: &RwBreak<'_>) {
        let owner = call.owner;
        let answer = self.on_call(turn, Kind::Rw, call.key, |machine, step, resource| {
            let at_once = if owner.is_none() { machine.break_readers(step, resource) } else { 0 };
            let found = resource.holds();
            let found = found.filter(|(_, hold)| owner.is_none_or(|owner| *hold.owner == *owner));
            let found: Vec<HoldId> = found.map(|(id, _)| id).collect();
            for &id in &found {
                machine.end_hold(step, resource, id, End::Broken);
            }
            let count = at_once + found.len();
            if count > 0 {
                machine.hand_off(step, resource);
            }
            Outcome::Count(count as u64)
        });
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// DSEM.BREAK: ends a permit by force. 1 if it was out, else 0.
    pub fn sem_break(&mut self, turn: &mut Turn<'_>, call: &OnePermit<'_>) {
        self.on_semaphore(turn, call.key, |machine, step, resource| {
            let id = HoldId::from_be_bytes(call.permit);
            machine.end_if_expired(step, resource, |_| [id].into());
            if resource.hold(id).is_none() {
                return Outcome::Count(0);
            }
            machine.end_hold(step, resource, id, End::Broken);
            machine.hand_off(step, resource);
            Outcome::Count(1)
        });
    }
}
