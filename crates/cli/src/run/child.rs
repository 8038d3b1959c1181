//! The command that runs under the lock.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{self, Command, ExitStatus};
use std::time::Duration;

use dlock_client::Lost;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, getpid};
use tokio::time::{Instant, sleep, sleep_until};

use super::held::Held;
use super::signals::Signals;
use super::terminal::{self, Terminal};

/// How often the end of a group is polled: the system does not signal it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A process and its group.
pub struct Child {
    process: process::Child,
    group: Pid,
    terminal: Option<Terminal>,
    /// This program has just sent TSTP to its own group: ignore one of these.
    own_stop: bool,
}

/// Result of the command.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the command itself.
    pub status: ExitStatus,
    /// The lock was lost, and the command was ended because of that.
    pub lost: Option<Lost>,
    /// A key of the terminal ended it (Ctrl-C, Ctrl-\).
    pub typed: Option<Signal>,
}

impl Child {
    /// Starts the command in a separate process group and lends it the terminal.
    pub fn start(
        command: &[OsString],
        environment: &[(&str, Option<OsString>)],
    ) -> io::Result<Self> {
        let [program, arguments @ ..] = command else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut terminal = Terminal::of_this_process();
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let process = command.spawn()?;
        terminal::write_from_the_background();
        let group = Pid::from_raw(process.id().cast_signed());
        if let Some(terminal) = &mut terminal {
            terminal.lend(group);
            // If it asked for the terminal too early, the system stopped it.
            let _ = killpg(group, Signal::SIGCONT);
        }
        Ok(Self { process, group, terminal, own_stop: false })
    }

    /// Waits for the end of the command. Forwards signals to it; ends it when the hold is lost.
    pub async fn supervise(
        &mut self,
        hold: &Held,
        signals: &mut Signals,
        grace: Duration,
        on_loss: impl FnOnce(Lost),
    ) -> io::Result<Ended> {
        let mut lost = hold.lost();
        loop {
            if let Some(status) = self.look()? {
                return Ok(Ended { status, lost: None, typed: self.ended(status, false) });
            }
            tokio::select! {
                biased;
                how = &mut lost => return self.end_after(how, signals, grace, on_loss).await,
                signal = signals.next() => self.pass_on(signal, hold),
            }
        }
    }

    /// Ends the command, because the hold is lost.
    pub async fn end_after(
        &mut self,
        how: Lost,
        signals: &mut Signals,
        grace: Duration,
        on_loss: impl FnOnce(Lost),
    ) -> io::Result<Ended> {
        self.ask_to_end();
        // Reported last: writing may block if no program reads stderr.
        on_loss(how);
        let status = self.end(signals, grace).await?;
        Ok(Ended { status, lost: Some(how), typed: self.ended(status, true) })
    }

    /// Its exit status, if it has ended. If the terminal stopped it, this program stops, too, until it is continued.
    fn look(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(status) = self.process.try_wait()? {
            return Ok(Some(status));
        }
        let options = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        if let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(self.group), options) {
            self.stopped(signal);
        }
        Ok(None)
    }

    /// When the terminal stops the child, this program stops itself and its group: the shell waits for that, and then
    /// takes the terminal. Meanwhile the lock is not renewed; the child continues only if the lock is still held. A
    /// child stopped by other means (SIGSTOP, or without a terminal) stays stopped, and renewal goes on.
    fn stopped(&mut self, signal: Signal) {
        let Some(terminal) = &mut self.terminal else { return };
        match signal {
            // It asked for the terminal before its group was in the foreground.
            Signal::SIGTTIN | Signal::SIGTTOU if terminal.is_lent() || terminal.is_ours() => {
                terminal.lend(self.group);
                let _ = killpg(self.group, Signal::SIGCONT);
            }
            // No shell would ever continue this group: Ctrl-Z then has no effect, as in the system.
            Signal::SIGTSTP if terminal::is_orphaned_group() => {
                let _ = killpg(self.group, Signal::SIGCONT);
            }
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => {
                terminal.take_back();
                terminal.restore_modes();
                self.own_stop = true;
                let _ = killpg(getpgrp(), Signal::SIGTSTP);
                let _ = kill(getpid(), Signal::SIGSTOP);
            }
            _ => {}
        }
    }

    fn pass_on(&mut self, signal: Signal, hold: &Held) {
        match signal {
            Signal::SIGCHLD => {}
            Signal::SIGTSTP if std::mem::take(&mut self.own_stop) => {}
            // The lease may have ended during the stop: then the child must not continue.
            Signal::SIGCONT if hold.lost_now().is_some() => {}
            Signal::SIGCONT => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.lend(self.group);
                }
                let _ = killpg(self.group, signal);
            }
            // It fails when the group has just ended; the next poll detects that.
            _ => {
                let _ = killpg(self.group, signal);
            }
        }
    }

    fn ask_to_end(&self) {
        let _ = killpg(self.group, Signal::SIGTERM);
        // A stopped process handles no signals.
        let _ = killpg(self.group, Signal::SIGCONT);
    }

    /// Waits until the whole group has ended, after a request to end; kills it after `grace`.
    async fn end(&mut self, signals: &mut Signals, grace: Duration) -> io::Result<ExitStatus> {
        let end = Instant::now() + grace;
        let mut killed = false;
        loop {
            let status = self.process.try_wait()?;
            if let Some(status) = status
                && (killed || killpg(self.group, None) == Err(Errno::ESRCH))
            {
                return Ok(status);
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = sleep_until(end), if !killed => {
                    killed = true;
                    let _ = killpg(self.group, Signal::SIGKILL);
                }
                signal = signals.next() => match signal {
                    Signal::SIGCHLD | Signal::SIGTSTP | Signal::SIGCONT => {}
                    signal => {
                        let _ = killpg(self.group, signal);
                    }
                }
            }
        }
    }

    /// The child has ended: takes the terminal back. Returns the terminal signal that ended it, if any.
    fn ended(&mut self, status: ExitStatus, by_us: bool) -> Option<Signal> {
        let terminal = self.terminal.as_mut()?;
        let lent = terminal.is_lent();
        terminal.take_back();
        let signal = Signal::try_from(status.signal()?).ok()?;
        terminal.restore_modes();
        let key = matches!(signal, Signal::SIGINT | Signal::SIGQUIT);
        (lent && key && !by_us).then_some(signal)
    }
}
