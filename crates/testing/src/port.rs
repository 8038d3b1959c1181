//! Ports reserved for one test.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::atomic::{AtomicU16, Ordering},
};

/// A free port; each call returns another. It is below the range for client sockets, so that it stays free until the
/// server uses it. Other test processes avoid it while the reservation lives: after a kill or restart, a server must
/// not find its port in use.
pub(super) fn free_port() -> (u16, Reservation) {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent test processes begin at different ports.
    let offset = u16::try_from(std::process::id() % u32::from(COUNT)).expect("below COUNT");
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (offset + step) % COUNT;
        let name = SocketAddr::from_abstract_name(format!("dlock-test-port-{port}"));
        let Ok(reservation) = UnixListener::bind_addr(&name.expect("a short name")) else {
            continue;
        };
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return (port, reservation);
        }
    }
}

/// A name that only one process on this machine can hold at a time; freed when the process ends.
pub(super) type Reservation = UnixListener;
