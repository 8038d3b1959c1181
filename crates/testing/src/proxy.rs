//! A TCP proxy between clients and a server that breaks what a network breaks, when the test says so.
//!
//! One thread moves the bytes, whole RESP frames at a time, so that a fault can strike exactly between a request and its
//! reply. Every switch acts before its call returns.
//!
//! ```ignore
//! let proxy = Proxy::to(&server);
//! let client = Client::connect(&proxy.url()).await?;
//! let lost = proxy.once("DLOCK.ACQUIRE", Fault::LoseReply);
//! let guard = client.lock("k").acquire().await?; // asks twice
//! assert_eq!(lost.fired(), 1);
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    resp,
    server::{Reservation, Server, free_port},
    wait::wait_until,
};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a client to the server: requests.
    ToServer,
    /// From the server to a client: replies and messages.
    ToClient,
}

impl Way {
    /// Both, for loops.
    pub const BOTH: [Way; 2] = [Way::ToServer, Way::ToClient];
}

/// What befalls a request that a rule picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is cut before the server sees it.
    LoseRequest,
    /// The server gets it and answers; the connection is cut instead of the reply, after the replies to earlier requests.
    LoseReply,
    /// The server gets it and answers; from this reply on nothing comes back over this connection until [`Proxy::flow`].
    StallReply,
    /// As [`Fault::LoseReply`], but the server does not hear of it: its end of the connection stays open until [`Proxy::cut`].
    HalfOpen,
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In order: FIN.
    Fin,
    /// Abruptly: RST.
    Reset,
    /// The client gets a RST, the server hears nothing until the next [`Proxy::cut`] or the end of the proxy.
    HalfOpen,
}

/// What went over one connection.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Whether it is still open.
    pub open: bool,
    /// Bytes that clients sent.
    pub bytes_to_server: u64,
    /// Bytes that were delivered to clients.
    pub bytes_to_client: u64,
    /// Requests by command name in capitals.
    pub requests: BTreeMap<String, u64>,
    /// How often a request came while none was unanswered: a pipeline is one round trip.
    pub round_trips: u64,
    /// Push messages that came from the server (RESP3).
    pub pushes: u64,
}

/// A request that the proxy saw, if it was told to remember them.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// When.
    pub at: Instant,
    /// Command and arguments.
    pub command: Vec<Vec<u8>>,
}

/// How often a rule has struck.
#[derive(Clone, Debug)]
pub struct Trigger(Arc<AtomicUsize>);

impl Trigger {
    /// How often its fault was done. For faults that strike at a reply: counted when the reply was there.
    pub fn fired(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until it has struck so often.
    #[track_caller]
    pub fn wait_fired(&self, times: usize) {
        wait_until(&format!("the fault to strike {times} times"), || self.fired() >= times);
    }
}

type Matcher = Box<dyn Fn(&[Vec<u8>]) -> bool + Send>;

struct Rule {
    matcher: Matcher,
    fault: Fault,
    /// How many more requests it picks.
    left: usize,
    fired: Arc<AtomicUsize>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} more times", self.fault, self.left)
    }
}

