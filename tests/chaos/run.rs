//! A run in one world: groups of bursts, with checks between them.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use dlock_testing::Dice;

use super::{
    checks,
    crowd::{Crowd, Doors},
    faults,
    generate::{Features, Scene, Seat, Weather},
    key,
    oracle::Violation,
    report::{self, Place},
    world::{Kind, TAGS, World},
};

/// Bursts between two flushes.
const BURSTS: u64 = 4;
/// Groups per set of servers.
const ERA: u64 = 6;
/// Number of busy connections, and of waiting ones.
const WORKERS: u16 = 16;
const WAITERS: u16 = 24;

/// A run.
#[derive(Debug)]
pub struct Run {
    kind: Kind,
    place: Place,
    calls: u64,
    judged: u64,
    faults: u64,
    cuts: u64,
    refusals: BTreeMap<String, u64>,
}

impl Run {
    /// A run in this world, from a group of bursts on.
    pub fn new(kind: Kind, seed: u64, from: u64) -> Run {
        let place = Place { seed, group: from, burst: 0, start: Instant::now() };
        Run { kind, place, calls: 0, judged: 0, faults: 0, cuts: 0, refusals: BTreeMap::new() }
    }

    /// Runs for at least `time`; true without a violation.
    pub fn go(mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut is_fine = true;
        while is_fine && Instant::now() < end {
            is_fine = self.era(end);
        }
        println!("{}: refusals: {:?}", self.kind.name(), self.refusals);
        let seconds = self.place.start.elapsed().as_secs_f64();
        println!(
            "{}: {} calls in {seconds:.1} s, {} a second; {} faults, {} connections cut, {} grants judged: {}",
            self.kind.name(),
            self.calls,
            per_second(self.calls, self.place.start.elapsed()),
            self.faults,
            self.cuts,
            self.judged,
            if is_fine { "no finding" } else { "FOUND" },
        );
        is_fine
    }

    /// The life of one set of servers; true without a violation.
    fn era(&mut self, end: Instant) -> bool {
        let era = self.place.group / ERA;
        let Ok(world) = catch_unwind(|| World::start(self.kind, era.is_multiple_of(2))) else {
            return false;
        };
        let mut world = world;
        let mut crowd = Crowd::new(Doors { sockets: world.sockets() }, scene(&world));
        let mut found = None;
        while found.is_none() && self.place.group / ERA == era && Instant::now() < end {
            let started = (Instant::now(), crowd.calls);
            let group = AssertUnwindSafe(|| self.group(&mut world, &mut crowd));
            found = catch_unwind(group).unwrap_or_else(|panic| Err(violation_of(&*panic))).err();
            if found.is_none() {
                self.line(&world, &crowd, started);
                self.place.group += 1;
            }
        }
        for (code, n) in &crowd.errors {
            *self.refusals.entry(code.clone()).or_default() += n;
        }
        self.calls += crowd.calls;
        self.judged += crowd.oracle.judged;
        self.faults += world.faults;
        self.cuts += crowd.cuts;
        if let Some(found) = &found {
            report::tell(found, self.place, &world, &crowd);
        }
        drop(crowd);
        // Servers check their logs when dropped.
        let end = catch_unwind(AssertUnwindSafe(|| drop(world)));
        found.is_none() && end.is_ok()
    }

    fn group(&mut self, world: &mut World, crowd: &mut Crowd) -> Result<(), Violation> {
        let mut dice = Dice::part(self.place.seed, self.place.group);
        crowd.begin(
            Doors { sockets: world.sockets() },
            Scene {
                features: world.features(),
                // Servers remember the requests of earlier groups.
                requests: self.place.group * 1_000_000,
                ..scene(world)
            },
        );
        seat(world, crowd, &mut dice)?;
        for burst in 0..BURSTS {
            self.place.burst = burst;
            crowd.scene.burst = self.place.group * BURSTS + burst;
            crowd.scene.weather = weather(&mut dice, self.place.group);
            self::burst(world, crowd, &mut dice)?;
            checks::after_burst(world, crowd)?;
        }
        checks::after_group(world, crowd)
    }

    fn line(&self, world: &World, crowd: &Crowd, (start, before): (Instant, u64)) {
        let calls = crowd.calls - before;
        println!(
            "{:<10} group {:<4} {calls:>7} calls, {:>6} a second, {} faults, {} cuts, {} grants judged, seed {}",
            self.kind.name(),
            self.place.group,
            per_second(calls, start.elapsed()),
            world.faults,
            crowd.cuts,
            crowd.oracle.judged,
            self.place.seed,
        );
    }
}

fn scene(world: &World) -> Scene {
    Scene {
        burst: 0,
        keys: key::all(world.kind.dbs(), TAGS),
        cluster: world.kind == Kind::Cluster,
        weather: Weather::default(),
        features: Features::default(),
        clients: Vec::new(),
        dumps: VecDeque::new(),
        requests: 0,
        asked: VecDeque::new(),
        repeatable: VecDeque::new(),
    }
}

/// Opens the connections.
fn seat(world: &World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    let nodes = world.primaries();
    for no in 0..WORKERS + WAITERS {
        let node = nodes[usize::from(no) % nodes.len()];
        let db = u8::from(world.kind.dbs() > 1 && dice.one_in(4));
        let seat = Seat {
            no,
            db,
            tags: world.tags_of(node),
            waits: no >= WORKERS,
            held: Vec::new(),
            permits: Vec::new(),
        };
        crowd.join(node, seat)?;
    }
    Ok(())
}

fn weather(dice: &mut Dice, group: u64) -> Weather {
    // DEBUG RELOAD drops expired keys without telling replicas or the AOF: so TTLs and reloads are not in the same
    // group.
    let may_reload = group.is_multiple_of(2);
    let mut may = |n| dice.one_in(n);
    Weather {
        operators: may(2),
        flushes: may(5),
        pauses: may(4),
        cuts: may(2),
        settings: may(3),
        refusals: may(5),
        reloads: may(3) && may_reload,
        ttls: may(2) && !may_reload,
    }
}

fn burst(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    let start = Instant::now();
    let length = Duration::from_millis(500 + dice.below(700));
    let mut strike =
        dice.one_in(3).then(|| length.mul_f64(dice.pick(&[0.2, 0.35, 0.5, 0.65, 0.8])));
    let mut next_cut = Duration::ZERO;
    if crowd.scene.weather.pauses || crowd.scene.weather.refusals {
        crowd.oracle.stands_still();
    }
    while start.elapsed() < length {
        crowd.scene.clients = crowd.actors.iter().map(|actor| actor.pipe.client_id).collect();
        crowd.feed(dice);
        crowd.pump()?;
        if crowd.scene.weather.cuts && start.elapsed() > next_cut {
            faults::cut(world, crowd, dice)?;
            next_cut = start.elapsed() + Duration::from_millis(dice.below(30));
        }
        if strike.is_some_and(|at| start.elapsed() > at) {
            strike = None;
            faults::strike(world, crowd, dice)?;
        }
    }
    Ok(())
}

/// Calls per second.
fn per_second(calls: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(calls) * 1_000 / time.as_millis().max(1)).unwrap_or(0)
}

fn violation_of(panic: &(dyn std::any::Any + Send)) -> Violation {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    Violation::new(text.unwrap_or_default())
}
