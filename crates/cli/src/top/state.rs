//! State of the screen, and how keys change it. Independent of terminal and server.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use dlock_admin::{Entry, Info, PermitInfo, Stats, WaiterInfo};

use super::grants::{Track, is_seen};
use crate::look::Seen;

/// Number of samples that a rate of grants is averaged over.
const LOOKS: usize = 10;

/// One sample of the servers.
#[derive(Debug, Clone)]
pub struct Look {
    /// Time of the sample.
    pub at: Instant,
    /// The servers, each with its counters.
    pub servers: Vec<Stats>,
    /// The keys that match.
    pub keys: Vec<Seen>,
    /// Number of matching keys that are not among `keys`: less busy ones.
    pub more: usize,
    /// Number of keys that the user may not read.
    pub hidden: u64,
    /// Other keys are inspected by the next samples.
    pub is_partial: bool,
    /// Details of the opened key.
    pub details: Option<Details>,
}

/// Details of one key.
#[derive(Debug, Clone)]
pub struct Details {
    /// The key.
    pub entry: Entry,
    /// Its state; None: the key is gone.
    pub info: Option<Info>,
    /// The first waiters.
    pub waiters: Vec<WaiterInfo>,
    /// Of a semaphore: the permits that are out.
    pub permits: Vec<PermitInfo>,
}

/// Sort order of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Most waiters first, then most grants.
    Waiters,
    /// Most grants first.
    Grants,
    /// Held longest first.
    Held,
    /// By name.
    Key,
}

impl Sort {
    /// The order after `s` is pressed.
    pub const fn next(self) -> Self {
        match self {
            Self::Waiters => Self::Grants,
            Self::Grants => Self::Held,
            Self::Held => Self::Key,
            Self::Key => Self::Waiters,
        }
    }

    /// Name on the screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiters => "waiters",
            Self::Grants => "grants",
            Self::Held => "held",
            Self::Key => "key",
        }
    }
}

/// A line of the list.
#[derive(Debug, Clone)]
pub struct Row {
    /// The key and its state.
    pub seen: Seen,
    /// Grants per second, estimated; None: the samples do not see single holds of this kind.
    pub grants: Option<f64>,
}

/// Counts per second, summed over all servers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    pub grants_at_once: f64,
    pub grants_after_waiting: f64,
    pub releases: f64,
    pub expiries: f64,
    pub timeouts: f64,
}

/// Meaning of a key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Enter,
    Back,
    Sort,
}

/// Everything on the screen.
#[derive(Debug)]
pub struct State {
    /// The list, sorted.
    pub rows: Vec<Row>,
    /// The sort order.
    pub sort: Sort,
    /// The opened key.
    pub opened: Option<Entry>,
    /// Details of the opened key.
    pub details: Option<Details>,
    /// The servers, as of the last sample.
    pub servers: Vec<Stats>,
    /// None before the second sample.
    pub rates: Option<Rates>,
    /// Number of keys that are left out: less busy ones.
    pub more: usize,
    /// Number of keys that the user may not read.
    pub hidden: u64,
    /// Not all keys have been inspected yet.
    pub is_partial: bool,
    /// Why the last sample failed, if it did.
    pub trouble: Option<String>,
    /// Whether there was a sample.
    pub looked: bool,
    selected: Option<Entry>,
    tracks: HashMap<Entry, Track>,
    last: Option<Instant>,
    looks: VecDeque<Instant>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            sort: Sort::Waiters,
            opened: None,
            details: None,
            servers: Vec::new(),
            rates: None,
            more: 0,
            hidden: 0,
            is_partial: false,
            trouble: None,
            looked: false,
            selected: None,
            tracks: HashMap::new(),
            last: None,
            looks: VecDeque::new(),
        }
    }
}

