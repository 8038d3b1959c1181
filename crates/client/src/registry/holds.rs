//! The holds of one client: by name, by deadline, and all that are not released.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::base::clock::Moment;
use crate::base::hold_ref::{HoldRef, hold_name};
use crate::connection::link::probe_every;
use crate::state::hold_state::Change;
use crate::state::tracked::{State, TimerKey, TrackedHold};

#[derive(Default)]
pub(crate) struct HoldTable {
    tables: Mutex<Tables>,
    /// The first deadline is earlier than the last [`HoldTable::due`] said.
    pub(crate) earlier: Notify,
    /// How often connections are probed, for the shortest binding.
    pub(super) probe_every: watch::Sender<Option<Duration>>,
}

/// What [`HoldTable::due`] found.
pub(crate) struct Due {
    /// Holds whose deadline has passed, and what that changed.
    pub(crate) holds: Vec<(Arc<TrackedHold>, Change)>,
    /// The next deadline.
    pub(crate) next: Moment,
}

#[derive(Default)]
struct Tables {
    /// More than one where an owner holds a lock several times: they share the token.
    by_name: HashMap<Box<[u8]>, Vec<Weak<TrackedHold>>>,
    by_deadline: BTreeMap<TimerKey, Weak<TrackedHold>>,
    /// Every hold whose release has not begun, also those that are lost; by the number of its timer.
    unreleased: BTreeMap<u64, Weak<TrackedHold>>,
    added: u64,
    /// The times for which those with a deadline are bound to a connection, and how many are.
    bound: BTreeMap<Duration, usize>,
    /// When [`HoldTable::due`] will be called, at the latest; None: at once. It stays when its hold is released: else
    /// the task would be woken again for each hold that is released at once.
    next_due: Option<Moment>,
}

