//! Wait graphs that resemble a cycle and have none.

use super::{Hold, Wait};
use crate::support::{Blocked, Reply, SOON, Server};

#[track_caller]
fn end(server: &Server, calls: Vec<Blocked>) {
    drop(calls);
    server.wait_blocked(0);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// Without one link of a ring, the call that would have closed it waits like any other.
#[test]
fn a_ring_with_a_link_that_has_ended_is_open() {
    let server = Server::start();
    for how in ["release", "expire", "break", "cancel", "hang up", "unblock"] {
        Hold::Write.take(&server, "x", "a");
        Hold::Fair.take(&server, "y", "b");
        Hold::Several.take(&server, "z", "c");
        let ab = server.wait(&format!("{} BLOCK 0", Wait::Fair.call("y", "a")));
        let mut bc = Some(server.wait(&format!("{} BLOCK 0", Wait::Several.call("z", "b"))));
        let closing = format!("{} BLOCK 0", Wait::Read.call("x", "c"));
        let error = server.ask(&closing).error();
        assert!(error.starts_with("DEADLOCK "), "{how}: {error}");
        let mut rest = vec![ab];
        match how {
            "release" => drop(server.ask("DRW.RELEASE x a WRITE").int()),
            "expire" => {
                server.ask("DRW.RENEW x a WRITE PX 1").int();
                crate::support::wait_until("the end of the lease", || {
                    server.ask("DRW.INFO x").is_null()
                });
            }
            "break" => drop(server.ask("DRW.BREAK x").int()),
            "cancel" => {
                assert_eq!(server.ask("DLOCK.CANCEL z b").int(), 1);
                assert!(bc.take().expect("a call").expect_reply(SOON).is_null());
            }
            "hang up" => {
                bc = None;
                server.wait_blocked(1);
            }
            _ => {
                let id = bc.as_ref().expect("a call").id();
                assert_eq!(server.ask(&format!("DLOCK.UNBLOCK {id}")).int(), 1);
                assert!(bc.take().expect("a call").expect_reply(SOON).is_null());
            }
        }
        if ["release", "expire", "break"].contains(&how) {
            server.ask(&closing).int();
        } else {
            rest.push(server.wait(&closing));
        }
        rest.extend(bc);
        end(&server, rest);
    }
}

/// With the setting off there is no search; a call that waits in a cycle ends by its timeout.
#[test]
fn it_can_be_turned_off_for_all_families() {
    let server = Server::with(&["dlock.deadlock-detection", "no"]).start();
    for hold in [Hold::Lock, Hold::Fair, Hold::Write, Hold::Several] {
        let wait = hold.waits()[0];
        hold.take(&server, "x", "a");
        hold.take(&server, "y", "b");
        let mut b = server.wait(&format!("{} BLOCK 0", wait.call("x", "b")));
        let closing = wait.call("y", "a");
        assert!(server.ask(&format!("{closing} BLOCK 20")).is_null(), "{hold:?}");
        server.cmd(&["CONFIG", "SET", "dlock.deadlock-detection", "yes"]).ok();
        let error = server.ask(&format!("{closing} BLOCK 20")).error();
        assert!(error.starts_with("DEADLOCK "), "{hold:?}: {error}");
        server.cmd(&["CONFIG", "SET", "dlock.deadlock-detection", "no"]).ok();
        b.assert_no_reply();
        end(&server, vec![b]);
    }
}

/// One name in two databases means two locks.
#[test]
fn databases_are_apart() {
    let server = Server::start();
    let mut other = server.client();
    other.cmd(&["SELECT", "5"]).ok();
    for (hold, wait) in [(Hold::Write, Wait::Write), (Hold::Fair, Wait::Fair)] {
        hold.take(&server, "x", "a");
        let take = match hold {
            Hold::Write => "DRW.ACQUIRE y b WRITE",
            _ => "DFAIR.ACQUIRE y b",
        };
        // `b` holds `y` of another database, and waits for `x` of this one.
        other.cmd(&take.split(' ').collect::<Vec<_>>()).int();
        let b = server.wait(&format!("{} BLOCK 0", wait.call("x", "b")));
        // `y` of this database is another lock; an owner that waits for nothing holds it.
        hold.take(&server, "y", "z");
        let a = server.wait(&format!("{} BLOCK 0", wait.call("y", "a")));
        end(&server, vec![a, b]);
    }
    // But a cycle may span several databases.
    server.ask("DLOCK.ACQUIRE x a").int();
    other.cmd(&["DLOCK.ACQUIRE", "y", "b"]).int();
    let b = server.wait("DLOCK.ACQUIRE x b BLOCK 0");
    let error = other.cmd(&["DLOCK.ACQUIRE", "y", "a", "BLOCK", "0"]).error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    end(&server, vec![b]);
}
