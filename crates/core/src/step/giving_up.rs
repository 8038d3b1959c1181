//! Slow waits that end without a grant.

use crate::base::bytes::{Name, Owner};
use crate::base::ids::WaiterSlot;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Now;
use crate::ports::store::Store;
use crate::step::Step;
use crate::step::observe::{About, is_over};
use crate::tables::Tables;
use crate::tables::latency::elapsed;
use crate::tables::queues::waiter::{Queue, Waiter};
use crate::value::fair::QueueEntry;
use crate::value::resource::Resource;
use crate::value::wait_request::Demand;
use alloc::sync::Arc;
use core::fmt::Write;
use dlock_wire::reply::{LogEvent, quote};

/// Number of holds of a key, and of keys of a call, among which an entry looks for the holder.
const SEARCHED: usize = 16;

/// Why a waiter leaves its queue without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivesUp {
    /// Its BLOCK time elapsed.
    TimedOut,
    /// An operator ended its call.
    Unblocked,
    /// Its connection closed during a blocked call.
    Disconnected,
    /// Its owner gave up: RELEASE.
    Released,
    /// The grace of its queue entry elapsed, without a connection.
    Lapsed,
}

impl GivesUp {
    fn as_str(self) -> &'static str {
        match self {
            Self::TimedOut => "timed out",
            Self::Unblocked => "unblocked",
            Self::Disconnected => "connection closed",
            Self::Released => "released",
            Self::Lapsed => "queue entry lapsed",
        }
    }
}

/// A wait that ends now and was long enough for the log.
struct SlowWait {
    entry: Arc<QueueEntry>,
    kind: Kind,
    /// The key; of a call for several keys, the first.
    db: u32,
    name: Name,
}

/// Before the waiter in `slot` leaves its queue without a grant. Keys are only read.
pub(crate) fn observe_giving_up(
    tables: &mut Tables,
    store: &mut dyn Store,
    now: Now,
    slot: WaiterSlot,
    why: GivesUp,
) {
    let Some(wait) = slow_wait(tables, now, slot, why) else { return };
    let holder = holder_against(tables, store, slot);
    log_giving_up(tables, now, &wait, holder.as_deref(), why);
}

impl Step<'_> {
    /// [`observe_giving_up`] within a step on the key, or on one of its keys.
    pub(crate) fn observe_giving_up_here(
        &mut self,
        resource: &Resource,
        slot: WaiterSlot,
        why: GivesUp,
    ) {
        let Some(wait) = slow_wait(self.tables, self.now, slot, why) else { return };
        let owner = &wait.entry.owner;
        // A call for several keys may still wait for another key than the one that just became free.
        let is_grouped = self.tables.waits.get(slot).is_some_and(Waiter::is_grouped);
        let former = self.former.as_ref().filter(|former| !is_grouped && *former != owner);
        let holder = another_holder(resource, owner).or(former);
        log_giving_up(self.tables, self.now, &wait, holder.map(|holder| &**holder), why);
    }
}

/// The wait of the call in `slot`, if it ends with this and was slow.
fn slow_wait(tables: &Tables, now: Now, slot: WaiterSlot, why: GivesUp) -> Option<SlowWait> {
    let waiter = tables.waits.leader(tables.waits.get(slot)?);
    let is_slow = is_over(elapsed(now.mono, waiter.since), tables.settings.log_wait_ms);
    if !is_slow || tables.settings.log_max_len == 0 {
        return None;
    }
    let ends_call = matches!(why, GivesUp::TimedOut | GivesUp::Unblocked | GivesUp::Disconnected);
    let queue = tables.waits.queue(waiter.queue)?;
    // The call is over, but its place in the queue stays.
    let stays = ends_call && waiter.ask.queue_ms.is_some()
        || why == GivesUp::Disconnected && queue.is_durable();
    let is_observer = matches!(waiter.ask.demand, Demand::Open | Demand::End { .. });
    if stays || is_observer {
        return None;
    }
    let Queue { kind, db, ref name, .. } = *queue;
    Some(SlowWait { entry: waiter.entry.clone(), kind, db, name: name.clone() })
}

/// Another owner that holds the key of the waiter in `slot`; for a call for several keys, the first of them that
/// another owner holds.
fn holder_against(tables: &Tables, store: &mut dyn Store, slot: WaiterSlot) -> Option<Owner> {
    let waiter = tables.waits.get(slot)?;
    let alone = [slot];
    let members = tables.waits.group(waiter.group).map_or(&alone[..], |group| &group.members);
    members.iter().take(SEARCHED).find_map(|&member| {
        let queue = tables.waits.queue(tables.waits.get(member)?.queue)?;
        if !store.reaches(queue.key()) {
            return None;
        }
        let resource = store.peek(queue.key()).filter(|found| found.kind() == queue.kind)?;
        another_holder(resource, &waiter.owner).cloned()
    })
}

#[inline(never)]
fn log_giving_up(
    tables: &mut Tables,
    now: Now,
    wait: &SlowWait,
    holder: Option<&[u8]>,
    why: GivesUp,
) {
    let SlowWait { entry, kind, db, name } = wait;
    let key = Key { db: *db, name };
    let waited_us = elapsed(now.mono, entry.since);
    let about = About::call(*kind, key, &entry.owner, &entry.ask.label);
    tables.note(now, LogEvent::SlowWait, About { waited_us, ..about }, |text| {
        text.write_str(why.as_str())?;
        holder.map_or(Ok(()), |holder| write!(text, "; holder: {}", quote(holder)))
    });
}

/// An owner other than `owner` among the first holds of a key: an owner can be one of the readers for whose end it
/// waits.
fn another_holder<'r>(resource: &'r Resource, owner: &Owner) -> Option<&'r Owner> {
    let mut holders = resource.holds().take(SEARCHED).map(|(_, hold)| &hold.owner);
    holders.find(|holder| *holder != owner)
}
