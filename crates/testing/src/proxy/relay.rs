//! The thread that moves the bytes.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::net::UnixStream,
    },
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{Connection, Cut, Lane, Parcel, Shared, State, Traffic, Way};
use crate::wait::wait_until;

/// A listener at this port of 127.0.0.1.
#[track_caller]
pub(super) fn listen(port: u16) -> TcpListener {
    let mut listener = None;
    // A listener that was closed stays open until the thread that polls it has noticed.
    wait_until("the port to be free", || {
        listener = TcpListener::bind(("127.0.0.1", port)).ok();
        listener.is_some()
    });
    let listener = listener.expect("a listener");
    listener.set_nonblocking(true).expect("a socket option");
    listener
}

impl Shared {
    /// Runs the thread.
    pub(super) fn run(&self, woken: &UnixStream) {
        loop {
            let (mut polled, timeout) = {
                let mut state = self.lock();
                if state.ended {
                    *state = State { ended: true, ..State::default() };
                    return;
                }
                state.turn();
                state.turns += 1;
                self.turned.notify_all();
                state.interests(woken)
            };
            poll(&mut polled, timeout);
            while matches!((&*woken).read(&mut [0; 64]), Ok(n) if n > 0) {}
        }
    }
}

impl State {
    /// Does all work that is possible now.
    fn turn(&mut self) {
        self.accept();
        let numbers: Vec<usize> = self.connections.keys().copied().collect();
        for number in numbers {
            let mut connection = self.connections.remove(&number).expect("one of the keys");
            let mut cut = None;
            for way in Way::BOTH {
                cut = cut.or_else(|| self.receive(&mut connection, way));
            }
            // Data before the cut is sent at once: delays must not lose it.
            for way in Way::BOTH {
                cut = self.deliver(&mut connection, way, cut.is_some()).or(cut);
            }
            let over = connection.lanes.iter().all(|lane| lane.ended && lane.queue.is_empty());
            match cut {
                Some(how) => self.close(connection, how),
                None if over => self.close(connection, Cut::Fin),
                None => {
                    self.connections.insert(number, connection);
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Some(Ok((client, _))) = self.listener.as_ref().map(TcpListener::accept) {
            let number = self.traffic.len();
            let target = std::net::SocketAddr::from(([127, 0, 0, 1], self.target));
            let server = TcpStream::connect_timeout(&target, Duration::from_secs(1));
            self.traffic.push(Traffic::default());
            let Ok(server) = server else {
                reset(&client);
                continue;
            };
            for socket in [&client, &server] {
                socket.set_nonblocking(true).expect("a socket option");
                socket.set_nodelay(true).expect("a socket option");
            }
            let connection = Connection {
                number,
                from: [client, server],
                lanes: [Lane::default(), Lane::default()],
                stalled: [false; 2],
                unanswered: VecDeque::new(),
                resp3: false,
                opaque: false,
            };
            self.connections.insert(number, connection);
        }
    }

    /// Reads new data; returns how to cut the connection if a fault requires it.
    fn receive(&mut self, connection: &mut Connection, way: Way) -> Option<Cut> {
        let lane = way as usize;
        let mut chunk = vec![0; 64 * 1024];
        while !connection.lanes[lane].ended {
            match connection.from[lane].read(&mut chunk) {
                Ok(0) => connection.lanes[lane].ended = true,
                Ok(n) => {
                    connection.lanes[lane].partial.extend_from_slice(&chunk[..n]);
                    if let Some(cut) = self.sort(connection, way) {
                        return Some(cut);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A black hole reports no error.
                Err(_) if self.stalled[lane] => connection.lanes[lane].ended = true,
                // One side was cut: cut the other, too.
                Err(_) => return Some(Cut::Reset),
            }
        }
        None
    }

    pub(super) fn enqueue(&mut self, connection: &mut Connection, way: Way, bytes: Vec<u8>) {
        if way == Way::ToServer {
            self.traffic[connection.number].bytes_to_server += bytes.len() as u64;
        }
        let due = Instant::now() + self.delay[way as usize];
        // A shorter delay must not reorder data.
        let queue = &mut connection.lanes[way as usize].queue;
        let due = queue.back().map_or(due, |last| last.due.max(due));
        queue.push_back(Parcel { due, bytes, sent: 0 });
    }

    /// Sends due data, or all of it. Returns how to cut the connection if it broke or a limit was reached.
    fn deliver(&mut self, connection: &mut Connection, way: Way, all: bool) -> Option<Cut> {
        let lane = way as usize;
        if self.stalled[lane] || connection.stalled[lane] {
            return None;
        }
        let now = Instant::now();
        let Connection { number, from, lanes, .. } = connection;
        let to = &mut from[1 - lane];
        let Lane { queue, ended, .. } = &mut lanes[lane];
        while let Some(parcel) = queue.front_mut()
            && (all || parcel.due <= now)
        {
            let mut rest = &parcel.bytes[parcel.sent..];
            let limit = self.limit[lane].as_ref().map(|&(left, _)| left);
            if let Some(left) = limit {
                rest = &rest[..left.min(rest.len())];
            }
            let n = match to.write(rest) {
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(_) => return Some(Cut::Reset),
            };
            parcel.sent += n;
            if way == Way::ToClient {
                self.traffic[*number].bytes_to_client += n as u64;
            }
            if let Some((left, fired)) = &mut self.limit[lane] {
                *left -= n;
                if *left == 0 {
                    fired.fetch_add(1, Ordering::SeqCst);
                    self.limit[lane] = None;
                    return Some(Cut::Reset);
                }
            }
            if parcel.sent == parcel.bytes.len() {
                queue.pop_front();
            }
        }
        if *ended && queue.is_empty() {
            let _ = to.shutdown(Shutdown::Write);
        }
        None
    }

    pub(super) fn close(&mut self, connection: Connection, how: Cut) {
        let [client, server] = connection.from;
        match how {
            Cut::Fin => {
                let _ = client.shutdown(Shutdown::Write);
                let _ = server.shutdown(Shutdown::Write);
            }
            Cut::Reset => {
                reset(&client);
                reset(&server);
            }
            Cut::HalfOpen => {
                reset(&client);
                self.half_open.push(server);
            }
        }
    }

    /// The descriptors to wait for, and the timeout (milliseconds, -1: none).
    fn interests(&self, woken: &UnixStream) -> (Vec<libc::pollfd>, i32) {
        let interest = |fd: RawFd, events: libc::c_short| libc::pollfd { fd, events, revents: 0 };
        let mut polled = vec![interest(woken.as_raw_fd(), libc::POLLIN)];
        polled.extend(self.listener.as_ref().map(|l| interest(l.as_raw_fd(), libc::POLLIN)));
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        for connection in self.connections.values() {
            for way in Way::BOTH {
                let lane = way as usize;
                let mut events = 0;
                if !connection.lanes[lane].ended {
                    events |= libc::POLLIN;
                }
                // The socket that this direction reads is the one that the other writes.
                let out = 1 - lane;
                let stalled = self.stalled[out] || connection.stalled[out];
                if let Some(parcel) = connection.lanes[out].queue.front()
                    && !stalled
                {
                    if parcel.due <= now {
                        events |= libc::POLLOUT;
                    } else {
                        next = Some(next.map_or(parcel.due, |next| next.min(parcel.due)));
                    }
                }
                // No interest: a closed peer would wake the thread constantly.
                if events != 0 {
                    polled.push(interest(connection.from[lane].as_raw_fd(), events));
                }
            }
        }
        let timeout = next.map_or(-1, |next| {
            let millis = next.saturating_duration_since(now).as_millis() + 1;
            i32::try_from(millis).unwrap_or(i32::MAX)
        });
        (polled, timeout)
    }
}

fn poll(polled: &mut [libc::pollfd], timeout: i32) {
    let count = libc::nfds_t::try_from(polled.len()).expect("a small number");
    // SAFETY: `polled` is valid for reads and writes of `count` elements for the whole call. A descriptor that was
    // closed meanwhile, or reused, only wakes this thread: all later reads and writes are on sockets that it owns.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, timeout) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    }
}

/// Makes a close of the socket send a RST.
fn reset(socket: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = libc::socklen_t::try_from(size_of_val(&linger)).expect("a small number");
    // SAFETY: the descriptor is open while `socket` lives, and `linger` is a valid value of `len` bytes.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            len,
        );
    }
}
