//! The wait graph as the specification defines it. An owner waits for a key's holders and for every owner in front of
//! it in the queue. Queue entries count as waits. A wait for any of several keys and a wait for a permit do not. A call
//! for several keys does not wait for a key that its owner holds already.

use super::scene::{Ask, At, Place, State};
use dlock_core::base::kind::Kind;
use dlock_wire::request::Mode;

/// The waiting owner, the owner it waits for, and the key.
type Arrow = (usize, usize, At);

/// All arrows between owners.
pub(super) fn arrows(states: &[State]) -> Vec<Arrow> {
    let mut found = Vec::new();
    for State { at, holders, queue } in states {
        let counts = |place: &Place| {
            at.0 != Kind::Semaphore && place.call.is_none_or(|(_, takes_any)| !takes_any)
        };
        for (ahead, place) in queue.iter().enumerate().filter(|(_, place)| counts(place)) {
            let has_it = holders.iter().any(|&(owner, _)| owner == place.owner);
            if place.call.is_some() && has_it {
                continue;
            }
            let ahead = queue[..ahead].iter().filter(|place| counts(place)).map(|p| p.owner);
            let others = holders.iter().map(|&(owner, _)| owner).chain(ahead);
            let others = others.filter(|&other| other != place.owner);
            found.extend(others.map(|other| (place.owner, other, *at)));
        }
    }
    found
}

/// The arrows of waits that the tick ends. A reader does not wait for a reader in front of it: both enter at once.
pub(super) fn late_arrows(states: &[State]) -> Vec<Arrow> {
    let mode = |at: At, owner: usize| {
        let state = states.iter().find(|state| state.at == at).expect("a key");
        state.queue.iter().find(|place| place.owner == owner).and_then(|place| place.mode)
    };
    let mut found = arrows(states);
    found.retain(|&(from, to, at)| {
        let both_read = [from, to].map(|owner| mode(at, owner)) == [Some(Mode::Read); 2];
        let state = states.iter().find(|state| state.at == at).expect("a key");
        let writes = state.holders.contains(&(to, Some(Mode::Write)));
        !both_read || writes
    });
    found
}

/// Whether any owner waits for itself.
pub(super) fn has_circle(arrows: &[Arrow]) -> bool {
    arrows.iter().any(|&(from, to, _)| leads_to(arrows, to, from))
}

/// Whether a cycle contains an arrow from or to `owner` that was not there `before`.
pub(super) fn closes_a_circle(before: &[Arrow], after: &[Arrow], owner: usize) -> bool {
    let is_new = |arrow: &&Arrow| (arrow.0 == owner || arrow.1 == owner) && !before.contains(arrow);
    after.iter().filter(is_new).any(|&(from, to, _)| leads_to(after, to, from))
}

/// Whether a path along the arrows leads from `from` to `to`.
fn leads_to(arrows: &[Arrow], from: usize, to: usize) -> bool {
    let mut reached = vec![from];
    let mut next = 0;
    while let Some(&here) = reached.get(next) {
        if here == to {
            return true;
        }
        for &(_, there, _) in arrows.iter().filter(|arrow| arrow.0 == here) {
            if !reached.contains(&there) {
                reached.push(there);
            }
        }
        next += 1;
    }
    false
}

