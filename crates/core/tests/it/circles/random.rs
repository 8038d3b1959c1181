//! Random runs: the machine refuses a call exactly if an exhaustive search finds that its owner would wait for itself.

use super::graph::{
    are_alike, arrows, caller_of, closes_a_circle, fault_of, has_circle, late_arrows, with,
};
use super::scene::{Ask, At, Came, NOW, Scene, State};
use dlock_core::base::kind::Kind;
use dlock_core::invariants::broken_invariant;
use dlock_testing::Dice;
use dlock_wire::request::Mode;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const RUNS: u64 = 100_000;
const STEPS: usize = 24;

#[test]
fn the_search_agrees_with_one_that_looks_at_everything() {
    if let Ok(seed) = std::env::var("DLOCK_SEED") {
        let met = Met::default();
        return Run::new(seed.parse().expect("a number"), true).play(&met);
    }
    let runs = std::env::var("DLOCK_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number"));
    let (next, met) = (AtomicU64::new(1), Met::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > runs {
                        return;
                    }
                    let run = AssertUnwindSafe(|| Run::new(seed, false).play(&met));
                    if let Err(panic) = std::panic::catch_unwind(run) {
                        next.store(runs, Ordering::Relaxed);
                        eprintln!("\nDLOCK_SEED={seed} replays this run\n");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
    let met = [&met.refused, &met.waited, &met.late].map(|n| n.load(Ordering::Relaxed));
    let [refused, waited, late] = met;
    let runs = usize::try_from(runs).expect("a number of runs");
    assert!(refused > runs / 10 && waited > runs && late > runs / 100, "the runs met {met:?}");
}

/// Number of times that each case was met.
#[derive(Default)]
struct Met {
    refused: AtomicUsize,
    waited: AtomicUsize,
    late: AtomicUsize,
}

struct Run {
    scene: Scene,
    owners: usize,
    dice: Dice,
    traced: bool,
    /// The run makes cycles that no search can prevent.
    is_troubled: bool,
}

impl Run {
    fn new(seed: u64, traced: bool) -> Self {
        let mut run = Self {
            scene: Scene::new(Vec::new()),
            owners: 0,
            dice: Dice::new(seed),
            traced,
            is_troubled: seed.is_multiple_of(3),
        };
        run.owners = 2 + run.below(5);
        // A number of keys of each family; some runs have only one family.
        let families = [(Kind::Lock, 4), (Kind::Fair, 3), (Kind::Rw, 3), (Kind::Semaphore, 2)];
        for (kind, most) in families {
            let count = run.below(most);
            run.scene.all.extend((0..count).map(|number| At(kind, number)));
        }
        if run.scene.all.iter().all(|at| at.0 == Kind::Semaphore) {
            run.scene.all.push(At(Kind::Lock, 0));
        }
        run
    }

    fn below(&mut self, bound: usize) -> usize {
        self.dice.index(bound)
    }

    fn play(mut self, met: &Met) {
        let mut states = self.scene.look();
        for _ in 0..STEPS {
            let broken = broken_invariant(self.scene.machine.tables(), &mut self.scene.keys, NOW);
            assert_eq!(broken, None);
            if self.below(5) == 0 {
                self.let_go(&states);
                states = self.scene.look();
                continue;
            }
            if self.is_troubled && self.below(6) == 0 {
                self.make_trouble(&states);
                states = self.scene.look();
                continue;
            }
            let owner = self.below(self.owners);
            let ask = self.choose();
            let blocks = self.below(2) == 0;
            let came = self.scene.ask(owner, &ask, blocks);
            if self.traced {
                println!("o{owner} asks {ask:?} (blocks: {blocks}): {came:?}");
            }
            states = self.judge(states, owner, &ask, &came, met);
        }
        let broken = broken_invariant(self.scene.machine.tables(), &mut self.scene.keys, NOW);
        assert_eq!(broken, None);
        self.end_late(met);
    }

    /// The tick refuses waits until there is no cycle, and none that is in no cycle.
    fn end_late(&mut self, met: &Met) {
        self.scene.machine.configure(|settings| settings.deadlock_detection = true);
        let mut before = Vec::new();
        let refused = self.scene.search_late(|states| before.push(arrows(states)));
        met.late.fetch_add(refused.len(), Ordering::Relaxed);
        for ((text, _), arrows) in refused.iter().zip(&before) {
            if self.traced {
                println!("refused: {text}");
            }
            assert!(has_circle(arrows), "a false alarm: {text}");
            if let Some(caller) = caller_of(text) {
                assert_eq!(fault_of(text, arrows, caller), None, "a false alarm: {text}");
            }
        }
        let after = self.scene.look();
        assert!(!has_circle(&late_arrows(&after)), "a circle was not found: {after:?}");
        let broken = broken_invariant(self.scene.machine.tables(), &mut self.scene.keys, NOW);
        assert_eq!(broken, None);
    }

    fn judge(
        &mut self,
        before: Vec<State>,
        owner: usize,
        ask: &Ask,
        came: &Came,
        met: &Met,
    ) -> Vec<State> {
        let waiting = with(&before, owner, ask);
        let after = match came {
            Came::Deadlock(text) => {
                met.refused.fetch_add(1, Ordering::Relaxed);
                assert_eq!(self.scene.look(), before, "a refused call changes nothing");
                let waiting = arrows(&waiting.expect("the call would have to wait"));
                if !is_second_upgrade(&before, owner, ask) {
                    // The text is the proof that there is a cycle.
                    assert_eq!(fault_of(text, &waiting, owner), None, "a false alarm: {text}");
                }
                before
            }
            Came::WaitQueues => {
                met.waited.fetch_add(1, Ordering::Relaxed);
                let after = self.scene.look();
                let closes = closes_a_circle(&arrows(&before), &arrows(&after), owner);
                let is_on = self.scene.machine.tables().settings.deadlock_detection;
                assert!(!is_on || !closes, "a circle was not seen: {after:?}");
                let is_one_of_all = !matches!(ask, Ask::Any(_) | Ask::Permit(_));
                if is_one_of_all {
                    let expected = waiting.expect("only who has to waits");
                    assert!(are_alike(&expected, &after), "{expected:?} is not {after:?}");
                }
                after
            }
            Came::Granted => {
                assert_eq!(waiting, None, "who has to wait is not granted");
                self.scene.look()
            }
        };
        self.scene.settle();
        if matches!(came, Came::Deadlock(_)) { after } else { self.scene.look() }
    }

    fn choose(&mut self) -> Ask {
        let chosen = self.below(self.scene.all.len());
        let at = self.scene.all[chosen];
        match (at.0, self.below(6)) {
            (Kind::Semaphore, _) => Ask::Permit(at),
            (Kind::Rw, chance) => Ask::Rw(at, if chance < 3 { Mode::Read } else { Mode::Write }),
            (Kind::Lock, chance @ 0..4) => {
                let all = self.scene.all.clone();
                let locks: Vec<At> = all.into_iter().filter(|at| at.0 == Kind::Lock).collect();
                // Some of them, beginning anywhere.
                let (from, count) = (self.below(locks.len()), 1 + self.below(locks.len()));
                let some = (from..from + count).map(|at| locks[at % locks.len()]).collect();
                if chance == 0 { Ask::Any(some) } else { Ask::All(some) }
            }
            _ => Ask::One(at),
        }
    }

    /// Turns detection off or on, or renames a lock.
    fn make_trouble(&mut self, states: &[State]) {
        let is_off = self.scene.machine.tables().settings.deadlock_detection;
        self.scene.machine.configure(|settings| settings.deadlock_detection = !is_off);
        if is_off && self.below(3) > 0 {
            // Detection is off only for a while. The other times it stays on, and a lock moves.
            return;
        }
        self.scene.machine.configure(|settings| settings.deadlock_detection = true);
        let is_lock = |state: &&State| matches!(state.at.0, Kind::Lock | Kind::Fair);
        let held = states.iter().filter(|state| !state.holders.is_empty());
        let held: Vec<At> = held.filter(is_lock).map(|state| state.at).collect();
        if held.is_empty() {
            return;
        }
        let from = held[self.below(held.len())];
        let others = self.scene.all.iter().copied();
        let others: Vec<At> = others.filter(|at| at.0 == from.0 && *at != from).collect();
        if !others.is_empty() {
            let to = others[self.below(others.len())];
            self.scene.rename(from, to);
            if self.traced {
                println!("{from:?} is {to:?} now: {:?}", self.scene.look());
            }
        }
    }

    /// An owner releases what it holds, or leaves a queue.
    fn let_go(&mut self, states: &[State]) {
        let state = &states[self.below(states.len())];
        let (held, waited) = (state.holders.len(), state.queue.len());
        if held + waited == 0 {
            return;
        }
        let chosen = self.below(held + waited);
        if chosen < held {
            self.scene.release(state.at, state.holders[chosen]);
        } else {
            self.scene.give_up(state.at, state.queue[chosen - held].owner);
        }
        if self.traced {
            println!("an owner releases {:?}: {:?}", state.at, self.scene.look());
        }
    }
}

/// Whether a reader asks to write while another one does: a rule of its own refuses that.
fn is_second_upgrade(states: &[State], owner: usize, ask: &Ask) -> bool {
    let Ask::Rw(at, Mode::Write) = ask else { return false };
    let state = states.iter().find(|state| state.at == *at).expect("a key");
    let reads = |owner: usize| state.holders.contains(&(owner, Some(Mode::Read)));
    let other = |place: &super::scene::Place| {
        place.owner != owner && place.mode == Some(Mode::Write) && reads(place.owner)
    };
    reads(owner) && state.queue.iter().any(other)
}
