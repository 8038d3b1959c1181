//! Cycles of owners that wait for each other, with links of every kind in any mix.

use super::graph::{arrows, fault_of};
use super::scene::{Ask, At, Came, Scene, owner_name};
use dlock_core::base::kind::Kind;
use dlock_testing::Dice;
use dlock_wire::request::Mode::{Read, Write};

/// How one owner waits for the next.
#[derive(Debug, Clone, Copy)]
enum Link {
    /// For a lock that it holds.
    Lock,
    Fair,
    /// To write what it reads.
    WriteRead,
    /// To read what it writes.
    ReadWrite,
    WriteWrite,
    /// For a lock that it holds, and another one.
    Several,
    /// Behind its waiter in a queue.
    Place,
    FairPlace,
    /// To read, behind its waiter, which is one to write.
    ReadPlace,
    /// For a free lock, which its call for several keeps closed.
    Closed,
    /// The same, and itself with a call for several.
    SeveralClosed,
}

const LINKS: [Link; 11] = [
    Link::Lock,
    Link::Fair,
    Link::WriteRead,
    Link::ReadWrite,
    Link::WriteWrite,
    Link::Several,
    Link::Place,
    Link::FairPlace,
    Link::ReadPlace,
    Link::Closed,
    Link::SeveralClosed,
];

/// An owner that waits for no other.
const OUTSIDER: usize = 1_000;

impl Link {
    /// The calls that make `next` an owner to wait for, in order, and the call that waits for it. Link number `n` has
    /// keys of its own.
    fn calls(self, n: usize, next: usize) -> (Vec<(usize, Ask)>, Ask) {
        let lock = |more: usize| At(Kind::Lock, 2 * n + more);
        let (fair, rw) = (At(Kind::Fair, n), At(Kind::Rw, n));
        let one = Ask::One;
        match self {
            Self::Lock => ([(next, one(lock(0)))].into(), one(lock(0))),
            Self::Fair => ([(next, one(fair))].into(), one(fair)),
            Self::WriteRead => ([(next, Ask::Rw(rw, Read))].into(), Ask::Rw(rw, Write)),
            Self::ReadWrite => ([(next, Ask::Rw(rw, Write))].into(), Ask::Rw(rw, Read)),
            Self::WriteWrite => ([(next, Ask::Rw(rw, Write))].into(), Ask::Rw(rw, Write)),
            Self::Several => ([(next, one(lock(0)))].into(), Ask::All([lock(1), lock(0)].into())),
            Self::Place => ([(OUTSIDER, one(lock(0))), (next, one(lock(0)))].into(), one(lock(0))),
            Self::FairPlace => ([(OUTSIDER, one(fair)), (next, one(fair))].into(), one(fair)),
            Self::ReadPlace => {
                let place = [(OUTSIDER, Ask::Rw(rw, Read)), (next, Ask::Rw(rw, Write))];
                (place.into(), Ask::Rw(rw, Read))
            }
            Self::Closed | Self::SeveralClosed => {
                let both = Ask::All([lock(0), lock(1)].into());
                let waits = match self {
                    Self::Closed => one(lock(1)),
                    _ => Ask::All([lock(1)].into()),
                };
                ([(OUTSIDER, one(lock(0))), (next, both)].into(), waits)
            }
        }
    }
}

/// Makes a ring of these links; the owner at `last` closes it, and the others ask in the order of `before`. Only the
/// closing call is refused, and the text names all links.
fn check(links: &[Link], last: usize, before: impl Fn(usize) -> u64, blocks: bool) {
    let kinds = [(Kind::Lock, 2), (Kind::Fair, 1), (Kind::Rw, 1)];
    let keys =
        kinds.iter().flat_map(|&(kind, each)| (0..each * links.len()).map(move |n| At(kind, n)));
    let mut scene = Scene::new(keys.collect());
    let mut waits = Vec::new();
    for (owner, link) in links.iter().enumerate() {
        let (calls, ask) = link.calls(owner, (owner + 1) % links.len());
        for (owner, call) in &calls {
            let came = scene.ask(*owner, call, blocks);
            assert!(!matches!(came, Came::Deadlock(_)), "{links:?}: nothing is closed: {came:?}");
        }
        waits.push((owner, ask));
    }
    waits.sort_by_key(|(owner, _)| (*owner == last, before(*owner)));
    let (closing, waits) = waits.split_last().expect("two or more");
    for (owner, ask) in waits {
        assert_eq!(scene.ask(*owner, ask, blocks), Came::WaitQueues, "{links:?}, o{owner}");
    }
    let states = scene.look();
    let Came::Deadlock(text) = scene.ask(closing.0, &closing.1, blocks) else {
        panic!("{links:?}: o{} closes the circle", closing.0)
    };
    assert_eq!(scene.look(), states, "a refused call changes nothing");
    for (owner, _) in links.iter().enumerate() {
        let owner = String::from_utf8(owner_name(owner)).expect("text");
        assert!(text.contains(&format!("\"{owner}\" waits for ")), "{owner} is not in: {text}");
    }
    let with_it = super::graph::with(&states, closing.0, &closing.1).expect("it would wait");
    assert_eq!(fault_of(&text, &arrows(&with_it), closing.0), None, "{text}");
    unwind(scene);
}

