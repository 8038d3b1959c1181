//! BIND: a hold that ends with a connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here and says why")]

use crate::{
    args,
    support::{Client, Family, Reply, SOON, Server},
    test_both_families,
};

test_both_families! {
    a_tied_hold_goes_with_its_connection
    one_connection_takes_all_its_holds_along
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
        holder.cmd(&["DLOCK.ACQUIRE", "k", "a", "BIND", "0"]).ok();
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
