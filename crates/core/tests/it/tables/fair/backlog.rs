//! A loaded queue becomes waiters in portions: order, replies and the saved entries do not show it.

use super::run;
use crate::support::{MS, World};
use dlock_core::effects::Outcome;
use dlock_core::events::tick::Progress;
use dlock_core::key::Key;
use dlock_core::machine::Settings;
use dlock_core::regime::Gate;
use dlock_core::turn::Caller;
use dlock_wire::request::{Acquire, LockFamily, LockOp, Op, Renew};

const OWNERS: usize = 30;

const KEY: Key<'_> = Key { db: 0, name: b"k" };

/// A failover with [`OWNERS`] queue entries of one key. Nobody has opened the key since.
fn failed_over() -> World {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    for n in 0..=OWNERS {
        let owner = n.to_string();
        let mut call = Acquire::new(KEY.name, owner.as_bytes());
        call.queue_ms = Some(9_000);
        call.lease_ms = Some(60_000);
        let caller = Caller { client: 1, db: 0, may_block: true };
        let seen = world.ask(caller, Op::Lock(LockFamily::Fair, LockOp::Acquire(call)));
        assert_eq!(n == 0, matches!(seen.reply, Some(Outcome::Token(_))));
    }
    world.set_portion(2);
    world.fail_over();
    world
}

fn waiting(world: &World) -> Vec<String> {
    let waits = world.machine.waits();
    let waiters = waits.queue_of(KEY).into_iter().flat_map(|queue| waits.walk(queue));
    waiters.map(|(_, waiter)| String::from_utf8_lossy(&waiter.owner).into_owned()).collect()
}

#[test]
fn a_step_adopts_few_entries_and_the_tick_all() {
    let mut world = failed_over();
    let renew = Renew { key: KEY.name, owner: b"0", lease_ms: None, token: None, bind_ms: None };
    let caller = Caller { client: 2, db: 0, may_block: true };
    world.gate = Gate::Open;
    let seen = world.ask(caller, Op::Lock(LockFamily::Fair, LockOp::Renew(renew)));
    assert!(matches!(seen.reply, Some(Outcome::Token(_))));
    assert_eq!(
        waiting(&world),
        ["1", "2", "3", "4"],
        "a portion before the verb, and one after it"
    );
    let mut steps = 0;
    let mut progress = Progress::More;
    while progress == Progress::More {
        let before = waiting(&world).len();
        let seen = world.step(|machine, turn| progress = machine.tick(turn, Gate::Open, 1));
        assert_eq!(seen.recorded, [], "the value has had all entries from the start");
        assert!(waiting(&world).len() <= before + 4, "one piece of work adopts few");
        steps += 1;
    }
    assert!(steps > OWNERS / 4);
    let all: Vec<String> = (1..=OWNERS).map(|n| n.to_string()).collect();
    assert_eq!(waiting(&world), all);
}

/// A row of WAITERS in full: `BC 0 1 - []` stands for `B 0 1 - []; C 0 1 - []`.
fn in_full(row: &str) -> String {
    let Some((step, shown)) = row.split_once("=> ").filter(|_| row.contains("WAITERS")) else {
        return row.to_owned();
    };
    let places = shown.split("; ").flat_map(|places| {
        let (owners, rest) = places.split_once(' ').unwrap_or((places, ""));
        owners.chars().map(move |owner| format!("{owner} {rest}"))
    });
    match shown {
        "nobody" => row.to_owned(),
        _ => format!("{step}=> {}", places.collect::<Vec<_>>().join("; ")),
    }
}

/// Nine queue entries, of which the first four become waiters at the time 11.
fn begun(rows: &str) {
    let rows: Vec<String> = rows.lines().map(in_full).collect();
    let rows = rows.join("\n");
    run(&format!(
        "
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          1  c2  ACQUIRE k C QUEUE 300              => null
          1  c2  ACQUIRE k D QUEUE 300              => null
          1  c2  ACQUIRE k E QUEUE 300              => null
          1  c2  ACQUIRE k F QUEUE 300              => null
          1  c2  ACQUIRE k G QUEUE 300              => null
          1  c2  ACQUIRE k H QUEUE 300              => null
          1  c2  ACQUIRE k I QUEUE 300              => null
          1  c2  ACQUIRE k J QUEUE 300              => null
         10  set portion 2
         10  failover                               => c2 gets MOVING
         11  c1  RENEW k A                          => t1
        {rows}
        "
    ));
}

