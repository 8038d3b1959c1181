//! Large values that are removed, and readers that are broken together: clients see that at once, their messages come
//! in portions.

use crate::script::run_as;
use crate::support::{MS, World};
use dlock_core::base::key::Key;
use dlock_core::base::time::LeaseInstant;
use dlock_core::events::tick::Progress;
use dlock_core::ports::effects::Outcome;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{
    Acquire, Channel, LockFamily, LockOp, Mode, Op, RwAcquire, RwBreak, RwOp, SemAcquire, SemInit,
    SemOp,
};

#[test]
fn the_requests_of_removed_permits_are_known_at_once_and_their_messages_come_in_portions() {
    run_as(
        "DSEM",
        "
          0  set portion 2
          0  c1  INIT s 9                        => 1
          0  c1  ACQUIRE s A NOTIFY c REQID 1    => p1
          0  c1  ACQUIRE s A NOTIFY c REQID 2    => p2
          0  c1  ACQUIRE s B NOTIFY c REQID 3    => p3
          0  c1  ACQUIRE s C NOTIFY c REQID 4    => p4
          0  c1  ACQUIRE s C REQID 5 BIND 0      => p5
          1  del s                               => c: deleted 0 p1 1 A [1] s; c: deleted 0 p2 1 A [2] s
        # All of them are over, told or not.
          1  c1  ACQUIRE s A REQID 1             => SPENT
          1  c1  ACQUIRE s B REQID 3             => SPENT
          1  c1  ACQUIRE s C REQID 4             => SPENT
          1  c1  ACQUIRE s C REQID 5 LIMIT 3     => SPENT
          1  c1  INIT s 9                        => 1
          1  c1  ACQUIRE s C REQID 5             => SPENT
          1  tick                                => c: deleted 0 p3 1 B [3] s; c: deleted 0 p4 1 C [4] s
          2  c1  ACQUIRE s B REQID 3             => SPENT
          2  c1  ACQUIRE s C REQID 5             => SPENT
          2  gone c1
          2  c2  BREAK s $p5                     => 0
        ",
    );
}

#[test]
fn very_many_readers_are_broken_at_once_and_told_in_portions() {
    run_as(
        "DRW",
        "
          0  set portion 2
          0  events
          0  c1  ACQUIRE k A READ NOTIFY c REQID 1 => t1 +acquire
          0  c1  ACQUIRE k B READ NOTIFY c REQID 2 => t2 +acquire
          0  c1  ACQUIRE k C READ NOTIFY c REQID 3 => t3 +acquire
          0  c2  ACQUIRE k D READ BIND 0           => t4 +acquire
          0  c3  ACQUIRE k E WRITE BLOCK 0         => parked +wait
          0  c4  ACQUIRE k F READ BLOCK 0          => parked +wait
        # The writer gets it in the same step. What the readers asked for is over.
          1  c5  BREAK k                           => 4; c3 gets t5 +acquire
          1  c1  RENEW k A READ                    => NOTHELD
          1  c5  INFO k                            => WRITE [E t5 1 30000] [] waiters 1
          1  c1  ACQUIRE k C READ REQID 3          => SPENT
          1  gone c2
          1  tick => c: broken 0 t1 1 A [1] k; c: broken 0 t2 1 B [2] k; c: broken 0 t3 1 C [3] k +break +break +break +break
          2  c1  ACQUIRE k C READ REQID 3          => SPENT
          2  c3  RELEASE k E WRITE                 => 0; c4 gets t6 +release +acquire
          2  c5  BREAK k                           => 1 +break
        ",
    );
}

#[test]
fn a_moved_value_keeps_all_of_its_holds() {
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A READ REQID 1 => t1
          0  c1  ACQUIRE k B READ REQID 2 => t2
          0  c1  ACQUIRE k C READ BIND 0  => t3
          1  rename k l
          1  c1  ACQUIRE l A READ REQID 1 => t1
          1  c1  RELEASE l B READ         => 0
          1  gone c1
          1  tick
          2  c2  ACQUIRE l D WRITE        => null
          2  c2  RELEASE l A READ         => 0
          2  c2  ACQUIRE l D WRITE        => t4
        ",
    );
}

const MANY: u32 = 3_000;

fn permit(n: u32) -> (Vec<u8>, Vec<u8>) {
    (n.to_be_bytes().to_vec(), format!("request {n}").into_bytes())
}

