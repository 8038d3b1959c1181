//! Strict order of arrival and growing tokens, while waiters leave in every way. Random sets of locks are in
//! `multi/storm.rs`.

use crate::{
    args,
    support::{Blocked, Family, Kind, Reply, SOON, wait_until},
    test_both_families,
};

test_both_families! {
    waiters_are_served_in_the_order_in_which_they_came
}

fn waiters_are_served_in_the_order_in_which_they_came(family: Family) {
    const WAITERS: usize = 200;
    let server = family.with(&["dlock.fair-grace-ms", "0"]).start();
    let mut last = server.cmd(&["DLOCK.ACQUIRE", "k", "holder"]).int();
    let ask = |n: usize| {
        let mut call =
            args!["DLOCK.ACQUIRE", "k", format!("o{n}"), "BIND", 0, "EX", 1_000, "BLOCK"];
        call.extend(args![if n % 20 == 3 { 3_000 } else { 0 }]);
        server.block(&call)
    };
    let mut waiting: Vec<Option<Blocked>> = (0..WAITERS).map(|n| Some(ask(n))).collect();
    // Some waiters in the middle of the queue leave, in every way; one in twenty times out by itself.
    for (n, place) in waiting.iter_mut().enumerate() {
        let Some(waiter) = place else { continue };
        let id = waiter.id();
        match n % 20 {
            3 => assert!(waiter.expect_reply(SOON).is_null()),
            5 => {
                server.cmd(&args!["CLIENT", "KILL", "ID", id]).ok();
                waiter.expect_closed_without_reply();
            }
            8 => {
                assert_eq!(server.cmd(&args!["DLOCK.UNBLOCK", id]).int(), 1);
                assert!(waiter.expect_reply(SOON).is_null());
            }
            11 => {
                assert_eq!(server.cmd(&args!["DLOCK.UNBLOCK", id, "ERROR"]).int(), 1);
                assert!(waiter.expect_reply(SOON).error().starts_with("UNBLOCKED "));
            }
            13 => {
                assert_eq!(server.cmd(&args!["DLOCK.CANCEL", "k", format!("o{n}")]).int(), 1);
                assert!(waiter.expect_reply(SOON).is_null());
            }
            16 if Kind::of_binary().client_unblock_is_safe() => {
                assert_eq!(server.cmd(&args!["CLIENT", "UNBLOCK", id]).int(), 1);
                assert!(waiter.expect_reply(SOON).is_null());
            }
            // Repeats the request on another connection, and keeps its place.
            18 => {
                let mut earlier = place.replace(ask(n)).unwrap();
                assert!(earlier.expect_reply(SOON).error().starts_with("REPLACED "));
                continue;
            }
            16 | 19 => {}
            _ => continue,
        }
        // Cases 19, and 16 where the server cannot unblock the call, disconnect here.
        *place = None;
    }
    let stayed: Vec<usize> =
        waiting.iter().enumerate().filter(|(_, place)| place.is_some()).map(|(n, _)| n).collect();
    let names: Vec<String> = stayed.iter().map(|n| format!("o{n}")).collect();
    wait_until("the queue without the waiters that left", || {
        let rows = server.cmd(&["DLOCK.WAITERS", "k"]).items();
        rows.iter().map(|row| row.field("owner").text()).eq(names.iter().cloned())
    });
    assert_eq!(server.cmd(&["DLOCK.POSITION", "k", &names[99]]).int(), 100);
    let mut holder = server.client();
    let mut owner = "holder".to_owned();
    for (turn, (n, name)) in stayed.into_iter().zip(names).enumerate() {
        let before = server.blocked_clients();
        // All ways for a hold to end.
        match turn % 5 {
            0 => drop(server.cmd(&["DLOCK.RELEASE", "k", &owner]).ok()),
            1 => drop(server.cmd(&["DLOCK.RENEW", "k", &owner, "PX", "1"]).ok()),
            2 => assert_eq!(server.cmd(&["DLOCK.BREAK", "k"]).int(), 1),
            3 => assert_eq!(server.cmd(&["DEL", "k"]).int(), 1),
            _ => drop(server.cmd(&args!["CLIENT", "KILL", "ID", holder.id()]).ok()),
        }
        let mut next = waiting[n].take().unwrap();
        let token = next.expect_reply(SOON).int();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("owner").text(), name);
        assert_eq!(server.blocked_clients(), before - 1, "only {name} was woken");
        owner = name;
        holder = next.into_client();
    }
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", &owner]).int(), 0);
    server.left_over_check();
}
