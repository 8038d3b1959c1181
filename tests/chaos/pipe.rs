//! One connection with many calls in progress.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use dlock_testing::{
    encode, frame_len,
    redis::{Value, parse_redis_value},
};

use super::call::Call;

/// Number of recent calls that a connection remembers for the report.
const REMEMBERED: usize = 400;

/// A call in progress.
#[derive(Debug)]
pub struct Pending {
    /// The call.
    pub call: Rc<Call>,
    /// When it was sent.
    pub sent: Instant,
    /// Number of missing replies.
    left: usize,
}

/// An event on a connection.
#[derive(Debug)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// The call.
    pub call: Rc<Call>,
    /// Its reply; none when it was sent.
    pub reply: Option<Value>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// The call.
    pub call: Rc<Call>,
    /// When it was sent.
    pub sent: Instant,
    /// The reply of its last command.
    pub reply: Value,
}

/// The connection.
#[derive(Debug)]
pub struct Pipe {
    stream: UnixStream,
    /// Its client id.
    pub client_id: u64,
    out: Vec<u8>,
    input: Vec<u8>,
    used: usize,
    /// Calls in progress, oldest first.
    pub pending: VecDeque<Pending>,
    /// Time of the last reply: from then on the server works on the oldest call.
    pub last_reply: Instant,
    /// The server has closed it.
    pub is_closed: bool,
    /// Recent events.
    pub history: VecDeque<Event>,
}

impl Pipe {
    /// Connects, and selects a database.
    pub fn open(socket: &Path, db: u8, history: VecDeque<Event>) -> io::Result<Pipe> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let now = Instant::now();
        let mut pipe = Pipe {
            stream,
            client_id: 0,
            out: Vec::new(),
            input: Vec::new(),
            used: 0,
            pending: VecDeque::new(),
            last_reply: now,
            is_closed: false,
            history,
        };
        pipe.client_id = match pipe.ask(&["CLIENT", "ID"])? {
            Value::Int(id) => u64::try_from(id).unwrap_or(0),
            _ => 0,
        };
        if db > 0 {
            pipe.ask(&["SELECT", &db.to_string()])?;
        }
        pipe.stream.set_nonblocking(true)?;
        Ok(pipe)
    }

    /// Makes one call while no others are in progress.
    fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        let mut bytes = Vec::new();
        encode(words, &mut bytes);
        self.stream.write_all(&bytes)?;
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(reply) = self.take_frame() {
                return Ok(reply);
            }
            if Instant::now() > end {
                return Err(ErrorKind::TimedOut.into());
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::ConnectionReset.into()),
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a call.
    pub fn send(&mut self, call: Rc<Call>, now: Instant) {
        for frame in &call.frames {
            encode(frame, &mut self.out);
        }
        self.note(Event { at: now, call: call.clone(), reply: None });
        if self.pending.is_empty() {
            self.last_reply = now;
        }
        let left = call.frames.len();
        self.pending.push_back(Pending { call, sent: now, left });
    }

    /// Writes as much as the socket accepts.
    pub fn flush(&mut self) {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_end(&error) => {
                    // Remaining replies can still be read.
                    self.out.clear();
                    return;
                }
                // The buffer is full, or the system is short of memory for it: try later.
                Err(_) => return,
            }
        }
    }

    /// Takes the complete answers.
    pub fn answers(&mut self, into: &mut Vec<Answer>) -> Result<(), String> {
        self.flush();
        loop {
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => self.is_closed = true,
                Ok(n) => {
                    self.input.extend_from_slice(&chunk[..n]);
                    if n == chunk.len() {
                        continue;
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::WouldBlock => {}
                    _ => self.is_closed = true,
                },
            }
            break;
        }
        let now = Instant::now();
        while let Some(reply) = self.take_frame() {
            self.last_reply = now;
            let Some(first) = self.pending.front_mut() else {
                return Err(format!("a reply to no call: {reply:?}"));
            };
            first.left -= 1;
            if first.left > 0 {
                continue;
            }
            if let Some(Pending { call, sent, .. }) = self.pending.pop_front() {
                self.note(Event { at: now, call: call.clone(), reply: Some(reply.clone()) });
                into.push(Answer { call, sent, reply });
            }
        }
        Ok(())
    }

    fn take_frame(&mut self) -> Option<Value> {
        let len = frame_len(&self.input[self.used..])?;
        let value = parse_redis_value(&self.input[self.used..self.used + len]).ok();
        self.used += len;
        if self.used == self.input.len() {
            self.input.clear();
            self.used = 0;
        }
        value
    }

    fn note(&mut self, event: Event) {
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        self.history.push_back(event);
    }
}

/// Whether the peer has closed the connection.
fn is_end(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted | NotConnected)
}
