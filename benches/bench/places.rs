//! The server's memory for a waiter.

use crate::{
    memory::used,
    names::{key, owner},
    report::{self, Table},
    stats::digits,
    support::Server,
    wire::{Batch, Wire},
};

const PLACES: usize = 100_000;

const BATCH: usize = 1_000;

/// Connections with a blocked call, for comparison.
const BLOCKED: usize = 1_000;

fn in_batches(wire: &mut Wire, command: impl Fn(&mut Batch, usize)) {
    let mut batch = Batch::default();
    for first in (0..PLACES).step_by(BATCH) {
        batch.clear();
        (first..first + BATCH).for_each(|n| command(&mut batch, n));
        wire.run(&batch);
    }
}

/// Bytes per QUEUE waiter of one connection, all in the queue of one lock or each in another queue.
fn place(family: &str, on_one: bool) -> f64 {
    let server = Server::with(&[]).release().start();
    let mut wire = Wire::connect(&server);
    let acquire = format!("{family}.ACQUIRE");
    let name = |n: usize| if on_one { key(0) } else { key(n) };
    if on_one {
        wire.run(&Batch::of(&[&acquire, &name(0), "holder", "EX", "3600"], b":1"));
    } else {
        in_batches(&mut wire, |batch, n| {
            batch.push(&[&acquire, &name(n), "holder", "EX", "3600"], b":1");
        });
    }
    let before = used(&server);
    in_batches(&mut wire, |batch, n| {
        batch.push(&[&acquire, &name(n), &owner(n), "QUEUE", "600000"], b"$-1");
    });
    assert_eq!(server.info_number("dlock", "waiters_queued"), 100_000);
    (used(&server) - before) / PLACES as f64
}

/// Bytes per connection with a blocked call, including the connection.
fn blocked(server: &Server, call: impl Fn(usize) -> Batch) -> f64 {
    let before = used(server);
    let mut waiters: Vec<Wire> = (0..BLOCKED).map(|_| Wire::connect(server)).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&call(n));
    }
    server.wait_blocked(BLOCKED);
    (used(server) - before) / BLOCKED as f64
}

pub fn run() -> Table {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    Wire::connect(&with).run(&Batch::of(&["DLOCK.ACQUIRE", "lock", "holder"], b":1"));
    let ours =
        blocked(&with, |n| Batch::of(&["DLOCK.ACQUIRE", "lock", &owner(n), "BLOCK", "0"], b":1"));
    let theirs = blocked(&bare, |_| Batch::of(&["BLPOP", "list", "0"], b"*2"));
    let mut table = Table::new(
        "Memory of a QUEUE waiter",
        format!(
            "Growth of `used_memory` by {PLACES} QUEUE waiters of one connection, divided by their number; owners of \
             36 bytes, held keys of 20 bytes. For comparison, {BLOCKED} connections with a blocked call, each \
             connection included: a wait without QUEUE needs one."
        ),
        ["per waiter", "blocked connections of dlock, relative to it"],
    );
    for (name, family, on_one) in [
        ("DLOCK, all at one lock", "DLOCK", true),
        ("DLOCK, each at another lock", "DLOCK", false),
        ("DFAIR, all at one lock", "DFAIR", true),
        ("DFAIR, each at another lock", "DFAIR", false),
    ] {
        let bytes = place(family, on_one);
        table.row(
            name,
            format!("{bytes:.0} bytes"),
            format!("× {}", digits(ours / bytes)),
            report::at_most(bytes, 1_024.0, "bytes"),
        );
    }
    table.row(
        "a blocked call of DLOCK",
        format!("{ours:.0} bytes"),
        "× 1.00".to_owned(),
        String::new(),
    );
    let ratio = format!("× {}", digits(ours / theirs));
    table.row("BLPOP, server without dlock", format!("{theirs:.0} bytes"), ratio, String::new());
    table
}
