//! The values in unlink notices: what is learnt of them between the event and its turn.

use dlock_core::base::key::Key;
use dlock_core::ports::lost::Lost;

use super::{INBOX, Inbox, Notice};
use crate::ffi::Value;

/// How many of the last notices are searched: the server says directly after the unlink event where a value is now.
const LAST: usize = 32;

/// The address of a value; after the value is freed, another one can have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(usize);

impl Address {
    /// The address of this value.
    pub fn of(value: &Value) -> Self {
        Self(std::ptr::from_ref(value).addr())
    }
}

/// The database of the last unlinked value, if there is one.
pub fn last_unlinked_in() -> Option<u32> {
    INBOX.try_with(|inbox| {
        inbox.newest().find_map(|notice| match notice {
            Notice::Unlinked { db, .. } => Some(*db),
            _ => None,
        })
    })?
}

/// RENAME or MOVE has just brought the value with this address to another key. Its last unlink notice was about that.
/// Returns whether there is such a notice.
pub fn follow(value: Address) -> bool {
    let found = INBOX.try_with(|inbox| {
        let newest = inbox.new.iter_mut().rev().take(LAST);
        let lost = newest.map(|(_, notice)| notice).find_map(|notice| match notice {
            Notice::Unlinked { lost: Some(lost), at, .. } if *at == Some(value) => Some(lost),
            _ => None,
        })?;
        lost.follow();
        Some(())
    });
    found.flatten().is_some()
}

/// The server has just evicted a key with this name. Returns whether the value that was unlinked last was its value.
pub fn evict(key: &[u8]) -> bool {
    let found = INBOX.try_with(|inbox| match inbox.new.back_mut() {
        Some((_, Notice::Unlinked { name, lost: Some(lost), .. })) if **name == *key => {
            lost.evict();
            true
        }
        _ => false,
    });
    found.unwrap_or(false)
}

/// Takes what was removed from a key when the running operation opened it.
pub fn take_lost(key: Key<'_>) -> Option<Lost> {
    INBOX.try_with(|inbox| {
        let is_it = |notice: &Notice| {
            // One without a value stays: it says that the queue of the key has to be looked at.
            matches!(notice, Notice::Unlinked { db, name, lost: Some(_), .. }
                if *db == key.db && **name == *key.name)
        };
        let last = inbox.newest().position(is_it)?;
        match inbox.new.remove(inbox.new.len() - 1 - last)? {
            (_, Notice::Unlinked { lost, .. }) => lost.map(|lost| *lost),
            _ => None,
        }
    })?
}

/// Whether a closed latch was removed from a key, and its notice is not processed.
pub fn has_lost_latch(key: Key<'_>) -> bool {
    let is_lost = |lost: &mut Lost| lost.is_lost_latch();
    INBOX.try_with(|inbox| inbox.lost_latch(key).is_some_and(is_lost)).unwrap_or(false)
}

/// A record has made a latch under a key: a notice about its removal is about a former one.
pub fn forget_lost_latch(key: Key<'_>) {
    INBOX.try_with(|inbox| {
        if let Some(lost) = inbox.lost_latch(key) {
            lost.forget_latch();
        }
        if !inbox.lost_latches.is_empty() {
            inbox.lost_latches.remove(&(key.db, key.name.into()));
        }
    });
}

/// Lends the values that were unlinked.
pub fn with_lost<R>(read: impl for<'a> FnOnce(Vec<&'a Lost>) -> R) -> Option<R> {
    INBOX.try_with(|inbox| {
        let lost = inbox.iter().filter_map(|notice| match notice {
            Notice::Unlinked { lost: Some(lost), .. } => Some(&**lost),
            _ => None,
        });
        read(lost.collect())
    })
}

impl Inbox {
    /// The value of the last notice about the removal of a closed latch from a key. O(log n) where it is new.
    fn lost_latch(&mut self, key: Key<'_>) -> Option<&mut Lost> {
        if self.lost_latches.is_empty() {
            return None;
        }
        let number = *self.lost_latches.get(&(key.db, key.name.into()))?;
        let notice = if let Ok(at) = self.new.binary_search_by_key(&number, |(number, _)| *number) {
            self.new.get_mut(at)
        } else {
            let mut rest = self.waiting.values_mut().flatten().chain(&mut self.at_gate);
            rest.find(|(other, _)| *other == number)
        };
        match notice {
            Some((_, Notice::Unlinked { lost: Some(lost), .. })) => Some(lost),
            _ => None,
        }
    }

    /// The last notices, latest first.
    fn newest(&self) -> impl Iterator<Item = &Notice> {
        self.new.iter().rev().take(LAST).map(|(_, notice)| notice)
    }
}
