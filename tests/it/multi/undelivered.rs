//! Grants of several locks whose receiver disconnects before the reply can be sent.

use super::{clear, tokens};
use crate::{
    args,
    support::{Blocked, Reply, SOON, Server},
};

/// Two hundred calls that die one after the other, each with a grant in progress.
#[test]
fn a_chain_of_dying_calls_loses_nothing() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE k0 h").int();
    let dying: Vec<Blocked> = (0..200)
        .map(|n| {
            server.wait(&format!("DLOCK.MACQUIRE 3 k0 k{} k{} d{n} BLOCK 0", 1 + n % 3, 4 + n % 5))
        })
        .collect();
    let mut survivor = server.wait("DLOCK.MACQUIRE 9 k0 k1 k2 k3 k4 k5 k6 k7 k8 s BLOCK 0");
    let mut calls = vec![args!["MULTI"], args!["DLOCK.RELEASE", "k0", "h"]];
    for waiter in &dying {
        calls.push(args!["CLIENT", "KILL", "ID", waiter.id()]);
        // Any dlock command hands off the lock of a killed connection, here to the next connection to be killed.
        calls.push(args!["DLOCK.BREAK", "other"]);
    }
    calls.push(args!["EXEC"]);
    server.client().pipeline(&calls).pop().expect("the last").ok();
    assert_eq!(tokens(&survivor.expect_reply(SOON)).len(), 9);
    for mut waiter in dying {
        waiter.expect_closed_without_reply();
    }
    clear(&server);
}
