//! The log of notable events, and the times that are counted.

use crate::script::{run_as_here, run_both_here, run_here};
use crate::support::{MS, World};
use dlock_core::base::key::Key;
use dlock_core::base::kind::Kind;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::histogram::Histogram;
use dlock_core::tables::settings::Settings;
use dlock_wire::reply::LogEvent;
use dlock_wire::request::{Op, Request};
use dlock_wire::table::COMMANDS;

#[test]
fn holds_that_end_without_release_are_logged_once() {
    run_here("
          0  c1  ACQUIRE k A PX 100 LABEL report     => t1
          0  c2  ACQUIRE k B BLOCK 0                 => parked
        101  tick                                    => c2 gets t2
        101  c9  DLOCK.LOG GET                       => expired dlock 0/k [A] t1 [report] held 101 waited 0 waiters 1 (lease of 100 ms)
        102  c2  RELEASE k B                         => 0
        103  c1  ACQUIRE k C BIND 0 LABEL bound      => t3
        105  gone c1
        106  c9  DLOCK.LOG GET 1                     => disconnected dlock 0/k [C] t3 [bound] held 2 waited 0 waiters 0 (BIND 0)
        107  c1  ACQUIRE k D LABEL stuck             => t4
        110  c9  BREAK k                             => 1
        110  c9  DLOCK.LOG GET 1                     => broken dlock 0/k [D] t4 [stuck] held 3 waited 0 waiters 0 (by client 9)
        111  c1  ACQUIRE k E                         => t5
        112  c2  ACQUIRE k F QUEUE 50 PX 50 LABEL slow     => null
        113  c1  RELEASE k E                         => 0; dlock:notify:F: granted 0 t6 1 F k
        164  tick                                    => dlock:notify:F: expired 0 t6 1 F k
        164  c9  DLOCK.LOG GET 1                     => unclaimed dlock 0/k [F] t6 [slow] held 51 waited 0 waiters 0 ()
        165  c9  DLOCK.LOG LEN                       => 4
    ");
}

#[test]
fn releases_and_returned_grants_are_not_logged() {
    run_both_here(
        "
          0  c1  ACQUIRE k A                         => t1
          1  c1  RELEASE k A                         => 0
          2  c1  ACQUIRE k A                         => t2
          3  c2  ACQUIRE k B QUEUE 50                => null
          4  c1  RELEASE k A                         => 0; dlock:notify:B: granted 0 t3 1 B k
          5  c2  RELEASE k B                         => 0
          6  c9  DLOCK.LOG LEN                       => 0
    ",
    );
}

#[test]
fn deadlocks_are_logged_with_their_cycle() {
    run_here("
          0  c1  ACQUIRE k A                         => t1
          1  c2  ACQUIRE l B                         => t2
          2  c1  ACQUIRE l A BLOCK 0                 => parked
          3  c2  ACQUIRE k B BLOCK 0 LABEL move      => DEADLOCK
          4  c9  DLOCK.LOG GET                       => deadlock dlock 0/k [B] - [move] held 0 waited 0 waiters 0 (\"B\" waits for \"k\", \"A\" waits for \"l\")
          5  c2  MACQUIRE 2 m k B BLOCK 0 LABEL two  => DEADLOCK
          6  c9  DLOCK.LOG GET 1                     => deadlock dlock 0/m [B] - [two] held 0 waited 0 waiters 0 (\"B\" waits for \"k\", \"A\" waits for \"l\")
          7  c9  DLOCK.LOG LEN                       => 2
          8  c2  RELEASE l B                         => 0; c1 gets t3
    ");
}

#[test]
fn a_second_upgrade_is_logged_as_a_deadlock() {
    run_as_here("DRW", "
          0  c1  ACQUIRE k A READ                    => t1
          1  c2  ACQUIRE k B READ                    => t2
          2  c1  ACQUIRE k A WRITE BLOCK 0           => parked
          3  c2  ACQUIRE k B WRITE BLOCK 0 LABEL up  => DEADLOCK
          4  c9  DLOCK.LOG LEN                       => 1
          5  c9  DRW.BREAK k B                       => 1; c1 gets t3
          6  c9  DLOCK.LOG GET 1                     => broken drw 0/k [B] t2 [] held 4 waited 0 waiters 1 (by client 9)
    ");
}

#[test]
fn late_copies_are_logged() {
    run_both_here(
        "
          0  c1  ACQUIRE k A REQID r                 => t1
          1  c1  RELEASE k A                         => 0
          2  c1  ACQUIRE k A REQID r LABEL late      => SPENT
          3  c1  RELEASE k A                         => NOTHELD
          4  c9  DLOCK.LOG LEN                       => 1
    ",
    );
    run_here("
          0  c1  ACQUIRE k A REQID r                 => t1
          1  c1  RELEASE k A                         => 0
          2  c1  ACQUIRE k A REQID r LABEL late      => SPENT
          3  c9  DLOCK.LOG GET                       => spent dlock 0/k [A] - [late] held 0 waited 0 waiters 0 (request \"r\" of \"A\" for \"k\" is over: its hold has ended. Ask with another REQID)
          4  c1  MACQUIRE 2 j k A REQID r            => SPENT
          5  c9  DLOCK.LOG LEN                       => 2
    ");
}

#[test]
fn slow_waits_are_logged_with_the_holder_whether_granted_or_given_up() {
    run_here("
          0  set log-wait 100
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE k B BLOCK 0 LABEL b         => parked
        100  c1  RELEASE k A                         => 0; c2 gets t2
        100  c9  DLOCK.LOG LEN                       => 0
        100  c3  ACQUIRE k C BLOCK 0 LABEL c         => parked
        201  c2  RELEASE k B                         => 0; c3 gets t3
        201  c9  DLOCK.LOG GET                       => slow-wait dlock 0/k [C] t3 [c] held 0 waited 101 waiters 0 (granted; last holder: \"B\")
        201  c4  ACQUIRE k D BLOCK 150 LABEL d       => parked
        352  tick                                    => c4 gets null
        352  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [D] - [d] held 0 waited 151 waiters 1 (timed out; holder: \"C\")
        352  c4  ACQUIRE k D BLOCK 0                 => parked
        460  c9  UNBLOCK 4                           => 1; c4 gets null
        460  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [D] - [] held 0 waited 108 waiters 1 (unblocked; holder: \"C\")
        460  c4  ACQUIRE k D BLOCK 0                 => parked
        570  gone c4
        570  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [D] - [] held 0 waited 110 waiters 1 (connection closed; holder: \"C\")
        570  c5  ACQUIRE k E QUEUE 1000              => null
        690  c5  RELEASE k E                         => null
        690  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [E] - [] held 0 waited 120 waiters 1 (released; holder: \"C\")
        690  c5  ACQUIRE k E QUEUE 130               => null
        700  gone c5
        831  tick
        831  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [E] - [] held 0 waited 141 waiters 1 (queue entry lapsed; holder: \"C\")
        831  c9  DLOCK.LOG LEN                       => 6
    ");
}

#[test]
fn a_slow_wait_is_logged_however_the_server_ends_its_call() {
    run_here("
          0  set log-wait 10
          0  c1  ACQUIRE k A                         => t1
          0  c1  DSEM.INIT s 1                       => 1
          0  c1  DSEM.ACQUIRE s A                    => p1
          0  c1  DRW.ACQUIRE r A WRITE               => t2
          0  c2  ACQUIRE k B BLOCK 0                 => parked
          0  c3  DSEM.TAKE s BLOCK 0                 => parked
          0  c4  DSEM.ACQUIRE s B BLOCK 0            => parked
          0  c5  DRW.ACQUIRE r B READ BLOCK 0        => parked
          0  c6  MACQUIRE 2 j k C BLOCK 0            => parked
          0  c7  ANYACQUIRE 2 k k2 D                 => k2 t3
          0  c7  ANYACQUIRE 2 k k2 E BLOCK 0         => parked
         20  gone c2
         20  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [B] - [] held 0 waited 20 waiters 3 (connection closed; holder: \"A\")
         20  gone c3
         20  c9  DLOCK.LOG GET 1                     => slow-wait dsem 0/s [] - [] held 0 waited 20 waiters 2 (connection closed; holder: \"A\")
         20  gone c4
         20  c9  DLOCK.LOG GET 1                     => slow-wait dsem 0/s [B] - [] held 0 waited 20 waiters 1 (connection closed; holder: \"A\")
         20  gone c5
         20  c9  DLOCK.LOG GET 1                     => slow-wait drw 0/r [B] - [] held 0 waited 20 waiters 1 (connection closed; holder: \"A\")
         20  gone c6
         20  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/j [C] - [] held 0 waited 20 waiters 1 (connection closed; holder: \"A\")
         20  gone c7
         20  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [E] - [] held 0 waited 20 waiters 1 (connection closed; holder: \"A\")
         20  c2  ACQUIRE k B BLOCK 0                 => parked
         40  withdraw c2
         40  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [B] - [] held 0 waited 20 waiters 1 (unblocked; holder: \"A\")
         40  c2  ACQUIRE k B QUEUE 900 BLOCK 0       => parked
         60  gone c2
         60  c9  DLOCK.LOG LEN                       => 7
    ");
}

#[test]
fn a_place_in_a_fair_lock_that_stays_has_not_given_up() {
    run_as_here(
        "DFAIR",
        "
          0  set log-wait 10
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE k B BLOCK 0                 => parked
         20  gone c2
         20  c9  DLOCK.LOG LEN                       => 0
         30  c1  RELEASE k A                         => 0
         30  c9  DLOCK.LOG LEN                       => 1
    ",
    );
}

#[test]
fn a_slow_wait_names_no_holder_but_another_owner() {
    run_here("
          0  set log-wait 10
          0  c1  DRW.ACQUIRE r A READ                => t1
          0  c2  DRW.ACQUIRE r B READ                => t2
          0  c1  DRW.ACQUIRE r A WRITE BLOCK 15      => parked
         16  tick                                    => c1 gets null
         16  c9  DLOCK.LOG GET 1                     => slow-wait drw 0/r [A] - [] held 0 waited 16 waiters 1 (timed out; holder: \"B\")
         20  c1  DSEM.INIT s 2                       => 1
         20  c1  DSEM.ACQUIRE s A                    => p1
         20  c1  DSEM.ACQUIRE s A COUNT 2 BLOCK 15   => parked
         36  tick                                    => c1 gets null
         36  c9  DLOCK.LOG GET 1                     => slow-wait dsem 0/s [A] - [] held 0 waited 16 waiters 1 (timed out)
         40  c1  ACQUIRE k A                         => t3
         40  c2  ACQUIRE l B                         => t4
         40  c1  MACQUIRE 2 k l A BLOCK 15           => parked
         56  tick                                    => c1 gets null
         56  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [A] - [] held 0 waited 16 waiters 1 (timed out; holder: \"B\")
         60  c1  MACQUIRE 2 k l A BLOCK 0            => parked
         80  c1  RELEASE l A                         => null; c1 gets null
         80  c9  DLOCK.LOG GET 1                     => slow-wait dlock 0/k [A] - [] held 0 waited 20 waiters 1 (released; holder: \"B\")
    ");
}

#[test]
fn a_wait_that_ends_while_nothing_may_be_written_only_looks_at_its_key() {
    run_here("
          0  set log-wait 10
          0  c1  ACQUIRE k A PX 30                   => t1
          0  c2  ACQUIRE k B BLOCK 20                => parked
         21  tick shut                               => c2 gets null
         21  c9  DLOCK.LOG GET                       => slow-wait dlock 0/k [B] - [] held 0 waited 21 waiters 1 (timed out; holder: \"A\")
    ");
}

#[test]
fn an_owner_that_comes_back_for_its_place_has_waited() {
    run_here("
          0  set log-wait 10
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE k B QUEUE 900               => null
          5  gone c2
         10  c1  RELEASE k A                         => 0
         20  c3  ACQUIRE k B QUEUE 900 LABEL back    => t2
         20  c9  DLOCK.LOG GET                       => slow-wait dlock 0/k [B] t2 [back] held 0 waited 20 waiters 0 (granted)
         30  c1  DRW.ACQUIRE r A READ                => t3
         30  c2  DRW.ACQUIRE r B READ                => t4
         30  c2  DRW.ACQUIRE r B WRITE QUEUE 900     => null
         35  gone c2
         40  c1  DRW.RELEASE r A READ                => 0
         50  c3  DRW.ACQUIRE r B WRITE QUEUE 900     => t5
         50  c9  DLOCK.LOG GET 1                     => slow-wait drw 0/r [B] t5 [] held 0 waited 20 waiters 0 (granted)
         60  c4  ACQUIRE n A QUEUE 900               => t6
         60  c9  DLOCK.LOG LEN                       => 2
    ");
}

#[test]
fn a_place_that_stays_after_its_call_has_not_given_up() {
    run_both_here(
        "
          0  set log-wait 10
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE k B BLOCK 50 QUEUE 900      => parked
         51  tick                                    => c2 gets null
         51  c9  DLOCK.LOG LEN                       => 0
         60  c1  RELEASE k A                         => 0; dlock:notify:B: granted 0 t2 1 B k
         60  c9  DLOCK.LOG LEN                       => 1
    ",
    );
}

#[test]
fn calls_that_await_an_end_are_no_slow_waits() {
    run_here(
        "
          0  set log-wait 10
          0  c1  ACQUIRE k A                         => t1
          0  c1  DLATCH.INIT l 1                     => 1
          0  c2  AWAIT k BLOCK 50                    => parked
          0  c3  DLATCH.AWAIT l BLOCK 50             => parked
          0  c4  AWAIT k BLOCK 0                     => parked
          0  c5  DLATCH.AWAIT l BLOCK 0              => parked
         51  tick                                    => c3 gets null; c2 gets null
         60  c1  RELEASE k A                         => 0; c4 gets 1
         60  c1  DLATCH.COUNTDOWN l                  => 0; c5 gets 1
         60  c9  DLOCK.LOG LEN                       => 0
    ",
    );
}

#[test]
fn long_holds_and_permits_are_logged() {
    run_here("
          0  set log-hold 100
          0  c1  ACQUIRE k A LABEL job               => t1
        100  c1  RELEASE k A                         => 0
        100  c9  DLOCK.LOG LEN                       => 0
        100  c1  ACQUIRE k A LABEL job               => t2
        201  c1  RELEASE k A                         => 0
        201  c9  DLOCK.LOG GET                       => long-hold dlock 0/k [A] t2 [job] held 101 waited 0 waiters 0 ()
        201  c1  DSEM.INIT s 1                       => 1
        201  c1  DSEM.ACQUIRE s B PX 50 LABEL some   => p1
        252  tick
        252  c9  DLOCK.LOG GET 1                     => expired dsem 0/s [B] p1 [some] held 51 waited 0 waiters 0 (lease of 50 ms)
    ");
}

#[test]
fn the_settings_apply_at_once() {
    run_here("
          0  set log-max-len 2
          0  c1  ACQUIRE k A                         => t1
          1  c9  BREAK k                             => 1
          1  c1  ACQUIRE k A                         => t2
          2  c9  BREAK k                             => 1
          2  c9  DLOCK.LOG GET                       => broken dlock 0/k [A] t2 [] held 1 waited 0 waiters 0 (by client 9) x2
          2  c1  ACQUIRE l A                         => t3
          3  c9  BREAK l                             => 1
          3  c9  DLOCK.LOG LEN                       => 2
          4  set log-max-len 1
          4  c9  DLOCK.LOG GET                       => broken dlock 0/l [A] t3 [] held 1 waited 0 waiters 0 (by client 9)
          5  set log-max-len 0
          5  c9  DLOCK.LOG LEN                       => 0
          5  c1  ACQUIRE k A                         => t4
          6  c9  BREAK k                             => 1
          6  c9  DLOCK.LOG LEN                       => 0
          7  set log-max-len 10
          7  c1  ACQUIRE k A                         => t5
          8  c9  BREAK k                             => 1
          9  c9  DLOCK.LOG RESET                     => OK
          9  c9  DLOCK.LOG LEN                       => 0
    ");
}

/// Carries out a command of connection 1.
fn call(world: &mut World, words: &[&[u8]]) {
    let command = COMMANDS.iter().find(|row| row.name.as_bytes() == words[0]).expect("a command");
    match dlock_wire::parse(command.id, &words[1..]).expect("a valid call") {
        Request::Op(op) => act(world, op),
        other => panic!("{other:?}"),
    }
}

fn act(world: &mut World, op: Op<'_>) {
    world.call(Caller { client: 1, db: 0, may_block: true }, op);
}

#[test]
fn strings_are_cut() {
    let mut world = World::new(Settings::default(), 0);
    let (key, owner, label) = ([b'k'; 300], [b'o'; 256], [b'\n'; 256]);
    call(&mut world, &[b"DLOCK.ACQUIRE", &key, &owner, b"LABEL", &label]);
    call(&mut world, &[b"DLOCK.BREAK", &key]);
    let entry = world.machine.tables().log.newest().next().expect("an entry").clone();
    assert_eq!(entry.event, LogEvent::Broken);
    assert_eq!((entry.key, entry.owner), (key[..128].to_vec(), owner[..128].to_vec()));
    assert_eq!(entry.label, label[..128]);
    world.finish();
}

/// Of a family: count and sum in milliseconds.
fn seen<'h>(mut all: impl Iterator<Item = (Kind, &'h Histogram)>, kind: Kind) -> (u64, u64) {
    let (_, times) = all.find(|(of, _)| *of == kind).expect("a histogram");
    (times.count(), times.sum_us() / MS)
}

#[test]
fn times_are_counted_from_the_start_of_the_wait_and_from_the_grant() {
    let mut world = World::new(Settings::default(), 0);
    let rows: [(u64, &[&[u8]]); 12] = [
        (0, &[b"DLOCK.ACQUIRE", b"k", b"A"]),
        (0, &[b"DLOCK.MACQUIRE", b"2", b"k", b"l", b"B", b"BLOCK", b"0"]),
        (30, &[b"DLOCK.RELEASE", b"k", b"A"]),
        (70, &[b"DLOCK.RELEASE", b"l", b"B"]),
        (75, &[b"DLOCK.BREAK", b"k"]),
        (100, &[b"DLATCH.INIT", b"open", b"1"]),
        (100, &[b"DLATCH.AWAIT", b"open", b"BLOCK", b"0"]),
        (120, &[b"DLATCH.COUNTDOWN", b"open"]),
        (200, &[b"DSEM.INIT", b"s", b"1"]),
        (200, &[b"DSEM.TAKE", b"s"]),
        (200, &[b"DSEM.TAKE", b"s", b"1", b"BLOCK", b"0"]),
        (207, &[b"DSEM.GIVE", b"s"]),
    ];
    for (at, words) in rows {
        world.at(at * MS);
        call(&mut world, words);
        world.all_delivered();
    }
    let latency = &world.machine.tables().latency;
    assert_eq!(seen(latency.waited(), Kind::Lock), (1, 30), "one call for two keys waits once");
    assert_eq!(seen(latency.held(), Kind::Lock), (3, 30 + 40 + 45));
    assert_eq!(seen(latency.waited(), Kind::Latch), (1, 20));
    assert_eq!(seen(latency.waited(), Kind::Semaphore), (1, 7));
    assert_eq!(seen(latency.held(), Kind::Semaphore), (0, 0));
    assert_eq!(seen(latency.waited(), Kind::Rw), (0, 0));
}

#[test]
fn a_grant_that_never_arrives_counts_as_no_hold() {
    let mut world = World::new(Settings::default(), 0);
    let held = |world: &World| seen(world.machine.tables().latency.held(), Kind::Lock).0;
    call(&mut world, &[b"DLOCK.ACQUIRE", b"k", b"A"]);
    call(&mut world, &[b"DLOCK.RELEASE", b"k", b"A"]);
    assert_eq!(held(&world), 1);
    call(&mut world, &[b"DLOCK.ACQUIRE", b"k", b"A"]);
    let blocked = Caller { client: 2, db: 0, may_block: true };
    let command = COMMANDS.iter().find(|row| row.name == "DLOCK.ACQUIRE").expect("a command");
    let args: [&[u8]; 4] = [b"k", b"C", b"BLOCK", b"0"];
    let Request::Op(op) = dlock_wire::parse(command.id, &args).expect("a valid call") else {
        panic!("an operation");
    };
    world.call(blocked, op);
    call(&mut world, &[b"DLOCK.RELEASE", b"k", b"A"]);
    assert_eq!(held(&world), 2);
    world.undelivered(2);
    assert!(!world.has_key(Key { db: 0, name: b"k" }));
    assert_eq!(held(&world), 2);
    world.finish();
}

#[test]
fn readers_that_are_broken_in_portions_are_logged_and_counted() {
    let mut world = World::new(Settings { log_max_len: 1_000, ..Settings::default() }, 0);
    world.set_portion(8);
    for owner in 0..100 {
        let owner = format!("reader {owner}");
        call(&mut world, &[b"DRW.ACQUIRE", b"k", owner.as_bytes(), b"READ"]);
    }
    world.at(40 * MS);
    call(&mut world, &[b"DRW.BREAK", b"k"]);
    world.tick(dlock_core::tables::regime::Gate::Open);
    let log = &world.machine.tables().log;
    let broken: Vec<_> = log.newest().filter(|entry| entry.event == LogEvent::Broken).collect();
    assert_eq!(broken.len(), 100);
    assert!(broken.iter().all(|entry| entry.text == b"by client 1"), "{broken:#?}");
    assert_eq!(seen(world.machine.tables().latency.held(), Kind::Rw), (100, 4_000));
    world.finish();
}