/// Owners that wait for nothing release everything, until there are no waiters.
fn unwind(mut scene: Scene) {
    loop {
        let states = scene.look();
        let waits = |owner: usize| {
            states.iter().any(|state| state.queue.iter().any(|place| place.owner == owner))
        };
        if states.iter().all(|state| state.queue.is_empty()) {
            return;
        }
        let holders =
            states.iter().flat_map(|s| s.holders.iter().map(move |&holder| (s.at, holder)));
        let (at, holder) =
            holders.into_iter().find(|(_, (owner, _))| !waits(*owner)).expect("nobody is stuck");
        scene.release(at, holder);
    }
}

#[test]
fn every_cycle_of_2_to_20_owners_is_reported_only_to_the_call_that_closes_it() {
    let mut dice = Dice::new(1);
    let mut below = move |bound| dice.index(bound);
    for owners in 2..=20 {
        for link in LINKS {
            check(&vec![link; owners], owners - 1, |owner| owner as u64, owners % 2 == 0);
        }
        for _ in 0..40 {
            let links: Vec<Link> = (0..owners).map(|_| LINKS[below(LINKS.len())]).collect();
            let (last, salt, blocks) = (below(owners), below(1_000) as u64, below(2) == 0);
            check(&links, last, |owner| (owner as u64 + 1) * salt % 1_009, blocks);
        }
    }
}

#[test]
fn the_text_of_a_long_cycle_names_twenty_links() {
    let mut scene = Scene::new(Vec::new());
    let lock = |number| Ask::One(At(Kind::Lock, number));
    for owner in 0..30 {
        scene.ask(owner, &lock(owner), false);
    }
    for owner in 0..29 {
        assert_eq!(scene.ask(owner, &lock(owner + 1), false), Came::WaitQueues);
    }
    let Came::Deadlock(text) = scene.ask(29, &lock(0), false) else { panic!("a circle") };
    assert_eq!(text.matches(" waits for ").count(), 20);
    assert!(text.ends_with(" and 10 more"), "{text}");
}

#[test]
fn a_cycle_beyond_the_budget_of_a_call_is_counted_and_found_from_the_tick() {
    for (keys, is_seen) in [(50, true), (20_000, false)] {
        let mut scene = Scene::new(Vec::new());
        let lock = |number| At(Kind::Lock, number);
        let many = Ask::All((0..keys).map(lock).collect());
        let [a, b] = [Ask::One(lock(keys)), Ask::One(lock(keys + 1))];
        for (owner, ask) in [(0, &a), (1, &b), (2, &many)] {
            assert_eq!(scene.ask(owner, ask, true), Came::Granted);
        }
        // Owner 1 waits for 2 at many keys, and 2 for 0.
        for (owner, ask) in [(1, &many), (2, &a)] {
            assert_eq!(scene.ask(owner, ask, true), Came::WaitQueues);
        }
        let came = scene.ask(0, &b, true);
        assert_eq!(matches!(came, Came::Deadlock(_)), is_seen, "{keys} keys");
        let cut = scene.machine.tables().counters.deadlock_searches_cut;
        assert_eq!(cut, u64::from(!is_seen), "{keys} keys");
        let refused = scene.search_late(|_| ());
        assert_eq!(refused.len(), usize::from(!is_seen), "{keys} keys: {refused:?}");
    }
}