/// A proxy in front of a server. Dropping it cuts everything.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    _port: Reservation,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy to this server's TCP port.
    #[track_caller]
    pub fn to(server: &Server) -> Proxy {
        Proxy::to_port(server.port())
    }

    /// A proxy to this port of 127.0.0.1.
    #[track_caller]
    pub fn to_port(target: u16) -> Proxy {
        let (port, reservation) = free_port();
        let (wake, woken) = UnixStream::pair().expect("a pair of sockets");
        for end in [&wake, &woken] {
            end.set_nonblocking(true).expect("a socket option");
        }
        let state = State { target, listener: Some(listen(port)), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake, turned: Condvar::new() });
        let thread = thread::Builder::new()
            .name(format!("proxy to {target}"))
            .spawn({
                let shared = shared.clone();
                move || shared.run(&woken)
            })
            .expect("a thread");
        Proxy { port, _port: reservation, shared, thread: Some(thread) }
    }

    /// Its TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// For clients that want a URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Where connections go that are made from now on.
    pub fn redirect(&self, server: &Server) {
        self.shared.lock().target = server.port();
    }

    // Faults

    /// Cuts every connection.
    pub fn cut(&self, how: Cut) {
        self.shared.change(|state| {
            for connection in std::mem::take(&mut state.connections).into_values() {
                state.close(connection, how);
            }
            if how != Cut::HalfOpen {
                state.half_open.clear();
            }
        });
    }

    /// Refuses new connections, as a host without a server does; those that exist stay.
    pub fn refuse(&self) {
        self.shared.change(|state| state.listener = None);
    }

    /// Ends [`Proxy::refuse`].
    #[track_caller]
    pub fn accept(&self) {
        let port = self.port;
        self.shared.change(|state| {
            state.listener.get_or_insert_with(|| listen(port));
        });
    }

    /// A black hole: nothing gets through this way any more, over old and new connections, and nobody is told. What is sent is kept, as TCP
    /// keeps it: [`Proxy::flow`] delivers it late, [`Proxy::cut`] loses it.
    pub fn stall(&self, way: Way) {
        self.shared.change(|state| state.stalled[way as usize] = true);
    }

    /// [`Proxy::stall`] both ways.
    pub fn stall_all(&self) {
        self.shared.change(|state| state.stalled = [true; 2]);
    }

    /// Ends [`Proxy::stall`] and what [`Fault::StallReply`] stalled: what was kept is delivered.
    pub fn flow(&self) {
        self.shared.change(|state| {
            state.stalled = [false; 2];
            for connection in state.connections.values_mut() {
                connection.stalled = [false; 2];
            }
        });
    }

    /// Everything that comes from now on takes so much longer this way. Order is kept.
    pub fn delay(&self, way: Way, by: Duration) {
        self.shared.change(|state| state.delay[way as usize] = by);
    }

    /// Lets `bytes` more bytes through this way, over whatever connection, and cuts the connection of the last one, in the middle of a frame
    /// or not. Once.
    pub fn cut_after(&self, way: Way, bytes: usize) -> Trigger {
        let fired = Arc::new(AtomicUsize::new(0));
        self.shared.change(|state| state.limit[way as usize] = Some((bytes, fired.clone())));
        Trigger(fired)
    }

    /// Does this to the next request with this command name.
    pub fn once(&self, name: &str, fault: Fault) -> Trigger {
        self.times(1, name, fault)
    }

    /// Does this to the next so many requests with this command name.
    pub fn times(&self, times: usize, name: &str, fault: Fault) -> Trigger {
        let name = name.to_owned();
        self.on(times, fault, move |command| command[0].eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Does this to the next so many requests that match. Of several rules the oldest that matches counts.
    pub fn on(
        &self,
        times: usize,
        fault: Fault,
        matcher: impl Fn(&[Vec<u8>]) -> bool + Send + 'static,
    ) -> Trigger {
        let fired = Arc::new(AtomicUsize::new(0));
        let rule = Rule { matcher: Box::new(matcher), fault, left: times, fired: fired.clone() };
        self.shared.change(|state| state.rules.push(rule));
        Trigger(fired)
    }

    /// From now on the messages of channels do not come through (RESP3), everything else does.
    pub fn swallow_messages(&self) {
        self.shared.change(|state| state.swallows_messages = true);
    }

    /// Back to a faultless network: rules, delays, stalls and limits end, new connections are accepted. What was cut stays cut.
    pub fn heal(&self) {
        self.shared.change(|state| {
            state.rules.clear();
            state.delay = [Duration::ZERO; 2];
            state.limit = [None, None];
            state.swallows_messages = false;
        });
        self.accept();
        self.flow();
    }

    // What it saw

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.shared.lock().connections.len()
    }

    /// Connections ever accepted.
    pub fn accepted(&self) -> usize {
        self.shared.lock().traffic.len()
    }

    /// Each connection's traffic, in the order they were accepted.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.shared.lock().traffic.clone()
    }

    /// Requests with this command name (in capitals), over all connections.
    pub fn requests(&self, name: &str) -> u64 {
        let state = self.shared.lock();
        state.traffic.iter().filter_map(|traffic| traffic.requests.get(name)).sum()
    }

    /// Requests of any name, over all connections.
    pub fn all_requests(&self) -> u64 {
        self.shared.lock().traffic.iter().flat_map(|traffic| traffic.requests.values()).sum()
    }

    /// Round trips over all connections: see [`Traffic::round_trips`].
    pub fn round_trips(&self) -> u64 {
        self.shared.lock().traffic.iter().map(|traffic| traffic.round_trips).sum()
    }

    /// Remembers every request from now on, for [`Proxy::seen`].
    pub fn remember(&self) {
        self.shared.lock().seen.get_or_insert_default();
    }

    /// The requests remembered since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|state| state.ended = true);
        if let Some(thread) = self.thread.take() {
            let died = thread.join().is_err();
            assert!(!died || thread::panicking(), "the proxy's thread failed");
        }
    }
}

