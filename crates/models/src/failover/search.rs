//! Breadth-first search through all states of a [`World`], so that a history that is found is a shortest one.
//!
//! Only hashes of states are kept, of 64 bits: that one of a million states is missed has a probability below 10⁻⁶.

use std::{
    collections::HashSet,
    fmt::Write as _,
    hash::{BuildHasherDefault, Hasher},
    time::{Duration, Instant},
};

use super::world::{Event, NAMES, Rules, World};

/// What a search saw.
pub struct Seen {
    pub states: usize,
    /// Events after which no new state was found.
    pub depth: usize,
    pub took: Duration,
    /// The events, and their text, that end with two clients that believe.
    pub found: Option<(usize, String)>,
}

/// Looks at every state that can be reached, until two clients believe.
pub fn search(rules: &Rules) -> Seen {
    let start = Instant::now();
    let mut known = HashSet::<u64, BuildHasherDefault<AsIs>>::default();
    let mut parents: Vec<(u32, Event)> = vec![(0, Event::Tick)];
    let mut frontier = vec![(0u32, World::new(rules))];
    known.insert(frontier[0].1.mark());
    let (mut events, mut depth) = (Vec::new(), 0);
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (from, world) in frontier {
            world.events(rules, &mut events);
            for event in &events {
                let mut after = world;
                let both = after.step(*event, rules);
                if both {
                    let found = Some(history(rules, &parents, from, *event));
                    return Seen { states: known.len(), depth, took: start.elapsed(), found };
                }
                after.sort(rules, &mut NAMES.clone());
                if known.insert(after.mark()) {
                    next.push((u32::try_from(parents.len()).unwrap(), after));
                    parents.push((from, *event));
                }
            }
        }
        frontier = next;
        depth += 1;
    }
    Seen { states: known.len(), depth, took: start.elapsed(), found: None }
}

/// Marks are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, mark: u64) {
        self.0 = mark;
    }
}

fn history(rules: &Rules, parents: &[(u32, Event)], mut at: u32, last: Event) -> (usize, String) {
    let mut events = vec![last];
    while at != 0 {
        let (parent, event) = parents[at as usize];
        events.push(event);
        at = parent;
    }
    let (mut text, mut world, mut names) = (String::new(), World::new(rules), NAMES);
    for event in events.iter().rev() {
        let before = world;
        world.step(*event, rules);
        let _ = writeln!(text, "  {}{}", event.text(names), world.news(&before, names));
        world.sort(rules, &mut names);
    }
    (events.len(), text)
}