impl State {
    /// Adds a sample.
    pub fn update(&mut self, look: Look) {
        self.trouble = None;
        self.looked = true;
        let after = self.last.map(|last| look.at - last);
        self.rates = after.and_then(|after| rates(&self.servers, &look.servers, after));
        self.last = Some(look.at);
        self.servers = look.servers;
        self.more = look.more;
        self.hidden = look.hidden;
        self.is_partial = look.is_partial;
        if let Some(details) = look.details
            && self.opened.as_ref() == Some(&details.entry)
        {
            self.details = Some(details);
        }
        self.looks.push_back(look.at);
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        let since = self.looks.front().copied().unwrap_or(look.at);
        let window = look.at - since;
        for seen in &look.keys {
            let track = self.tracks.entry(seen.entry.clone()).or_default();
            track.add(&seen.info, look.at, after);
        }
        self.tracks.retain(|_, track| track.forget_until(since));
        self.rows.clear();
        for seen in look.keys {
            let grants = self.tracks.get(&seen.entry).map_or(0.0, |track| track.per_second(window));
            let grants = is_seen(seen.info.kind()).then_some(grants);
            self.rows.push(Row { seen, grants });
        }
        self.sort();
    }

    /// Records that a sample failed; the screen keeps the previous one.
    pub fn fail(&mut self, trouble: String) {
        self.trouble = Some(trouble);
        // The pause must not count as time without grants.
        self.last = None;
        self.rates = None;
    }

    /// Applies a key press. `page` is the number of visible rows.
    pub fn press(&mut self, key: Key, page: usize) {
        let at = self.selected();
        let last = self.rows.len().saturating_sub(1);
        match key {
            Key::Up => self.select(at.saturating_sub(1)),
            Key::Down => self.select((at + 1).min(last)),
            Key::PageUp => self.select(at.saturating_sub(page)),
            Key::PageDown => self.select((at + page).min(last)),
            Key::First => self.select(0),
            Key::Last => self.select(last),
            Key::Enter => {
                self.opened = self.rows.get(at).map(|row| row.seen.entry.clone());
                self.details = None;
            }
            Key::Back => {
                self.opened = None;
                self.details = None;
            }
            Key::Sort => {
                self.sort = self.sort.next();
                self.sort();
            }
        }
    }

    /// Index of the selected row; 0 when there is none.
    pub fn selected(&self) -> usize {
        let is_it = |row: &Row| Some(&row.seen.entry) == self.selected.as_ref();
        self.rows.iter().position(is_it).unwrap_or(0)
    }

    fn select(&mut self, at: usize) {
        self.selected = self.rows.get(at).map(|row| row.seen.entry.clone());
    }

    fn sort(&mut self) {
        // Rates in thousandths: sorting needs integers.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let grants = |row: &Row| Reverse((row.grants.unwrap_or(0.0) * 1000.0) as u64);
        let waiters = |row: &Row| Reverse(row.seen.info.waiters());
        let held = |row: &Row| Reverse(row.seen.info.holders().map(|hold| hold.held).max());
        self.rows.sort_by(|a, b| a.seen.entry.cmp(&b.seen.entry));
        match self.sort {
            Sort::Waiters => self.rows.sort_by_key(|row| (waiters(row), grants(row))),
            Sort::Grants => self.rows.sort_by_key(|row| (grants(row), waiters(row))),
            Sort::Held => self.rows.sort_by_key(held),
            Sort::Key => {}
        }
    }
}

