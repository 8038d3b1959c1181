//! The command of `dlock dev -- COMMAND`.

use std::ffi::OsString;
use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};

use super::Server;
use crate::exit::{Failure, SYSTEM};
use crate::run::signals::Signals;
use crate::run::{self, Ending};

/// When the parent process has ended: the time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the command with the URL of the server in its environment; ends with its exit code.
pub async fn run(
    words: &[OsString],
    server: &mut Server,
    signals: &mut Signals,
    parent: impl Future<Output = ()>,
) -> Result<Ending, Failure> {
    let system = |error: io::Error| Failure::new(SYSTEM, error.to_string());
    signals.add(&[Signal::SIGCHLD]).map_err(system)?;
    let [program, arguments @ ..] = words else { return Ok(Ending::Code(0)) };
    let mut command = Command::new(program);
    command.args(arguments).env("DLOCK_URL", &server.url);
    // Certificates are wrong usage with a URL without TLS.
    for name in ["DLOCK_TLS_CACERT", "DLOCK_TLS_CERT", "DLOCK_TLS_KEY"] {
        command.env_remove(name);
    }
    let child = command.spawn().map_err(|error| run::cannot_run(words, &error))?;
    let mut child = Running(child);
    tokio::pin!(parent);
    let (mut has_server, mut kill_at) = (true, None::<Instant>);
    loop {
        if let Some(status) = child.0.try_wait().map_err(system)? {
            return Ok(Ending::Code(run::code(status)));
        }
        tokio::select! {
            biased;
            signal = signals.next() => child.forward(signal),
            () = &mut parent, if kill_at.is_none() => {
                child.signal(Signal::SIGTERM);
                kill_at = Some(Instant::now() + GRACE);
            }
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                child.signal(Signal::SIGKILL);
                kill_at = Some(Instant::now() + GRACE);
            }
            () = server.ended(), if has_server => {
                has_server = false;
                crate::say(&server.failure("has ended").text);
            }
        }
    }
}

/// The process of the command.
struct Running(Child);

impl Running {
    fn forward(&self, signal: Signal) {
        // A terminal sends these to the command, too.
        let is_typed =
            matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && io::stdin().is_terminal();
        if signal != Signal::SIGCHLD && !is_typed {
            self.signal(signal);
        }
    }

    fn signal(&self, signal: Signal) {
        // It was not waited for yet, so the id is still its own.
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), signal);
    }
}
