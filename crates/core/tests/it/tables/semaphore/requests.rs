//! Late copies of requests about permits.

use super::run;

#[test]
fn permits_have_their_requests() {
    run("
          0  c1  INIT s 3                      => 1
          1  c1  ACQUIRE s A REQID r           => p1
          2  c1  ACQUIRE s A REQID q PX 20     => p2
          3  c1  RELEASE s $p1                 => 2
          4  c1  ACQUIRE s A REQID r COUNT 2   => SPENT
          5  c1  ACQUIRE s A REQID q PX 20     => p2
         30  tick
         31  c1  ACQUIRE s A REQID q BLOCK 0   => SPENT
         32  c1  RELEASE s A REQID c           => UNKNOWN
         33  c1  ACQUIRE s A REQID c           => SPENT
         34  c1  RELEASE s A REQID r           => LOST released
         35  failover
         36  c1  ACQUIRE s A REQID r           => SPENT
         37  c1  INFO s                        => capacity 3 available 3 leased 0 taken 0 waiters 0
    ");
}

#[test]
fn counted_permits_have_one_use_for_an_id() {
    run("
          0  c1  INIT s 9                      => 1
          1  c1  TAKE s 2 REQID t              => taken
          2  c1  TAKE s 3 REQID t              => ERR
          3  c1  GIVE s 2 REQID t              => ERR
          4  c1  DRAIN s REQID t               => ERR
          5  c1  RESIZE s 2 REQID t            => ERR
          6  c1  GIVE s REQID g                => 8
          7  c1  TAKE s REQID g                => ERR
          8  c1  GIVE s 2 REQID g              => ERR
          9  c1  RESIZE s 8 REQID z            => 7
         10  c1  RESIZE s BY 8 REQID z         => ERR
         11  c1  RESIZE s 9 REQID z            => ERR
         12  c1  RESIZE s BY -1 REQID y        => 6
         13  c1  RESIZE s BY 1 REQID y         => ERR
         14  c1  DRAIN s REQID d               => 6
         15  c1  GIVE s 7                      => 7
         16  c1  TAKE s REQID d                => ERR
         17  c1  INFO s                        => capacity 7 available 7 leased 0 taken 0 waiters 0
        # Their copies count nothing, here and after a failover.
         18  failover
         19  c1  TAKE s 2 REQID t              => taken
         20  c1  GIVE s REQID g                => 7
         21  c1  DRAIN s REQID d               => 6
         22  c1  RESIZE s 8 REQID z            => 7
         23  c1  RESIZE s BY -1 REQID y        => 7
         24  c1  TAKE s 3 REQID t              => ERR
         25  c1  INFO s                        => capacity 7 available 7 leased 0 taken 0 waiters 0
    ");
}

#[test]
fn a_semaphore_made_again_does_not_serve_the_copies_of_requests_to_the_old_one() {
    run("
          0  c1  INIT s 2                      => 1
          1  c1  TAKE s REQID t                => taken
          2  c1  RESIZE s 4 REQID z            => 3
          3  del s
          4  c1  TAKE s REQID t                => taken
          5  c1  RESIZE s 4 REQID z            => 0
          5  c1  INFO s                        => null
          6  c1  INIT s 2                      => 1
          7  c1  TAKE s REQID t                => taken
          8  c1  RESIZE s 4 REQID z            => 2
          9  c1  INFO s                        => capacity 2 available 2 leased 0 taken 0 waiters 0
    ");
}

#[test]
fn a_take_that_was_not_delivered_is_not_over() {
    run("
          0  held-back
          0  c1  INIT s 1                      => 1
          0  c1  TAKE s                        => taken
          1  c2  TAKE s BLOCK 0 REQID t        => parked
          2  c1  GIVE s                        => 0; c2 gets taken
          3  gone c2
          3  c1  INFO s                        => capacity 1 available 1 leased 0 taken 0 waiters 0
          4  c3  TAKE s REQID t                => taken
          4  c1  INFO s                        => capacity 1 available 0 leased 0 taken 1 waiters 0
          5  c3  TAKE s REQID t                => taken
        # Nor if the semaphore was deleted meanwhile, though nothing is given back then.
          6  c2  TAKE s BLOCK 0 REQID u        => parked
          7  c1  GIVE s                        => 0; c2 gets taken
          8  del s
          9  c1  INIT s 5                      => 1
         10  c1  TAKE s 2                      => taken
         11  gone c2
         12  c1  INFO s                        => capacity 5 available 3 leased 0 taken 2 waiters 0
         13  failover
         14  c3  TAKE s REQID u                => taken
         15  c1  INFO s                        => capacity 5 available 2 leased 0 taken 3 waiters 0
    ");
}
