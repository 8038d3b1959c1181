//! Deadlocks that the tick finds: who is refused, how it learns of it, and what a repeated call gets.

use crate::script::run_here;

/// A and B hold a lock each, and wait for each other because detection was off; B began last.
fn a_cycle_of_two(family: &str, options: &str, rows: &str) {
    run_here(&format!(
        "
          0  set deadlock-detection 0
          0  c1  {family}.ACQUIRE k A                => t1
          0  c2  {family}.ACQUIRE l B                => t2
          1  c1  {family}.ACQUIRE l A QUEUE 60000    => null
          2  c2  {family}.ACQUIRE k B {options}
          3  c3  {family}.ACQUIRE k C QUEUE 60000    => null
         10  set deadlock-detection 1
        {rows}
        "
    ));
}

#[test]
fn a_blocked_call_gets_the_error_and_leaves_no_place() {
    for options in ["BLOCK 0", "BLOCK 0 QUEUE 60000"] {
        a_cycle_of_two(
            "DLOCK",
            &format!("{options} => parked"),
            "
         11  tick                                    => c2 gets DEADLOCK
         12  c9  WAITERS k                           => C 3 9 - []
         13  c2  RELEASE l B                         => 0; dlock:notify:A: granted 0 t3 1 A l
            ",
        );
    }
}

#[test]
fn a_place_ends_with_a_message_and_a_copy_of_its_request_gets_the_error() {
    for family in ["DLOCK", "DFAIR"] {
        a_cycle_of_two(
            family,
            "QUEUE 60000 REQID r => null",
            &format!(
                "
         11  tick                                    => dlock:notify:B: deadlock 0 - 1 B [r] k
         12  c2  {family}.ACQUIRE k B QUEUE 60000 REQID r => DEADLOCK
         12  c2  {family}.ACQUIRE k B REQID r        => DEADLOCK
         12  c9  {family}.POSITION k B               => null
         13  c2  {family}.RELEASE l B                => 0; dlock:notify:A: granted 0 t3 1 A l
        # Another request waits.
         14  c2  {family}.ACQUIRE k B QUEUE 60000 REQID s => null
         15  c1  {family}.RELEASE k A                => 0; dlock:notify:C: granted 0 t4 1 C k
                "
            ),
        );
    }
}

#[test]
fn a_call_for_several_keys_ends_at_all_of_them() {
    run_here(
        "
          0  set deadlock-detection 0
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE l B                         => t2
          1  c1  ACQUIRE l A QUEUE 60000             => null
          2  c3  MACQUIRE 3 m k n B BLOCK 0          => parked
          3  c4  ACQUIRE m C QUEUE 60000             => null
         10  set deadlock-detection 1
         11  tick                                    => c3 gets DEADLOCK; dlock:notify:C: granted 0 t3 1 C m
         12  c9  WAITERS k                           => nobody
         12  c9  WAITERS n                           => nobody
    ",
    );
}

#[test]
fn the_youngest_wait_counts_from_its_first_call() {
    a_cycle_of_two(
        "DLOCK",
        "QUEUE 60000 => null",
        "
        # A asks again, and waits since 1.
         10  c1  ACQUIRE l A BLOCK 0                 => parked
         11  tick                                    => dlock:notify:B: deadlock 0 - 1 B k
        ",
    );
}

#[test]
fn nothing_is_told_behind_a_shut_gate_or_while_the_search_is_off() {
    a_cycle_of_two(
        "DFAIR",
        "BLOCK 0 => parked",
        "
         11  tick shut
         50  tick shut
         51  set recheck 0
         52  tick
       5000  tick
       5001  set recheck 1000
       5002  tick                                    => c2 gets DEADLOCK
        ",
    );
}

#[test]
fn a_wait_that_a_rename_made_hopeless_ends_after_the_recheck() {
    run_here(
        "
          0  c1  ACQUIRE x A                         => t1
          0  c2  ACQUIRE l B                         => t2
          0  c9  ACQUIRE y Z                         => t3
          1  c1  ACQUIRE l A QUEUE 60000             => null
          2  c2  ACQUIRE y B BLOCK 0                 => parked
          3  tick
        # Z waits for nothing. Now A holds y.
          4  rename x y
        900  tick
       1003  tick                                    => c2 gets DEADLOCK
    ",
    );
}

#[test]
fn two_owners_in_front_of_each_other_are_found_if_nobody_waits_behind_them() {
    run_here(
        "
          0  set deadlock-detection 0
          0  c9  ACQUIRE k Z                         => t1
          0  c9  ACQUIRE l Z                         => t2
          1  c1  ACQUIRE k A QUEUE 60000             => null
          1  c2  ACQUIRE k B QUEUE 60000             => null
          2  c2  ACQUIRE l B QUEUE 60000             => null
          3  c1  ACQUIRE l A QUEUE 60000             => null
         10  set deadlock-detection 1
         11  tick                                    => dlock:notify:A: deadlock 0 - 1 A l
    ",
    );
}