/// A semaphore with [`MANY`] permits.
fn with_permits() -> World {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    let caller = Caller { client: 1, db: 0, may_block: true };
    let _ = world.ask(caller, Op::Sem(SemOp::Init(SemInit { key: b"s", permits: MANY })));
    for n in 0..MANY {
        let (owner, id) = permit(n);
        let acquire = Acquire {
            reqid: Some(&id),
            bind_ms: Some(0),
            notify: Some(Channel::Plain(b"c")),
            ..Acquire::new(b"s", &owner)
        };
        let call = SemAcquire { acquire, count: 1, limit: None };
        let seen = world.ask(caller, Op::Sem(SemOp::Acquire(call)));
        assert!(matches!(seen.reply, Some(Outcome::Permit(_))));
    }
    world
}

/// Number of requests that a save of the data beside the keys has.
fn saved(world: &World) -> usize {
    let (now, limits) = (world.now(), world.machine.tables().settings.request_limits());
    let mut strings: Vec<Vec<u8>> = Vec::new();
    let put = |string: &[u8]| strings.push(string.to_vec());
    world.machine.tables().save_beside(now, world.keys.unheard(), put);
    let lease = world.machine.tables().regime.lease(now.mono);
    let input = dlock_core::record::BesideInput::open(&strings[0], lease, limits);
    let mut input = input.expect("what was saved");
    strings[1..].iter().for_each(|string| input.read(string).expect("what was saved"));
    let spent = input.finish().expect("what was saved").spent;
    spent.known(LeaseInstant(lease.0), limits)
}

#[test]
fn very_many_permits_are_removed_in_many_ticks_and_a_save_in_between_knows_all_of_their_requests() {
    let mut world = with_permits();
    let mut messages = world.unlink(Key { db: 0, name: b"s" }, false).messages.len();
    assert!(messages <= 64, "{messages} messages at once");
    assert!(world.machine.tables().connections.is_empty());
    let mut ticks = 0;
    loop {
        assert_eq!(saved(&world), MANY as usize, "requests in a save after {ticks} ticks");
        let mut progress = Progress::Done;
        let seen = world.step(|machine, turn| {
            progress = machine.tick(turn, Gate::Open, 8);
        });
        assert!(seen.messages.len() <= 128, "{} messages in one tick", seen.messages.len());
        messages += seen.messages.len();
        ticks += 1;
        if progress == Progress::Done {
            break;
        }
    }
    assert_eq!(messages, MANY as usize);
    assert!(ticks > 20, "{ticks} ticks");
    assert_eq!(world.machine.tables().removed_values(), 0);
    let (owner, id) = permit(7);
    let acquire = Acquire { reqid: Some(&id), ..Acquire::new(b"s", &owner) };
    let call = SemAcquire { acquire, count: 1, limit: Some(1) };
    let caller = Caller { client: 1, db: 0, may_block: true };
    let seen = world.ask(caller, Op::Sem(SemOp::Acquire(call)));
    assert!(
        matches!(&seen.reply, Some(Outcome::Fault(fault)) if fault.code == ErrorCode::Spent),
        "{seen:?}"
    );
    world.finish();
}

#[test]
fn a_save_knows_the_requests_of_values_of_whose_removal_the_machine_has_not_heard() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    let caller = Caller { client: 1, db: 0, may_block: true };
    for name in [b"k", b"l"] {
        let acquire = Acquire { reqid: Some(b"r"), ..Acquire::new(name, b"A") };
        let _ = world.ask(caller, Op::Lock(LockFamily::Lock, LockOp::Acquire(acquire)));
    }
    let key = |name| Key { db: 0, name };
    world.unlink_unheard(key(b"k"));
    assert_eq!(saved(&world), 1, "requests in a save");
    // A value that lives on under another name ends no request.
    world.keys.rename_unheard(key(b"l"), key(b"m"));
    assert_eq!(saved(&world), 1, "requests in a save after RENAME");
}

#[test]
fn a_save_knows_the_requests_of_broken_readers_that_are_not_told() {
    const READERS: usize = 9;
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    world.set_portion(2);
    let caller = Caller { client: 1, db: 0, may_block: true };
    for n in 0..READERS {
        let (owner, id) = permit(u32::try_from(n).unwrap());
        let acquire = Acquire { reqid: Some(&id), ..Acquire::new(b"k", &owner) };
        let _ = world.ask(caller, Op::Rw(RwOp::Acquire(RwAcquire { acquire, mode: Mode::Read })));
    }
    assert_eq!(saved(&world), 0, "requests in a save");
    let seen = world.ask(caller, Op::Rw(RwOp::Break(RwBreak { key: b"k", owner: None })));
    assert_eq!(seen.reply, Some(Outcome::Count(READERS as u64)));
    assert!(world.machine.tables().removed_values() > 0);
    assert_eq!(saved(&world), READERS, "requests in a save");
    while world.machine.tables().removed_values() > 0 {
        let _ = world.step(|machine, turn| {
            machine.tick(turn, Gate::Open, 1);
        });
        assert_eq!(saved(&world), READERS, "requests in a save in between");
    }
    world.finish();
}
