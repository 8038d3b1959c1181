//! A TCP proxy between clients and a server that injects network faults on demand.
//!
//! One thread moves the bytes, in whole RESP frames, so that a fault can hit exactly between a request and its reply.
//! Every change takes effect before its call returns.
//!
//! ```no_run
//! use dlock_testing::{Fault, Proxy, Server};
//!
//! let server = Server::start();
//! let proxy = Proxy::to(&server);
//! let lost = proxy.once("DLOCK.ACQUIRE", Fault::LoseReply);
//! // A client of `proxy.url()` that acquires a lock asks twice.
//! assert_eq!(lost.fired(), 1);
//! ```

mod frames;
mod relay;
pub mod wire;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    io::Write as _,
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use self::relay::listen;
use super::{
    port::{Reservation, free_port},
    server::Server,
    wait::wait_until,
};

/// Direction of bytes.
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

/// Fault of a request that a rule picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is cut before the server gets the request.
    LoseRequest,
    /// The server executes it; the connection is cut instead of the reply, after the replies to earlier requests.
    LoseReply,
    /// The server executes it; from this reply on, this connection delivers nothing until [`Proxy::flow`].
    StallReply,
    /// As [`Fault::LoseReply`], but the server's end of the connection stays open until [`Proxy::cut`].
    HalfOpen,
    /// The server executes it; the client gets these bytes, a whole reply, in place of the reply.
    Answer(&'static [u8]),
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// An orderly close: FIN.
    Fin,
    /// Abruptly: RST.
    Reset,
    /// The client gets a RST; the server notices nothing until the next [`Proxy::cut`] or the end of the proxy.
    HalfOpen,
}

/// Traffic of one connection.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Bytes that clients sent.
    pub bytes_to_server: u64,
    /// Bytes that were delivered to clients.
    pub bytes_to_client: u64,
    /// Requests by command name in capitals.
    pub requests: BTreeMap<String, u64>,
    /// Requests that came while no request was unanswered: a pipeline is one round trip.
    pub round_trips: u64,
    /// Push messages that came from the server (RESP3).
    pub pushes: u64,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// Time of the request.
    pub at: Instant,
    /// Command and arguments.
    pub command: Vec<Vec<u8>>,
}

/// Counts how often a rule was applied.
#[derive(Clone, Debug)]
pub struct Trigger(Arc<AtomicUsize>);

impl Trigger {
    /// Number of faults so far. A fault of a reply counts when the reply has arrived.
    pub fn fired(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits for this number of faults.
    #[track_caller]
    pub fn wait_fired(&self, times: usize) {
        wait_until(&format!("the fault to strike {times} times"), || self.fired() >= times);
    }
}

type Matcher = Box<dyn Fn(&[Vec<u8>]) -> bool + Send>;

struct Rule {
    matcher: Matcher,
    fault: Fault,
    /// Number of requests that it still picks.
    left: usize,
    fired: Arc<AtomicUsize>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} more times", self.fault, self.left)
    }
}