#[test]
fn reading_commands_show_all_of_a_queue_that_is_being_adopted() {
    begun(
        "
         11  c1  WAITERS k     => B 0 10 100 []; CDEFGHIJ 0 10 300 []
         11  r   WAITERS k     => BCDEFGHIJ 0 10 - []
         11  c1  POSITION k D  => 3
         11  c1  POSITION k J  => 9
         11  c1  POSITION k A  => 0
         11  c1  POSITION k K  => null
         11  c1  INFO k        => [A] t1 holds 1 lease 30000 ttl 30000 held 11 [] bound 0 waiters 9
        # The graces end also if no step has begun them.
        111  c1  POSITION k J  => 8
        311  c1  WAITERS k     => nobody
    ",
    );
}

#[test]
fn an_owner_that_asks_again_has_its_position_and_a_newcomer_is_the_last() {
    begun("
         11  c9  ACQUIRE k J BLOCK 0     => parked
         11  c1  POSITION k J            => 9
         11  c8  ACQUIRE k K BLOCK 0     => parked
         11  c1  POSITION k K            => 10
         11  c7  ACQUIRE k I BLOCK 0     => parked
         11  c1  POSITION k I            => 8
         11  c1  POSITION k J            => 9
         12  tick
         12  c1  WAITERS k               => B 0 11 99 []; CDEFGH 0 11 299 []; I 7 11 - []; J 9 11 - []; K 8 1 - []
         12  r   WAITERS k               => BCDEFGHIJ 0 11 - []; K 0 1 - []
    ");
}

#[test]
fn an_owner_that_cancels_leaves_and_does_not_come_back() {
    begun(
        "
         11  c9  CANCEL k J              => 1
         11  c9  CANCEL k I              => 1
         11  c9  CANCEL k K              => 0
         12  tick
         12  c1  WAITERS k               => B 0 11 99 []; CDEFGH 0 11 299 []
         12  r   WAITERS k               => BCDEFGH 0 11 - []
    ",
    );
}

#[test]
fn nothing_is_granted_past_entries_that_are_not_adopted() {
    begun(
        "
         11  c9  ACQUIRE k J BLOCK 0     => parked
        # B to E are gone.
         11  c8  CANCEL k B              => 1
        311  c8  ACQUIRE k K BLOCK 0     => parked
        311  c1  RELEASE k A             => 0
        311  c7  ACQUIRE k L             => null
        311  tick                        => c9 gets t2
        312  c9  RELEASE k J             => 0; c8 gets t3
    ",
    );
    // All are silent until one of them comes back.
    begun(
        "
         12  c1  RELEASE k A             => 0
         12  c9  ACQUIRE k J             => null
         12  c9  ACQUIRE k K             => null
         12  c9  ACQUIRE k B             => t2
         13  c9  RELEASE k B             => 0; dlock:notify:C: granted 0 t3 1 C k
    ",
    );
}

#[test]
fn a_value_that_moves_leaves_its_entries_to_the_old_name() {
    let rest = "C 8 10 - []; DEFGHIJ 0 10 300 []";
    for change in ["rename k l", "move k 1", "swapdb 0 1"] {
        begun(&format!(
            "
         11  c9  ACQUIRE k B BLOCK 0     => parked
         11  c8  ACQUIRE k C BLOCK 0     => parked
         11  {change}                    => c9 gets t2
         11  tick
         11  c1  WAITERS k               => {rest}
         11  r   WAITERS k               => {}
         11  c1  WAITERS l               => nobody
         11  db 1
         11  c1  WAITERS k               => nobody
         11  r   WAITERS k               => nobody
            ",
            rest.replace("300", "-").replace("C 8", "C 0"),
        ));
    }
}

#[test]
fn a_deleted_value_takes_its_entries_along_and_blocked_calls_keep_their_order() {
    for change in ["del k", "flushall", "flushdb 0"] {
        begun(&format!(
            "
         11  c9  ACQUIRE k J BLOCK 0     => parked
         11  c8  ACQUIRE k K BLOCK 0     => parked
         11  {change}                    => c9 gets t2{}
         11  tick
         11  c1  WAITERS k               => K 8 0 - []
         11  r   WAITERS k               => K 0 0 - []
         12  c9  RELEASE k J             => 0; c8 gets t3
            ",
            if change == "del k" { "" } else { "; dlock:notify: flushed 0" },
        ));
    }
}

#[test]
fn a_dump_has_every_entry_once() {
    begun(
        "
         11  c9  ACQUIRE k J BLOCK 0     => parked
         11  c8  ACQUIRE k K QUEUE 200   => null
         11  restore k l
         11  r   WAITERS l               => BCDEFGHIJ 0 10 - []; K 0 0 - []
    ",
    );
}

#[test]
fn entries_that_are_not_adopted_count_as_waiters() {
    for limit in ["max-waiters-per-key 9", "max-waiters 9"] {
        begun(&format!(
            "
         11  set {limit}
         11  c9  ACQUIRE k K BLOCK 0     => LIMIT
         11  c9  ACQUIRE k J BLOCK 0     => parked
            "
        ));
    }
}

#[test]
fn a_second_failover_begins_again() {
    begun(
        "
         11  c9  ACQUIRE k J BLOCK 0     => parked
         12  failover                    => c9 gets MOVING
         12  r   WAITERS k               => BCDEFGHIJ 0 11 - []
         13  c1  RENEW k A               => t1
         13  failover
         14  tick
         14  c1  WAITERS k               => B 0 13 100 []; CDEFGHI 0 13 300 []; J 0 13 100 []
    ",
    );
}

/// The first eight entries have short graces; two others leave before their turn comes.
fn with_short_graces(portion: &str, rows: &str) {
    run(&format!(
        "
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE m L                        => t2
          1  c2  ACQUIRE k B QUEUE 20               => null
          1  c2  ACQUIRE k C QUEUE 20               => null
          1  c2  ACQUIRE k D QUEUE 20               => null
          1  c2  ACQUIRE k E QUEUE 20               => null
          1  c2  ACQUIRE k F QUEUE 20               => null
          1  c2  ACQUIRE k G QUEUE 20               => null
          1  c2  ACQUIRE k H QUEUE 20               => null
          1  c2  ACQUIRE k I QUEUE 20               => null
          1  c2  ACQUIRE k J QUEUE 300              => null
          1  c2  ACQUIRE k K QUEUE 300              => null
          1  c2  ACQUIRE k L QUEUE 300              => null
          1  c2  ACQUIRE k M QUEUE 300              => null
          1  c2  ACQUIRE k N QUEUE 300              => null
          1  c2  ACQUIRE k O QUEUE 300              => null
         10  {portion}
         10  failover
         11  c1  RENEW k A                          => t1
         11  c1  RENEW m L                          => t2
        {}
        ",
        rows.lines().map(in_full).collect::<Vec<_>>().join("\n")
    ));
}

#[test]
fn a_queue_whose_waiters_all_left_keeps_its_backlog() {
    for portion in ["set portion 100", "set portion 2"] {
        with_short_graces(
            portion,
            "
         11  c9  CANCEL k J              => 1
         11  c9  CANCEL k K              => 1
         40  tick
         40  c1  WAITERS k               => LMNO 0 39 271 []
         40  r   WAITERS k               => LMNO 0 39 - []
            ",
        );
    }
}

#[test]
fn a_circle_through_a_queue_that_was_adopted_in_portions_is_found() {
    for portion in ["set portion 100", "set portion 2"] {
        with_short_graces(
            portion,
            "
         40  tick
         40  c1  ACQUIRE m A BLOCK 0     => DEADLOCK
            ",
        );
    }
}

#[test]
fn a_search_among_entries_that_are_not_waiters_yet_counts_as_incomplete() {
    let mut world = failed_over();
    world.gate = Gate::Open;
    let renew = Renew { key: KEY.name, owner: b"0", lease_ms: None, token: None, bind_ms: None };
    let caller = Caller { client: 2, db: 0, may_block: true };
    let _ = world.ask(caller, Op::Lock(LockFamily::Fair, LockOp::Renew(renew)));
    let asks = |world: &mut World, client, (owner, key): (&[u8], &[u8])| {
        let before = world.machine.counters().deadlock_searches_cut;
        let call = Acquire { block_ms: Some(0), ..Acquire::new(key, owner) };
        let caller = Caller { client, db: 0, may_block: true };
        let _ = world.ask(caller, Op::Lock(LockFamily::Lock, LockOp::Acquire(call)));
        world.machine.counters().deadlock_searches_cut - before
    };
    for key in [b"x", b"y"] {
        assert_eq!(asks(&mut world, 3, (b"X", key)), 0, "no owner can wait for X");
    }
    // The owner of k asks for a lock of X.
    assert_eq!(asks(&mut world, 4, (b"0", b"x")), 1);
    let mut progress = Progress::More;
    while progress == Progress::More {
        let _ = world.step(|machine, turn| progress = machine.tick(turn, Gate::Open, 64));
    }
    assert_eq!(asks(&mut world, 5, (b"0", b"y")), 0);
}
