//! What one ACL user does to the others of a server.

use crate::support::{MS, Seen, World};
use dlock_core::base::shares::User;
use dlock_core::ports::effects::Outcome;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Acquire, EndAbsent, LockFamily, LockOp, OneKey, Op, Release};

const CALLER: Caller = Caller { client: 1, db: 0, may_block: true };

fn world(settings: Settings) -> World {
    World::new(settings, 1_000_000 * MS)
}

/// A call of an ACL user for DLOCK.
fn lock(world: &mut World, user: &str, op: LockOp<'_>) -> Seen {
    world.keys.user = User::named(user.as_bytes());
    world.ask(CALLER, Op::Lock(LockFamily::Lock, op))
}

fn acquire(id: &[u8]) -> LockOp<'_> {
    LockOp::Acquire(Acquire { reqid: Some(id), ..Acquire::new(b"k", b"a") })
}

fn release(id: &[u8]) -> LockOp<'_> {
    LockOp::Release(Release { reqid: Some(id), ..Release::new(b"k", b"a") })
}

fn code(seen: &Seen) -> Option<ErrorCode> {
    match &seen.reply {
        Some(Outcome::Fault(fault)) => Some(fault.code),
        _ => None,
    }
}

#[test]
fn ids_without_a_request_erase_nobodys_retry_protection() {
    const MOST: usize = 64;
    let mut world = world(Settings { request_memory_max: MOST, ..Settings::default() });
    assert_eq!(code(&lock(&mut world, "other", acquire(b"request"))), None);
    assert_eq!(lock(&mut world, "other", release(b"request")).reply, Some(Outcome::Count(0)));
    assert_eq!(code(&lock(&mut world, "other", release(b"lost"))), Some(ErrorCode::Unknown));
    for n in 0..1_000_u32 {
        let _ = lock(&mut world, "mal", release(&n.to_be_bytes()));
    }
    assert!(world.machine.tables().spent.len() <= MOST + MOST / 16, "the memory is limited");
    assert_eq!(code(&lock(&mut world, "other", acquire(b"request"))), Some(ErrorCode::Spent));
    assert_eq!(code(&lock(&mut world, "other", acquire(b"lost"))), Some(ErrorCode::Spent));
    assert_eq!(lock(&mut world, "other", release(b"request")).reply, Some(Outcome::Count(0)));
    // The newest of the user's own.
    assert_eq!(
        code(&lock(&mut world, "mal", acquire(&999_u32.to_be_bytes()))),
        Some(ErrorCode::Spent)
    );
    assert_eq!(code(&lock(&mut world, "mal", acquire(&0_u32.to_be_bytes()))), None);
}

/// One ACQUIRE with BLOCK 0.
fn wait(world: &mut World, client: u64, key: &str, owner: &str) -> Seen {
    let call = Acquire { block_ms: Some(0), ..Acquire::new(key.as_bytes(), owner.as_bytes()) };
    world.call(Caller { client, ..CALLER }, Op::Lock(LockFamily::Lock, LockOp::Acquire(call)))
}

#[test]
fn the_text_of_a_deadlock_names_no_key_that_the_caller_may_not_read() {
    let mut world = world(Settings::default());
    for (client, key, owner) in [(1, "k", "A"), (2, "l", "B"), (3, "secret", "C"), (4, "s2", "D")] {
        let _ = wait(&mut world, client, key, owner);
    }
    // C waits for the caller A, D for C, and B for D.
    for (client, key, owner) in [(5, "k", "C"), (6, "secret", "D"), (7, "s2", "B")] {
        assert!(wait(&mut world, client, key, owner).parked.is_some());
    }
    let mut text = |secret| {
        world.keys.secret = secret;
        match wait(&mut world, 8, "l", "A").reply {
            Some(Outcome::Fault(fault)) => fault.text,
            other => panic!("{other:?}"),
        }
    };
    let all = r#""A" waits for "l", "B" waits for "s2", "D" waits for "secret", "C" waits for "k""#;
    assert_eq!(text(None), format!("this call would wait forever: {all}"));
    let some =
        r#""A" waits for "l", "C" waits for "k", through 2 keys that this answer may not name"#;
    assert_eq!(text(Some(b's')), format!("this call would wait forever: {some}"));
}

#[test]
fn repeats_of_an_event_push_nothing_out_of_the_log() {
    let mut world = world(Settings { log_max_len: 4, ..Settings::default() });
    let broken = |world: &mut World, key: &[u8], owner: &[u8]| {
        let _ = world
            .ask(CALLER, Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire::new(key, owner))));
        let _ = world.ask(CALLER, Op::Lock(LockFamily::Lock, LockOp::Break(OneKey { key })));
    };
    broken(&mut world, b"k", b"a");
    for _ in 0..130 {
        broken(&mut world, b"mal", b"m");
        broken(&mut world, b"mal", b"m2");
    }
    let seen = world.machine.tables().log.newest();
    let seen = seen.map(|one| (one.key.as_slice(), one.owner.as_slice(), one.count));
    let expected: [(&[u8], &[u8], u64); 3] =
        [(b"mal", b"m2", 130), (b"mal", b"m", 130), (b"k", b"a", 1)];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
}

