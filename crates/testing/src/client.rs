//! A raw connection: a test can send without reading, read without sending, and see that no reply came.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;

use super::{
    family::Family,
    resp,
    value::Reply as _,
    wait::{LIMIT, SOON},
};

/// Result of a read with a time limit.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// A whole reply or push message.
    Reply(Value),
    /// No reply, or an incomplete one.
    Nothing,
    /// The server closed the connection.
    Closed,
}

/// A connection over the server's unix socket.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Received bytes; those before `used` are consumed.
    buffer: Vec<u8>,
    used: usize,
    id: u64,
    pushes: VecDeque<Value>,
    family: Family,
}

impl Client {
    /// Connects and requests the connection's id.
    pub fn connect(socket: &Path, within: Duration) -> io::Result<Client> {
        let mut client = Client {
            stream: UnixStream::connect(socket)?,
            buffer: Vec::new(),
            used: 0,
            id: 0,
            pushes: VecDeque::new(),
            family: Family::default(),
        };
        client.stream.set_write_timeout(Some(LIMIT))?;
        client.write(&["CLIENT", "ID"])?;
        match client.hear(within) {
            // A server that is loading or busy sends no id; 0 means "unknown".
            Heard::Reply(Value::Int(id)) => client.id = u64::try_from(id).unwrap_or(0),
            Heard::Reply(_) => {}
            Heard::Nothing => return Err(ErrorKind::TimedOut.into()),
            Heard::Closed => return Err(ErrorKind::ConnectionReset.into()),
        }
        Ok(client)
    }

    /// Makes it send DLOCK commands as commands of this family.
    pub(super) fn speaking(mut self, family: Family) -> Client {
        self.family = family;
        self
    }

    /// The connection's id, as in CLIENT ID (0: the server was busy or loading).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Sends a command and returns its reply, which may be an error. Earlier push messages go to [`Client::pushed`].
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.send(args);
        self.reply(LIMIT)
    }

    /// As [`Client::cmd`], many commands in one write; the replies in order.
    #[track_caller]
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Vec<Value> {
        let mut bytes = Vec::new();
        for command in commands {
            self.encode(command, &mut bytes);
        }
        self.send_bytes(&bytes);
        commands.iter().map(|_| self.reply(LIMIT)).collect()
    }

    /// Switches to RESP3.
    #[track_caller]
    pub fn resp3(mut self) -> Client {
        self.cmd(&["HELLO", "3"]).ok();
        self
    }

    /// Sends a command without reading.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.write(args).expect("the server takes a command");
    }

    /// As [`Client::send`]; returns whether the write succeeded.
    pub fn try_send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> bool {
        self.write(args).is_ok()
    }

    /// Sends raw bytes.
    #[track_caller]
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes bytes");
    }

    /// The next reply; fails the test if none comes in time. Push messages are set aside.
    #[track_caller]
    pub fn reply(&mut self, within: Duration) -> Value {
        let end = Instant::now() + within;
        loop {
            match self.hear(end.saturating_duration_since(Instant::now())) {
                Heard::Reply(push @ Value::Push { .. }) => self.pushes.push_back(push),
                Heard::Reply(value) => return value,
                Heard::Nothing => panic!("client {}: no reply within {within:?}", self.id),
                Heard::Closed => {
                    panic!("client {}: closed by the server, a reply was due", self.id)
                }
            }
        }
    }

    /// The push messages set aside so far (RESP3).
    pub fn pushed(&mut self) -> Vec<Value> {
        self.pushes.drain(..).collect()
    }

    /// The next push message (RESP3), earlier ones first; fails the test if none comes in time.
    #[track_caller]
    pub fn push(&mut self, within: Duration) -> Value {
        if let Some(push) = self.pushes.pop_front() {
            return push;
        }
        match self.hear(within) {
            Heard::Reply(push @ Value::Push { .. }) => push,
            other => panic!("client {}: no push message within {within:?}: {other:?}", self.id),
        }
    }

    /// The next frame, including push messages, within this time.
    #[track_caller]
    pub fn hear(&mut self, within: Duration) -> Heard {
        let end = Instant::now() + within;
        loop {
            if let Some(len) = resp::frame_len(&self.buffer[self.used..]) {
                let frame = &self.buffer[self.used..self.used + len];
                let value = redis::parse_redis_value(frame)
                    .unwrap_or_else(|error| panic!("{error}: {}", frame.escape_ascii()));
                self.used += len;
                return Heard::Reply(value);
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            // The system reads 0 as "no timeout"; the shortest timeout still returns received data.
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
            self.stream.set_read_timeout(Some(left)).expect("a socket option");
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Heard::Closed,
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if Instant::now() < end => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Heard::Nothing,
                    _ => return Heard::Closed,
                },
            }
        }
    }

    /// Fails the test unless the server closes this connection in time; earlier replies are dropped.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        loop {
            match self.hear(LIMIT) {
                Heard::Closed => return,
                Heard::Reply(_) => {}
                Heard::Nothing => panic!("client {} is still connected", self.id),
            }
        }
    }

    fn write<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.encode(args, &mut bytes);
        self.stream.write_all(&bytes)
    }

    fn encode<A: AsRef<[u8]>>(&self, args: &[A], out: &mut Vec<u8>) {
        let Some((name, rest)) = args.split_first() else { return resp::encode(args, out) };
        let name = self.family.command(name.as_ref());
        let words: Vec<&[u8]> =
            std::iter::once(&*name).chain(rest.iter().map(AsRef::as_ref)).collect();
        resp::encode(&words, out);
    }
}

