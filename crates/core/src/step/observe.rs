//! What operators see afterwards: a log of notable events, and how long waits and holds last.
//!
//! Only the server that decides observes; a replica replays. Nothing here is saved or replicated, and no rule reads
//! it. Where nothing notable happens, an operation counts a time and compares two numbers.

use crate::base::ids::HoldId;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::{Millis, Now};
use crate::ports::answers::FOREVER;
use crate::ports::effects::{Answer, Fault, Outcome};
use crate::ports::lost::Lost;
use crate::step::Step;
use crate::step::end::End;
use crate::tables::Tables;
use crate::tables::event_log::Cut;
use crate::tables::latency::elapsed;
use crate::value::fair::QueueEntry;
use crate::value::hold::{Hold, NO_CLIENT};
use core::fmt::Write;
use core::time::Duration;
use dlock_wire::permit::PermitText;
use dlock_wire::reply::{ErrorCode, LogEvent, LogToken, quote};

/// Whom and what an entry of the log is about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub kind: Kind,
    pub key: Key<'a>,
    pub owner: &'a [u8],
    pub label: &'a [u8],
    pub token: LogToken,
    pub held_us: u64,
    pub waited_us: u64,
}

impl<'a> About<'a> {
    pub(crate) fn call(kind: Kind, key: Key<'a>, owner: &'a [u8], label: &'a [u8]) -> Self {
        Self { kind, key, owner, label, token: LogToken::None, held_us: 0, waited_us: 0 }
    }

    pub(crate) fn hold(now: Now, kind: Kind, key: Key<'a>, id: HoldId, hold: &'a Hold) -> Self {
        let label = hold.extras.as_ref().map_or(&[][..], |extras| &extras.label);
        let held_us = elapsed(now.mono, hold.since);
        Self {
            token: token_of(id, hold.token),
            held_us,
            ..Self::call(kind, key, &hold.owner, label)
        }
    }
}

impl Step<'_> {
    /// A hold has ended. A grant that went back to the server was no hold of anyone.
    pub(crate) fn observe_end(&mut self, kind: Kind, id: HoldId, hold: &Hold, end: End) {
        if end == End::Returned {
            return;
        }
        let held_us = self.tables.latency.count_held(self.now, kind, hold);
        let event = match end {
            End::Released | End::Done if is_over(held_us, self.tables.settings.log_hold_ms) => {
                LogEvent::LongHold
            }
            End::Released | End::Done | End::Returned => return,
            End::Expired => LogEvent::Expired,
            End::Unclaimed => LogEvent::Unclaimed,
            End::Disconnected => LogEvent::Disconnected,
            End::Broken => LogEvent::Broken,
        };
        let about = About::hold(self.now, kind, self.key, id, hold);
        self.tables.note(self.now, event, about, |text| match event {
            LogEvent::Broken => write_breaker(text, self.caller.client),
            LogEvent::Disconnected => {
                write!(text, "BIND {}", hold.binding().map_or(0, |binding| binding.ms))
            }
            LogEvent::Expired => write!(text, "lease of {} ms", hold.lease_ms),
            _ => Ok(()),
        });
    }
}

impl Tables {
    /// One of the readers that `client` broke together has ended.
    pub(crate) fn observe_broken(
        &mut self,
        now: Now,
        key: Key<'_>,
        id: HoldId,
        hold: &Hold,
        client: u64,
    ) {
        self.latency.count_held(now, Kind::Rw, hold);
        let about = About::hold(now, Kind::Rw, key, id, hold);
        self.note(now, LogEvent::Broken, about, |text| write_breaker(text, client));
    }
}

impl Tables {
    /// The server evicted a key of ours.
    pub(crate) fn observe_eviction(&mut self, now: Now, key: Key<'_>, lost: &Lost) {
        let first = lost.first.as_ref();
        let owner = first.map_or(&[][..], |(owner, ..)| owner);
        let token = first.map_or(LogToken::None, |(_, id, token)| token_of(*id, *token));
        let about = About { token, ..About::call(lost.kind, key, owner, &[]) };
        self.note(now, LogEvent::Evicted, about, |text| {
            write!(text, "holds: {}; see maxmemory-policy", lost.holds)
        });
    }
}

