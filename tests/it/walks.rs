//! What a command costs beside many things that are none of its business.

use crate::{
    args,
    harm::{cpu_ms, pipeline},
    support::{Family, Reply, Server},
};

/// Milliseconds of CPU that the server uses for `calls`.
fn cost<A: AsRef<[u8]>>(server: &Server, calls: impl Iterator<Item = Vec<A>>) -> u64 {
    let before = cpu_ms(server);
    pipeline(&mut server.client(), calls);
    // The turn of the loop that reads this processes the notices of the others first.
    server.cmd(&["PING"]).ok();
    cpu_ms(server) - before
}

#[test]
fn moving_a_lock_costs_the_same_with_many_databases() {
    let cost_with = |databases: &str| {
        let server = Family::Lock.with(&["databases", databases]).start();
        server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
        let moves = [args!["RENAME", "k", "l"], args!["RENAME", "l", "k"]];
        let renames = cost(&server, (0..500).flat_map(|_| moves.clone()));
        let there = [args!["MOVE", "k", 9], args!["SELECT", 9], args!["MOVE", "k", 0]];
        let back = || (there.iter().cloned()).chain([args!["SELECT", 0]]);
        let moves = cost(&server, (0..500).flat_map(|_| back()));
        println!("{renames} ms of CPU for RENAME, {moves} ms for MOVE, {databases} databases");
        server.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
        server.left_over_check();
        (renames, moves)
    };
    let few = cost_with("16");
    let many = cost_with("20000");
    assert!(many.0 < 3 * few.0 + 20, "RENAME: {many:?} ms, with few databases {few:?} ms");
    assert!(many.1 < 3 * few.1 + 20, "MOVE: {many:?} ms, with few databases {few:?} ms");
}
