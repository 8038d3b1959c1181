//! The parts of an error's text that a client reads, or that tell people what to do.

use crate::support::{MS, Saved, World};
use dlock_core::ports::effects::Outcome;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::settings::Settings;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Acquire, LockFamily, LockOp, Op};

const CALLER: Caller = Caller { client: 1, db: 0, may_block: true };

/// The code and the text of the error that an ACQUIRE with this id is answered, if it is.
fn refused(world: &mut World, id: &[u8]) -> Option<(ErrorCode, String)> {
    let call = Acquire { reqid: Some(id), ..Acquire::new(b"k", b"a") };
    match world.ask(CALLER, Op::Lock(LockFamily::Lock, LockOp::Acquire(call))).reply {
        Some(Outcome::Fault(fault)) => Some((fault.code, fault.text.clone())),
        _ => None,
    }
}

#[test]
fn the_second_word_in_a_quarantine_is_the_time_left() {
    let settings = Settings { restart_quarantine_ms: 100, ..Settings::default() };
    let mut world = World::new(settings, 1_000_000 * MS);
    world.restart(Saved::Aof);
    let (code, text) = refused(&mut world, b"r").expect("a refusal");
    assert_eq!((code, text.split(' ').next()), (ErrorCode::Quarantine, Some("100")), "{text}");
    world.at(1_000_040 * MS);
    let (_, text) = refused(&mut world, b"r").expect("a refusal");
    assert_eq!(text.split(' ').next(), Some("60"), "{text}");
}

#[test]
fn the_limit_of_ids_names_the_way_out() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    for n in 0..64_u8 {
        assert_eq!(refused(&mut world, &[b'r', n]), None);
    }
    let (code, text) = refused(&mut world, b"more").expect("a refusal");
    assert!(code == ErrorCode::Limit && text.contains("ALL"), "{text}");
}
