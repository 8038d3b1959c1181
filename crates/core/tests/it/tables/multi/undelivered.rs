//! Grants of several keys that do not arrive.

use crate::script::run;

#[test]
fn all_keys_are_taken_back_and_handed_on() {
    run("
          0  held-back
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          3  c4  MACQUIRE 2 l m C BLOCK 0        => parked
          4  c1  RELEASE k X                     => 0; c2 gets t2 t3
          5  gone c2                             => c3 gets t4; c4 gets t5 t6
          6  undelivered c4
          6  c1  INFO l                          => null
          6  c1  INFO m                          => null
    ");
}

#[test]
fn a_key_that_was_held_before_loses_one_count() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                     => t1
          0  c1  ACQUIRE l X                     => t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c1  RELEASE l X                     => 0; c2 gets t1 t3
          2  c1  INFO k                          => [A] t1 holds 2 lease 30000 ttl 30000 held 2 [] bound 0 waiters 0
          3  gone c2
          3  c1  INFO k                          => [A] t1 holds 1 lease 30000 ttl 29999 held 3 [] bound 0 waiters 0
          3  c1  INFO l                          => null
    ");
}

#[test]
fn a_key_whose_owner_was_answered_for_it_stays() {
    run("
          0  held-back
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c1  RELEASE k X                     => 0; c2 gets t2 t3 t4
          3  c3  ACQUIRE k A                     => t2
          4  c3  RENEW l A                       => t3
          5  gone c2
          5  c3  INFO k                          => [A] t2 holds 1 lease 30000 ttl 29998 held 3 [] bound 0 waiters 0
          5  c3  INFO l                          => [A] t3 holds 1 lease 30000 ttl 29999 held 3 [] bound 0 waiters 0
          5  c3  INFO m                          => null
    ");
}

#[test]
fn a_repeat_covers_the_keys_it_names() {
    run("
          0  held-back
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0 REQID r => parked
          2  c1  RELEASE k X                     => 0; c2 gets t2 t3
          3  c3  MACQUIRE 2 k l A BLOCK 0 REQID r => t2 t3
          4  gone c2
          4  c3  MRELEASE 2 k l A                => 2
    ");
    run("
          0  held-back
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0 REQID r => parked
          2  c1  RELEASE k X                     => 0; c2 gets t2 t3
          3  c3  ACQUIRE k A REQID r             => t2
          4  gone c2
          4  c3  INFO k                          => [A] t2 holds 1 lease 30000 ttl 29999 held 2 [] bound 0 waiters 0
          4  c3  INFO l                          => null
    ");
}

#[test]
fn what_ended_meanwhile_is_not_taken_back() {
    run("
          0  held-back
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c1  RELEASE k X                     => 0; c2 gets t2 t3
          3  c9  BREAK k                         => 1
          4  c3  ACQUIRE k A                     => t4
          5  del l
          6  gone c2
          6  c3  POSITION k A                    => 0
          6  c3  INFO l                          => null
    ");
    // Moved along with its key.
    run("
          0  held-back
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c1  RELEASE k X                     => 0; c2 gets t2 t3
          3  rename k z
          4  gone c2
          4  c3  INFO z                          => null
          4  c3  INFO l                          => null
    ");
}

#[test]
fn one_of_any_is_taken_back() {
    run("
          0  held-back
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ANYACQUIRE 2 k l A BLOCK 0      => parked
          2  c3  ACQUIRE l B BLOCK 0             => parked
          3  c1  RELEASE l X                     => 0; c2 gets l t3
          4  gone c2                             => c3 gets t4
    ");
    run("
          0  held-back
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ANYACQUIRE 2 k l A BLOCK 0 REQID r => parked
          2  c1  RELEASE l X                     => 0; c2 gets l t3
          3  c3  ANYACQUIRE 2 k l A REQID r      => l t3
          4  gone c2
          4  c3  RELEASE l A                     => 0
    ");
}

#[test]
fn ties_of_what_is_taken_back_are_forgotten() {
    run("
          0  held-back
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0 BIND 0 NOTIFY ch => parked
          2  c1  RELEASE k X                     => 0; c2 gets t2 t3
          3  gone c2
          3  c1  INFO k                          => null
          3  c1  INFO l                          => null
    ");
}

#[test]
fn an_undelivered_re_entry_is_taken_back_when_it_is_the_last_that_is_left() {
    run("
          0  held-back
          0  c1  ACQUIRE b X                         => t1
          0  c2  ACQUIRE a o REQID r                 => t2
          1  c3  MACQUIRE 2 a b o BLOCK 0 REQID m    => parked
          2  c1  RELEASE b X                         => 0; c3 gets t2 t3
          2  c2  RELEASE a o REQID r                 => 1
          2  gone c3
          2  c4  INFO a                              => null
          2  c4  INFO b                              => null
          2  c4  ACQUIRE a o REQID r                 => SPENT
    ");
}

#[test]
fn an_undelivered_repeat_takes_nothing_from_what_its_owner_holds() {
    run("
          0  held-back
          0  c1  ACQUIRE b X                         => t1
          0  c2  ACQUIRE a o REQID r                 => t2
          0  c2  ACQUIRE a o REQID s                 => t2
          1  c3  MACQUIRE 2 a b o BLOCK 0 REQID r    => parked
          2  c1  RELEASE b X                         => 0; c3 gets t2 t3
          2  gone c3
          3  c2  RELEASE a o                         => 1
          3  c2  RELEASE a o                         => 0
    ");
}
