//! The holds of one client: by name, by deadline, and all that are not released.

use std::collections::{BTreeMap, HashMap, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::base::clock::Moment;
use crate::base::hold_ref::hold_name;
use crate::state::hold_state::Change;
use crate::state::tracked::{TimerKey, TrackedHold};

#[derive(Default)]
pub(crate) struct HoldTable {
    tables: Mutex<Tables>,
    /// The first deadline is earlier than the last [`HoldTable::due`] said.
    pub(crate) earlier: Notify,
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
        let timer = TimerKey { deadline: hold.deadline(), number };
        self.set_timer(tables, hold, Arc::downgrade(hold), timer);
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
        if let Some(timer) = hold.timer() {
            tables.by_deadline.remove(&timer);
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
                // Decided and noted at once: a renewal may be answered at any time.
                (state.expire(now), state.deadline())
            };
            if change == Change::Nothing && deadline > now {
                // It was renewed since: that does not touch this map.
                let timer = TimerKey { deadline, ..timer };
                hold.set_timer(timer);
                tables.by_deadline.insert(timer, weak);
            } else {
                due.push((hold, change));
            }
        }
        let first = tables.by_deadline.first_key_value();
        let first = first.map_or(Moment::NEVER, |(timer, _)| timer.deadline);
        let next = tables.next_due.filter(|next| *next > now).map_or(first, |next| next.min(first));
        tables.next_due = Some(next);
        Due { holds: due, next }
    }

    /// The holds that a message names.
    pub(super) fn named(&self, id: &[u8], key: &[u8]) -> Vec<Arc<TrackedHold>> {
        let tables = self.tables();
        let same = tables.by_name.get(&*hold_name(id, key));
        same.into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Every hold that has not ended.
    pub(crate) fn all(&self) -> Vec<Arc<TrackedHold>> {
        self.tables().by_deadline.values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::hold_ref::HoldRef;
    use crate::base::target::Family;
    use crate::state::hold_state::{Asked, LeaseTerms};

    const SECOND: u64 = 1_000_000_000;

    fn add(table: &HoldTable, second: u64) -> Arc<TrackedHold> {
        let (key, owner) = (b"key"[..].into(), b"owner"[..].into());
        let hold_ref = HoldRef::Lock { family: Family::Lock, key, owner, token: second };
        // The lease is longer: it ends at that second.
        let ends_by = Some(Moment::from_nanos(second * SECOND));
        let lease = Duration::from_mins(5);
        let terms = LeaseTerms { lease, watched: true, bind: None, ends_by };
        let granted = Asked { sent: Moment::from_nanos(0), lease };
        let hold = TrackedHold::new(hold_ref, terms, granted, "r".into());
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
