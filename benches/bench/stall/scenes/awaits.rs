//! Events that end very many blocked calls.

use super::{LONG_MS, Meter, REST, Wire, blocked, once};
use crate::{support::Server, wire::Batch};

pub(super) fn open_latch(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DLATCH.INIT", "l", "1"], b":1");
    let _wires = blocked(server, |_| Batch::of(&["DLATCH.AWAIT", "l", "BLOCK", "0"], b""));
    meter.watch(server, REST, || once(&mut wire, &["DLATCH.COUNTDOWN", "l"], b":0"));
}

pub(super) fn plain_wide_wake(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    let call = ["XREAD", "BLOCK", "0", "STREAMS", "x", "$"];
    let _wires = blocked(server, |_| Batch::of(&call, b""));
    let mut add = Batch::of(&["XADD", "x", "1-1", "a", "b"], b"$3");
    add.push_line(b"1-1");
    meter.watch(server, REST, || wire.run(&add));
}

pub(super) fn end_observed(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DLOCK.ACQUIRE", "k", "runner", "PX", LONG_MS], b":");
    let _wires = blocked(server, |_| Batch::of(&["DLOCK.AWAIT", "k", "BLOCK", "0"], b""));
    meter.watch(server, REST, || once(&mut wire, &["DLOCK.RELEASE", "k", "runner"], b":0"));
}
