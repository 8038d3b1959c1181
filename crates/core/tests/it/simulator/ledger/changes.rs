//! What changes promises without a call: connections, answers that do not arrive, other servers, and what is done to
//! keys.

use super::{At, Ledger, Promised};
use dlock_core::base::key::Key;

impl Ledger {
    /// The answer to a blocked call of `client` did not arrive.
    pub fn undelivered(&mut self, client: u64) {
        self.holds.retain(|_, hold| {
            let is_last = hold.open.len() == 1;
            hold.open.retain_mut(|open| {
                if open.in_flight != Some(client) {
                    return true;
                }
                // The owner knows of the hold by another answer.
                open.in_flight = None;
                is_last && open.is_first && hold.is_known
            });
            !hold.open.is_empty()
        });
    }

    pub fn delivered(&mut self, client: u64) {
        let open = self.holds.values_mut().flat_map(|hold| &mut hold.open);
        for open in open.filter(|open| open.in_flight == Some(client)) {
            open.in_flight = None;
        }
    }

    /// A connection closed: what is bound to it lasts as BIND announced.
    pub fn gone(&mut self, client: u64) {
        self.undelivered(client);
        self.blocked.remove(&client);
        self.closed.insert(client);
        self.shorten(0, |bound| bound == client);
    }

    /// All connections closed, because the server is another one now.
    pub fn all_gone(&mut self) {
        self.blocked.clear();
        self.places.clear();
        for open in self.holds.values_mut().flat_map(|hold| &mut hold.open) {
            open.in_flight = None;
        }
        self.shorten(self.terms.grace, |_| true);
    }

    /// What is bound to such connections lasts as BIND announced, but at least for `grace`.
    fn shorten(&mut self, grace: u64, is_gone: impl Fn(u64) -> bool) {
        let now = self.now;
        for hold in self.holds.values_mut() {
            if let Some((ms, client)) = hold.bind.filter(|(_, client)| is_gone(*client)) {
                hold.until = hold.until.min(now + ms.max(grace));
                hold.bind = Some((ms, if client == 0 { 0 } else { u64::MAX }));
            }
        }
    }

    /// Number of holds at a key that are promised to last longer.
    pub fn promises_at(&self, key: Key<'_>) -> usize {
        let is_here = |hold: &&Promised| hold.at.0 == key.db && hold.at.1 == key.name;
        self.holds.values().filter(is_here).filter(|hold| hold.until > self.now).count()
    }

    /// The key is at another node now, which knows none of the connections of this one. An answer may still be on its
    /// way from here, and the key can come back.
    pub fn migrated(&mut self, key: Key<'_>, to: &mut Ledger) {
        let at = (key.db, key.name.to_vec());
        self.places.retain(|(place, _), _| *place != at);
        let gone = self.holds.extract_if(.., |_, hold| hold.at == at);
        for (name, mut hold) in gone.collect::<Vec<_>>() {
            // Its clock shows another time.
            hold.until = to.now + hold.until.saturating_sub(self.now);
            if let Some((ms, client)) = &mut hold.bind {
                hold.until = hold.until.min(to.now + (*ms).max(to.terms.grace));
                *client = u64::MAX;
            }
            for open in &mut hold.open {
                to.last += 1;
                open.number = to.last;
            }
            to.holds.insert(name, hold);
        }
    }

    /// The value of a key is gone, because of what was done to the key.
    pub fn removed(&mut self, key: Key<'_>) {
        self.holds.retain(|_, hold| !(hold.at.0 == key.db && hold.at.1 == key.name));
    }

    pub fn flushed(&mut self, db: Option<u32>) {
        self.holds.retain(|_, hold| db.is_some_and(|db| db != hold.at.0));
    }

    pub fn moved(&mut self, from: Key<'_>, to: Key<'_>) {
        self.removed(to);
        self.move_all(|(db, name)| {
            if (*db, &name[..]) == (from.db, from.name) {
                (*db, *name) = (to.db, to.name.to_vec());
            }
        });
    }

    pub fn swapped(&mut self, a: u32, b: u32) {
        self.places.clear();
        self.move_all(|(db, _)| {
            *db = match *db {
                db if db == a => b,
                db if db == b => a,
                db => db,
            };
        });
    }

    fn move_all(&mut self, mut change: impl FnMut(&mut At)) {
        for ((_, name), mut hold) in std::mem::take(&mut self.holds) {
            change(&mut hold.at);
            self.holds.insert((hold.at.clone(), name), hold);
        }
    }
}
