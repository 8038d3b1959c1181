//! What clients were sure to hold, from reply to request, and what must not be in it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How a hold shares its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// With no other hold.
    Alone,
    /// With other readers.
    Reader,
    /// With other permits, this many of so large a capacity.
    Permits { count: u64, capacity: u64 },
}

/// A hold, from the moment after the reply that granted it to the moment before the request that released it.
#[derive(Clone, Debug)]
pub struct Turn {
    pub owner: String,
    /// The fencing token; 0 for permits.
    pub token: u64,
    pub share: Share,
    pub from: Instant,
    pub to: Instant,
}

/// All turns of a run, by key.
#[derive(Debug, Default)]
pub struct Ledger {
    turns: Mutex<BTreeMap<String, Vec<Turn>>>,
    grants: Mutex<BTreeMap<String, Vec<Instant>>>,
    faults: Mutex<Vec<String>>,
}

impl Ledger {
    pub fn add(&self, key: &str, turn: Turn) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(key.to_owned()).or_default().push(turn);
    }

    /// Notes the moment of a grant.
    pub fn granted(&self, key: &str) {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.entry(key.to_owned()).or_default().push(Instant::now());
    }

    /// Notes something that must not happen.
    pub fn fault(&self, text: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// Grants so far.
    pub fn grants(&self) -> usize {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.values().map(Vec::len).sum()
    }

    /// The longest time since `start` without a grant of one key, of all keys.
    pub fn longest_gap(&self, start: Instant) -> Duration {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let gap = |moments: &Vec<Instant>| {
            let since = moments.iter().copied().filter(|at| *at > start);
            let mut moments: Vec<Instant> = since.chain([start, Instant::now()]).collect();
            moments.sort_unstable();
            moments.windows(2).map(|pair| pair[1] - pair[0]).max()
        };
        grants.values().filter_map(gap).max().unwrap_or_default()
    }

    /// Turns so far.
    pub fn turns(&self) -> usize {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).values().map(Vec::len).sum()
    }

    /// All faults: those noted, and those of the turns.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (key, turns) in &*self.turns.lock().unwrap_or_else(PoisonError::into_inner) {
            faults.extend(judge(turns).into_iter().map(|fault| format!("{key}: {fault}")));
        }
        faults
    }
}

/// Two holds that exclude each other at the same time, and tokens that are not above those of earlier holds.
fn judge(turns: &[Turn]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut turns: Vec<&Turn> = turns.iter().collect();
    turns.sort_by_key(|turn| turn.from);
    let mut active: Vec<&Turn> = Vec::new();
    // Of readers, the reply to an earlier grant may be read later.
    let (mut largest, mut largest_alone) = (0, 0);
    for turn in turns {
        active.retain(|other| {
            let is_over = other.to <= turn.from;
            if is_over {
                largest = largest.max(other.token);
                if other.share == Share::Alone {
                    largest_alone = largest_alone.max(other.token);
                }
            }
            !is_over
        });
        let largest = if turn.share == Share::Alone { largest } else { largest_alone };
        if turn.token != 0 && turn.token <= largest {
            faults.push(format!("token {} of {} after {largest}", turn.token, turn.owner));
        }
        active.push(turn);
        if !fit_together(&active) {
            let owners: Vec<_> = active.iter().map(|turn| (&turn.owner, turn.token)).collect();
            faults.push(format!("held at the same time: {owners:?}"));
        }
    }
    faults
}

fn fit_together(active: &[&Turn]) -> bool {
    let mut permits = 0;
    active.iter().all(|turn| match turn.share {
        Share::Alone => active.len() == 1,
        Share::Reader => active.iter().all(|other| other.share == Share::Reader),
        Share::Permits { count, capacity } => {
            permits += count;
            permits <= capacity
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(share: Share, rows: &[(u64, u64, u64)]) -> Vec<Turn> {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let turn = |&(token, from, to): &(u64, u64, u64)| {
            let owner = format!("owner of {token}");
            Turn { owner, token, share, from: at(from), to: at(to) }
        };
        rows.iter().map(turn).collect()
    }

    #[test]
    fn a_second_owner_is_seen() {
        assert!(judge(&turns(Share::Alone, &[(1, 0, 10), (2, 10, 20)])).is_empty());
        assert_eq!(judge(&turns(Share::Alone, &[(1, 0, 10), (2, 9, 20)])).len(), 1);
        let mut mixed = turns(Share::Reader, &[(1, 0, 10), (2, 5, 20)]);
        assert!(judge(&mixed).is_empty());
        mixed.extend(turns(Share::Alone, &[(3, 19, 30)]));
        assert_eq!(judge(&mixed).len(), 1);
        let permits = Share::Permits { count: 1, capacity: 2 };
        assert!(judge(&turns(permits, &[(0, 0, 10), (0, 5, 20)])).is_empty());
        assert_eq!(judge(&turns(permits, &[(0, 0, 10), (0, 5, 20), (0, 6, 7)])).len(), 1);
    }

    #[test]
    fn a_token_that_goes_back_is_seen() {
        assert_eq!(judge(&turns(Share::Alone, &[(5, 0, 10), (4, 10, 20)])).len(), 1);
        assert!(judge(&turns(Share::Reader, &[(5, 0, 10), (4, 10, 20)])).is_empty());
        let mut mixed = turns(Share::Reader, &[(5, 0, 10)]);
        mixed.extend(turns(Share::Alone, &[(4, 10, 20)]));
        assert_eq!(judge(&mixed).len(), 1);
        let mut mixed = turns(Share::Alone, &[(5, 0, 10)]);
        mixed.extend(turns(Share::Reader, &[(4, 10, 20)]));
        assert_eq!(judge(&mixed).len(), 1);
    }
}
