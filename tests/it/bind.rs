//! BIND: a hold that ends with a connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here and says why")]

use crate::{
    args,
    support::{Client, Family, Reply, SOON, Server, wait_until},
    test_both_families,
};

test_both_families! {
    a_tied_hold_goes_with_its_connection
    the_lease_is_cut_and_never_lengthened
    the_tie_moves_with_bind_and_with_a_repeat
    a_waiter_is_tied_to_the_connection_that_waited
    one_connection_takes_all_its_holds_along
}

fn bound_to(server: &Server, key: &str) -> u64 {
    u64::try_from(server.cmd(&["DLOCK.INFO", key]).field("bound-client").int()).unwrap()
}

fn is_held(server: &Server, key: &str) -> bool {
    !server.cmd(&["DLOCK.INFO", key]).is_null()
}

/// All ways for a connection to close.
const ENDS: [fn(&Server, Client); 4] = [
    |_, client| drop(client),
    |server, client| drop(server.cmd(&args!["CLIENT", "KILL", "ID", client.id()]).ok()),
    |_, mut client| client.send(&["QUIT"]),
    |_, mut client| client.send_bytes(b"*1\r\n$-9\r\n"),
];

fn a_tied_hold_goes_with_its_connection(family: Family) {
    let server = family.start();
    for end in ENDS {
        let mut holder = server.client();
        holder.cmd(&["DLOCK.ACQUIRE", "k", "a", "BIND", "0", "EX", "100"]).ok();
        holder.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
        let mut free = server.client();
        free.cmd(&["DLOCK.ACQUIRE", "untied", "a", "EX", "100"]).ok();
        let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
        end(&server, holder);
        waiter.expect_reply(SOON).int();
        end(&server, free);
        assert!(is_held(&server, "untied"));
        server.cmd(&["DLOCK.RELEASE", "untied", "a"]).ok();
        server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    }
    assert_eq!(server.info_number("dlock", "disconnected"), 4);
    server.left_over_check();
}

fn the_lease_is_cut_and_never_lengthened(family: Family) {
    let server = family.start();
    // Lease, BIND, and the range of the remaining lease after the disconnect.
    for (lease, bind, left) in [(100_000, 20_000, 1..=20_000), (20_000, 100_000, 1..=20_000)] {
        let mut holder = server.client();
        holder.cmd(&args!["DLOCK.ACQUIRE", "k", "a", "PX", lease, "BIND", bind]).ok();
        drop(holder);
        wait_until("the binding to end", || bound_to(&server, "k") == 0);
        let ttl = server.cmd(&["DLOCK.INFO", "k"]).field("ttl-ms").int();
        assert!(left.contains(&ttl), "{ttl} with PX {lease} BIND {bind}");
        server.cmd(&["DLOCK.BREAK", "k"]).ok();
    }
    // The hold ends by itself; a renewal in time prevents that.
    let mut holder = server.client();
    holder.cmd(&["DLOCK.ACQUIRE", "k", "a", "EX", "100", "BIND", "1"]).ok();
    holder.cmd(&["DLOCK.ACQUIRE", "late", "a", "EX", "100", "BIND", "60000"]).ok();
    drop(holder);
    wait_until("the cut lease to end", || !is_held(&server, "k"));
    server.cmd(&["DLOCK.RENEW", "late", "a", "EX", "200"]).ok();
    let ttl = server.cmd(&["DLOCK.INFO", "late"]).field("ttl-ms").int();
    assert!(ttl > 100_000, "{ttl}");
    server.cmd(&["DLOCK.BREAK", "late"]).ok();
    server.left_over_check();
}

fn the_tie_moves_with_bind_and_with_a_repeat(family: Family) {
    let server = family.start();
    let mut first = server.client();
    first.cmd(&["DLOCK.ACQUIRE", "k", "a", "BIND", "0", "REQID", "1", "EX", "100"]).ok();
    let first_id = first.id();
    let mut last = first;
    for (call, moves) in [
        (&["DLOCK.ACQUIRE", "k", "a"][..], false),
        (&["DLOCK.ACQUIRE", "k", "a", "BIND", "0"], true),
        (&["DLOCK.RENEW", "k", "a"], false),
        (&["DLOCK.RENEW", "k", "a", "BIND", "0"], true),
        // A repeat counts nothing, and moves the binding to the connection that repeats.
        (&["DLOCK.ACQUIRE", "k", "a", "REQID", "1"], true),
        (&["DLOCK.ACQUIRE", "k", "a", "REQID", "1", "BIND", "0"], true),
        (&["DLOCK.RELEASE", "k", "a", "REQID", "2"], false),
        (&["DLOCK.RELEASE", "k", "a", "REQID", "2"], true),
    ] {
        let mut client = server.client();
        client.cmd(call).int();
        let (stays, goes) = if moves { (client, last) } else { (last, client) };
        assert_eq!(bound_to(&server, "k"), stays.id(), "{call:?}");
        server.cmd(&args!["CLIENT", "KILL", "ID", goes.id()]).ok();
        assert_eq!(bound_to(&server, "k"), stays.id(), "{call:?}");
        last = stays;
    }
    assert_ne!(last.id(), first_id);
    assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("holds").int(), 2);
    drop(last);
    wait_until("the hold to end", || !is_held(&server, "k"));
    server.left_over_check();
}

fn a_waiter_is_tied_to_the_connection_that_waited(family: Family) {
    let server = family.start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0", "BIND", "0"]);
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    waiter.expect_reply(SOON).int();
    assert_eq!(bound_to(&server, "k"), waiter.id());
    // A claim with any options moves the binding to its connection.
    let mut place = server.client();
    place.cmd(&["DLOCK.ACQUIRE", "k", "c", "QUEUE", "60000", "BIND", "0"]).ok();
    waiter.hang_up();
    wait_until("the hand-off", || bound_to(&server, "k") == place.id());
    let mut claimer = server.client();
    claimer.cmd(&["DLOCK.ACQUIRE", "k", "c"]).int();
    drop(place);
    server.cmd(&["PING"]).ok();
    assert_eq!(bound_to(&server, "k"), claimer.id());
    drop(claimer);
    wait_until("the hold to end", || !is_held(&server, "k"));
    server.left_over_check();
}

fn one_connection_takes_all_its_holds_along(family: Family) {
    let server = family.start();
    let mut holder = server.client();
    let call = |n| args!["DLOCK.ACQUIRE", format!("k{n}"), "a", "BIND", 0, "EX", 100];
    holder.pipeline(&(0..300).map(call).collect::<Vec<_>>());
    assert_eq!(server.info_number("dlock", "held_locks"), 300);
    drop(holder);
    server.left_over_check();
    assert_eq!(server.info_number("dlock", "disconnected"), 300);
}
