//! Read and write holds: two holds, each with its own token, count, lease and ids.

use super::run;
use std::fmt::Write as _;

#[test]
fn many_read_or_one_writes() {
    run("
          0  c1  ACQUIRE k A READ           => t1
          1  c2  ACQUIRE k B READ           => t2
          2  c3  ACQUIRE k C WRITE          => null
          2  c1  INFO k                     => READ [-] [A t1 1 29998, B t2 1 29999] waiters 0
          2  c1  POSITION k A               => 0
          2  c1  POSITION k B               => 0
          2  c1  POSITION k C               => null
          3  c1  RELEASE k A READ           => 0
          4  c3  ACQUIRE k C WRITE          => null
          5  c2  RELEASE k B READ           => 0
          6  c3  ACQUIRE k C WRITE          => t3
          7  c1  ACQUIRE k A READ           => null
          7  c4  ACQUIRE k D WRITE          => null
          7  c1  INFO k                     => WRITE [C t3 1 29999] [] waiters 0
          8  c3  RELEASE k C READ           => NOTHELD
          8  c1  RELEASE k A WRITE          => NOTHELD
          9  c3  RELEASE k C WRITE          => 0
         10  c1  INFO k                     => null
         10  c3  RELEASE k C WRITE          => NOTHELD
    ");
}

#[test]
fn each_mode_has_its_own_token_count_lease_and_ids() {
    run("
          0  c1  ACQUIRE k A WRITE PX 1000 REQID r     => t1
          1  c1  ACQUIRE k A READ PX 500 REQID r       => t2
          2  c1  ACQUIRE k A READ PX 500               => t2
          2  c1  ACQUIRE k A READ PX 900 REQID r       => t2
          2  c1  INFO k                                => WRITE [A t1 1 998] [A t2 2 900] waiters 0
          3  c1  CHECK k $t1                           => 1
          3  c1  CHECK k $t2                           => 1
          3  c1  CHECK k 1                             => STALE
          4  c1  RELEASE k A WRITE TOKEN $t2           => NOTHELD
          4  c1  RENEW k A READ TOKEN $t1              => NOTHELD
          5  c1  RENEW k A READ PX 2000                => t2
          6  c1  RENEW k A WRITE TOKEN $t1             => t1
          6  c1  INFO k                                => WRITE [A t1 1 1000] [A t2 2 1999] waiters 0
          7  c1  RELEASE k A READ REQID r              => 1
          8  c1  RELEASE k A READ REQID r              => 1
          9  c1  RELEASE k A WRITE REQID r             => 0
         10  c1  CHECK k $t1                           => STALE
         10  c1  INFO k                                => READ [-] [A t2 1 1995] waiters 0
         11  c1  RELEASE k A READ ALL TOKEN $t2        => 0
         12  c1  RENEW k A READ                        => NOTHELD
    ");
}

#[test]
fn a_read_hold_is_entered_again_and_only_extended() {
    run("
          0  c1  ACQUIRE k A READ PX 1000   => t1
          1  c2  ACQUIRE k A READ PX 500    => t1
          1  c1  INFO k                     => READ [-] [A t1 2 999] waiters 0
        600  c3  ACQUIRE k A READ PX 500    => t1
        600  c1  INFO k                     => READ [-] [A t1 3 500] waiters 0
        601  c1  RELEASE k A READ           => 2
        602  c1  RELEASE k A READ ALL       => 0
        603  c1  INFO k                     => null
    ");
}

#[test]
fn a_downgrade_leaves_no_gap() {
    run("
          0  c1  ACQUIRE k A WRITE          => t1
          1  c2  ACQUIRE k B READ BLOCK 0   => parked
          2  c3  ACQUIRE k C WRITE BLOCK 0  => parked
        # The writer may read at once, even if others wait.
          3  c1  ACQUIRE k A READ BLOCK 50  => t2
          3  c1  INFO k                     => WRITE [A t1 1 29997] [A t2 1 30000] waiters 2
          4  c1  RELEASE k A WRITE          => 0; c2 gets t3
          4  c1  INFO k                     => READ [-] [A t2 1 29999, B t3 1 30000] waiters 1
          5  c1  RELEASE k A READ           => 0
          6  c2  RELEASE k B READ           => 0; c3 gets t4
        # Released the other way round, it was no downgrade.
          7  c3  ACQUIRE k C READ           => t5
          8  c1  ACQUIRE k A READ BLOCK 0   => parked
          9  c3  RELEASE k C READ           => 0
         10  c3  RELEASE k C WRITE          => 0; c1 gets t6
    ");
}

#[test]
fn read_holds_end_one_by_one() {
    run("
          0  c1  ACQUIRE k A READ PX 50 NOTIFY ch    => t1
          0  c2  ACQUIRE k B READ PX 100 NOTIFY ch   => t2
          0  c3  ACQUIRE k C READ PX 101             => t3
          1  c4  ACQUIRE k D WRITE BLOCK 0           => parked
         49  tick
         49  c1  CHECK k $t1                         => 1
         50  c1  CHECK k $t1                         => STALE
         50  c1  POSITION k A                        => null
         50  c1  INFO k                              => READ [-] [B t2 1 50, C t3 1 51] waiters 1
         51  tick                                    => ch: expired 0 t1 1 A k
         60  c1  RENEW k A READ                      => NOTHELD
         61  c3  RENEW k C READ PX 40                => t3
        # Two that are due together, and the writer after them.
        102  c2  RELEASE k B READ                    => NOTHELD; c4 gets t4; ch: expired 0 t2 1 B k
    ");
}

#[test]
fn a_renewal_extends_its_own_hold_only() {
    run("
          0  c1  ACQUIRE k A READ PX 100    => t1
          0  c2  ACQUIRE k B READ PX 100    => t2
         50  c1  RENEW k A READ PX 10       => t1
         50  c2  RENEW k B READ             => t2
         61  c1  INFO k                     => READ [-] [A t1 1 39, B t2 1 89] waiters 0
        101  tick
        101  c1  INFO k                     => READ [-] [B t2 1 49] waiters 0
        149  c2  CHECK k $t2                => 1
        151  tick
        151  c2  INFO k                     => null
    ");
}

#[test]
fn bind_ties_each_hold_on_its_own() {
    run("
          0  c1  ACQUIRE k A READ BIND 0                    => t1
          0  c1  ACQUIRE k B READ BIND 20 NOTIFY ch         => t2
          0  c2  ACQUIRE k C READ                           => t3
          1  c3  ACQUIRE k D WRITE BLOCK 0                  => parked
          2  gone c1
          2  c2  INFO k                                     => READ [-] [B t2 1 20, C t3 1 29998] waiters 1
          3  c2  RELEASE k C READ                           => 0
         23  tick                                           => c3 gets t4; ch: disconnected 0 t2 1 B k
        # Of a writer who reads, too, either hold may be tied.
         24  c4  ACQUIRE k D READ BIND 0                    => t5
         25  gone c4
         25  c2  INFO k                                     => WRITE [D t4 1 29998] [] waiters 0
         26  c4  RELEASE k D WRITE                          => 0
         27  c4  ACQUIRE k D READ                           => t6
         27  c4  ACQUIRE k D WRITE BIND 0                   => t7
         27  gone c4
         27  c2  INFO k                                     => READ [-] [D t6 1 30000] waiters 0
         28  s   ACQUIRE k A READ BIND 0                    => ERR
         28  s   ACQUIRE k A READ QUEUE 10                  => ERR
         28  s   ACQUIRE k A READ                           => t8
         29  s   RENEW k A READ BIND 0                      => ERR
    ");
}

#[test]
fn opening_a_key_shortens_all_leases_bound_to_closed_connections() {
    // The first connection has more holds than one portion: these keys are not processed when the others close.
    let mut crowd = String::new();
    for n in 0..200 {
        let _ = writeln!(crowd, "0 c1 ACQUIRE f{n} X READ BIND 0 => t{}", n + 1);
    }
    // Few holds and several connections, then the other way round.
    for more in [0, 5] {
        let mut scene = crowd.clone();
        scene += "
          0  c1  ACQUIRE k A READ BIND 0 NOTIFY a   => t201
          0  c2  ACQUIRE k B READ BIND 0 NOTIFY b   => t202
          0  c3  ACQUIRE k C READ BIND 20 NOTIFY c  => t203
          0  c3  ACQUIRE l D WRITE BIND 0 NOTIFY d  => t204
          0  c2  ACQUIRE l D READ BIND 20           => t205
          0  c1  ACQUIRE l E WRITE BLOCK 0          => parked
        ";
        for n in 0..more {
            let _ = writeln!(scene, "0 c2 ACQUIRE k M{n} READ BIND 0 => t{}", 206 + n);
        }
        let next = 206 + more;
        let _ = writeln!(scene, "0 c4 ACQUIRE k W WRITE BLOCK 0 => parked");
        scene += "
          2  gone c1
          2  gone c2
          2  gone c3
          3  c5  INFO k                             => READ [-] [C t203 1 19] waiters 1
          3  c5  INFO l                             => READ [-] [D t205 1 19] waiters 0
          3  c5  POSITION k A                       => null
          3  c5  POSITION k B                       => null
          3  c5  POSITION k C                       => 0
          3  c5  CHECK k $t201                      => STALE
          3  c5  CHECK k $t202                      => STALE
          3  c5  CHECK k $t203                      => 1
          3  c5  CHECK l $t204                      => STALE
        ";
        let both = "a: disconnected 0 t201 1 A k; b: disconnected 0 t202 1 B k";
        let looks = [
            "RENEW k A READ => NOTHELD;",
            "RENEW k B READ => NOTHELD;",
            "RELEASE k B READ => NOTHELD;",
            "RELEASE k X WRITE => NOTHELD;",
            "ACQUIRE k X READ => null;",
            "BREAK k B => 0;",
        ];
        for look in looks {
            run(&format!(
                "{scene}
          4  c5  {look} {both}
          5  c5  INFO k                             => READ [-] [C t203 1 17] waiters 1
         23  c5  RENEW k C READ                     => NOTHELD; c4 gets t{next}; c: disconnected 0 t203 1 C k
        "
            ));
        }
        // Ending the last one serves the writer in the same step.
        run(&format!(
            "{scene}
          4  c5  BREAK k                            => 1; c4 gets t{next}; {both}; c: broken 0 t203 1 C k
        "
        ));
        run(&format!(
            "{scene}
          4  c6  RENEW l D WRITE                    => NOTHELD; d: disconnected 0 t204 1 D l
          5  c6  RENEW l D READ BIND 0              => t205
          6  tick                                   => {both}
          6  gone c6
          7  c5  INFO l                             => READ [-] [D t205 1 19] waiters 0
         25  tick                                   => c4 gets t{next}; c: disconnected 0 t203 1 C k
        "
        ));
    }
}

#[test]
fn a_repeat_counts_nothing_and_moves_the_tie() {
    run("
          0  c1  ACQUIRE k A READ REQID r BIND 0            => t1
          1  c2  ACQUIRE k A READ REQID r BIND 0            => t1
          2  gone c1
          2  c2  INFO k                                     => READ [-] [A t1 1 29999] waiters 0
          3  gone c2
          3  c3  INFO k                                     => null
    ");
}

#[test]
fn labels_and_channels_belong_to_a_hold() {
    run("
          0  events
          0  c1  ACQUIRE k A READ NOTIFY one PX 50          => t1 +acquire
          0  c1  ACQUIRE k A WRITE NOTIFY two PX 60         => t2 +acquire
         51  tick                                           => one: expired 0 t1 1 A k +expire
         61  tick                                           => two: expired 0 t2 1 A k +expire
         62  c1  ACQUIRE k A READ                           => t3 +acquire
         62  c1  ACQUIRE k A READ                           => t3 +acquire
         63  c2  ACQUIRE k B WRITE BLOCK 0                  => parked +wait
         64  c1  RELEASE k A READ                           => 1 +release
         65  c1  RELEASE k A READ                           => 0; c2 gets t4 +release +acquire
    ");
}

#[test]
fn readers_of_the_view_find_nothing_and_change_nothing() {
    run("
          0  c1  INFO k                     => null
          0  c1  WAITERS k                  => nobody
          0  c1  POSITION k A               => null
          0  c1  CHECK k 1                  => STALE
          0  c1  BREAK k                    => 0
          0  c1  BREAK k A                  => 0
          1  c1  DLOCK.ACQUIRE l A          => t1
          2  c1  ACQUIRE l A READ           => WRONGTYPE
          2  c1  RELEASE l A WRITE          => WRONGTYPE
          2  c1  RENEW l A READ             => WRONGTYPE
          2  c1  BREAK l                    => WRONGTYPE
          2  c1  INFO l                     => WRONGTYPE
          2  c1  CHECK l $t1                => WRONGTYPE
          2  c1  POSITION l A               => WRONGTYPE
          3  c1  ACQUIRE k A READ           => t2
          4  c1  DLOCK.ACQUIRE k A          => WRONGTYPE
          4  c1  DFAIR.ACQUIRE k A          => WRONGTYPE
          4  c1  DLOCK.CHECK k $t2          => WRONGTYPE
    ");
}
