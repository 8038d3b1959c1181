//! Tokens: they grow, FENCE raises them, and they can be used up.

use crate::script::run_both;

#[test]
fn tokens_grow_whatever_the_wall_clock_does() {
    run_both(
        "
          0  c1  ACQUIRE k A           => t1
          1  wall -86400
          2  c1  RELEASE k A           => 0
          2  c1  ACQUIRE k A           => t2
          3  wall 86400
          4  c1  RELEASE k A           => 0
          4  c1  ACQUIRE k A           => t3
          5  wall -86400
          5  failover
          6  c1  ACQUIRE l A           => t4
          7  restart
          8  c1  ACQUIRE m A           => t5
    ",
    );
}

#[test]
fn fence_raises_the_token_within_its_limits() {
    run_both(
        "
          0  c1  ACQUIRE k A                           => t1
          1  c1  FENCE k A 1                           => t1
          2  c1  FENCE k B 1                           => NOTHELD
          3  c1  FENCE l A 1                           => NOTHELD
          # The wall clock stands at 1700000000 s + 50 s; 60 s more are allowed.
          4  c1  FENCE k A 1700000110004001            => ERR
          4  c1  CHECK k $t1                           => 1
          4  c1  FENCE k A 1700000110004000            => t2
          5  c1  CHECK k $t1                           => STALE
          5  c1  CHECK k $t2                           => 1
          6  c1  RELEASE k A TOKEN $t1                 => NOTHELD
          # What was given once can be given again, however far ahead it is.
          7  wall -86400
          7  c1  FENCE k A 1700000110004000            => t2
          8  c1  FENCE k A 1700000110004001            => ERR
          9  c1  ACQUIRE l A                           => t3
         10  c1  FENCE k A 1700000110004001            => t3
         11  c1  RELEASE k A TOKEN $t3                 => 0
    ",
    );
}

#[test]
fn used_up_tokens_grant_nothing() {
    run_both(
        "
          0  wall 7305599254
          0  set max-token-lead-ms 2592000000
          0  c1  ACQUIRE k A                           => t1
          1  c1  FENCE k A 9007199254740991            => t2
          2  c2  ACQUIRE l B                           => ERR
          3  c2  ACQUIRE l B QUEUE 100                 => ERR
          4  c2  ACQUIRE k B BLOCK 0                   => parked
          5  c3  ACQUIRE k C QUEUE 100                 => null
          6  c1  ACQUIRE k A                           => t2
          7  c1  RELEASE k A ALL                       => 0; c2 gets ERR
          8  c1  INFO k                                => null
          9  c1  ACQUIRE k A                           => ERR
    ",
    );
}
