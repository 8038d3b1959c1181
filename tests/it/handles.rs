//! Handles of blocked calls: the server reuses their addresses, and a notice about one call must not end a later one.

use std::{thread, time::Duration};

use crate::{
    args,
    support::{Client, Reply, SOON, Server, each},
};

/// Waits that end in one turn of the loop. The allocator decides which address the server reuses.
const CALLS: usize = 4;

fn awaiting(server: &Server, calls: &[u64]) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..CALLS).map(|_| server.client()).collect();
    for client in &mut clients {
        for ms in calls {
            client.send(&args!["DLATCH.AWAIT", "l", "BLOCK", ms]);
        }
    }
    clients
}

/// While the server refuses writes, a notice about a lost call outlives the call's handle.
#[test]
fn a_notice_that_comes_late_ends_no_later_call() {
    // In one half of the rounds the longer calls go, in the other they stay.
    each(&[0, 1], |&half| late_notices(half));
}

fn late_notices(half: usize) {
    let server = Server::start();
    assert_eq!(server.cmd(&["DLATCH.INIT", "l", "1"]).int(), 1);
    server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]).ok();
    for round in (half..10).step_by(2) {
        let first = if round % 2 == 0 { &[200, 600][..] } else { &[200] };
        let second = if round % 2 == 0 { &[200][..] } else { &[200, 600] };
        let (one, other) = (awaiting(&server, first), awaiting(&server, second));
        let (mut stay, go) = if round % 2 == 0 { (one, other) } else { (other, one) };
        server.wait_blocked(2 * CALLS);
        let mut sleeper = server.client();
        sleeper.send(&["DEBUG", "SLEEP", "0.3"]);
        // The connections close while the server sleeps, so that it notices this in the turn in which the first waits
        // time out. (No query is possible meanwhile. If they close earlier, the round shows nothing.)
        thread::sleep(Duration::from_millis(50));
        drop(go);
        sleeper.reply(SOON).ok();
        for client in &mut stay {
            for wait in ["first", "second"] {
                let reply = client.reply(SOON);
                assert!(reply.is_null(), "round {round}, {wait} wait: {}", reply.show());
            }
        }
        server.wait_blocked(0);
    }
    server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "0"]).ok();
    assert_eq!(server.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 0);
    server.left_over_check();
}
