//! Calls for several keys, each of which becomes grantable through the one before.

use crate::support::{Keys, MS, WALL_US};
use dlock_core::base::hash::HashKeys;
use dlock_core::base::time::{Instant, Now};
use dlock_core::events::tick::Progress;
use dlock_core::invariants::broken_invariant;
use dlock_core::machine::{Fact, Machine};
use dlock_core::ports::effects::{Answer, Effects, Outcome};
use dlock_core::ports::turn::{Caller, Turn};
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_wire::permit::PermitId;
use dlock_wire::request::{Acquire, LockFamily, LockOp, MAcquire, MultiOp, Op};

const CALLS: usize = 5_000;

/// Each owner holds a key and waits for it and its neighbour's. The owners join in reverse order of the chain. All
/// leases end at the same moment: checking one key makes the call behind it grantable, which checks the next. None of
/// these checks may nest on the stack.
#[test]
fn a_long_chain_needs_no_deep_stack() {
    let run = || {
        let now = |ms: u64| Now { mono: Instant(1_000 * MS + ms * MS), wall_us: WALL_US };
        let mut machine = Machine::new(HashKeys(1, 2), Settings::default());
        machine.learn(Fact::Gate(Gate::Open, now(0).mono));
        let (mut keys, mut fx) = (Keys::default(), Effects::default());
        let names: Vec<Vec<u8>> = (0..=CALLS).map(|n| format!("k{n:06}").into_bytes()).collect();
        let caller = |n: usize| Caller { client: n as u64 + 1, db: 0, may_block: true };
        for (n, name) in names.iter().enumerate() {
            fx.clear();
            let call = Acquire { lease_ms: Some(1_000), ..Acquire::new(name, name) };
            let turn = &mut Turn { keys: &mut keys, now: now(0), caller: caller(n), fx: &mut fx };
            machine.execute(
                turn,
                &Op::Lock(LockFamily::Lock, LockOp::Acquire(call)),
                PermitId::default(),
            );
            assert!(matches!(fx.answer, Some(Answer::Now(Outcome::Token(_)))));
        }
        for n in (1..=CALLS).rev() {
            fx.clear();
            let both = [&names[n][..], &names[n - 1][..]];
            let call = MAcquire { block_ms: Some(0), ..MAcquire::new(&both, &names[n]) };
            let turn = &mut Turn { keys: &mut keys, now: now(0), caller: caller(n), fx: &mut fx };
            machine.execute(turn, &Op::Multi(MultiOp::Acquire(call)), PermitId::default());
            assert!(matches!(fx.answer, Some(Answer::Parked(_))));
        }
        fx.clear();
        let turn = &mut Turn::without_caller(&mut keys, now(2_000), &mut fx);
        while machine.tick(turn, Gate::Open, 100) == Progress::More {}
        // The last one is in front at both of its keys, and keeps the others waiting.
        assert_eq!(fx.wakes.len(), 1);
        assert_eq!(broken_invariant(machine.tables(), &mut keys, now(2_000)), None);
    };
    let thread = std::thread::Builder::new().stack_size(512 * 1024).spawn(run).expect("a thread");
    thread.join().expect("no stack is too small");
}
