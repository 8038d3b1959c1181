//! Breadth-first search through all states of a [`World`], so that the history that is found is a shortest one.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hasher},
    time::{Duration, Instant},
};

use super::world::{Broken, Event, Rules, World};

/// What a search saw.
pub struct Seen {
    pub states: usize,
    pub steps: usize,
    pub took: Duration,
    /// A history that ends where it must not.
    pub found: Option<String>,
}

/// Looks at every state that can be reached, or until one of `wanted` is met.
pub fn search(rules: &Rules, wanted: &[Broken]) -> Seen {
    let start = Instant::now();
    let mut known = HashSet::<u64, BuildHasherDefault<AsIs>>::default();
    let mut parents: Vec<(u32, Event)> = vec![(0, Event::Tick)];
    let mut frontier = vec![(0u32, World::new(rules))];
    known.insert(frontier[0].1.mark(rules));
    let mut events = Vec::new();
    let mut steps = 0;
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (from, world) in frontier {
            world.events(rules, &mut events);
            for event in &events {
                steps += 1;
                let mut after = world.clone();
                let Some(fine) = after.step(*event, rules, None) else { continue };
                if fine.is_err_and(|broken| wanted.contains(&broken)) {
                    let found = Some(history(rules, &parents, from, *event));
                    return Seen { states: known.len(), steps, took: start.elapsed(), found };
                }
                if known.insert(after.mark(rules)) {
                    let number = u32::try_from(parents.len()).unwrap();
                    parents.push((from, *event));
                    next.push((number, after));
                }
            }
        }
        frontier = next;
        if std::env::var("QM").is_ok() {
            eprintln!("{} {} {:?}", known.len(), frontier.len(), start.elapsed());
        }
    }
    Seen { states: known.len(), steps, took: start.elapsed(), found: None }
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

fn history(rules: &Rules, parents: &[(u32, Event)], mut at: u32, last: Event) -> String {
    let mut events = vec![last];
    while at != 0 {
        let (parent, event) = parents[at as usize];
        events.push(event);
        at = parent;
    }
    let mut text = String::new();
    let mut world = World::new(rules);
    for event in events.into_iter().rev() {
        world.step(event, rules, Some(&mut text));
    }
    text
}
