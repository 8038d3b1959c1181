//! The holds that a call of a holder names.

use crate::base::ids::{ALONE, HoldId};
use crate::base::key::Key;
use crate::ports::answers::quoted;
use crate::ports::effects::Outcome;
use crate::value::resource::{Body, Resource};
use crate::value::wait_request::Demand;
use alloc::format;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Mode;

/// The holds of an owner: at most one in each mode, or many permits.
pub(crate) fn holds_of(resource: &Resource, owner: &[u8]) -> Vec<HoldId> {
    resource.holds_of(owner).map(|(id, _)| id).collect()
}

/// Selects a hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whose<'a> {
    pub owner: &'a [u8],
    /// The mode, for a read-write lock.
    pub mode: Option<Mode>,
    /// Matches only a hold with this token.
    pub token: Option<u64>,
}

/// The selected hold, or `NOTHELD`.
pub(crate) fn hold_of(
    key: Key<'_>,
    resource: &Resource,
    whose: Whose<'_>,
) -> Result<HoldId, Outcome> {
    let id = find_hold(resource, whose);
    let has_token = |id: &HoldId| {
        let token = resource.hold(*id).map(|hold| hold.token);
        whose.token.is_none_or(|asked| token == Some(asked))
    };
    id.filter(has_token).ok_or_else(|| not_held(key, resource, whose, id))
}

#[cold]
pub(crate) fn not_held(
    key: Key<'_>,
    resource: &Resource,
    whose: Whose<'_>,
    id: Option<HoldId>,
) -> Outcome {
    let (name, asked) = (quoted(key.name), quoted(whose.owner));
    let text = match (id.and_then(|id| resource.hold(id)), whose) {
        (Some(hold), Whose { token: Some(token), .. }) => {
            format!("{asked} holds {name} with token {}, not {token}", hold.token)
        }
        (_, Whose { mode: Some(mode), .. }) => {
            format!("{asked} does not hold {name} for {}", mode.as_str())
        }
        _ if resource.lock().hold().is_some() => {
            format!("{name} is held by another owner, not by {asked}")
        }
        _ => format!("{asked} does not hold {name}: nobody does"),
    };
    Outcome::fault(ErrorCode::NotHeld, text)
}

/// The hold of an owner in a mode; without a mode, the hold of a lock for one holder.
fn find_hold(resource: &Resource, whose: Whose<'_>) -> Option<HoldId> {
    if let (Body::Rw(rw), Some(mode)) = (&resource.body, whose.mode) {
        return rw.find(whose.owner, mode);
    }
    let hold = resource.lock().hold()?;
    (*hold.owner == *whose.owner).then_some(crate::base::ids::ALONE)
}

/// The hold of the owner that a call re-enters or repeats, or the grant to a place that it takes over. Of permits, a
/// call with an id repeats only its own.
pub(crate) fn own_hold(
    resource: &Resource,
    owner: &[u8],
    reqid: Option<&[u8]>,
    demand: Demand,
) -> Option<HoldId> {
    match (&resource.body, demand) {
        (Body::Rw(rw), Demand::Rw(mode)) => rw.find(owner, mode),
        (Body::Semaphore(semaphore), Demand::Permits { count, .. }) => {
            let permits = &semaphore.permits;
            match reqid {
                Some(id) => permits.by_request(owner, id).map(|(id, _)| id),
                None => permits.to_claim(owner, count),
            }
        }
        _ => resource.lock().hold().filter(|hold| *hold.owner == *owner).map(|_| ALONE),
    }
}
