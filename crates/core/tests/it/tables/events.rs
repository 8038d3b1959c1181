//! Events that the server reports late, very many at a time: they serve one portion together, and the tick the rest.

use crate::support::{MS, World, drain_some};
use dlock_core::base::key::Key;
use dlock_core::events::tick::Progress;
use dlock_core::machine::{Fact, Machine, ServerEvent};
use dlock_core::ports::effects::{Effects, Outcome};
use dlock_core::ports::turn::{Caller, Turn};
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_wire::permit::PermitId;
use dlock_wire::request::{Acquire, LockFamily, LockOp, Op};

const MANY: u32 = 600;

/// Largest number of effects after the events: a portion, and the last hand-off of it.
const MOST: usize = 140;

/// The connection whose holds are bound.
const BOUND: u64 = 1;

/// The connection of all waiters.
const WAITING: u64 = 2;

fn caller(client: u64) -> Caller {
    Caller { client, db: 0, may_block: true }
}

fn name(prefix: u8, n: u32) -> Vec<u8> {
    [&[prefix][..], &n.to_be_bytes()].concat()
}

/// [`MANY`] locks whose names begin with `prefix`, each held over `holder` and with one waiter.
fn lock_all(world: &mut World, prefix: u8, holder: u64) {
    for name in (0..MANY).map(|n| name(prefix, n)) {
        let bind_ms = (holder == BOUND).then_some(0);
        let hold = Acquire { bind_ms, ..Acquire::new(&name, b"A") };
        let wait = Acquire { queue_ms: Some(60_000), ..Acquire::new(&name, b"B") };
        acquire(world, holder, &hold);
        acquire(world, WAITING, &wait);
    }
}

/// Not as a step of the world, because that checks everything, and there are very many of these calls.
fn acquire(world: &mut World, client: u64, call: &Acquire<'_>) {
    let (now, fx) = (world.now(), &mut Effects::default());
    world.machine.learn(Fact::Gate(Gate::Open, now.mono));
    let turn = &mut Turn { keys: &mut world.keys, now, caller: caller(client), fx };
    world.machine.execute(
        turn,
        &Op::Lock(LockFamily::Lock, LockOp::Acquire(*call)),
        PermitId::default(),
    );
}

/// Carries out an event, or what follows after the last one. The module carries out the effects of each event before
/// the next, so each begins without effects. Returns their number.
fn tell(world: &mut World, event: impl FnOnce(&mut Machine, &mut Turn<'_>)) -> usize {
    let (now, mut fx) = (world.now(), Effects::default());
    world.machine.learn(Fact::Gate(Gate::Open, now.mono));
    event(&mut world.machine, &mut Turn::without_caller(&mut world.keys, now, &mut fx));
    fx.weight()
}

/// Reports the removal of all locks with this prefix, as one batch. Returns the number of its effects.
fn remove_all(world: &mut World, prefix: u8) -> usize {
    world.share_prints();
    let names = (0..MANY).map(|n| name(prefix, n));
    let removed = names.map(|name| {
        let key = Key { db: 0, name: &name };
        let lost = world.keys.free(key);
        tell(world, |machine, turn| {
            machine.event(turn, ServerEvent::Unlinked(key, lost));
        })
    });
    removed.sum::<usize>() + tell(world, drain_some)
}

/// Serves all waiters; no tick may do too much.
fn serve_all(world: &mut World, waiters: usize) {
    let now = world.now();
    let mut grants = 0;
    let mut progress = Progress::More;
    while progress == Progress::More {
        let mut fx = Effects::default();
        progress = {
            let turn = &mut Turn::without_caller(&mut world.keys, now, &mut fx);
            world.machine.tick(turn, Gate::Open, 64)
        };
        assert!(fx.weight() <= MOST, "{} effects in one tick", fx.weight());
        grants += fx.messages.len();
    }
    assert!(grants + 50 >= waiters, "{grants} granted in the tick");
    assert_eq!(world.machine.tables().waits.len(), 0, "all are served");
}

#[test]
fn keys_removed_together_hand_off_one_portion() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    lock_all(&mut world, b'a', 3);
    let effects = remove_all(&mut world, b'a');
    assert!((10..=MOST).contains(&effects), "{effects} effects");
    serve_all(&mut world, MANY as usize);
}

/// Few events are enough if each of them finds work that others have left.
#[test]
fn keys_removed_while_other_work_is_left_do_one_portion_of_it() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    lock_all(&mut world, b'a', BOUND);
    lock_all(&mut world, b'b', 3);
    tell(&mut world, |machine, turn| {
        machine.event(turn, ServerEvent::ClientGone(BOUND));
    });
    let effects = remove_all(&mut world, b'b');
    assert!((10..=MOST).contains(&effects), "{effects} effects");
    serve_all(&mut world, 2 * MANY as usize);
}

#[test]
fn connections_that_close_together_do_one_portion() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    lock_all(&mut world, b'a', BOUND);
    for n in 0..MANY {
        let name = name(b'c', n);
        let call = Acquire { bind_ms: Some(0), ..Acquire::new(&name, b"A") };
        acquire(&mut world, u64::from(100 + n), &call);
    }
    let clients = core::iter::once(BOUND).chain((0..MANY).map(|n| u64::from(100 + n)));
    let gone = clients.map(|client| {
        tell(&mut world, |machine, turn| {
            machine.event(turn, ServerEvent::ClientGone(client));
        })
    });
    let effects = gone.sum::<usize>() + tell(&mut world, drain_some);
    assert!((10..=MOST).contains(&effects), "{effects} effects");
    serve_all(&mut world, MANY as usize);
}

#[test]
fn a_newcomer_waits_behind_the_waiters_of_a_removed_key_that_are_not_served() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    lock_all(&mut world, b'a', 3);
    remove_all(&mut world, b'a');
    let last = name(b'a', MANY - 1);
    let now = world.now();
    let mut fx = Effects::default();
    world.machine.learn(Fact::Gate(Gate::Open, now.mono));
    let call = Acquire::new(&last, b"C");
    let turn = &mut Turn { keys: &mut world.keys, now, caller: caller(9), fx: &mut fx };
    world.machine.execute(
        turn,
        &Op::Lock(LockFamily::Lock, LockOp::Acquire(call)),
        PermitId::default(),
    );
    assert_eq!(fx.answer, Some(Outcome::Null.into()), "the first waiter is granted");
    assert_eq!(fx.messages.len(), 1, "{:?}", fx.messages);
}

/// A reading command serves the waiters of its key first.
#[test]
fn a_reader_finds_the_new_holder_of_a_removed_key() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    lock_all(&mut world, b'a', 3);
    remove_all(&mut world, b'a');
    let last = name(b'a', MANY - 1);
    let key = Key { db: 0, name: &last };
    assert!(world.machine.tables().waits.is_behind(key));
    assert_eq!(
        tell(&mut world, |machine, turn| {
            machine.event(turn, ServerEvent::Asked(key));
        }),
        3
    );
    assert!(!world.machine.tables().waits.is_behind(key), "served, and nothing is left to do");
}
