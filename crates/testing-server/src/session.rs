//! The server's end of one connection.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use crate::resp::{self, Malformed};
use crate::server::FakeServer;
use crate::state::State;

/// Serves a connection until one side closes it.
///
/// Each of these tasks also does what becomes due without a command. So the fake needs no task of its own, and works
/// in any runtime.
pub(crate) async fn serve(
    server: FakeServer,
    id: u64,
    stream: DuplexStream,
    mut replies: UnboundedReceiver<Vec<u8>>,
) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        // Before the alarm is read: a change of it in between is not missed.
        let changed = server.shared.changed.notified();
        if server.with(|state| state.take_commands(id, &mut input)).is_err() {
            break;
        }
        let alarm = server.state().alarm();
        tokio::select! {
            reply = replies.recv() => match reply {
                Some(reply) => output.extend(reply),
                None => break,
            },
            written = writer.write(&output), if !output.is_empty() => match written {
                Ok(len @ 1..) => drop(output.drain(..len)),
                Ok(0) | Err(_) => break,
            },
            read = reader.read_buf(&mut input) => if !matches!(read, Ok(1..)) {
                break;
            },
            () = changed => {}
            () = until(alarm) => {}
        }
    }
    server.with(|state| state.disconnect(id));
}

async fn until(alarm: Option<Instant>) {
    match alarm {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl State {
    /// Executes the commands at the beginning of `input`, until one blocks the connection.
    fn take_commands(&mut self, id: u64, input: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut done = 0;
        while !self.is_frozen && self.is_ready(id) {
            let rest = input.get(done..).unwrap_or_default();
            let Some(command) = resp::command(rest)? else { break };
            done += command.len;
            self.receive(id, &command.words);
        }
        input.drain(..done);
        Ok(())
    }

    /// Whether the connection is open, and no call blocks it.
    fn is_ready(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|connection| !connection.is_blocked)
    }
}
