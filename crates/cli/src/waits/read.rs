//! Reads the snapshot.

use std::cmp::Reverse;

use dlock_admin::{Admin, Info};
use dlock_client::Error;

use super::{Party, Waits};
use crate::look::{self, Seen};

/// Most keys with waiters, those with most of them.
pub const KEYS: usize = 10_000;
/// Most waiters of a key that are read: the server makes the list in one piece.
pub const WAITERS_OF_KEY: u64 = 1000;
/// Most waiters in all.
pub const WAITERS: u64 = 100_000;

impl Waits {
    /// Inspects the keys of all servers that match `pattern`.
    pub async fn read(admin: &Admin, pattern: &[u8]) -> Result<Self, Error> {
        let mut waits = Self { is_complete: true, ..Self::default() };
        let mut left = WAITERS;
        let mut asked = Vec::new();
        for seen in waits.waited_keys(admin, pattern).await? {
            let count = seen.info.waiters().min(WAITERS_OF_KEY).min(left);
            left -= count;
            waits.is_complete &= count == seen.info.waiters();
            if count > 0 {
                asked.push((seen, count));
            }
        }
        let ask = |(seen, count): (Seen, u64)| {
            let admin = admin.clone();
            async move {
                let answers = async {
                    let waiters = admin.waiters_of(&seen.entry, Some(count)).await?;
                    let permits = match seen.info {
                        Info::Semaphore(_) => admin.permits(&seen.entry.key).await?,
                        _ => Vec::new(),
                    };
                    Ok((permits, waiters))
                };
                let answers = look::readable(answers.await)?;
                Ok(answers.map(|(permits, waiters)| (seen, permits, waiters)))
            }
        };
        let (found, hidden) = look::split(look::each(asked, ask).await?);
        for (seen, permits, waiters) in found {
            waits.add(seen.entry, &seen.info, &permits, &waiters);
        }
        waits.hidden += hidden;
        waits.is_complete &= waits.hidden == 0;
        if let Some(line) = look::left_out(waits.hidden) {
            crate::say(&line);
        }
        Ok(waits)
    }

    /// The keys with waiters, those with most of them first.
    async fn waited_keys(&mut self, admin: &Admin, pattern: &[u8]) -> Result<Vec<Seen>, Error> {
        let mut found: Vec<Seen> = Vec::new();
        let mut walk = admin.walk(pattern);
        while let Some(page) = walk.next_page().await? {
            let (seen, hidden) = look::infos(admin, page).await?;
            self.hidden += hidden;
            found.extend(seen.into_iter().filter(|seen| seen.info.waiters() > 0));
            if found.len() > 2 * KEYS {
                self.keep_most_waited(&mut found);
            }
        }
        self.keep_most_waited(&mut found);
        Ok(found)
    }

    fn keep_most_waited(&mut self, found: &mut Vec<Seen>) {
        found.sort_unstable_by(|a, b| {
            let order = |seen: &Seen| Reverse(seen.info.waiters());
            order(a).cmp(&order(b)).then_with(|| a.entry.cmp(&b.entry))
        });
        // SCAN may show a key twice.
        found.dedup_by(|a, b| a.entry == b.entry);
        self.is_complete &= found.len() <= KEYS;
        found.truncate(KEYS);
    }

    /// Looks for the places of an owner in queues of which only the beginning was read.
    pub async fn find(&mut self, admin: &Admin, owner: &[u8]) -> Result<(), Error> {
        let party = Party::Owner(owner.to_vec());
        let cut: Vec<usize> =
            (0..self.keys.len()).filter(|&key| self.keys[key].waiters > WAITERS_OF_KEY).collect();
        let ask = |key: usize| {
            let (admin, owner) = (admin.clone(), owner.to_vec());
            let entry = self.keys[key].entry.clone();
            async move {
                let place = look::readable(admin.position(&entry, &owner).await)?;
                Ok((key, place.flatten()))
            }
        };
        for (key, place) in look::each(cut, ask).await? {
            let is_known = self
                .numbers
                .get(&party)
                .is_some_and(|&number| self.waits_of(number).any(|wait| wait.key == key));
            if let Some(place @ 1..) = place
                && !is_known
            {
                self.add_wait(key, party.clone(), place, None);
            }
        }
        Ok(())
    }
}
