//! Input that arrives as data: records of a primary or the AOF, loaded values, roles.

use crate::base::ids::KeyId;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Now;
use crate::events::diverged;
use crate::events::diverged::Source;
use crate::ports::lost::Lost;
use crate::ports::store::{Lookup, Store};
use crate::ports::turn::Turn;
use crate::record::divergence::{Divergence, Refused};
use crate::record::{self, BesideHead, Clocks, DecodeError, Keyless, Level};
use crate::run::{enter, keyspace, removed};
use crate::tables::Tables;
use crate::tables::portions::RETRY_MS;
use crate::value::resource::{Body, Resource};
use alloc::vec::Vec;

/// Carries out `DLOCK.APPLY key payload`: sets the key to the state in the payload. If that cannot be done, this
/// server is diverged from now on.
pub(crate) fn replay(
    tables: &mut Tables,
    keys: &mut dyn Store,
    now: Now,
    key: Key<'_>,
    payload: &[u8],
    source: Source,
) -> Result<(), DecodeError> {
    let replayed = match record::keyless(payload) {
        // It belongs to no key, whatever is under this one.
        Ok(Some(content)) => {
            replay_keyless(tables, content, source);
            Ok(())
        }
        Ok(None) => replay_state(tables, keys, now, key, payload),
        Err(error) => Err(error),
    };
    if let Err(error) = replayed {
        diverged::count_refused(tables, error);
    }
    replayed
}

fn replay_keyless(tables: &mut Tables, content: Keyless, source: Source) {
    // A mark says nothing of the level: a diverged server writes it at any.
    match (content, source) {
        (Keyless::Floor(token, level), _) => {
            tables.tokens.learn(token);
            diverged::learn_level(tables, level);
        }
        (Keyless::Mark(refused), Source::File) => {
            tables.regime.divergence = Divergence { own: refused, ..Divergence::default() };
        }
        // The operator of the primary has compared. What the primary did not miss stays missing here.
        (Keyless::Mark(refused), Source::Primary) if refused.total() == 0 => {
            tables.regime.divergence.inherited = Refused::default();
        }
        // The primary wrote that for its own file.
        (Keyless::Mark(_), Source::Primary) => {}
    }
}

fn replay_state(
    tables: &mut Tables,
    keys: &mut dyn Store,
    now: Now,
    key: Key<'_>,
    payload: &[u8],
) -> Result<(), DecodeError> {
    let lease = tables.regime.lease(now.mono);
    let mut fresh = Resource::free(Kind::Lock);
    let (resource, is_there) = match keys.get(key) {
        Lookup::WrongType | Lookup::Elsewhere | Lookup::OutOfReach => {
            return Err(DecodeError::Impossible);
        }
        Lookup::Missing => (&mut fresh, false),
        Lookup::Here(resource) => (resource, true),
    };
    if is_there && resource.key_id == KeyId::NONE {
        // The value was loaded and not opened since.
        tables.start_clock(lease, resource);
        tables.settle(key, resource);
    } else if is_there && tables.leases.of_key(resource.key_id, key).is_none() {
        resource.key_id = KeyId::NONE;
    }
    // If a record replaces more readers than a step ends, they are not freed together.
    let most = tables.wide_at_once;
    let is_large = |resource: &Resource| {
        resource.kind() == Kind::Rw && resource.others().is_some_and(|all| all.len() > most)
    };
    let before = (is_there && is_large(resource) && record::is_whole(payload))
        .then(|| core::mem::replace(&mut resource.body, Resource::free(Kind::Rw).body));
    let limits = tables.settings.request_limits();
    let spent = &mut tables.spent;
    let clocks = Clocks { mono: now.mono, lease };
    let replayed =
        record::replay_with(payload, clocks, resource, is_there, |(request, what)| match what {
            Some(what) => spent.note(key, request, what, lease, limits),
            None => spent.forget(key, request),
        });
    match (before, &replayed) {
        (Some(Body::Rw(before)), Ok(_)) => removed::replaced(tables, key, before.readers, resource),
        (Some(before), Err(_)) => resource.body = before,
        (Some(_) | None, _) => {}
    }
    let replayed = replayed?;
    diverged::learn_level(tables, Level::of(payload)?);
    tables.tokens.learn(replayed.token);
    tables.settle(key, resource);
    let (is_free, is_latch) = (resource.is_free(), resource.kind() == Kind::Latch);
    match (is_there, is_free) {
        (true, true) => keys.remove(key),
        (false, false) => keys.put(key, fresh),
        (true, false) if replayed.granted => keys.persist(key),
        (true | false, _) => {}
    }
    if is_latch {
        keys.forget_lost_latch(key);
    }
    Ok(())
}

impl Tables {
    /// The largest token given or learnt, if a data set has to carry it. It must if the file has dlock keys anyway. It
    /// also must if the last token is ahead of the wall clock, because tokens would not grow after a load without it.
    pub fn token_floor(&self, wall_us: u64) -> Option<u64> {
        let last = self.tokens.last();
        (last > wall_us || !self.leases.is_empty()).then_some(last)
    }

