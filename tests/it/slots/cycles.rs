//! Owners that wait for each other over two slots, and waiters of unresponsive connections.

use super::{ask, keys, on_all, words};
use crate::support::{Reply, Server, wait_until};

/// A hold, and a wait for it: by family.
const LOCKS: [(&str, &str); 6] = [
    ("DLOCK.ACQUIRE $k $o", "DLOCK.ACQUIRE $k $o"),
    ("DFAIR.ACQUIRE $k $o", "DFAIR.ACQUIRE $k $o"),
    ("DRW.ACQUIRE $k $o WRITE", "DRW.ACQUIRE $k $o READ"),
    ("DRW.ACQUIRE $k $o READ", "DRW.ACQUIRE $k $o WRITE"),
    ("DLOCK.MACQUIRE 2 $k $kx $o", "DLOCK.MACQUIRE 2 $kx $k $o"),
    ("DLOCK.ANYACQUIRE 1 $k $o", "DLOCK.ACQUIRE $k $o"),
];

fn written(call: &str, key: &str, owner: &str) -> String {
    call.replace("$k", key).replace("$o", owner)
}

#[test]
fn owners_that_wait_for_each_other_over_two_slots_are_seen() {
    let pairs: Vec<(usize, usize)> =
        (0..LOCKS.len()).flat_map(|a| (0..LOCKS.len()).map(move |b| (a, b))).collect();
    let name = |&(a, b): &(usize, usize)| format!("{} and {}", LOCKS[a].0, LOCKS[b].0);
    on_all(&pairs, name, |server, &(a, b)| {
        ask(server, &written(LOCKS[a].0, "{a}k", "o1")).ok();
        ask(server, &written(LOCKS[b].0, "{b}k", "o2")).ok();
        let call = format!("{} BLOCK 0", written(LOCKS[a].1, "{a}k", "o2"));
        let mut waiter = server.block(&words(&call));
        let call = format!("{} BLOCK 10000", written(LOCKS[b].1, "{b}k", "o1"));
        let reply = server.cmd(&words(&call));
        assert!(!reply.is_null(), "the cycle was not seen");
        let refusal = reply.error();
        assert!(refusal.starts_with("DEADLOCK "), "{refusal}");
        // No other owner was disturbed. Without the first lock there is no cycle, and the second is granted.
        waiter.assert_no_reply();
        assert!(keys(server).len() >= 2);
        ask(server, "DEL {b}k {b}kx");
        drop(waiter);
        ask(server, "DEL {a}k {a}kx");
        server.left_over_check();
    });
}

/// After its grant expired unclaimed, a connection is skipped until it sends a command. That command may be for
/// another slot.
#[test]
fn a_connection_that_was_silent_is_heard_again() {
    on_all(
        &["DLOCK", "DRW"],
        |family| (*family).to_owned(),
        |server, family| {
            let mode = if *family == "DRW" { " WRITE" } else { "" };
            for is_held in [true, false] {
                silence(server, family, mode, is_held);
            }
        },
    );
}

fn silence(server: &Server, family: &str, mode: &str, is_held: bool) {
    let mut messages = server.subscribe(&["dlock:notify:q"]);
    for key in ["{a}h", "{a}k"] {
        ask(server, &format!("{family}.ACQUIRE {key} o1{mode}"));
    }
    let mut silent = server.client();
    for (key, queue, lease) in [("{a}h", 30, 1), ("{a}k", 60_000, 30_000)] {
        let call = format!("{family}.ACQUIRE {key} q{mode} QUEUE {queue} PX {lease}");
        assert!(silent.cmd(&words(&call)).is_null());
    }
    ask(server, &format!("{family}.RELEASE {{a}}h o1{mode}"));
    assert!(messages.next_text().starts_with("granted "));
    // It sends nothing: the grant expires, and its other place is skipped.
    wait_until("the grant to expire", || server.cmd(&["EXISTS", "{a}h"]).int() == 0);
    assert!(messages.next_text().starts_with("expired "));
    if !is_held {
        ask(server, &format!("{family}.RELEASE {{a}}k o1{mode}"));
        assert_eq!(server.cmd(&["EXISTS", "{a}k"]).int(), 0);
    }
    silent.cmd(&words("DLOCK.ACQUIRE {b}k o9")).int();
    if is_held {
        server.cmd(&["PING"]).ok();
        server.cmd(&["PING"]).ok();
        messages.assert_none();
        assert_eq!(keys(server), ["{a}k", "{b}k"]);
        ask(server, &format!("{family}.RELEASE {{a}}k o1{mode}"));
    }
    assert!(messages.next_text().starts_with("granted "));
    assert_eq!(keys(server), ["{a}k", "{b}k"]);
    silent.cmd(&words(&format!("{family}.ACQUIRE {{a}}k q{mode}"))).int();
    ask(server, &format!("{family}.RELEASE {{a}}k q{mode}"));
    ask(server, "DLOCK.RELEASE {b}k o9");
    drop(silent);
    server.left_over_check();
}
