//! Very many waiters and holds with the default settings: each step, and each tick after it, does a portion.

use crate::support::{MS, World};
use dlock_core::base::ids::QueueId;
use dlock_core::base::key::Key;
use dlock_core::base::slab::SlabId as _;
use dlock_core::events::tick::Progress;
use dlock_core::machine::{Fact, ServerEvent};
use dlock_core::ports::effects::{Effects, Outcome};
use dlock_core::ports::turn::{Caller, Turn};
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_wire::permit::PermitId;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{
    Acquire, LockFamily, LockOp, Mode, Op, Release, Renew, Resize, ResizeTo, RwAcquire, RwOp,
    RwRelease, RwRenew, SemAcquire, SemInit, SemOp,
};

/// Largest number of effects of one step, or one tick: some for each waiter served.
const MOST: usize = 1_100;

const MANY: u32 = 3_000;

fn caller(client: u64) -> Caller {
    Caller { client, db: 0, may_block: true }
}

/// Ticks until no work is left. Returns the number of ticks, and the most effects of one.
fn tick_out(world: &mut World) -> (usize, usize) {
    let (mut ticks, mut worst) = (0, 0);
    loop {
        let mut progress = Progress::Done;
        let seen = world.step(|machine, turn| {
            progress = machine.tick(turn, Gate::Open, 64);
        });
        let effects = seen.wakes.len() + seen.messages.len() + seen.events.len();
        (ticks, worst) = (ticks + 1, worst.max(effects));
        if progress == Progress::Done {
            return (ticks, worst);
        }
    }
}

fn readers_in_line(world: &mut World) {
    let writer = RwAcquire { acquire: Acquire::new(b"k", b"writer"), mode: Mode::Write };
    let _ = world.ask(caller(1), Op::Rw(RwOp::Acquire(writer)));
    for n in 0..MANY {
        let owner = n.to_be_bytes();
        let acquire = Acquire { queue_ms: Some(60_000), ..Acquire::new(b"k", &owner) };
        let call = RwAcquire { acquire, mode: Mode::Read };
        let _ = world.ask(caller(2), Op::Rw(RwOp::Acquire(call)));
    }
}

#[test]
fn a_release_that_lets_very_many_in_and_each_tick_after_it_serve_some_of_them() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    readers_in_line(&mut world);
    let call = RwRelease { release: Release::new(b"k", b"writer"), mode: Mode::Write };
    let seen = world.ask(caller(1), Op::Rw(RwOp::Release(call)));
    assert!(seen.events.len() <= MOST, "{} events", seen.events.len());
    let (ticks, worst) = tick_out(&mut world);
    assert!(ticks > 3 && worst <= MOST, "{worst} effects in one of {ticks}");
    assert_eq!(world.machine.tables().leases.held(), MANY as usize);
}

#[test]
fn a_resize_that_lets_very_many_in_and_each_tick_after_it_serve_some_of_them() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    let _ = world.ask(caller(1), Op::Sem(SemOp::Init(SemInit { key: b"k", permits: 1 })));
    for n in 0..=MANY {
        let owner = n.to_be_bytes();
        let acquire = Acquire { queue_ms: Some(60_000), ..Acquire::new(b"k", &owner) };
        let call = SemAcquire { acquire, count: 1, limit: None };
        let _ = world.ask(caller(2), Op::Sem(SemOp::Acquire(call)));
    }
    let seen = world.ask(
        caller(1),
        Op::Sem(SemOp::Resize(Resize { key: b"k", to: ResizeTo::Absolute(MANY * 2), reqid: None })),
    );
    assert!(seen.events.len() <= MOST, "{} events", seen.events.len());
    let (ticks, worst) = tick_out(&mut world);
    assert!(ticks > 3 && worst <= MOST, "{worst} effects in one of {ticks}");
    assert_eq!(world.machine.tables().leases.permits(), u64::from(MANY) + 1);
}

#[test]
fn a_flush_leaves_most_of_its_work_to_ticks() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    for n in 0..MANY {
        let (key, owner) = (n.to_be_bytes(), [7]);
        let call = Acquire { bind_ms: Some(0), ..Acquire::new(&key, &owner) };
        let _ = world.ask(caller(1), Op::Lock(LockFamily::Lock, LockOp::Acquire(call)));
    }
    let _ = world.flush(None);
    assert_eq!(world.machine.tables().leases.len(), 0);
    assert_eq!(world.machine.tables().removed_values(), 1, "all memory is freed at once");
    let (ticks, _) = tick_out(&mut world);
    assert!(ticks > 5, "{ticks} ticks of 64 pieces");
    assert_eq!(world.machine.tables().removed_values(), 0);
    assert!(world.machine.tables().connections.is_empty());
    assert!(!world.has_key(Key { db: 0, name: &0_u32.to_be_bytes() }));
}

