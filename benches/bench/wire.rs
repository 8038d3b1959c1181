//! A connection that only sends prepared bytes and checks the replies, so that the client is not part of the
//! measurement.

use std::{
    cell::RefCell,
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use crate::support::Server;

/// Commands in wire format, with the beginning of each reply.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    bytes: Vec<u8>,
    answers: Vec<&'static [u8]>,
}

impl Batch {
    /// Appends a command with a reply of one line that begins with `answer`.
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A], answer: &'static [u8]) {
        write!(self.bytes, "*{}\r\n", args.len()).expect("a vector takes all");
        for arg in args {
            let arg = arg.as_ref();
            write!(self.bytes, "${}\r\n", arg.len()).expect("a vector takes all");
            self.bytes.extend_from_slice(arg);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.answers.push(answer);
    }

    /// Expects one more line in the last command's reply, with this beginning.
    pub fn push_line(&mut self, answer: &'static [u8]) {
        self.answers.push(answer);
    }

    /// Removes all commands, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.answers.clear();
    }

    /// The replies of this batch, then those of `other`.
    pub fn and(mut self, other: &Batch) -> Batch {
        self.bytes.extend_from_slice(&other.bytes);
        self.answers.extend_from_slice(&other.answers);
        self
    }

    /// Only this command.
    pub fn of<A: AsRef<[u8]>>(args: &[A], answer: &'static [u8]) -> Batch {
        let mut batch = Batch::default();
        batch.push(args, answer);
        batch
    }
}

/// A connection over TCP.
#[derive(Debug)]
pub struct Wire(TcpStream);

thread_local! {
    /// Shared by all connections, because ten thousand buffers would slow the client down.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 * 1024].into());
}

impl Wire {
    pub fn connect(server: &Server) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a server listens");
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a socket option");
        Wire(stream)
    }

    /// Sends all commands in one write and reads all replies. The bench stops if a reply does not begin as expected:
    /// an error is faster than a lock. `see` gets each line, without its end.
    pub fn run_with(&mut self, batch: &Batch, mut see: impl FnMut(&[u8])) {
        self.send(batch);
        self.hear_with(batch, &mut see);
    }

    /// Sends all commands in one write, without reading.
    pub fn send(&mut self, batch: &Batch) {
        self.0.write_all(&batch.bytes).expect("the server takes commands");
    }

    /// Reads the replies of sent commands.
    pub fn hear(&mut self, batch: &Batch) {
        self.hear_with(batch, |_| ());
    }

    fn hear_with(&mut self, batch: &Batch, see: impl FnMut(&[u8])) {
        BUFFER.with_borrow_mut(|buffer| self.hear_into(buffer, batch, see));
    }

    fn hear_into(&mut self, buffer: &mut [u8], batch: &Batch, mut see: impl FnMut(&[u8])) {
        let mut answers = batch.answers.iter();
        let mut left = batch.answers.len();
        let mut filled = 0;
        while left > 0 {
            let n = match self.0.read(&mut buffer[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.expect("the server answers"),
            };
            assert!(n > 0, "the server closed the connection");
            filled += n;
            let mut used = 0;
            while let Some(len) = buffer[used..filled].iter().position(|&byte| byte == b'\n') {
                let line = &buffer[used..used + len];
                let answer = answers.next().expect("no more answers than commands");
                assert!(
                    line.starts_with(answer),
                    "answered {} where {} was due",
                    line.escape_ascii(),
                    answer.escape_ascii()
                );
                see(line.strip_suffix(b"\r").unwrap_or(line));
                used += len + 1;
                left -= 1;
            }
            buffer.copy_within(used..filled, 0);
            filled -= used;
        }
    }

    /// Closes the connection.
    pub fn close(&self, how: Shutdown) {
        self.0.shutdown(how).expect("the connection was open");
    }

    /// As [`Wire::run_with`], without a callback.
    pub fn run(&mut self, batch: &Batch) {
        self.run_with(batch, |_| ());
    }
}
