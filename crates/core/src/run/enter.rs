//! The door to a key. A call ([`call`](crate::run::call)) and what happens without one both end at [`on_key_alone`],
//! which reads as a list.

use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::ports::store::{Lookup, Store};
use crate::ports::turn::{Turn, WrongType};
use crate::run::{groups, keyspace, lost};
use crate::step::Step;
use crate::tables::Tables;
use crate::tables::portions::AT_ONCE;
use crate::value::resource::Resource;

/// Runs one verb on one key of the family `kind`. Expired holds end first, and the index is updated last. Then
/// calls for several keys that became grantable are granted.
pub(crate) fn on_key<R>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    key: Key<'_>,
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> R,
) -> Result<R, WrongType> {
    let ends_at_most = tables.wide_at_once;
    let result = on_key_alone(tables, turn, kind, key, ends_at_most, verb)?;
    if !tables.pending.ready_groups.is_empty() {
        groups::grant_ready_groups(tables, turn);
    }
    Ok(result)
}

/// [`on_key`] for a key of any family; `None` if it is missing or of a foreign type.
pub(crate) fn on_found<R>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    key: Key<'_>,
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> R,
) -> Option<R> {
    let Lookup::Here(resource) = turn.keys.get(key) else { return None };
    let kind = resource.kind();
    on_key(tables, turn, kind, key, verb).ok()
}

/// Checks a key in the tick. If more holds have expired than a step ends, the next tick ends the others.
pub(crate) fn on_found_in_part(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    key: Key<'_>,
) -> Option<()> {
    let Lookup::Here(resource) = turn.keys.get(key) else { return None };
    let kind = resource.kind();
    let most = tables.wide_at_once.min(AT_ONCE);
    on_key_alone(tables, turn, kind, key, most, |_, _| ()).ok()?;
    groups::grant_ready_groups(tables, turn);
    Some(())
}

/// The door itself: [`on_key`] for this key alone. At most `ends_at_most` expired holds end.
///
/// Every entry does the same, so expiry has one implementation, and a late alarm cannot cause a wrong state.
pub(crate) fn on_key_alone<R>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    key: Key<'_>,
    ends_at_most: usize,
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> R,
) -> Result<R, WrongType> {
    debug_assert!(
        tables.regime.accepts_writes() || !tables.regime.is_primary(),
        "a write behind the gate"
    );
    // Reported changes of this key that are not applied yet.
    keyspace::check_queue_of(tables, turn, key);
    lost::see_to_loss_of(tables, turn, key);

    let is_away = tables.settings.cluster && turn.keys.is_away(key);
    let user = turn.keys.user();
    let mut fresh = None;
    let (resource, is_there) = look_up(tables, turn.keys, kind, key, &mut fresh)?;
    let mut step = Step::new(tables, key, turn.now, turn.caller, user, turn.fx, ends_at_most);
    step.is_away = is_away;
    if is_there {
        step.index(resource);
        step.end_by_itself(resource);
    }
    step.note_grants(resource);
    let result = verb(&mut step, resource);
    step.settle(resource);

    let Step { changed, granted, unknown, lease, .. } = step;
    if changed {
        let is_free = resource.is_free();
        put_back(turn.keys, key, fresh, is_free, granted);
    }
    if !unknown.is_empty() {
        tables.note_unknown(turn.keys.caller(), &unknown, lease);
    }
    Ok(result)
}

/// The value of a key, and whether it is there; a free one for a key that is missing.
fn look_up<'r>(
    tables: &Tables,
    keys: &'r mut dyn Store,
    kind: Kind,
    key: Key<'_>,
    fresh: &'r mut Option<Resource>,
) -> Result<(&'r mut Resource, bool), WrongType> {
    match keys.get(key) {
        Lookup::Here(resource) if resource.kind() == kind => Ok((resource, true)),
        Lookup::Missing if !tables.waits.is_awaited_as_another(kind, key) => {
            Ok((fresh.insert(Resource::free(kind)), false))
        }
        Lookup::Here(_)
        | Lookup::Missing
        | Lookup::WrongType
        | Lookup::Elsewhere
        | Lookup::OutOfReach => Err(WrongType),
    }
}

/// Puts a changed value under its key (`fresh`: it was missing), or removes the key if the value is free.
fn put_back(
    keys: &mut dyn Store,
    key: Key<'_>,
    fresh: Option<Resource>,
    is_free: bool,
    granted: bool,
) {
    match (fresh, is_free) {
        (None, true) => keys.remove(key),
        (Some(value), false) => keys.put(key, value),
        (None, false) if granted => keys.persist(key),
        (None, false) | (Some(_), true) => {}
    }
}
