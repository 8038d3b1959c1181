//! Semaphores and latches.

use std::time::Duration;

use super::{Draft, Terms, waits};
use crate::{
    call::{Call, Meaning, Scope},
    key::{Family, Key},
};

impl Draft<'_> {
    pub(super) fn acquire_permit(&mut self) -> Call {
        let key = self.key(Family::Sem);
        let owner = self.seat.owner(self.dice);
        let mut terms = self.terms(true);
        let count = 1 + self.dice.below(3);
        if count > 1 {
            terms.word("COUNT", count);
        }
        let mut capacity = Vec::new();
        if self.dice.below(3) > 0 {
            terms.word("LIMIT", 3);
            capacity.push((key, 3));
        }
        let meaning = Meaning::Permit { key, owner, count, lease: terms.lease, bind: terms.bind };
        let mut call =
            self.call(&["DSEM.ACQUIRE", &key.name(), &owner.to_string()], &terms, meaning);
        call.waits = waits(&[key], owner, &terms);
        if let Some(waits) = &mut call.waits {
            waits.count = count;
        }
        Call { capacity, ..call }
    }

    pub(super) fn release_permit(&mut self) -> Call {
        let Some((key, id)) = self.permit(true) else { return self.acquire_permit() };
        let meaning = Meaning::Ends(vec![Scope::Permit(key, id.clone())]);
        let verb = if self.dice.one_in(20) { "DSEM.BREAK" } else { "DSEM.RELEASE" };
        self.call(&[verb, &key.name(), &id], &Terms::default(), meaning)
    }

    pub(super) fn renew_permit(&mut self) -> Call {
        let Some((key, id)) = self.permit(false) else { return self.acquire_permit() };
        let lease = self.lease().as_millis().to_string();
        let words = ["DSEM.RENEW", &key.name(), &id, "PX", &lease];
        Call::plain(&words)
    }

    pub(super) fn permit(&mut self, forget: bool) -> Option<(Key, String)> {
        let count = self.seat.permits.len();
        if count == 0 {
            return None;
        }
        let n = self.dice.index(count);
        Some(if forget { self.seat.permits.swap_remove(n) } else { self.seat.permits[n].clone() })
    }

    pub(super) fn make_semaphore(&mut self) -> Call {
        let key = self.key(Family::Sem);
        if key.is_calm(self.scene.burst) || self.dice.one_in(2) {
            let mut call = Call::plain(&["DSEM.INIT", &key.name(), "3"]);
            call.capacity.push((key, 3));
            return call;
        }
        if self.scene.features.resize_by && self.dice.one_in(2) {
            let delta = self.dice.pick(&["-1", "1", "2"]);
            let mut call = Call::plain(&["DSEM.RESIZE", &key.name(), "BY", delta]);
            call.capacity.push((key, u64::MAX));
            return call;
        }
        let permits = 1 + self.dice.below(5);
        let mut call = Call::plain(&["DSEM.RESIZE", &key.name(), &permits.to_string()]);
        call.capacity.push((key, permits));
        call
    }

    pub(super) fn take(&mut self) -> Call {
        let key = self.key(Family::Sem);
        let mut terms = Terms::default();
        let count = 1 + self.dice.below(2);
        if self.seat.waits {
            let ms = 1 + self.dice.below(800);
            terms.word("BLOCK", ms);
            terms.block = Some(Duration::from_millis(ms));
        }
        self.id(&mut terms, 2);
        self.call(&["DSEM.TAKE", &key.name(), &count.to_string()], &terms, Meaning::Nothing)
    }

    pub(super) fn give(&mut self) -> Call {
        let key = self.key(Family::Sem);
        let mut terms = Terms::default();
        self.id(&mut terms, 2);
        if self.dice.one_in(8) {
            return self.call(&["DSEM.DRAIN", &key.name()], &terms, Meaning::Nothing);
        }
        self.call(&["DSEM.GIVE", &key.name()], &terms, Meaning::Nothing)
    }

    pub(super) fn count_down(&mut self) -> Call {
        let key = self.key(Family::Latch);
        let mut terms = Terms::default();
        if self.dice.one_in(3) {
            let count = (1 + self.dice.below(4)).to_string();
            if self.dice.one_in(3) {
                terms.word("PX", 10 + self.dice.below(300));
            }
            return self.call(&["DLATCH.INIT", &key.name(), &count], &terms, Meaning::Nothing);
        }
        self.id(&mut terms, 2);
        self.call(&["DLATCH.COUNTDOWN", &key.name()], &terms, Meaning::Nothing)
    }

    pub(super) fn await_latch(&mut self) -> Call {
        let mut terms = Terms::default();
        let ms = if self.seat.waits { self.dice.below(1_000) } else { 1 + self.dice.below(10) };
        terms.word("BLOCK", ms);
        terms.block = Some(Duration::from_millis(ms));
        if self.scene.features.lock_await && self.dice.one_in(2) {
            let family = self.lock_family();
            let key = self.key(family);
            return self.call(&[&family.command("AWAIT"), &key.name()], &terms, Meaning::Nothing);
        }
        let key = self.key(Family::Latch);
        self.call(&["DLATCH.AWAIT", &key.name()], &terms, Meaning::Nothing)
    }
}