impl Step<'_> {
    /// A waiter was granted what it waited for. `token`: what it got.
    pub(crate) fn observe_grant(&mut self, kind: Kind, wait: &QueueEntry, token: LogToken) {
        let holder = self.former.as_deref();
        self.tables.observe_wait(self.now, kind, self.key, wait, token, holder);
    }
}

impl Tables {
    /// The same for a call that waited for several keys, the first of which is `key`.
    pub(crate) fn observe_wait(
        &mut self,
        now: Now,
        kind: Kind,
        key: Key<'_>,
        wait: &QueueEntry,
        token: LogToken,
        holder: Option<&[u8]>,
    ) {
        let waited_us = elapsed(now.mono, wait.since);
        if let Some(waited) = self.latency.waited.get_mut(kind as usize) {
            waited.record(waited_us);
        }
        if !is_over(waited_us, self.settings.log_wait_ms) {
            return;
        }
        let about = About::call(kind, key, &wait.owner, &wait.ask.label);
        self.note(now, LogEvent::SlowWait, About { token, waited_us, ..about }, |text| {
            text.write_str("granted")?;
            holder.map_or(Ok(()), |holder| write!(text, "; last holder: {}", quote(holder)))
        });
    }

    /// After an ACQUIRE: logs its refusal, if that is notable.
    #[inline]
    pub(crate) fn observe_refusal(
        &mut self,
        now: Now,
        answer: &Answer,
        kind: Kind,
        key: Key<'_>,
        owner: &[u8],
        label: Option<&[u8]>,
    ) {
        let Answer::Now(Outcome::Fault(Fault { code, text: why })) = answer else { return };
        let event = match code {
            ErrorCode::Deadlock => LogEvent::Deadlock,
            ErrorCode::Spent => LogEvent::Spent,
            _ => return,
        };
        let about = About::call(kind, key, owner, label.unwrap_or_default());
        self.note(now, event, about, |text| {
            text.write_str(why.strip_prefix(FOREVER).unwrap_or(why))
        });
    }

    /// The search from the tick refuses a wait.
    pub(crate) fn observe_deadlock(
        &mut self,
        now: Now,
        kind: Kind,
        key: Key<'_>,
        wait: &QueueEntry,
        why: &str,
    ) {
        let about = About::call(kind, key, &wait.owner, &wait.ask.label);
        let about = About { waited_us: elapsed(now.mono, wait.since), ..about };
        self.note(now, LogEvent::Deadlock, about, |text| {
            text.write_str(why.strip_prefix(FOREVER).unwrap_or(why))
        });
    }

    /// Adds an entry to the log, if it is on.
    pub(crate) fn note(
        &mut self,
        now: Now,
        event: LogEvent,
        about: About<'_>,
        text: impl FnOnce(&mut Cut<'_>) -> core::fmt::Result,
    ) {
        let most = self.settings.log_max_len;
        if most == 0 {
            return;
        }
        let queue = self.waits.queue_of(about.key);
        let waiters = queue.and_then(|queue| self.waits.queue(queue)).map_or(0, |queue| queue.len);
        let mut entry = self.log.blank(now, event, about.kind.into());
        entry.db = about.key.db.into();
        Cut(&mut entry.key).push(about.key.name);
        Cut(&mut entry.owner).push(about.owner);
        Cut(&mut entry.label).push(about.label);
        entry.token = about.token;
        entry.held = Duration::from_micros(about.held_us);
        entry.waited = Duration::from_micros(about.waited_us);
        entry.waiters = waiters as u64;
        // Writing to memory cannot fail.
        let _ = text(&mut Cut(&mut entry.text));
        self.log.push(most, entry);
    }
}

/// How an entry names a hold: by its fencing token, or by the id of a permit.
pub(crate) fn token_of(id: HoldId, token: u64) -> LogToken {
    if token > 0 {
        LogToken::Token(token)
    } else {
        LogToken::Permit(PermitText::of(&id.to_be_bytes()))
    }
}

/// Who broke a hold. In a script the connection is unknown.
fn write_breaker(text: &mut Cut<'_>, client: u64) -> core::fmt::Result {
    if client == NO_CLIENT { Ok(()) } else { write!(text, "by client {client}") }
}

/// Whether a time is above a limit in milliseconds; 0 is no limit.
pub(crate) fn is_over(us: u64, limit: Millis) -> bool {
    limit > 0 && us > limit.saturating_mul(1_000)
}
