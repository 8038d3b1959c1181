//! The server's memory for a held lock.

use std::{thread, time::Duration};

use crate::{
    names::{key, owner},
    report::{self, Table},
    stats::digits,
    support::Server,
    wire::{Batch, Wire},
};

/// Tables grow in steps, so a single number of keys would be arbitrary.
const COUNTS: [usize; 4] = [100_000, 300_000, 600_000, 1_000_000];

const BATCH: usize = 1_000;

/// `used_memory` once it is stable: the server resizes its tables step by step.
pub fn used(server: &Server) -> f64 {
    let mut last = 0;
    loop {
        let now = server.info_number("memory", "used_memory");
        let settled = now.abs_diff(last) < 16 * 1024;
        if settled {
            return now as f64;
        }
        last = now;
        thread::sleep(Duration::from_millis(300));
    }
}

/// Bytes per key at each of [`COUNTS`].
fn bytes(server: &Server, command: impl Fn(&mut Batch, &str, &str)) -> Vec<f64> {
    let mut wire = Wire::connect(server);
    let empty = used(server);
    let mut batch = Batch::default();
    let mut filled = 0;
    let mut per_key = Vec::new();
    for count in COUNTS {
        while filled < count {
            batch.clear();
            for n in filled..filled + BATCH {
                command(&mut batch, &key(n), &owner(n));
            }
            wire.run(&batch);
            filled += BATCH;
        }
        per_key.push((used(server) - empty) / count as f64);
    }
    per_key
}

pub fn run() -> Table {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    let ours = bytes(&with, |batch, key, owner| {
        batch.push(&["DLOCK.ACQUIRE", key, owner, "EX", "3600"], b":1");
    });
    let theirs = bytes(&bare, |batch, key, owner| {
        batch.push(&["SET", key, owner, "PX", "3600000"], b"+OK");
    });
    let mut table = Table::new(
        "Memory of a held lock",
        "Growth of `used_memory` by the keys (20 bytes each), divided by their number, after all tables have settled; \
         owner (here the value) 36 bytes, with a lease (here an expiry)."
            .to_owned(),
        ["DLOCK · SET PX", "ratio"],
    );
    for ((count, ours), theirs) in COUNTS.iter().zip(ours).zip(theirs) {
        let ratio = ours / theirs;
        table.row(
            &format!("{count} held"),
            format!("{ours:.0} · {theirs:.0} bytes"),
            format!("× {}", digits(ratio)),
            report::at_most(ratio, 1.5, ""),
        );
    }
    table
}