/// The queues as they would be if `owner` had to wait for `ask`; `None` if it would not have to.
pub(super) fn with(states: &[State], owner: usize, ask: &Ask) -> Option<Vec<State>> {
    let mut after = states.to_vec();
    let new = Place { owner, mode: None, call: None };
    match ask {
        Ask::One(at) => {
            let state = find(&mut after, *at);
            if state.holders.iter().any(|&(holder, _)| holder == owner) {
                return None;
            }
            let kept = state.queue.iter().position(|place| place.owner == owner);
            let is_first = kept.unwrap_or(state.queue.len()) == 0;
            if state.holders.is_empty() && is_first {
                return None;
            }
            match kept {
                Some(kept) => {
                    let call = state.queue[kept].call;
                    state.queue[kept] = new;
                    end_call(&mut after, call);
                }
                None => state.queue.push(new),
            }
        }
        Ask::Rw(at, mode) => {
            let state = find(&mut after, *at);
            let has = |mode| state.holders.contains(&(owner, Some(mode)));
            let conflicts = |&(holder, held): &(usize, Option<Mode>)| {
                holder != owner && (*mode == Mode::Write || held == Some(Mode::Write))
            };
            let goes_first = has(match mode {
                Mode::Read => Mode::Write,
                Mode::Write => Mode::Read,
            });
            if has(*mode) {
                return None;
            }
            let is_held = state.holders.iter().any(conflicts);
            let kept = state.queue.iter().position(|place| place.owner == owner);
            let kept = kept.filter(|&kept| {
                state.queue[kept].mode == Some(*mode) && (kept == 0 || !goes_first)
            });
            let ahead = kept.map_or(&state.queue[..], |kept| &state.queue[..kept]);
            // A reader enters together with the waiting readers.
            let is_in_front = |place: &Place| {
                place.owner != owner && (*mode == Mode::Write || place.mode == Some(Mode::Write))
            };
            if !is_held && (goes_first || !ahead.iter().any(is_in_front)) {
                return None;
            }
            if kept.is_none() {
                state.queue.retain(|place| place.owner != owner);
                let_readers_in(state);
                let new = Place { mode: Some(*mode), ..new };
                let at = if goes_first { 0 } else { state.queue.len() };
                state.queue.insert(at, new);
            }
        }
        Ask::All(several) => {
            let place = |at: &At| {
                let state = states.iter().find(|state| state.at == *at).expect("a key");
                state.queue.iter().find(|place| place.owner == owner)
            };
            let first = place(&several[0]).and_then(|place| place.call);
            let kept = first.filter(|(_, takes_any)| !takes_any);
            let kept = kept.filter(|_| {
                several.iter().all(|at| place(at).is_some_and(|place| place.call == first))
            });
            for at in several.iter().filter(|_| kept.is_none()) {
                let call = place(at).and_then(|place| place.call);
                find(&mut after, *at).queue.retain(|place| place.owner != owner);
                end_call(&mut after, call);
            }
            let mut waits = false;
            for at in several {
                let state = find(&mut after, *at);
                let stands = state.queue.iter().position(|place| place.owner == owner);
                let has_it = state.holders.iter().any(|&(holder, _)| holder == owner);
                let is_first = stands.unwrap_or(state.queue.len()) == 0;
                let is_open = state.holders.is_empty() && is_first;
                waits |= !has_it && !is_open;
            }
            if !waits {
                return None;
            }
            for state in after.iter_mut().filter(|_| kept.is_some()) {
                let asked = several.contains(&state.at);
                state.queue.retain(|place| asked || place.call != kept);
            }
            // A number that no call has.
            let call = Some((u32::MAX - 1, false));
            for at in several {
                let state = find(&mut after, *at);
                match state.queue.iter_mut().find(|place| place.owner == owner) {
                    Some(place) => place.call = call,
                    None => state.queue.push(Place { call, ..new.clone() }),
                }
            }
        }
        Ask::Any(_) | Ask::Permit(_) => return None,
    }
    Some(after)
}

/// Grants the readers at the head of a queue, if there is no writer.
fn let_readers_in(state: &mut State) {
    let writes = |holder: &(usize, Option<Mode>)| holder.1 == Some(Mode::Write);
    while !state.holders.iter().any(writes)
        && state.queue.first().is_some_and(|place| place.mode == Some(Mode::Read))
    {
        let reader = state.queue.remove(0);
        state.holders.push((reader.owner, reader.mode));
    }
}

/// Removes the waiters of a call for several keys.
fn end_call(states: &mut [State], call: Option<(u32, bool)>) {
    for state in states.iter_mut().filter(|_| call.is_some()) {
        state.queue.retain(|place| place.call != call);
    }
}

fn find(states: &mut [State], at: At) -> &mut State {
    states.iter_mut().find(|state| state.at == at).expect("a key of the scene")
}

/// Whether the queues are the same apart from the numbers of calls.
pub(super) fn are_alike(one: &[State], other: &[State]) -> bool {
    let bare = |states: &[State]| -> Vec<State> {
        let mut states = states.to_vec();
        for place in states.iter_mut().flat_map(|state| &mut state.queue) {
            place.call = place.call.map(|(_, takes_any)| (0, takes_any));
        }
        states
    };
    bare(one) == bare(other)
}

/// The owner that a refusal is about; `None` for a message.
pub(super) fn caller_of(text: &str) -> Option<usize> {
    let links = text.strip_prefix("this call would wait forever: ")?;
    let (owner, _) = links.split_once(" waits for ").expect("a link");
    Some(owner.trim_matches('"').trim_start_matches('o').parse().expect("an owner"))
}

/// The error in the text of a refusal, if any: it must name, link by link, arrows that lead from the caller back to it.
pub(super) fn fault_of(text: &str, arrows: &[Arrow], caller: usize) -> Option<String> {
    let links = text.strip_prefix("this call would wait forever: ");
    let Some(links) = links else { return Some("begins otherwise".to_owned()) };
    let links: Vec<(usize, &str)> = links
        .split(", ")
        .map(|link| {
            let (owner, key) = link.split_once(" waits for ").expect("a link");
            let owner = owner.trim_matches('"').trim_start_matches('o');
            (owner.parse().expect("an owner"), key.trim_matches('"'))
        })
        .collect();
    if links.first().is_none_or(|&(owner, _)| owner != caller) {
        return Some("does not begin with the caller".to_owned());
    }
    let next = links.iter().skip(1).chain(links.first());
    for (&(from, key), &(to, _)) in links.iter().zip(next) {
        let is_there =
            arrows.iter().any(|&(a, b, at)| (a, b) == (from, to) && at.name() == key.as_bytes());
        if !is_there {
            return Some(format!("o{from} does not wait for o{to} at {key}"));
        }
    }
    None
}
