//! What the owners do: scenes that a user would recognise, and chains that are as bad as any.

use crate::world::{Came, Cost, Wait, World};
use std::collections::HashMap;

/// Acquires in one scene whose owners go on forever.
const ACQUIRES: usize = 20_000;

/// The first key and the first owner besides those of a scene.
const MORE: usize = 100_000;

pub struct Scene {
    pub name: &'static str,
    pub play: fn(&mut World) -> Played,
    /// Number of runs; of each call the cheapest counts.
    pub runs: usize,
}

/// What came of a scene besides its costs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Played {
    pub deadlocks: usize,
    /// Owners that wait for each other, because a search was cut.
    pub stuck: usize,
}

pub const SCENES: &[Scene] = &[
    Scene { name: "a transfer, sorted", play: |world| transfers(world, true), runs: 5 },
    Scene { name: "b transfer, any order", play: |world| transfers(world, false), runs: 5 },
    Scene { name: "c hot lock, holders", play: |world| hot_lock(world, false), runs: 5 },
    Scene { name: "c hot lock, two waits", play: |world| hot_lock(world, true), runs: 5 },
    Scene { name: "d batch, one by one", play: batch, runs: 5 },
    Scene { name: "d batch, pipelined", play: pipelined_batch, runs: 5 },
    Scene { name: "e macquire", play: |world| several(world, false), runs: 5 },
    Scene { name: "e macquire, holders", play: |world| several(world, true), runs: 3 },
    Scene { name: "f chain of 50,000", play: chain, runs: 3 },
    Scene { name: "f 20 at 2,000 locks", play: crowd, runs: 3 },
];

/// The costs of a scene, and what came of it.
pub fn play(scene: &Scene, detects: bool) -> (Vec<Cost>, u64, Played) {
    let (mut best, mut total): (Vec<Cost>, u64) = (Vec::new(), u64::MAX);
    let mut played = Played::default();
    for _ in 0..scene.runs {
        let mut world = World::new(detects);
        played = (scene.play)(&mut world);
        total = total.min(world.total);
        if best.is_empty() {
            best = world.costs;
            continue;
        }
        for (best, cost) in best.iter_mut().zip(world.costs) {
            best.nanos = best.nanos.min(cost.nanos);
        }
    }
    (best, total, played)
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap_or_default()
    }

    /// `count` different numbers.
    fn some(&mut self, count: usize, bound: usize) -> Vec<usize> {
        let mut some = Vec::new();
        while some.len() < count {
            let next = self.below(bound);
            if !some.contains(&next) {
                some.push(next);
            }
        }
        some
    }
}

/// An owner that takes keys one after the other in blocked calls, releases all of them and begins again.
struct Task {
    keys: Vec<usize>,
    /// Number of the first keys that it has.
    has: usize,
}

/// Runs `count` tasks, in random turns.
fn tasks(
    world: &mut World,
    count: usize,
    mut choose: impl FnMut(&mut Random) -> Vec<usize>,
) -> Played {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut tasks: Vec<Task> =
        (0..count).map(|_| Task { keys: choose(&mut random), has: 0 }).collect();
    let mut active: Vec<usize> = (0..count).collect();
    let mut parked = HashMap::new();
    let mut played = Played::default();
    world.records = true;
    while world.costs.len() < ACQUIRES {
        if active.is_empty() {
            played.stuck = parked.len();
            break;
        }
        let at = random.below(active.len());
        let owner = active[at];
        let task = &mut tasks[owner];
        let mut released = Vec::new();
        if task.has == task.keys.len() {
            released = std::mem::replace(&mut task.keys, choose(&mut random));
        } else {
            match world.acquire(owner, &[task.keys[task.has]], Wait::Block) {
                Came::Granted => task.has += 1,
                Came::WaitQueues(waiter) => {
                    parked.extend(waiter.map(|waiter| (waiter, owner)));
                    active.swap_remove(at);
                }
                Came::Deadlock => {
                    played.deadlocks += 1;
                    released = task.keys[..task.has].to_vec();
                }
            }
        }
        if !released.is_empty() {
            task.has = 0;
            for owner in world.release(owner, &released).iter().filter_map(|id| parked.remove(id)) {
                tasks[owner].has += 1;
                active.push(owner);
            }
        }
    }
    played
}

/// 200 tasks, each of which locks two of 100 accounts.
fn transfers(world: &mut World, sorts: bool) -> Played {
    tasks(world, 200, |random| {
        let mut two = random.some(2, 100);
        if sorts {
            two.sort_unstable();
        }
        two
    })
}

/// 100 jobs take the same 50 locks in one order, each when it has the one before.
fn batch(world: &mut World) -> Played {
    tasks(world, 100, |_| (0..50).collect())
}

