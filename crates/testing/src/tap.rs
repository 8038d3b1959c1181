//! A fake replica that records the exact stream of commands that a primary sends.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{
    resp,
    server::Server,
    wait::{LIMIT, wait_until},
};

/// One command of the stream, as its arguments.
pub type Command = Vec<Vec<u8>>;

/// A connection that has finished a full sync and receives the replication stream.
#[derive(Debug)]
pub struct ReplicaTap {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The primary's offset up to which commands have been taken out of `buffer`.
    offset: u64,
    rdb: Vec<u8>,
}

impl ReplicaTap {
    /// Connects to `primary` as a replica; returns when the full sync is done and the stream begins.
    #[track_caller]
    pub fn attach(primary: &Server) -> ReplicaTap {
        let stream = TcpStream::connect(("127.0.0.1", primary.port())).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket option");
        let mut tap = ReplicaTap { stream, buffer: Vec::new(), offset: 0, rdb: Vec::new() };
        // Without `capa eof` the primary sends the length of the RDB first.
        tap.send(&["REPLCONF", "listening-port", "1"]);
        assert_eq!(tap.line(), "+OK");
        tap.send(&["REPLCONF", "capa", "psync2"]);
        assert_eq!(tap.line(), "+OK");
        tap.send(&["PSYNC", "?", "-1"]);
        let answer = tap.line();
        tap.offset = answer
            .strip_prefix("+FULLRESYNC ")
            .and_then(|rest| rest.split(' ').nth(1)?.parse().ok())
            .unwrap_or_else(|| panic!("expected a full sync, got {answer}"));
        let header = tap.line();
        let len: usize = header
            .strip_prefix('$')
            .and_then(|len| len.parse().ok())
            .unwrap_or_else(|| panic!("expected an RDB, got {header}"));
        tap.fill("the RDB", |buffer| buffer.len() >= len);
        tap.rdb = tap.buffer.drain(..len).collect();
        tap.acknowledge();
        wait_until("the primary to see its replica online", || {
            primary.info("replication").values().any(|replica| replica.contains("state=online"))
        });
        tap
    }

    /// The RDB of the full sync.
    pub fn rdb(&self) -> &[u8] {
        &self.rdb
    }

    /// Every command that the primary has sent so far and that was not returned before. Exact without waiting: it
    /// reads up to the primary's current offset.
    #[track_caller]
    pub fn all_commands(&mut self, primary: &Server) -> Vec<Command> {
        let end = primary.info_number("replication", "master_repl_offset");
        let end = u64::try_from(end).expect("an offset");
        let missing = usize::try_from(end.saturating_sub(self.offset)).expect("a small stream");
        self.fill("the primary's offset", |buffer| buffer.len() >= missing);
        let mut commands = Vec::new();
        while let Some(len) = resp::frame_len(&self.buffer) {
            let frame: Vec<u8> = self.buffer.drain(..len).collect();
            self.offset += len as u64;
            commands.push(resp::decode_command(&frame));
        }
        self.acknowledge();
        commands
    }

    /// As [`ReplicaTap::all_commands`], without the server's own commands: PING, SELECT, REPLCONF.
    #[track_caller]
    pub fn commands(&mut self, primary: &Server) -> Vec<Command> {
        let mut commands = self.all_commands(primary);
        commands.retain(|command| {
            !["PING", "SELECT", "REPLCONF"]
                .iter()
                .any(|own| command[0].eq_ignore_ascii_case(own.as_bytes()))
        });
        commands
    }

    /// As [`ReplicaTap::commands`], each as one line of words with unprintable bytes escaped.
    #[track_caller]
    pub fn lines(&mut self, primary: &Server) -> Vec<String> {
        let line = |command: &Command| {
            let words: Vec<String> =
                command.iter().map(|word| word.escape_ascii().to_string()).collect();
            words.join(" ")
        };
        self.commands(primary).iter().map(line).collect()
    }

    /// Tells the primary how far it has read, for WAIT and min-replicas-to-write.
    pub fn acknowledge(&mut self) {
        let offset = self.offset.to_string();
        self.send(&["REPLCONF", "ACK", &offset]);
    }

    fn send(&mut self, args: &[&str]) {
        let mut bytes = Vec::new();
        resp::encode(args, &mut bytes);
        self.stream.write_all(&bytes).expect("the primary takes a command");
    }

    /// The next line that is not empty: the primary sends bare newlines while it prepares the RDB.
    #[track_caller]
    fn line(&mut self) -> String {
        loop {
            self.fill("a line", |buffer| buffer.contains(&b'\n'));
            let end = self.buffer.iter().position(|&byte| byte == b'\n').expect("a whole line");
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if !line.is_empty() {
                return line;
            }
        }
    }

    /// Reads until `enough`.
    #[track_caller]
    fn fill(&mut self, what: &str, enough: impl Fn(&[u8]) -> bool) {
        let start = Instant::now();
        while !enough(&self.buffer) {
            assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} in vain for: {what}");
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => panic!("the primary closed the connection; waiting for {what}"),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) => assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ),
                    "{error}; waiting for {what}"
                ),
            }
        }
    }
}
