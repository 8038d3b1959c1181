//! Takes samples of the servers.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use dlock_admin::{Admin, Entry, Info, Walk};
use dlock_client::Error;
use tokio::sync::{mpsc, watch};

use super::state::{Details, Look};
use crate::look::{self, Seen};

/// Most keys in a sample: the busiest.
const SHOWN: usize = 10_000;
/// Most keys that one sample inspects, besides those of the sample before.
const NEW: usize = 20_000;
/// Most waiters of a key that are shown.
const WAITERS: u64 = 100;

/// Takes samples. The first round over all keys may take several of them, so that a sample costs the servers little,
/// however many keys they have. Between two samples of a round it keeps the busiest keys and where it was.
pub struct Looker {
    admin: Admin,
    pattern: Vec<u8>,
    round: Option<Round>,
    /// How many keys the last round inspected; 0 before the end of the first.
    total: usize,
    /// How many keys the user may not read, as the last round found.
    hidden: u64,
}

/// A round over all keys, of which a part is left.
struct Round {
    walk: Walk,
    /// How many keys were inspected.
    inspected: usize,
    /// How many keys the user may not read.
    hidden: u64,
    /// The busiest of those, and of the round before.
    busiest: Vec<Entry>,
}

impl Looker {
    pub fn new(admin: Admin, pattern: &[u8]) -> Self {
        Self { admin, pattern: pattern.to_vec(), round: None, total: 0, hidden: 0 }
    }

    /// Takes a sample every `interval`, and at once when another key is opened. A sample ends before the next begins,
    /// however long it takes.
    pub async fn keep_looking(
        mut self,
        interval: Duration,
        mut wanted: watch::Receiver<Option<Entry>>,
        looks: mpsc::Sender<Result<Look, Error>>,
    ) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                changed = wanted.changed() => if changed.is_err() { return },
            }
            let entry = wanted.borrow_and_update().clone();
            if looks.send(self.look(entry).await).await.is_err() {
                return;
            }
        }
    }

    /// A sample, with details of that key. After an error the next one begins a new round.
    pub async fn look(&mut self, closely: Option<Entry>) -> Result<Look, Error> {
        self.sample(NEW, closely).await
    }

    /// A sample of all keys.
    pub async fn look_at_all(&mut self) -> Result<Look, Error> {
        self.sample(usize::MAX, None).await
    }

    async fn sample(&mut self, budget: usize, closely: Option<Entry>) -> Result<Look, Error> {
        let servers = self.admin.stats().await?;
        let details = match closely {
            Some(entry) => Some(self.details(entry).await?),
            None => None,
        };
        let mut round = self.round.take().unwrap_or_else(|| Round {
            walk: self.admin.walk(&self.pattern),
            inspected: 0,
            hidden: 0,
            busiest: Vec::new(),
        });
        let (mut keys, _) = look::infos(&self.admin, std::mem::take(&mut round.busiest)).await?;
        let mut left = budget;
        let is_partial = loop {
            if left == 0 {
                break true;
            }
            let Some(page) = round.walk.next_page().await? else { break false };
            let inspected = page.len();
            left = left.saturating_sub(inspected);
            let (seen, hidden) = look::infos(&self.admin, page).await?;
            round.hidden += hidden;
            round.inspected += inspected.saturating_sub(usize::try_from(hidden).unwrap_or(0));
            keys.extend(seen);
            if keys.len() > 2 * SHOWN {
                keep_busiest(&mut keys);
            }
        };
        keep_busiest(&mut keys);
        if !is_partial {
            self.total = round.inspected;
            self.hidden = round.hidden;
        }
        let hidden = self.hidden.max(round.hidden);
        let more = self.total.max(round.inspected).saturating_sub(keys.len());
        if is_partial {
            round.busiest = keys.iter().map(|seen| seen.entry.clone()).collect();
            self.round = Some(round);
        } else if more > 0 {
            // The next round begins with the busiest of this one.
            let busiest = keys.iter().map(|seen| seen.entry.clone()).collect();
            let walk = self.admin.walk(&self.pattern);
            self.round = Some(Round { walk, inspected: 0, hidden: 0, busiest });
        }
        let is_partial = self.total == 0 && is_partial;
        Ok(Look { at: Instant::now(), servers, keys, more, hidden, is_partial, details })
    }

    async fn details(&self, entry: Entry) -> Result<Details, Error> {
        let info = self.admin.info_of(&entry).await?;
        let waiters = self.admin.waiters_of(&entry, Some(WAITERS)).await?;
        let permits = match info {
            Some(Info::Semaphore(_)) => self.admin.permits(&entry.key).await?,
            _ => Vec::new(),
        };
        Ok(Details { entry, info, waiters, permits })
    }
}

/// Keeps the keys with most waiters; of those with equally many, the first by name.
fn keep_busiest(keys: &mut Vec<Seen>) {
    // SCAN may show a key twice, and the busiest keys are inspected in each sample.
    keys.sort_by(|a, b| a.entry.cmp(&b.entry));
    keys.dedup_by(|a, b| a.entry == b.entry);
    keys.sort_by_key(|seen| Reverse(seen.info.waiters()));
    keys.truncate(SHOWN);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::lock;

    #[test]
    fn the_busiest_are_kept_whatever_their_names() {
        let mut keys: Vec<Seen> =
            (0..3 * SHOWN as u64).map(|n| lock(&format!("k{n:05}"), n, 0, 0)).collect();
        keys.push(lock("zzz", 1, 3, 0));
        keys.push(lock("zz", 1, 7, 0));
        keys.push(lock("zz", 1, 7, 0));
        keep_busiest(&mut keys);
        let names: Vec<_> =
            keys.iter().map(|seen| String::from_utf8_lossy(&seen.entry.key)).collect();
        assert_eq!(
            (names.len(), &names[..3]),
            (SHOWN, &["zz".into(), "zzz".into(), "k00000".into()][..])
        );
    }
}
