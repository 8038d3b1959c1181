//! How often a lock is granted, estimated from polls: the server counts grants, but not those of one lock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dlock_admin::{Info, Kind};

/// Number of polls with new holds that are enough for an estimate from the ages of these holds.
const ENOUGH: usize = 3;
/// The smallest mean age. The server shows whole milliseconds.
const YOUNGEST: Duration = Duration::from_micros(500);

/// The holds that polls found on one key.
#[derive(Debug, Default)]
pub struct Track {
    tokens: Vec<u64>,
    polled: Option<Instant>,
    found: VecDeque<Found>,
}

/// The new holds of one poll.
#[derive(Debug)]
struct Found {
    at: Instant,
    /// Time since the poll before.
    after: Duration,
    holds: u32,
    /// Sum of their ages.
    age: Duration,
}

impl Track {
    /// Adds a poll at `at`. `after` is the time since the poll before; None if there is none to compare with.
    pub fn add(&mut self, info: &Info, at: Instant, after: Option<Duration>) {
        let is_known = self.polled.is_some();
        let before = std::mem::take(&mut self.tokens);
        self.tokens = info.holders().map(|hold| hold.token).collect();
        self.polled = Some(at);
        let Some(after) = after else { return };
        let mut found = Found { at, after, holds: 0, age: Duration::ZERO };
        for hold in info.holders() {
            // A key that is seen for the first time may have been held all the time.
            if !before.contains(&hold.token) && (is_known || hold.held < after) {
                found.holds += 1;
                found.age += hold.held;
            }
        }
        if found.holds > 0 {
            self.found.push_back(found);
        }
    }

    /// Whether anything is known from `since` on; forgets what is older. The key of a free lock does not exist, so not
    /// every poll sees it.
    pub fn forget_until(&mut self, since: Instant) -> bool {
        while self.found.front().is_some_and(|found| found.at <= since) {
            self.found.pop_front();
        }
        !self.found.is_empty() || self.polled.is_some_and(|polled| polled >= since)
    }

    /// Grants per second within `window`.
    ///
    /// Polls count at most one grant of each hold that they find. If most polls find new holds, there are more grants
    /// than polls. Then the ages tell how many: a poll meets a hold at a random moment, on average in its middle. So
    /// holds last twice the mean age, and that many of them fit between two polls. If the holds differ in length, polls
    /// meet the long ones more often, and the estimate is lower than the rate.
    pub fn per_second(&self, window: Duration) -> f64 {
        if window.is_zero() {
            return 0.0;
        }
        let holds: u32 = self.found.iter().map(|found| found.holds).sum();
        let mut grants = f64::from(holds);
        if self.found.len() >= ENOUGH {
            let age: Duration = self.found.iter().map(|found| found.age).sum();
            let length = 2.0 * (age / holds).max(YOUNGEST).as_secs_f64();
            let held = |found: &Found| found.after.as_secs_f64() * f64::from(found.holds);
            grants = grants.max(self.found.iter().map(held).sum::<f64>() / length);
        }
        grants / window.as_secs_f64()
    }
}

/// Whether polls see the holds of this kind of key one by one.
pub fn is_seen(kind: Kind) -> bool {
    matches!(kind, Kind::Lock | Kind::Fair | Kind::ReadWrite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Seen;
    use crate::top::sample::{self, lock};
    use crate::top::state::State;

    /// What the list shows for a lock after `polls` samples, one a second, each at another moment of the second. A hold
    /// of `held_ms` begins every `every_ms`; in between the lock is free, and its key does not exist.
    fn shown(held_ms: &[u64], every_ms: &[u64], polls: u64) -> f64 {
        let start = Instant::now();
        let mut state = State::default();
        for poll in 0..polls {
            let now = poll * 1000 + poll * 618 % 1000;
            let (mut begin, mut token) = (0, 1);
            let length = |of: &[u64], token: u64| of[usize::try_from(token).unwrap() % of.len()];
            while begin + length(every_ms, token) <= now {
                begin += length(every_ms, token);
                token += 1;
            }
            let mut keys = Vec::new();
            if now - begin < length(held_ms, token) {
                keys.push(held(token, now - begin));
            }
            state.update(sample::look(start + Duration::from_millis(now), keys));
        }
        state.rows.first().and_then(|row| row.grants).unwrap_or(0.0)
    }

    fn held(token: u64, age_ms: u64) -> Seen {
        let mut seen = lock("k", token, 0, 0);
        if let Info::Lock(lock) = &mut seen.info {
            lock.holder.as_mut().unwrap().held = Duration::from_millis(age_ms);
        }
        seen
    }

    #[test]
    fn a_busy_lock_shows_its_rate_and_not_that_of_the_polls() {
        // 26 grants a second, as a hand-off after each hold.
        let rate = shown(&[38], &[38], 20);
        assert!((17.0..40.0).contains(&rate), "{rate}");
        // Of different lengths: 25 a second.
        let rate = shown(&[30, 50, 40], &[30, 50, 40], 20);
        assert!((15.0..40.0).contains(&rate), "{rate}");
        // 10 a second, and free half of the time.
        let rates: Vec<f64> = (15..30).map(|polls| shown(&[50], &[100], polls)).collect();
        let seen: Vec<f64> = rates.into_iter().filter(|rate| *rate > 0.0).collect();
        assert!(seen.len() > 4 && seen.iter().all(|rate| (4.0..25.0).contains(rate)), "{seen:?}");
    }

    #[test]
    fn rare_grants_are_counted() {
        // Held for 4 s each time: the polls of the last 9 s see two or three new holds.
        let rate = shown(&[4000], &[4000], 20);
        assert!((0.2..0.4).contains(&rate), "{rate}");
        // Held since the start.
        assert!(shown(&[1_000_000], &[1_000_000], 20) < 1e-9);
        // A single grant just before a poll is one grant, however young its hold is.
        let mut track = Track::default();
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let first = held(1, 500);
        track.add(&first.info, start, None);
        track.add(&held(2, 1).info, start + second, Some(second));
        assert!((track.per_second(second) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn holds_that_are_older_than_the_last_poll_are_no_new_grants() {
        let mut track = Track::default();
        let second = Duration::from_secs(1);
        // Another part of the keys was read before.
        track.add(&held(7, 60_000).info, Instant::now(), Some(second));
        assert!(track.per_second(second) < 1e-9);
    }
}