impl HoldTable {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, hold: &Arc<TrackedHold>) {
        let mut tables = self.tables();
        for name in hold.hold_ref.names() {
            tables.by_name.entry(name).or_default().push(Arc::downgrade(hold));
        }
        tables.added += 1;
        let number = tables.added;
        tables.unreleased.insert(number, Arc::downgrade(hold));
        self.count_bound(&mut tables, None, hold.bind());
        let timer = TimerKey { deadline: hold.deadline(), number };
        self.set_timer(tables, hold, Arc::downgrade(hold), timer);
    }

    /// Applies a transition that changes the binding.
    pub(super) fn rebind(
        &self,
        hold: &TrackedHold,
        transition: impl FnOnce(&mut State) -> Change,
    ) -> Change {
        let mut tables = self.tables();
        let before = hold.bind();
        let change = transition(&mut hold.state());
        if hold.timer().is_some_and(|timer| tables.by_deadline.contains_key(&timer)) {
            self.count_bound(&mut tables, before, hold.bind());
        }
        change
    }

    /// The binding of a hold with a deadline was `before`, and is `now`.
    fn count_bound(&self, tables: &mut Tables, before: Option<Duration>, now: Option<Duration>) {
        if before == now {
            return;
        }
        if let Some(now) = now {
            *tables.bound.entry(now).or_default() += 1;
        }
        if let Some(Entry::Occupied(mut count)) = before.map(|before| tables.bound.entry(before)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        // A hold that ends with its connection is not certain for any time after a probe.
        let shortest = tables.bound.keys().find(|bind| !bind.is_zero());
        let every = shortest.and_then(|bind| probe_every(*bind));
        self.probe_every.send_if_modified(|known| std::mem::replace(known, every) != every);
    }

    fn set_timer(
        &self,
        mut tables: MutexGuard<'_, Tables>,
        hold: &TrackedHold,
        weak: Weak<TrackedHold>,
        timer: TimerKey,
    ) {
        hold.set_timer(timer);
        tables.by_deadline.insert(timer, weak);
        if tables.next_due.is_some_and(|next| timer.deadline < next) {
            tables.next_due = Some(timer.deadline);
            drop(tables);
            self.earlier.notify_one();
        }
    }

    /// The hold is released or lost: no message about it counts.
    pub(super) fn remove(&self, hold: &TrackedHold) {
        let mut tables = self.tables();
        for name in hold.hold_ref.names() {
            if let hash_map::Entry::Occupied(mut same) = tables.by_name.entry(name) {
                same.get_mut().retain(|other| !std::ptr::eq(other.as_ptr(), hold));
                if same.get().is_empty() {
                    same.remove();
                }
            }
        }
        if hold.timer().and_then(|timer| tables.by_deadline.remove(&timer)).is_some() {
            self.count_bound(&mut tables, hold.bind(), None);
        }
    }

    /// The release of the hold begins.
    pub(super) fn begin_release(&self, hold: &TrackedHold) {
        let mut tables = self.tables();
        if let Some(timer) = hold.timer() {
            tables.unreleased.remove(&timer.number);
        }
    }

    /// Every hold whose release has not begun, also those that are lost.
    pub(crate) fn unreleased(&self) -> Vec<Arc<TrackedHold>> {
        self.tables().unreleased.values().filter_map(Weak::upgrade).collect()
    }

    /// The deadline of this hold is earlier than before.
    pub(super) fn reset_timer(&self, hold: &TrackedHold) {
        let mut tables = self.tables();
        if let Some(old) = hold.timer()
            && let Some(weak) = tables.by_deadline.remove(&old)
        {
            self.set_timer(tables, hold, weak, TimerKey { deadline: hold.deadline(), ..old });
        }
    }

    /// Takes the holds whose deadline has passed.
    pub(crate) fn due(&self, now: Moment) -> Due {
        let mut due = Vec::new();
        let mut tables = self.tables();
        while let Some(first) =
            tables.by_deadline.first_entry().filter(|first| first.key().deadline <= now)
        {
            let (timer, weak) = first.remove_entry();
            let Some(hold) = weak.upgrade() else { continue };
            let (change, deadline) = {
                let mut state = hold.state();
                // Decided and noted at once: its connection may show that it is alive at any time.
                (state.expire(now), state.deadline())
            };
            if change == Change::Nothing && deadline > now {
                // It was renewed since, or its connection is alive: that does not touch this map.
                let timer = TimerKey { deadline, ..timer };
                hold.set_timer(timer);
                tables.by_deadline.insert(timer, weak);
            } else {
                self.count_bound(&mut tables, hold.bind(), None);
                due.push((hold, change));
            }
        }
        let first = tables.by_deadline.first_key_value();
        let first = first.map_or(Moment::NEVER, |(timer, _)| timer.deadline);
        let next = tables.next_due.filter(|next| *next > now).map_or(first, |next| next.min(first));
        tables.next_due = Some(next);
        Due { holds: due, next }
    }

    /// The guards of that hold of the server: they share token and lease.
    pub(crate) fn sharing(&self, hold: &HoldRef) -> Vec<Arc<TrackedHold>> {
        let names = hold.names();
        let tables = self.tables();
        let same = names.iter().filter_map(|name| tables.by_name.get(name)).flatten();
        same.filter_map(Weak::upgrade).collect()
    }

    /// The other guards of the same hold of the server.
    pub(crate) fn siblings(&self, hold: &TrackedHold) -> Vec<Arc<TrackedHold>> {
        let mut same = self.sharing(&hold.hold_ref);
        same.retain(|other| !std::ptr::eq(&raw const **other, hold));
        same
    }

    /// The holds that a message names.
    pub(super) fn named(&self, id: &[u8], key: &[u8]) -> Vec<Arc<TrackedHold>> {
        let tables = self.tables();
        let same = tables.by_name.get(&*hold_name(id, key));
        same.into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Whether a hold is bound to a connection.
    pub(super) fn has_bound(&self) -> bool {
        !self.tables().bound.is_empty()
    }

    /// Every hold that is bound to a connection.
    pub(super) fn bound(&self) -> Vec<Arc<TrackedHold>> {
        if !self.has_bound() {
            return Vec::new();
        }
        self.all().into_iter().filter(|hold| hold.bind().is_some()).collect()
    }

    /// Every hold that has not ended.
    pub(crate) fn all(&self) -> Vec<Arc<TrackedHold>> {
        self.tables().by_deadline.values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::pulse::Pulse;
    use crate::base::target::Family;
    use crate::state::hold_state::LeaseTerms;

    const SECOND: u64 = 1_000_000_000;

    fn add(table: &HoldTable, second: u64) -> Arc<TrackedHold> {
        let (key, owner) = (b"key"[..].into(), b"owner"[..].into());
        let hold_ref = HoldRef::Lock { family: Family::Lock, key, owner, token: second };
        let terms = LeaseTerms {
            lease: Duration::from_secs(30),
            watched: true,
            bind: None,
            unclaimed: false,
            ends_by: None,
            own_name: true,
        };
        let at = |second| Moment::from_nanos(second * SECOND);
        let hold = TrackedHold::new(hold_ref, terms, at(second), Pulse::new(1, at(0)), "r".into());
        table.add(&hold);
        hold
    }

    /// Whether the task of [`HoldTable::due`] was woken since the last call.
    async fn is_woken(table: &HoldTable) -> bool {
        tokio::time::timeout(Duration::ZERO, table.earlier.notified()).await.is_ok()
    }

    #[tokio::test]
    async fn only_an_earlier_deadline_wakes_the_task() {
        let table = HoldTable::default();
        let due = |second| table.due(Moment::from_nanos(second * SECOND)).next;
        assert_eq!(due(0), Moment::NEVER);
        // Each is released before the task runs.
        for second in 20..30 {
            table.remove(&add(&table, second));
            assert_eq!(is_woken(&table).await, second == 20, "{second}");
            assert_eq!(due(1), Moment::from_nanos(20 * SECOND));
        }
        let earlier = add(&table, 10);
        assert!(is_woken(&table).await);
        assert_eq!(due(2), Moment::from_nanos(10 * SECOND));
        table.remove(&earlier);
        let later = add(&table, 40);
        assert!(!is_woken(&table).await);
        assert_eq!(due(10), Moment::from_nanos(40 * SECOND));
        table.remove(&later);
        assert_eq!(due(40), Moment::NEVER);
    }
}