#[track_caller]
fn listen(port: u16) -> TcpListener {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port that was free");
    listener.set_nonblocking(true).expect("a socket option");
    listener
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A byte here ends the thread's sleep.
    wake: UnixStream,
    /// The thread has had a turn.
    turned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    target: u16,
    listener: Option<TcpListener>,
    connections: BTreeMap<usize, Connection>,
    /// Server ends of connections whose client is gone.
    half_open: Vec<TcpStream>,
    delay: [Duration; 2],
    stalled: [bool; 2],
    limit: [Option<(usize, Arc<AtomicUsize>)>; 2],
    rules: Vec<Rule>,
    traffic: Vec<Traffic>,
    seen: Option<Vec<Seen>>,
    swallows_messages: bool,
    turns: u64,
    ended: bool,
}

#[derive(Debug)]
struct Connection {
    number: usize,
    /// Where bytes of a way come from: the client's and the server's socket.
    from: [TcpStream; 2],
    lanes: [Lane; 2],
    stalled: [bool; 2],
    /// Requests that the server has not answered.
    unanswered: VecDeque<Unanswered>,
    resp3: bool,
    /// It does not speak RESP (TLS): its bytes pass as they are, no rule sees them.
    opaque: bool,
}

#[derive(Debug)]
struct Unanswered {
    /// What befalls the reply.
    fault: Option<(Fault, Arc<AtomicUsize>)>,
}

#[derive(Debug, Default)]
struct Lane {
    /// Bytes that do not make a whole frame yet.
    partial: Vec<u8>,
    queue: VecDeque<Parcel>,
    /// The sender has closed its side: passed on when the queue is empty.
    ended: bool,
}