/// A proxy in front of a server. Dropping it cuts all connections.
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

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Sends new connections to this server.
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

    /// Refuses new connections, as a host without a server does; existing ones stay.
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

    /// A black hole: nothing passes in this direction any more, over old and new connections, without an error. Data
    /// is kept as TCP keeps it: [`Proxy::flow`] delivers it late, [`Proxy::cut`] loses it.
    pub fn stall(&self, way: Way) {
        self.shared.change(|state| state.stalled[way as usize] = true);
    }

    /// [`Proxy::stall`] in both directions.
    pub fn stall_all(&self) {
        self.shared.change(|state| state.stalled = [true; 2]);
    }

    /// [`Proxy::stall`] in both directions of the connections that are open now: those to come are fine.
    pub fn mute(&self) {
        self.shared.change(|state| {
            for connection in state.connections.values_mut() {
                connection.stalled = [true; 2];
            }
        });
    }

    /// Ends [`Proxy::stall`], [`Proxy::mute`] and [`Fault::StallReply`]: kept data is delivered.
    pub fn flow(&self) {
        self.shared.change(|state| {
            state.stalled = [false; 2];
            for connection in state.connections.values_mut() {
                connection.stalled = [false; 2];
            }
        });
    }

    /// Delays all new data in this direction, in order.
    pub fn delay(&self, way: Way, by: Duration) {
        self.shared.change(|state| state.delay[way as usize] = by);
    }

    /// Passes `bytes` more bytes in this direction, over all connections, then cuts the connection of the last byte,
    /// even in the middle of a frame. Once.
    pub fn cut_after(&self, way: Way, bytes: usize) -> Trigger {
        let fired = Arc::new(AtomicUsize::new(0));
        self.shared.change(|state| state.limit[way as usize] = Some((bytes, fired.clone())));
        Trigger(fired)
    }

    /// Applies the fault to the next request with this command name.
    pub fn once(&self, name: &str, fault: Fault) -> Trigger {
        self.times(1, name, fault)
    }

    /// Applies the fault to the next `times` requests with this command name.
    pub fn times(&self, times: usize, name: &str, fault: Fault) -> Trigger {
        let name = name.to_owned();
        self.on(times, fault, move |command| command[0].eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Applies the fault to the next `times` requests that match. The oldest matching rule counts.
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

    /// From now on drops channel messages and nothing else.
    pub fn swallow_messages(&self) {
        self.shared.change(|state| state.swallows_messages = true);
    }

    /// From now on the server rejects requests with this word (in capitals), as an older version would.
    pub fn hide_word(&self, word: &str) {
        self.shared.change(|state| state.hidden_word = Some(word.to_owned()));
    }

    /// Restores a faultless network: rules, delays, stalls and limits end, and new connections are accepted. Cut
    /// connections stay cut.
    pub fn heal(&self) {
        self.shared.change(|state| {
            state.rules.clear();
            state.delay = [Duration::ZERO; 2];
            state.limit = [None, None];
            state.swallows_messages = false;
            state.hidden_word = None;
        });
        self.accept();
        self.flow();
    }

    // Recorded traffic

    /// Number of connections that neither side has closed, whatever has not passed yet.
    pub fn open(&self) -> usize {
        let state = self.shared.lock();
        let is_open = |connection: &&Connection| connection.lanes.iter().all(|lane| !lane.ended);
        state.connections.values().filter(is_open).count()
    }

    /// Number of connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.lock().traffic.len()
    }

    /// Traffic of each connection, in the order they were accepted.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.shared.lock().traffic.clone()
    }

    /// Number of requests with this command name (in capitals), over all connections.
    pub fn requests(&self, name: &str) -> u64 {
        let state = self.shared.lock();
        state.traffic.iter().filter_map(|traffic| traffic.requests.get(name)).sum()
    }

    /// Number of requests, over all connections.
    pub fn all_requests(&self) -> u64 {
        self.shared.lock().traffic.iter().flat_map(|traffic| traffic.requests.values()).sum()
    }

    /// Number of round trips over all connections: see [`Traffic::round_trips`].
    pub fn round_trips(&self) -> u64 {
        self.shared.lock().traffic.iter().map(|traffic| traffic.round_trips).sum()
    }

    /// Records every request from now on, for [`Proxy::seen`], and every frame for [`Proxy::wire`].
    pub fn remember(&self) {
        self.shared.lock().seen.get_or_insert_default();
    }

    /// The requests recorded since the last call.
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

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A byte here wakes the thread.
    wake: UnixStream,
    /// The thread has completed a turn.
    turned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    target: u16,
    listener: Option<TcpListener>,
    connections: BTreeMap<usize, Connection>,
    /// Server ends of connections whose client has disconnected.
    half_open: Vec<TcpStream>,
    delay: [Duration; 2],
    stalled: [bool; 2],
    limit: [Option<(usize, Arc<AtomicUsize>)>; 2],
    rules: Vec<Rule>,
    traffic: Vec<Traffic>,
    seen: Option<Vec<Seen>>,
    wire: Vec<wire::Wire>,
    swallows_messages: bool,
    hidden_word: Option<String>,
    turns: u64,
    ended: bool,
}

#[derive(Debug)]
struct Connection {
    number: usize,
    /// Source sockets of the two directions: the client's and the server's.
    from: [TcpStream; 2],
    lanes: [Lane; 2],
    stalled: [bool; 2],
    /// Requests that the server has not answered.
    unanswered: VecDeque<Unanswered>,
    resp3: bool,
    /// The connection is not RESP (TLS): its bytes pass unchanged and no rule applies.
    opaque: bool,
}

#[derive(Debug)]
struct Unanswered {
    /// The fault of the reply.
    fault: Option<(Fault, Arc<AtomicUsize>)>,
}

#[derive(Debug, Default)]
struct Lane {
    /// Bytes of an incomplete frame.
    partial: Vec<u8>,
    queue: VecDeque<Parcel>,
    /// The sender has closed its side: passed on when the queue is empty.
    ended: bool,
}

#[derive(Debug)]
struct Parcel {
    due: Instant,
    bytes: Vec<u8>,
    /// Number of bytes already sent.
    sent: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, wakes the thread, and returns when it has processed the change. (While it sleeps, sockets
    /// closed here stay open.)
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        // Full: it is already awake.
        let _ = (&self.wake).write(&[0]);
        let turns = state.turns;
        while !state.ended && state.turns == turns {
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