/// The same with QUEUE: no job waits for an answer before it asks for the next lock.
fn pipelined_batch(world: &mut World) -> Played {
    for key in 0..50 {
        world.acquire(MORE, &[key], Wait::Block);
    }
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut jobs: Vec<(usize, usize)> = (0..100).map(|job| (job, 0)).collect();
    world.records = true;
    while !jobs.is_empty() {
        let at = random.below(jobs.len());
        let (job, key) = jobs[at];
        world.acquire(job, &[key], Wait::Queue);
        jobs[at].1 += 1;
        if key == 49 {
            jobs.swap_remove(at);
        }
    }
    Played::default()
}

/// 1,000 owners, each of which holds a lock that another one waits for, share a lock. `twice`: each waits for one more.
fn hot_lock(world: &mut World, twice: bool) -> Played {
    const OWNERS: usize = 1_000;
    let hot = OWNERS;
    let mut parked = HashMap::new();
    let mut played = Played::default();
    for owner in 0..OWNERS {
        world.acquire(owner, &[owner], Wait::Block);
        world.acquire(MORE + owner, &[owner], Wait::Block);
        if twice {
            world.acquire(2 * MORE + owner, &[MORE + owner], Wait::Block);
            world.acquire(owner, &[MORE + owner], Wait::Queue);
        }
    }
    let mut holder = 0;
    world.records = true;
    for owner in 0..OWNERS {
        if let Came::WaitQueues(Some(waiter)) = world.acquire(owner, &[hot], Wait::Block) {
            parked.insert(waiter, owner);
        }
    }
    for _ in 0..4 * OWNERS {
        let woken = world.release(holder, &[hot]);
        let last = holder;
        holder = woken.iter().find_map(|waiter| parked.remove(waiter)).unwrap_or(holder);
        match world.acquire(last, &[hot], Wait::Block) {
            Came::WaitQueues(waiter) => parked.extend(waiter.map(|waiter| (waiter, last))),
            Came::Deadlock => played.deadlocks += 1,
            Came::Granted => {}
        }
    }
    played
}

/// 300 owners take ten of 50 keys at once. `holds`: each holds a lock besides that another owner waits for.
fn several(world: &mut World, holds: bool) -> Played {
    const OWNERS: usize = 300;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut active: Vec<usize> = (0..OWNERS).collect();
    let mut has: Vec<Vec<usize>> = vec![Vec::new(); OWNERS];
    let mut parked = HashMap::new();
    let mut played = Played::default();
    for owner in (0..OWNERS).filter(|_| holds) {
        world.acquire(owner, &[MORE + owner], Wait::Block);
        world.acquire(MORE + owner, &[MORE + owner], Wait::Block);
    }
    world.records = true;
    while world.costs.len() < ACQUIRES / 4 {
        if active.is_empty() {
            played.stuck = parked.len();
            break;
        }
        let at = random.below(active.len());
        let owner = active[at];
        if has[owner].is_empty() {
            let keys = random.some(10, 50);
            match world.acquire(owner, &keys, Wait::Block) {
                Came::Granted => has[owner] = keys,
                Came::WaitQueues(waiter) => {
                    parked.extend(waiter.map(|waiter| (waiter, (owner, keys))));
                    active.swap_remove(at);
                }
                Came::Deadlock => played.deadlocks += 1,
            }
        } else {
            let keys = std::mem::take(&mut has[owner]);
            for waiter in world.release(owner, &keys) {
                if let Some((owner, keys)) = parked.remove(&waiter) {
                    has[owner] = keys;
                    active.push(owner);
                }
            }
        }
    }
    played
}

/// Each of 50,000 owners holds a lock and waits for that of the next; they come in no order, and the last closes a
/// cycle.
fn chain(world: &mut World) -> Played {
    const LINKS: usize = 50_000;
    for owner in 0..LINKS {
        world.acquire(owner, &[owner], Wait::Queue);
    }
    world.records = true;
    let mut played = Played::default();
    for owner in (0..LINKS).map(|n| n * 7_919 % LINKS) {
        let came = world.acquire(owner, &[(owner + 1) % LINKS], Wait::Queue);
        played.deadlocks += usize::from(came == Came::Deadlock);
    }
    played
}

/// 20 owners wait for 2,000 locks, whose holders then ask for each other's.
fn crowd(world: &mut World) -> Played {
    const LOCKS: usize = 2_000;
    let mut played = Played::default();
    for key in 0..LOCKS {
        world.acquire(MORE + key, &[key], Wait::Queue);
    }
    world.records = true;
    for key in 0..LOCKS {
        for owner in 0..20 {
            let came = world.acquire(owner, &[key], Wait::Queue);
            played.deadlocks += usize::from(came == Came::Deadlock);
        }
    }
    for key in 0..LOCKS {
        let came = world.acquire(MORE + key, &[(key * 7 + 1) % LOCKS], Wait::Queue);
        played.deadlocks += usize::from(came == Came::Deadlock);
    }
    played
}