/// None if there is nothing to compare: no time has elapsed, or the servers have changed.
fn rates(before: &[Stats], now: &[Stats], time: Duration) -> Option<Rates> {
    let same =
        before.iter().map(|server| &server.address).eq(now.iter().map(|server| &server.address));
    if !same || time.is_zero() {
        return None;
    }
    let rate = |counter: fn(&Stats) -> u64| {
        // A restarted server counts from 0.
        let grown: u64 = before
            .iter()
            .zip(now)
            .map(|(before, now)| counter(now).saturating_sub(counter(before)))
            .sum();
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let grown = grown as f64;
        grown / time.as_secs_f64()
    };
    Some(Rates {
        grants_at_once: rate(|server| server.grants_at_once),
        grants_after_waiting: rate(|server| server.grants_after_waiting),
        releases: rate(|server| server.releases),
        expiries: rate(|server| server.expiries),
        timeouts: rate(|server| server.timeouts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::{self, lock};

    fn keys(state: &State) -> Vec<String> {
        state
            .rows
            .iter()
            .map(|row| String::from_utf8_lossy(&row.seen.entry.key).into_owned())
            .collect()
    }

    #[test]
    fn the_busiest_come_first_and_s_sorts_otherwise() {
        let mut state = State::default();
        let start = Instant::now();
        state.update(sample::look(
            start,
            vec![lock("a", 1, 0, 10), lock("b", 2, 5, 20), lock("c", 3, 0, 30)],
        ));
        assert_eq!(keys(&state), ["b", "a", "c"]);
        // "c" has a new holder.
        let later = start + Duration::from_secs(2);
        state.update(sample::look(
            later,
            vec![lock("a", 1, 0, 12), lock("b", 2, 5, 22), lock("c", 9, 0, 0)],
        ));
        assert_eq!(keys(&state), ["b", "c", "a"]);
        let grants = state.rows[1].grants.unwrap();
        assert!((grants - 0.5).abs() < 1e-9, "{grants}");
        state.press(Key::Sort, 10);
        assert_eq!(
            (state.sort, keys(&state)),
            (Sort::Grants, ["c", "b", "a"].map(str::to_owned).to_vec())
        );
        state.press(Key::Sort, 10);
        assert_eq!(
            (state.sort, keys(&state)),
            (Sort::Held, ["b", "a", "c"].map(str::to_owned).to_vec())
        );
        state.press(Key::Sort, 10);
        assert_eq!(
            (state.sort, keys(&state)),
            (Sort::Key, ["a", "b", "c"].map(str::to_owned).to_vec())
        );
    }

    #[test]
    fn the_selection_stays_with_its_key() {
        let mut state = State::default();
        let now = Instant::now();
        state.update(sample::look(
            now,
            vec![lock("a", 1, 3, 0), lock("b", 2, 2, 0), lock("c", 3, 1, 0)],
        ));
        state.press(Key::Up, 10);
        assert_eq!(state.selected(), 0);
        state.press(Key::Down, 10);
        assert_eq!(state.selected(), 1);
        let later = now + Duration::from_secs(1);
        state.update(sample::look(
            later,
            vec![lock("a", 1, 3, 0), lock("b", 2, 9, 0), lock("c", 3, 1, 0)],
        ));
        assert_eq!((state.selected(), keys(&state)[0].as_str()), (0, "b"));
        for (key, at) in
            [(Key::Last, 2), (Key::Down, 2), (Key::PageUp, 0), (Key::PageDown, 2), (Key::First, 0)]
        {
            state.press(key, 10);
            assert_eq!(state.selected(), at, "{key:?}");
        }
        // Its row is gone, so the first row is selected.
        state.update(sample::look(later, vec![lock("c", 3, 1, 0)]));
        assert_eq!(state.selected(), 0);
        state.update(sample::look(later, Vec::new()));
        state.press(Key::Enter, 10);
        assert_eq!(state.opened, None);
    }

    #[test]
    fn details_of_a_key_that_was_left_are_not_shown() {
        let mut state = State::default();
        let now = Instant::now();
        state.update(sample::look(now, vec![lock("a", 1, 3, 0)]));
        state.press(Key::Enter, 10);
        let entry = state.opened.clone().unwrap();
        let details = Details { entry, info: None, waiters: Vec::new(), permits: Vec::new() };
        state.press(Key::Back, 10);
        state.update(Look {
            details: Some(details.clone()),
            ..sample::look(now, vec![lock("a", 1, 3, 0)])
        });
        assert!(state.details.is_none());
        state.press(Key::Enter, 10);
        state
            .update(Look { details: Some(details), ..sample::look(now, vec![lock("a", 1, 3, 0)]) });
        assert!(state.details.is_some());
    }

    #[test]
    fn rates_are_differences_and_a_restart_is_not_negative() {
        let mut state = State::default();
        let now = Instant::now();
        let look = |at, grants| {
            let mut look = sample::look(at, Vec::new());
            look.servers[0].grants_at_once = grants;
            look
        };
        state.update(look(now, 100));
        assert_eq!(state.rates, None);
        state.update(look(now + Duration::from_secs(2), 150));
        assert!((state.rates.unwrap().grants_at_once - 25.0).abs() < 1e-9);
        state.update(look(now + Duration::from_secs(4), 3));
        assert_eq!(state.rates.unwrap(), Rates::default());
        state.fail("gone".to_owned());
        state.update(look(now + Duration::from_secs(6), 9));
        assert_eq!((state.rates, &state.trouble), (None, &None));
    }
}
