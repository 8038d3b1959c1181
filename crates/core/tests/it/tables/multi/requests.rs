//! Late copies of requests for several keys.

use crate::script::run;

#[test]
fn calls_for_several_keys_are_over_at_each_of_them() {
    run("
          0  c1  MACQUIRE 2 k l A REQID m          => t1 t2
          1  c1  RELEASE k A REQID r               => 0
        # One of its holds has ended, the other is there: nothing is granted.
          2  c1  MACQUIRE 2 k l A REQID m          => SPENT
          3  c1  MACQUIRE 2 k l A REQID m BLOCK 0  => SPENT
          4  c1  MACQUIRE 2 k l A REQID r          => ERR
          4  c1  INFO k                            => null
          5  c1  RELEASE l A                       => 0
          6  c1  ANYACQUIRE 2 k l A REQID n        => k t3
          7  c1  RELEASE k A                       => 0
          8  c1  ANYACQUIRE 2 k l A REQID n        => SPENT
          9  c1  ANYACQUIRE 2 l k A REQID n BLOCK 0 => SPENT
         10  c1  ACQUIRE k A REQID n               => SPENT
         11  c1  ACQUIRE l A REQID n               => t4
        # What is held answers before what is over.
         12  c1  ANYACQUIRE 2 k l A REQID n        => l t4
         13  failover
         14  c1  MACQUIRE 2 k l A REQID m          => SPENT
    ");
}

#[test]
fn a_late_mrelease_touches_nothing_also_where_it_passed_over() {
    run("
          0  c1  ACQUIRE k A                       => t1
          0  c1  ACQUIRE k A                       => t1
          0  c1  ACQUIRE m B                       => t2
          1  c1  MRELEASE 3 k l m A REQID r        => 1
          2  c1  ACQUIRE l A                       => t3
          3  c9  BREAK m                           => 1
          4  c1  ACQUIRE m A                       => t4
          5  c2  MRELEASE 3 k l m A REQID r        => 1
          6  c2  MRELEASE 1 l A REQID r            => 0
          7  c2  RELEASE l A REQID r               => SPENT
          8  c2  RELEASE k A REQID r               => 1
          9  c1  RELEASE k A                       => 0
         10  c1  ACQUIRE k A REQID a               => t5
         11  failover
         12  c2  MRELEASE 3 k l m A REQID r        => 1
         12  c2  MRENEW 3 k l m A                  => 3
        # An id that was used for something else at one of the keys: nothing changes.
         13  c2  MRELEASE 3 l m k A REQID a        => ERR
         13  c2  MRENEW 3 k l m A                  => 3
         14  c2  MRELEASE 3 l m k A REQID s        => 3
         15  c2  MRELEASE 3 l m k A REQID s        => 3
         16  c2  MRELEASE 3 l m k A REQID a        => ERR
    ");
}