#[derive(Debug)]
struct Parcel {
    due: Instant,
    bytes: Vec<u8>,
    /// How many of them are on their way.
    sent: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and lets the thread look at it; returns when it has. (While it sleeps, sockets that we close stay open.)
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        // Full: it has been woken already.
        let _ = (&self.wake).write(&[0]);
        let turns = state.turns;
        while !state.ended && state.turns == turns {
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What the thread does.
    fn run(&self, woken: &UnixStream) {
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
    /// Everything that can be done now.
    fn turn(&mut self) {
        self.accept();
        let numbers: Vec<usize> = self.connections.keys().copied().collect();
        for number in numbers {
            let mut connection = self.connections.remove(&number).expect("one of the keys");
            let mut cut = None;
            for way in Way::BOTH {
                cut = cut.or_else(|| self.receive(&mut connection, way));
            }
            // What is to arrive before the cut is sent at once: delays must not lose it.
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
            self.traffic.push(Traffic { open: server.is_ok(), ..Traffic::default() });
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

    /// Takes what came; how the connection is to be cut, if a fault says so.
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
                // A black hole tells nobody.
                Err(_) if self.stalled[lane] => connection.lanes[lane].ended = true,
                // One side was cut: so is the other.
                Err(_) => return Some(Cut::Reset),
            }
        }
        None
    }

    /// Moves whole frames from the partial bytes to the queue.
    fn sort(&mut self, connection: &mut Connection, way: Way) -> Option<Cut> {
        let bytes = std::mem::take(&mut connection.lanes[way as usize].partial);
        if way == Way::ToServer && !bytes.starts_with(b"*") {
            connection.opaque = true;
        }
        if connection.opaque {
            self.enqueue(connection, way, bytes);
            return None;
        }
        let (mut end, mut out) = (0, Vec::with_capacity(bytes.len()));
        let mut cut = None;
        while cut.is_none()
            && let Some(len) = resp::frame_len(&bytes[end..])
        {
            let frame = &bytes[end..end + len];
            let (passes, fault) = match way {
                Way::ToServer => self.request(connection, frame),
                Way::ToClient => self.reply(connection, frame),
            };
            if passes {
                out.extend_from_slice(frame);
            }
            end += len;
            cut = fault;
        }
        connection.lanes[way as usize].partial = bytes[end..].to_vec();
        if !out.is_empty() {
            self.enqueue(connection, way, out);
        }
        cut
    }

    fn enqueue(&mut self, connection: &mut Connection, way: Way, bytes: Vec<u8>) {
        if way == Way::ToServer {
            self.traffic[connection.number].bytes_to_server += bytes.len() as u64;
        }
        let due = Instant::now() + self.delay[way as usize];
        // A delay that shrinks lets nobody overtake.
        let queue = &mut connection.lanes[way as usize].queue;
        let due = queue.back().map_or(due, |last| last.due.max(due));
        queue.push_back(Parcel { due, bytes, sent: 0 });
    }

    /// Counts a request; whether it passes, and how to cut the connection then.
    fn request(&mut self, connection: &mut Connection, frame: &[u8]) -> (bool, Option<Cut>) {
        let command = resp::decode_command(frame);
        let Some(name) = command.first() else { return (true, None) };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let rule = self.rules.iter_mut().find(|rule| rule.left > 0 && (rule.matcher)(&command));
        let fault = rule.map(|rule| {
            rule.left -= 1;
            (rule.fault, rule.fired.clone())
        });
        let replies = match name.as_str() {
            // Their replies are messages, one per channel.
            "SUBSCRIBE" | "UNSUBSCRIBE" | "PSUBSCRIBE" | "PUNSUBSCRIBE" | "SSUBSCRIBE"
            | "SUNSUBSCRIBE" => {
                if connection.resp3 {
                    0
                } else {
                    command.len().max(2) - 1
                }
            }
            _ => 1,
        };
        if name == "HELLO" {
            connection.resp3 = command.get(1).is_some_and(|version| version == b"3");
        }
        let traffic = &mut self.traffic[connection.number];
        traffic.round_trips += u64::from(connection.unanswered.is_empty());
        *traffic.requests.entry(name).or_default() += 1;
        if let Some(seen) = &mut self.seen {
            seen.push(Seen { connection: connection.number, at: Instant::now(), command });
        }
        if let Some((Fault::LoseRequest, fired)) = fault {
            fired.fetch_add(1, Ordering::SeqCst);
            return (false, Some(Cut::Reset));
        }
        for n in 0..replies {
            let fault = if n == 0 { fault.clone() } else { None };
            connection.unanswered.push_back(Unanswered { fault });
        }
        (true, None)
    }

    /// Counts a reply; whether it passes, and how to cut the connection then.
    fn reply(&mut self, connection: &mut Connection, frame: &[u8]) -> (bool, Option<Cut>) {
        if frame.starts_with(b">") {
            self.traffic[connection.number].pushes += 1;
            let message = frame.starts_with(b">3\r\n$7\r\nmessage\r\n");
            return (!(message && self.swallows_messages), None);
        }
        // Without a request: the server says why it closes a connection.
        let Some(Unanswered { fault: Some((fault, fired)) }) = connection.unanswered.pop_front()
        else {
            return (true, None);
        };
        fired.fetch_add(1, Ordering::SeqCst);
        match fault {
            Fault::LoseRequest | Fault::LoseReply => (false, Some(Cut::Reset)),
            Fault::HalfOpen => (false, Some(Cut::HalfOpen)),
            Fault::StallReply => {
                connection.stalled[Way::ToClient as usize] = true;
                (true, None)
            }
        }
    }

    /// Sends what is due, or all of it; how to cut the connection if it broke or a limit was reached.
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

    fn close(&mut self, connection: Connection, how: Cut) {
        self.traffic[connection.number].open = false;
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

    /// What to wait for, and how long at most (milliseconds, -1: for ever).
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
                // The socket that this way reads from is the one that the other way writes to.
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
                // Nothing to wait for: a closed peer would wake us for ever.
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
    // SAFETY: `polled` is valid for reads and writes of `count` elements for the whole call. Descriptors that were closed
    // meanwhile, or belong to somebody else by now, only wake us: every read and write after it is on sockets that we own.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, timeout) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    }
}

/// Lets closing the socket send a RST.
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
