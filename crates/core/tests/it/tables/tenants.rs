//! What one ACL user does to the others of a server.

use crate::support::{MS, Seen, World};
use dlock_core::effects::Outcome;
use dlock_core::machine::Settings;
use dlock_core::shares::User;
use dlock_core::turn::Caller;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Acquire, Cancel, LockFamily, LockOp, Op, Release};

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

fn cancel(id: &[u8]) -> LockOp<'_> {
    LockOp::Cancel(Cancel { reqid: Some(id), ..Cancel::new(b"k", b"a") })
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
    assert_eq!(lock(&mut world, "other", release(b"release")).reply, Some(Outcome::Count(0)));
    assert_eq!(lock(&mut world, "other", cancel(b"lost")).reply, Some(Outcome::Count(0)));
    for n in 0..1_000_u32 {
        let _ = lock(&mut world, "mal", cancel(&n.to_be_bytes()));
        let _ = lock(&mut world, "mal", release(format!("no hold {n}").as_bytes()));
    }
    assert!(world.machine.spent().len() <= MOST + MOST / 16, "the memory is limited");
    assert_eq!(code(&lock(&mut world, "other", acquire(b"request"))), Some(ErrorCode::Spent));
    assert_eq!(code(&lock(&mut world, "other", acquire(b"lost"))), Some(ErrorCode::Spent));
    assert_eq!(lock(&mut world, "other", release(b"release")).reply, Some(Outcome::Count(0)));
    // The newest of the user's own.
    assert_eq!(
        code(&lock(&mut world, "mal", acquire(&999_u32.to_be_bytes()))),
        Some(ErrorCode::Spent)
    );
    assert_eq!(code(&lock(&mut world, "mal", acquire(&0_u32.to_be_bytes()))), None);
}
