//! What the core alone costs: no server, no network, a clock that stands still.
//!
//! `cargo bench -p dlock-core` plays all scenes; `cargo bench -p dlock-core -- chain batch` those whose names contain a
//! word. Each scene runs a few times, and of each call the cheapest run counts: other processes then hardly matter.

mod scenes;
mod world;

use scenes::{Played, SCENES, play};
use std::time::Instant;
use world::{Came, Cost, Wait, World, nanos_since};

const TIMES: u32 = 20_000;

/// The cheapest of these many runs counts.
const RUNS: usize = 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_asked =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    if is_asked("pair") {
        let ten: Vec<usize> = (0..10).collect();
        println!("uncontended pair: {} ns", cheapest(|| World::new(true).pair(&[0], TIMES)));
        println!("contended hand-off, 100 waiters: {} ns", cheapest(hand_off));
        println!(
            "MACQUIRE and MRELEASE of 10: {} ns",
            cheapest(|| World::new(true).pair(&ten, TIMES))
        );
    }
    println!("{HEAD}");
    for scene in SCENES.iter().filter(|scene| is_asked(scene.name)) {
        for detects in [true, false] {
            let (costs, total, played) = play(scene, detects);
            println!("{}", line(scene.name, detects, costs, total, played));
        }
    }
}

fn cheapest(mut run: impl FnMut() -> u64) -> u64 {
    (0..RUNS).map(|_| run()).min().unwrap_or_default()
}

/// Nanoseconds for a release, the grant to the first of 100 blocked calls, and the call of the former holder that
/// blocks at the end.
fn hand_off() -> u64 {
    const WAITERS: usize = 100;
    let mut world = World::new(true);
    for owner in 0..=WAITERS {
        world.acquire(owner, &[0], Wait::Block);
    }
    let start = Instant::now();
    for round in 0..TIMES as usize {
        let owner = round % (WAITERS + 1);
        world.release(owner, &[0]);
        assert_ne!(world.acquire(owner, &[0], Wait::Block), Came::Granted);
    }
    nanos_since(start) / u64::from(TIMES)
}

const HEAD: &str = "scene                  detection acquires all, each  median ns   mean ns    p99 ns  worst us \
                    mean looks worst looks   cut % deadlocks  stuck";

fn line(name: &str, detects: bool, mut costs: Vec<Cost>, total: u64, played: Played) -> String {
    let setting = if detects { "on" } else { "off" };
    let count = costs.len().max(1);
    costs.sort_unstable_by_key(|cost| cost.nanos);
    let at = |share: usize| costs.get((count * share / 100).min(count - 1)).map_or(0, |c| c.nanos);
    let mean = costs.iter().map(|cost| cost.nanos).sum::<u64>() / count as u64;
    let looks = costs.iter().map(|cost| cost.looks).sum::<u64>() / count as u64;
    let most = costs.iter().map(|cost| cost.looks).max().unwrap_or_default();
    let cut = costs.iter().filter(|cost| cost.is_cut).count();
    let cut = 100_000 * cut / count;
    format!(
        "{name:<23}{setting:<10}{count:>8}{:>10}{:>11}{mean:>10}{:>10}{:>10}{looks:>11}{most:>12}{:>8}{:>10}{:>7}",
        total / count as u64,
        at(50),
        at(99),
        at(100) / 1_000,
        format!("{}.{:03}", cut / 1_000, cut % 1_000),
        played.deadlocks,
        played.stuck,
    )
}
