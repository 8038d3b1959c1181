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

mod frames;
mod relay;

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

use super::{
    port::{Reservation, free_port},
    server::Server,
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

    /// From now on the server does not know this word of requests, in capitals, as one of an older version.
    pub fn hide_word(&self, word: &str) {
        self.shared.change(|state| state.hidden_word = Some(word.to_owned()));
    }

    /// Back to a faultless network: rules, delays, stalls and limits end, new connections are accepted. What was cut stays cut.
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
    hidden_word: Option<String>,
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
}
