//! Ports that nobody else takes while a test has them.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::atomic::{AtomicU16, Ordering},
};

/// A port that nobody listens on. Below the range that the system hands out to clients, so that it stays free until the server has it;
/// each call gives another. Other test processes keep off it while the reservation lives: a server that is down for a moment, or was
/// killed, must not find a stranger in its place.
pub(super) fn free_port() -> (u16, Reservation) {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes side by side begin at different places.
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

/// A name that one process on this machine can have at a time, and that goes with it.
pub(super) type Reservation = UnixListener;
