//! Impossible grants, and possible ones that look impossible.

use std::time::{Duration, Instant};

use dlock_testing::redis::Value;

use crate::{
    call::{Acquire, Call, Form, Meaning, Mode, Scope},
    key::{Family, Key, Owner},
    oracle::{ConnId, Oracle, Times, Violation},
};

const KEY: Key = Key { db: 0, tag: 0, family: Family::Lock, no: 0 };
const SECOND: Duration = Duration::from_secs(1);
const A: Owner = Owner(1, 0);
const B: Owner = Owner(2, 0);

/// A run whose clock is moved by hand.
struct Run {
    oracle: Oracle,
    now: Instant,
}

impl Run {
    fn new() -> Run {
        Run { oracle: Oracle::default(), now: Instant::now() }
    }

    fn after(&mut self, ms: u64) -> &mut Run {
        self.now += Duration::from_millis(ms);
        self
    }

    fn send(&mut self, conn: ConnId, meaning: Meaning) -> (ConnId, Instant, Meaning) {
        let call = Call::new(&["X"], meaning.clone());
        self.oracle.sent(&call, conn, self.now);
        (conn, self.now, meaning)
    }

    fn reply(&mut self, sent: &(ConnId, Instant, Meaning), reply: &Value) -> Result<(), Violation> {
        let times = Times { conn: sent.0, sent: sent.1, now: self.now };
        self.oracle.answered(&sent.2, times, reply)
    }

    /// A call that is answered a millisecond later.
    fn call(&mut self, conn: ConnId, meaning: Meaning, reply: i64) -> Result<(), Violation> {
        let sent = self.send(conn, meaning);
        self.after(1).reply(&sent, &Value::Int(reply))
    }
}

fn acquire(owner: Owner, mode: Mode) -> Acquire {
    Acquire { keys: vec![KEY], form: Form::One, owner, mode, lease: SECOND, bind: false }
}

fn take(owner: Owner) -> Meaning {
    Meaning::Acquire(acquire(owner, Mode::Exclusive))
}

fn release(owner: Owner) -> Meaning {
    Meaning::Ends(vec![Scope::Hold(KEY, owner, Mode::Exclusive)])
}

#[test]
fn two_owners_are_found() {
    let mut run = Run::new();
    run.call(1, take(A), 10).unwrap();
    let found = run.call(2, take(B), 11).unwrap_err();
    assert!(found.text.starts_with("two owners at one time"), "{}", found.text);
    assert_eq!(found.key, Some(KEY));
}

#[test]
fn two_owners_are_found_in_whatever_order_their_replies_come() {
    let mut run = Run::new();
    let a = run.send(1, take(A));
    let b = run.send(2, take(B));
    run.after(1).reply(&b, &Value::Int(11)).unwrap();
    run.after(1).reply(&a, &Value::Int(10)).unwrap_err();
}

#[test]
fn owners_after_each_other_are_fine() {
    let mut run = Run::new();
    run.call(1, take(A), 10).unwrap();
    run.call(1, release(A), 0).unwrap();
    run.call(2, take(B), 11).unwrap();
    // An expired lease.
    run.after(1_000).call(1, take(A), 12).unwrap();
}

#[test]
fn a_release_on_its_way_may_have_made_room() {
    let mut run = Run::new();
    run.call(1, take(A), 10).unwrap();
    let released = run.send(1, release(A));
    run.call(2, take(B), 11).unwrap();
    run.reply(&released, &Value::Int(0)).unwrap();
    // A reply from before the release proves nothing about later times.
    assert_eq!(run.oracle.certain(run.now, SECOND / 2).len(), 1);
}

#[test]
fn a_release_that_went_with_the_grant_leaves_nothing_certain() {
    let mut run = Run::new();
    let taken = run.send(1, take(A));
    let released = run.send(1, release(A));
    run.after(1).reply(&taken, &Value::Int(10)).unwrap();
    run.reply(&released, &Value::Int(0)).unwrap();
    run.call(2, take(B), 11).unwrap();
}

#[test]
fn a_deletion_of_the_key_over_another_connection_leaves_nothing_certain() {
    let mut run = Run::new();
    let taken = run.send(1, take(A));
    let deleted = run.send(3, Meaning::Ends(vec![Scope::Key(KEY)]));
    run.after(1).reply(&deleted, &Value::Int(1)).unwrap();
    run.after(1).reply(&taken, &Value::Int(10)).unwrap();
    run.call(2, take(B), 11).unwrap();
}

#[test]
fn a_binding_that_may_have_come_with_a_place_ends_with_its_connection() {
    let mut run = Run::new();
    // A QUEUE call with BIND, whose grant is claimed without.
    let queued =
        run.send(1, Meaning::Acquire(Acquire { bind: true, ..acquire(A, Mode::Exclusive) }));
    run.after(1).reply(&queued, &Value::Nil).unwrap();
    run.after(1).call(1, take(A), 10).unwrap();
    run.oracle.doomed(1);
    run.oracle.settled(run.now);
    // It outlives its connection for a moment, even for a reply in that time.
    run.after(1).call(3, take(A), 10).unwrap();
    run.after(1).call(2, take(B), 11).unwrap();
}