    /// Gives `put` the strings of [`record::encode_beside`], unless there is nothing to save: no token
    /// ([`Tables::token_floor`]) and no request that is over. `lost` are the values that were unlinked, and of which
    /// this machine has not learnt (`run::lost`).
    pub fn save_beside<'l>(
        &self,
        now: Now,
        lost: impl Iterator<Item = &'l Lost>,
        put: impl FnMut(&[u8]),
    ) {
        let (lease, limits) = (self.regime.lease(now.mono), self.settings.request_limits());
        let lost = lost.filter(|_| self.settings.remembers_requests());
        let lost = lost.flat_map(|lost| lost.spent(self.spent.prints()));
        let more: Vec<_> = self.requests_of_broken().chain(lost).collect();
        let standing = diverged::standing_as_sent(self);
        let has_any = standing.divergence.is_any()
            || standing.level > Level::FIRST
            || self.token_floor(now.wall_us).is_some()
            || !more.is_empty()
            || self.spent.entries(lease, limits).next().is_some();
        if has_any {
            let head = BesideHead { token: self.tokens.last(), standing };
            record::encode_beside_and(head, &self.spent, &more, lease, limits, put);
        }
    }
}

/// A value was loaded under `key` (RDB, RESTORE, a migration): its lease starts to run.
pub(crate) fn adopt(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>) {
    if matches!(turn.keys.get(key), Lookup::Here(_))
        && let Some(queue) = tables.waits.queue_of(key)
    {
        keyspace::inspect(tables, turn, queue);
    }
    // The loaded value has another type only if it was replaced since: then there is nothing to do.
    let _ = enter::on_found(tables, turn, key, |step, resource| {
        step.hand_off(resource);
    });
}

/// The data set was replayed from the AOF or loaded, and the server starts to serve. Holds that were bound to a
/// connection have a grace in which their owners can bind them again.
pub(crate) fn loaded(tables: &mut Tables, now: Now) {
    if tables.regime.is_primary() {
        begin_epoch(tables, now);
    }
}

/// Makes this server a primary. Every hold gets its last known lease in full: only the old primary knew how much of
/// it had elapsed.
pub(crate) fn promote(tables: &mut Tables, now: Now) {
    if !tables.regime.promote() {
        return;
    }
    begin_epoch(tables, now);
    tables.begin_service(now.mono);
}

fn begin_epoch(tables: &mut Tables, now: Now) {
    tables.regime.begin_epoch(now.mono, tables.leases.bound());
}

/// Moves the next entry to the current epoch; `false` when all are moved.
pub(crate) fn advance_epoch(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let Some(id) = tables.regime.next_old_entry() else { return false };
    if let Some(entry) = tables.leases.get(id)
        && entry.epoch != tables.regime.epoch()
    {
        let name: Vec<u8> = entry.name.to_vec();
        let key = Key { db: tables.leases.database_of(entry), name: &name };
        // Opening the key is enough.
        let _ = enter::on_found(tables, turn, key, |_, _| ());
        let is_here = matches!(turn.keys.get(key), Lookup::Here(resource) if resource.key_id == id);
        if !is_here {
            // The key was removed or renamed, and the report of that needs the entry.
            tables.leases.miss(id, tables.regime.lease(turn.now.mono) + RETRY_MS);
        }
    }
    true
}

impl Tables {
    /// Whether RESTORE may bring this value in at this wall clock. `pending` is the number of waiters that earlier
    /// RESTOREs brought and that are not checked yet. A value with more waiters than the server has room for, or with a
    /// token too far ahead, would use up shared limits.
    pub fn admit(&self, resource: &Resource, pending: usize, wall_us: u64) -> Result<(), Unfit> {
        let ceiling = self.token_ceiling(wall_us);
        if resource.largest_token() <= ceiling {
            self.admit_waiters(resource.waiters(), pending)
        } else {
            Err(Unfit::TokenTooFarAhead)
        }
    }

    /// Whether RESTORE may bring a value of this level: only an operator raises the level of a server.
    pub fn admit_level(&self, level: Level) -> Result<(), Unfit> {
        if level <= self.level { Ok(()) } else { Err(Unfit::LevelTooHigh) }
    }

    /// The part of [`Tables::admit`] about waiters: whether RESTORE may bring this number of waiters of one key.
    pub fn admit_waiters(&self, waiters: usize, pending: usize) -> Result<(), Unfit> {
        if waiters > 0
            && self.waits.len().saturating_add(pending).saturating_add(waiters)
                > self.settings.max_waiters
        {
            Err(Unfit::TooManyWaiters)
        } else {
            Ok(())
        }
    }
}

/// Why RESTORE may not bring a value in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It has a token above [`Tables::token_ceiling`].
    TokenTooFarAhead,
    /// With it there would be more waiters than `max_waiters`.
    TooManyWaiters,
    /// It has a larger level than [`Tables::level`].
    LevelTooHigh,
}
