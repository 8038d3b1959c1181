//! Signals for the command.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Signals that end a program by default.
pub const FATAL: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals to catch while there is a child. Not TTIN and TTOU: this program never reads the terminal, and may write
/// to it from the background.
pub const WITH_CHILD: [Signal; 6] = [
    Signal::SIGCHLD,
    Signal::SIGCONT,
    Signal::SIGTSTP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Signals that are caught.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    ignored: u64,
}

impl Signals {
    /// Catches `which`. Signals that were ignored at the start (`nohup`, `trap ''`, background jobs of scripts) stay
    /// ignored, also for the child.
    pub fn of(which: &[Signal]) -> io::Result<Self> {
        let mut signals = Self { streams: Vec::new(), ignored: ignored() };
        signals.add(which)?;
        Ok(signals)
    }

    /// Catches these, too.
    pub fn add(&mut self, which: &[Signal]) -> io::Result<()> {
        for &signal in which {
            let number = signal as i32;
            if self.ignored >> (number - 1) & 1 == 0 || signal == Signal::SIGCHLD {
                self.streams.push((signal, unix::signal(SignalKind::from_raw(number))?));
            }
        }
        Ok(())
    }

    /// The next signal. Equal pending signals count as one, as in the system.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends programs.
    pub async fn fatal(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if FATAL.contains(&signal) {
                return signal;
            }
        }
    }
}

/// The set of ignored signals, signal 1 in the lowest bit; empty if the system does not report it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