const DAY_MS: u64 = 86_400_000;

/// QUEUE of a day on a connection of its own. Returns the code of a refusal.
fn queue(world: &mut World, user: &str, client: u64, key: &str, owner: u32) -> Option<ErrorCode> {
    world.keys.user = User::named(user.as_bytes());
    let owner = owner.to_be_bytes();
    let call = Acquire { queue_ms: Some(DAY_MS), ..Acquire::new(key.as_bytes(), &owner) };
    code(
        &world.call(Caller { client, ..CALLER }, Op::Lock(LockFamily::Lock, LockOp::Acquire(call))),
    )
}

/// Keys `k`, `mal` and `fair` are held.
fn held(most: usize) -> World {
    let mut world = world(Settings { max_waiters: most, ..Settings::default() });
    for key in [&b"k"[..], b"mal"] {
        let _ = world
            .call(CALLER, Op::Lock(LockFamily::Lock, LockOp::Acquire(Acquire::new(key, b"h"))));
    }
    world
}

fn fill(world: &mut World, count: u32) {
    for owner in 0..count {
        assert_eq!(queue(world, "mal", 2, "mal", owner), None);
    }
    let _ = world.gone(2);
    let _ = world.tick(Gate::Open);
}

#[test]
fn one_user_does_not_block_every_wait_for_a_day() {
    let mut world = held(40);
    assert_eq!(queue(&mut world, "other", 3, "k", 1_000), None);
    let _ = world.gone(3);
    fill(&mut world, 39);
    for owner in 0..30 {
        assert_eq!(queue(&mut world, "other", 4, "k", owner), None, "{owner}");
    }
    assert_eq!(world.machine.tables().waits.len(), 40);
    assert_eq!(queue(&mut world, "other", 4, "k", 1_000), None, "its absent place is there");
    assert_eq!(world.machine.tables().waits.len(), 40);
    // Of those with a connection none gives way.
    for owner in 0..9 {
        assert_eq!(queue(&mut world, "other", 4, "mal", 50 + owner), None, "{owner}");
    }
    assert_eq!(queue(&mut world, "other", 4, "mal", 99), Some(ErrorCode::Limit));
    world.finish();
}

#[test]
fn places_of_a_fair_lock_do_not_give_way() {
    let mut world = world(Settings { max_waiters: 4, ..Settings::default() });
    let fair = |world: &mut World, owner: &[u8]| {
        let call = Acquire { queue_ms: Some(DAY_MS), ..Acquire::new(b"fair", owner) };
        let op = Op::Lock(LockFamily::Fair, LockOp::Acquire(call));
        code(&world.call(Caller { client: 2, ..CALLER }, op))
    };
    for owner in [b"a", b"b", b"c", b"d", b"e"] {
        assert_eq!(fair(&mut world, owner), None);
    }
    let _ = world.gone(2);
    assert_eq!(fair(&mut world, b"f"), Some(ErrorCode::Limit));
    world.finish();
}

#[test]
fn a_flush_ends_places_without_a_connection_in_its_databases() {
    // The waiter with a connection is granted the lock after a flush of its database.
    for (db, left) in [(Some(0), 0), (Some(1), 21), (None, 0)] {
        let mut world = held(40);
        fill(&mut world, 20);
        assert_eq!(queue(&mut world, "other", 4, "mal", 99), None);
        let _ = world.flush(db);
        let _ = world.tick(Gate::Open);
        assert_eq!(world.machine.tables().waits.len(), left, "{db:?}");
        world.finish();
    }
}

#[test]
fn operators_end_places_without_a_connection() {
    let mut world = held(40);
    fill(&mut world, 20);
    assert_eq!(queue(&mut world, "other", 3, "mal", 98), None);
    assert_eq!(queue(&mut world, "other", 4, "mal", 99), None);
    let _ = world.gone(3);
    let mut end = |call| world.call(CALLER, Op::EndAbsent(call)).reply;
    assert_eq!(end(EndAbsent::Of(b"nobody")), Some(Outcome::Count(0)));
    assert_eq!(end(EndAbsent::At(b"k")), Some(Outcome::Count(0)));
    assert_eq!(end(EndAbsent::Of(b"mal")), Some(Outcome::Count(20)));
    assert_eq!(end(EndAbsent::At(b"mal")), Some(Outcome::Count(1)));
    assert_eq!(world.machine.tables().waits.len(), 1);
    world.finish();
}