/// A call on a separate connection whose reply has not been read. Dropping it closes the connection.
#[derive(Debug)]
pub struct Blocked {
    client: Client,
    socket: Arc<Path>,
    sent: Instant,
}

impl Blocked {
    pub(super) fn send<A: AsRef<[u8]>>(
        mut client: Client,
        socket: Arc<Path>,
        args: &[A],
    ) -> Blocked {
        let sent = Instant::now();
        client.send(args);
        Blocked { client, socket, sent }
    }

    /// The connection's id.
    pub fn id(&self) -> u64 {
        self.client.id
    }

    /// The reply; fails the test if none comes in time.
    #[track_caller]
    pub fn expect_reply(&mut self, within: Duration) -> Value {
        self.client.reply(within)
    }

    /// The reply and the time from sending to its arrival.
    #[track_caller]
    pub fn expect_reply_timed(&mut self, within: Duration) -> (Value, Duration) {
        let reply = self.client.reply(within);
        (reply, self.sent.elapsed())
    }

    /// Fails the test if the server has replied. Exact without waiting: a round trip on a new connection comes first,
    /// so all earlier replies of the server have been sent.
    #[track_caller]
    pub fn assert_no_reply(&mut self) {
        // A server that is paused or busy does not answer; then there is nothing to wait for.
        let _ = Client::connect(&self.socket, Duration::from_millis(200));
        self.assert_silent_for(Duration::ZERO);
    }

    /// Fails the test if a reply comes in this time.
    #[track_caller]
    pub fn assert_silent_for(&mut self, time: Duration) {
        match self.client.hear(time) {
            Heard::Nothing => {}
            Heard::Reply(value) => {
                panic!("client {}: unexpected reply {}", self.id(), value.show())
            }
            Heard::Closed => panic!("client {}: closed by the server", self.id()),
        }
    }

    /// Fails the test unless the server closes the connection without a reply.
    #[track_caller]
    pub fn expect_closed_without_reply(&mut self) {
        match self.client.hear(LIMIT) {
            Heard::Closed => {}
            other => {
                panic!("client {}: expected the end of the connection, got {other:?}", self.id())
            }
        }
    }

    /// The connection, for what follows the reply (or is in the same pipeline).
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The connection, once the call is answered.
    pub fn into_client(self) -> Client {
        self.client
    }

    /// Closes the connection, as a client that dies does.
    pub fn hang_up(self) {
        drop(self);
    }
}

/// Ends the connection at once. A process that another test is starting has a copy of the socket until it executes its
/// program; without the shutdown the server would see the end that much later.
impl Drop for Client {
    fn drop(&mut self) {
        // The server may have closed it before.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A connection that listens to channels.
#[derive(Debug)]
pub struct Subscription(Client);

impl Subscription {
    pub(super) fn open(mut client: Client, verb: &str, channels: &[&str]) -> Subscription {
        let mut args = vec![verb];
        args.extend(channels);
        client.send(&args);
        for _ in channels {
            client.reply(LIMIT).ok();
        }
        Subscription(client)
    }

    /// The next message: channel and text.
    #[track_caller]
    pub fn next(&mut self) -> (String, Vec<u8>) {
        let items = self.0.reply(SOON).items();
        // ["message", channel, text] or ["pmessage", pattern, channel, text].
        let (text, channel) = (&items[items.len() - 1], &items[items.len() - 2]);
        (channel.text(), text.bytes())
    }

    /// The next message's text alone.
    #[track_caller]
    pub fn next_text(&mut self) -> String {
        String::from_utf8_lossy(&self.next().1).into_owned()
    }

    /// Fails the test if a message has arrived. Exact after a round trip that follows the last possible publication.
    #[track_caller]
    pub fn assert_none(&mut self) {
        match self.0.hear(Duration::ZERO) {
            Heard::Nothing => {}
            other => panic!("unexpected message: {other:?}"),
        }
    }
}

/// The words of a call.
pub fn words(call: &str) -> Vec<&str> {
    call.split(' ').collect()
}