#[test]
fn the_end_of_a_binding_is_put_off_while_leases_stand_still() {
    let mut run = Run::new();
    run.call(1, Meaning::Acquire(Acquire { bind: true, ..acquire(A, Mode::Exclusive) }), 10)
        .unwrap();
    run.oracle.doomed(1);
    run.oracle.settled(run.now);
    run.oracle.stands_still();
    run.after(5_000);
    run.oracle.settled(run.now);
    run.after(1).call(3, take(A), 10).unwrap();
    run.after(1).call(2, take(B), 11).unwrap();
    run.call(2, release(B), 0).unwrap();
    // After a calm time it has ended, and later replies are certain.
    run.after(5_000);
    run.oracle.settled(run.now);
    run.after(1).call(3, take(A), 12).unwrap();
    run.after(1).call(2, take(B), 13).unwrap_err();
}

#[test]
fn a_binding_that_outlives_a_fault_may_end_with_the_next() {
    let mut run = Run::new();
    run.call(1, Meaning::Acquire(Acquire { bind: true, ..acquire(A, Mode::Exclusive) }), 10)
        .unwrap();
    // Another server was meant.
    run.oracle.all_doomed(std::iter::empty());
    for _ in 0..3 {
        run.after(5_000);
        run.oracle.settled(run.now);
    }
    run.after(1).call(1, take(A), 10).unwrap();
    run.oracle.all_doomed(std::iter::empty());
    run.after(1).call(2, take(B), 11).unwrap();
}

#[test]
fn a_shorter_renewal_shortens_no_promise() {
    let mut run = Run::new();
    run.call(1, take(A), 10).unwrap();
    let renew = Meaning::Renew {
        keys: vec![KEY],
        owner: A,
        mode: Mode::Exclusive,
        lease: SECOND / 10,
        bind: false,
        tells_token: true,
    };
    run.call(1, renew, 10).unwrap();
    run.after(150).call(2, take(B), 11).unwrap_err();
}

#[test]
fn readers_go_together_and_exclude_writers() {
    let mut run = Run::new();
    run.call(1, Meaning::Acquire(acquire(A, Mode::Read)), 10).unwrap();
    run.call(2, Meaning::Acquire(acquire(B, Mode::Read)), 11).unwrap();
    run.call(2, Meaning::Acquire(acquire(B, Mode::Write)), 12).unwrap_err();
}

#[test]
fn tokens_that_go_back_are_found() {
    let mut run = Run::new();
    run.call(1, take(A), 10).unwrap();
    run.call(1, release(A), 0).unwrap();
    let found = run.call(2, take(B), 9).unwrap_err();
    assert!(found.text.starts_with("tokens went back"), "{}", found.text);
}

#[test]
fn a_binding_ends_with_its_connection() {
    let mut run = Run::new();
    run.call(1, Meaning::Acquire(Acquire { bind: true, ..acquire(A, Mode::Exclusive) }), 10)
        .unwrap();
    run.oracle.doomed(1);
    run.call(2, take(B), 11).unwrap();
}

#[test]
fn more_permits_than_there_are_are_found() {
    let permit = || Meaning::Permit { key: KEY, owner: A, count: 2, lease: SECOND, bind: false };
    let mut run = Run::new();
    let mut made = Call::new(&["X"], Meaning::Nothing);
    made.capacity.push((KEY, 3));
    run.oracle.sent(&made, 1, run.now);
    let first = run.send(1, permit());
    run.after(1).reply(&first, &Value::BulkString(b"p1".to_vec())).unwrap();
    let second = run.send(1, permit());
    let found = run.after(1).reply(&second, &Value::BulkString(b"p2".to_vec())).unwrap_err();
    assert!(found.text.starts_with("4 permits"), "{}", found.text);
}

/// Sends a copy of one RELEASE, which is answered a millisecond later.
fn release_again(run: &mut Run, conn: ConnId, reply: &Value) -> Result<(), Violation> {
    let scopes = vec![Scope::Hold(KEY, A, Mode::Exclusive)];
    let release = Some((KEY, "r1".to_owned()));
    let call = Call { release, ..Call::ending(&["DLOCK.RELEASE"], scopes) };
    run.oracle.sent(&call, conn, run.now);
    let sent = run.now;
    run.after(1);
    let times = Times { conn, sent, now: run.now };
    run.oracle.answered(&call.meaning, times, reply)?;
    run.oracle.released(&call, times, reply)
}

fn error(code: &str) -> Value {
    let frame = format!("-{code} text\r\n");
    dlock_testing::redis::parse_redis_value(frame.as_bytes()).unwrap_or(Value::Nil)
}

#[test]
fn copies_of_a_release_get_the_same_reply() {
    let replies =
        [Value::Int(0), Value::Nil, error("LOST expired"), error("LOST broken"), error("UNKNOWN")];
    for one in &replies {
        for other in &replies {
            let mut run = Run::new();
            release_again(&mut run, 1, one).unwrap();
            release_again(&mut run, 2, one).unwrap();
            let found = release_again(&mut run, 1, other);
            assert_eq!(found.err().map(|found| found.key), (one != other).then_some(Some(KEY)));
        }
    }
}

#[test]
fn copies_of_a_release_may_differ_once_it_may_be_forgotten() {
    let mut run = Run::new();
    release_again(&mut run, 1, &Value::Int(0)).unwrap();
    run.oracle.requests_forgotten(run.now);
    release_again(&mut run, 1, &error("UNKNOWN")).unwrap();
    let mut run = Run::new();
    release_again(&mut run, 1, &Value::Int(0)).unwrap();
    run.call(3, Meaning::Ends(vec![Scope::Key(KEY)]), 1).unwrap();
    release_again(&mut run, 1, &error("UNKNOWN")).unwrap();
    let mut run = Run::new();
    release_again(&mut run, 1, &Value::Int(0)).unwrap();
    run.oracle.settled(run.now);
    release_again(&mut run, 1, &error("UNKNOWN")).unwrap();
}
