//! Deadlock detection against a search that looks at everything.

use crate::support::{Keys, WALL_US};
use dlock_core::effects::{Effects, Outcome};
use dlock_core::machine::{Caller, Machine, Settings};
use dlock_core::queue::HashKeys;
use dlock_core::time::{Instant, Now};
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Acquire, Release};

const NOW: Now = Now { mono: Instant(1_000_000), wall_us: WALL_US };

/// A machine whose time stands still, and who holds and waits for what according to its answers.
struct Scene {
    machine: Machine,
    keys: Keys,
    fx: Effects,
    holder: Vec<Option<usize>>,
    queue: Vec<Vec<usize>>,
}

impl Scene {
    fn new(keys: usize) -> Self {
        Self {
            machine: Machine::new(HashKeys(1, 2), Settings::default()),
            keys: Keys::default(),
            fx: Effects::default(),
            holder: vec![None; keys],
            queue: vec![Vec::new(); keys],
        }
    }

    /// The owner asks for the key and would wait in the queue; the text of the circle it closes.
    fn ask(&mut self, owner: usize, key: usize) -> Option<String> {
        let expected = self.closes(owner, key);
        let (key_name, owner_name) = (name('k', key), name('o', owner));
        let call = Acquire { queue_ms: Some(60_000), ..Acquire::new(&key_name, &owner_name) };
        let caller = Caller { client: owner as u64 + 1, db: 0, may_block: true };
        self.fx.clear();
        self.machine.acquire(&mut self.keys, NOW, caller, &call, &mut self.fx);
        let text = match self.fx.reply.take() {
            Some(Outcome::Token(_)) => {
                self.holder[key] = Some(owner);
                None
            }
            Some(Outcome::Null) => {
                if !self.queue[key].contains(&owner) {
                    self.queue[key].push(owner);
                }
                None
            }
            Some(Outcome::Fault(fault)) if fault.code == ErrorCode::Deadlock => Some(fault.text),
            other => panic!("{other:?}"),
        };
        assert_eq!(text.is_some(), expected, "owner {owner} asks for {key}: {text:?}");
        text
    }

    fn release(&mut self, key: usize) {
        let Some(owner) = self.holder[key] else { return };
        let (key_name, owner_name) = (name('k', key), name('o', owner));
        let call = Release { all: true, ..Release::new(&key_name, &owner_name) };
        let caller = Caller { client: owner as u64 + 1, db: 0, may_block: true };
        self.fx.clear();
        self.machine.release(&mut self.keys, NOW, caller, &call, &mut self.fx);
        assert_eq!(self.fx.reply, Some(Outcome::Count(0)));
        let next = !self.queue[key].is_empty();
        self.holder[key] = next.then(|| self.queue[key].remove(0));
    }

    /// Whom `owner` waits for, as it stands and if it asked for `more`.
    fn waits_for(&self, owner: usize, more: Option<usize>) -> Vec<usize> {
        let mut found = Vec::new();
        for (key, queue) in self.queue.iter().enumerate() {
            let place = queue.iter().position(|&other| other == owner);
            let ahead = match place {
                Some(place) => place,
                None if more == Some(key) => queue.len(),
                None => continue,
            };
            found.extend(self.holder[key]);
            found.extend(&queue[..ahead]);
        }
        found
    }

    fn closes(&self, owner: usize, key: usize) -> bool {
        if self.holder[key].is_none_or(|holder| holder == owner) {
            return false;
        }
        let mut open = self.waits_for(owner, Some(key));
        let mut known = open.clone();
        while let Some(other) = open.pop() {
            if other == owner {
                return true;
            }
            for next in self.waits_for(other, None) {
                if !known.contains(&next) {
                    known.push(next);
                    open.push(next);
                }
            }
        }
        known.contains(&owner)
    }
}

fn name(kind: char, number: usize) -> Vec<u8> {
    format!("{kind}{number}").into_bytes()
}

#[test]
fn every_circle_of_2_to_20_owners_is_reported_to_the_call_that_closes_it() {
    for owners in 2..=20 {
        let mut scene = Scene::new(owners);
        for owner in 0..owners {
            assert_eq!(scene.ask(owner, owner), None);
        }
        for owner in 0..owners - 1 {
            assert_eq!(scene.ask(owner, owner + 1), None);
        }
        let text = scene.ask(owners - 1, 0).expect("the last one closes the circle");
        for owner in 0..owners {
            let link = format!("\"o{owner}\" waits for \"k{}\"", (owner + 1) % owners);
            assert!(text.contains(&link), "{link} is not in: {text}");
        }
        // Nobody else is disturbed: once one lets go, all are served.
        scene.release(0);
        assert_eq!(scene.holder[0], None);
    }
}

#[test]
fn a_long_circle_names_twenty_links() {
    let mut scene = Scene::new(30);
    for owner in 0..30 {
        scene.ask(owner, owner);
    }
    for owner in 0..29 {
        scene.ask(owner, owner + 1);
    }
    let text = scene.ask(29, 0).expect("a circle");
    assert_eq!(text.matches(" waits for ").count(), 20);
    assert!(text.ends_with(" and 10 more"), "{text}");
}

#[test]
fn the_search_agrees_with_one_that_looks_at_everything() {
    let (mut refused, mut waited) = (0, 0);
    for seed in 1..=100_000_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).expect("small")
        };
        let (owners, keys) = (2 + random(5), 1 + random(5));
        let mut scene = Scene::new(keys);
        for _ in 0..24 {
            if random(5) == 0 {
                scene.release(random(keys));
            } else if scene.ask(random(owners), random(keys)).is_some() {
                refused += 1;
            }
        }
        assert_eq!(scene.machine.broken_invariant(&mut scene.keys, NOW), None, "seed {seed}");
        waited += scene.queue.iter().map(Vec::len).sum::<usize>();
    }
    assert!(refused > 10_000 && waited > 100_000, "the runs met {refused} and {waited}");
}
