//! Several locks at once.

use super::{Draft, Terms, acquire, waits};
use crate::{
    call::{Call, Form, Meaning, Mode, Scope},
    key::{Family, Key, Owner},
};

impl Draft<'_> {
    pub(super) fn acquire_all(&mut self) -> Call {
        self.acquire_several("DLOCK.MACQUIRE", Form::All)
    }

    pub(super) fn acquire_any(&mut self) -> Call {
        self.acquire_several("DLOCK.ANYACQUIRE", Form::Any)
    }

    pub(super) fn acquire_several(&mut self, command: &str, form: Form) -> Call {
        let keys = self.scene.several(self.dice, self.seat);
        let owner = self.seat.owner(self.dice);
        let terms = self.terms(false);
        let meaning = acquire(keys.clone(), form, owner, Mode::Exclusive, &terms);
        let mut call = self.call_of_keys(command, &keys, owner, &terms, meaning);
        call.waits = waits(&keys, owner, &terms);
        if let Some(waits) = &mut call.waits {
            waits.all = form == Form::All;
        }
        call
    }

    pub(super) fn call_of_keys(
        &mut self,
        command: &str,
        keys: &[Key],
        owner: Owner,
        terms: &Terms,
        meaning: Meaning,
    ) -> Call {
        let (count, owner) = (keys.len().to_string(), owner.to_string());
        let names: Vec<String> = keys.iter().map(|key| key.name()).collect();
        let mut fixed = vec![command, &count];
        fixed.extend(names.iter().map(String::as_str));
        fixed.push(&owner);
        self.call(&fixed, terms, meaning)
    }

    /// Releases a hold: mostly one that this connection knows.
    pub(super) fn release_all(&mut self) -> Call {
        let (keys, owner) = self.held_together();
        let scopes = keys.iter().map(|&key| Scope::Hold(key, owner, Mode::Exclusive)).collect();
        let meaning = Meaning::Ends(scopes);
        self.call_of_keys("DLOCK.MRELEASE", &keys, owner, &Terms::default(), meaning)
    }

    pub(super) fn renew_all(&mut self) -> Call {
        let (keys, owner) = self.held_together();
        let mut terms = Terms { lease: self.lease(), ..Terms::default() };
        terms.word("PX", terms.lease.as_millis());
        let meaning = Meaning::Renew {
            keys: keys.clone(),
            owner,
            mode: Mode::Exclusive,
            lease: terms.lease,
            bind: false,
            tells_token: false,
        };
        self.call_of_keys("DLOCK.MRENEW", &keys, owner, &terms, meaning)
    }

    /// Known holds of one owner with the same tag; else any keys.
    pub(super) fn held_together(&mut self) -> (Vec<Key>, Owner) {
        let locks = |&&(key, ..): &&(Key, Owner, Mode, i64)| key.family == Family::Lock;
        let count = self.seat.held.iter().filter(locks).count();
        let Some(&(first, owner, ..)) =
            self.seat.held.iter().filter(locks).nth(self.dice.index(count))
        else {
            return (self.scene.several(self.dice, self.seat), self.seat.owner(self.dice));
        };
        let mut keys: Vec<Key> = Vec::new();
        for &(key, other, ..) in self.seat.held.iter().filter(locks) {
            if other == owner && key.tag == first.tag && !keys.contains(&key) {
                keys.push(key);
            }
        }
        (keys, owner)
    }
}