#[test]
fn a_call_finds_no_hold_of_a_connection_that_is_gone() {
    const READERS: u32 = 800;
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    for n in 0..READERS {
        let owner = n.to_be_bytes();
        let acquire = Acquire { bind_ms: Some(0), ..Acquire::new(b"k", &owner) };
        let call = RwAcquire { acquire, mode: Mode::Read };
        let _ = world.ask(caller(1), Op::Rw(RwOp::Acquire(call)));
    }
    let _ = world.step(|machine, turn| {
        machine.event(turn, ServerEvent::ClientGone(1));
    });
    world.ledger.gone(1);
    let last = (READERS - 1).to_be_bytes();
    let call = RwRenew { mode: Mode::Read, renew: Renew::new(b"k", &last) };
    let seen = world.ask(caller(2), Op::Rw(RwOp::Renew(call)));
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Fault(fault) if fault.code == ErrorCode::NotHeld);
    assert!(seen.reply.as_ref().is_some_and(is_refused), "{:?}", seen.reply);
    assert!(seen.events.len() <= MOST, "{} events", seen.events.len());
    assert!(world.machine.tables().leases.held() > READERS as usize / 2, "done at once");
    let (ticks, worst) = tick_out(&mut world);
    assert!(ticks > 1 && worst <= MOST, "{worst} effects in one of {ticks}");
    assert_eq!(world.machine.tables().leases.held(), 0);
}

/// Each shortened hold hands off. All of them together serve no more than one portion.
#[test]
fn many_shortened_leases_in_one_step_serve_one_portion() {
    const HOLDS: u32 = 32;
    const WAITERS: u32 = 2_000;
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    let now = world.now();
    let mut fx = Effects::default();
    world.machine.learn(Fact::Gate(Gate::Open, now.mono));
    let (machine, keys) = (&mut world.machine, &mut world.keys);
    let turn = &mut Turn { keys, now, caller: caller(1), fx: &mut fx };
    machine.execute(
        turn,
        &Op::Sem(SemOp::Init(SemInit { key: b"k", permits: HOLDS * 64 })),
        PermitId::default(),
    );
    let permit = |n: u32| u128::from(n + 1).to_be_bytes();
    for n in 0..HOLDS {
        let owner = n.to_be_bytes();
        let acquire = Acquire { bind_ms: Some(0), ..Acquire::new(b"k", &owner) };
        let call = SemAcquire { acquire, count: 64, limit: None };
        turn.caller = caller(2);
        machine.execute(turn, &Op::Sem(SemOp::Acquire(call)), permit(n));
    }
    for n in HOLDS..HOLDS + WAITERS {
        let owner = n.to_be_bytes();
        let acquire = Acquire { block_ms: Some(0), ..Acquire::new(b"k", &owner) };
        let call = SemAcquire { acquire, count: 1, limit: None };
        turn.caller = caller(1_000 + u64::from(n));
        machine.execute(turn, &Op::Sem(SemOp::Acquire(call)), permit(n));
    }
    turn.fx.clear();
    machine.event(turn, ServerEvent::ClientGone(2));
    turn.caller = caller(1);
    machine.execute(
        turn,
        &Op::Sem(SemOp::Resize(Resize {
            key: b"k",
            to: ResizeTo::Absolute(HOLDS * 64),
            reqid: None,
        })),
        PermitId::default(),
    );
    assert!(turn.fx.wakes.len() <= 256, "{} in one step", turn.fx.wakes.len());
    let mut ticks = 0;
    while turn.fx.wakes.len() < WAITERS as usize {
        let _ = machine.tick(turn, Gate::Open, 64);
        ticks += 1;
        assert!(ticks < 1_000, "all are served");
    }
}

#[test]
fn very_many_calls_in_a_cluster_that_is_down_end_in_portions() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    let holder = LockOp::Acquire(Acquire::new(b"k", b"h"));
    let _ = world.call(caller(1), Op::Lock(LockFamily::Lock, holder));
    for n in 0..MANY {
        let owner = n.to_be_bytes();
        let call = Acquire { block_ms: Some(0), ..Acquire::new(b"k", &owner) };
        let _ =
            world.call(caller(2 + u64::from(n)), Op::Lock(LockFamily::Lock, LockOp::Acquire(call)));
    }
    let (mut ended, mut next) = (0, QueueId::FIRST);
    while ended < MANY as usize {
        let seen = world.step(|machine, turn| {
            let bound = machine.tables().waits.queue_bound();
            next = machine.cluster_down(turn, next..bound);
        });
        assert!((1..=MOST).contains(&seen.wakes.len()), "{} calls end at once", seen.wakes.len());
        ended += seen.wakes.len();
    }
    assert_eq!(ended, MANY as usize);
}
