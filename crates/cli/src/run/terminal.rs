//! The terminal and its foreground group: job control as shells do it.
//!
//! The child has a separate process group, so that it can be ended with all its processes. To read from the terminal
//! and to get Ctrl-C, that group must be the foreground group of the terminal. So this program lends it the terminal
//! while it runs, if its own group is in the foreground.

use std::fs::{self, File};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process.
pub struct Terminal {
    tty: File,
    ours: Pid,
    modes: Option<Termios>,
    lent: bool,
}

impl Terminal {
    /// None: there is no terminal, as in cron jobs and services.
    pub fn of_this_process() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&tty).ok();
        Some(Self { tty, ours: getpgrp(), modes, lent: false })
    }

    /// Makes `group` the foreground group if ours is; else does nothing: this program runs in the background.
    pub fn lend(&mut self, group: Pid) {
        if self.is_ours() && tcsetpgrp(&self.tty, group).is_ok() {
            self.lent = true;
        }
    }

    /// Whether our group is the foreground group.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(self.ours)
    }

    /// Whether it is lent.
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// Makes our group the foreground group again, if it was lent.
    pub fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            // It fails when the terminal is gone; that does no harm.
            let _ = tcsetpgrp(&self.tty, self.ours);
        }
    }

    /// Restores the modes of the terminal: a killed process could not.
    pub fn restore_modes(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetattr(&self.tty, SetArg::TCSADRAIN, modes);
        }
    }
}

/// Whether our process group is orphaned: each parent of a member is in the group itself, or in another session. That
/// is so if this program, or its script, is the first process of a terminal or container.
pub fn is_orphaned_group() -> bool {
    let mut process = std::process::id().to_string();
    let ours = getpgrp().to_string();
    loop {
        let Some([parent, _, session]) = relations(&process) else { return true };
        match relations(&parent) {
            Some([_, group, its]) if its == session => {
                if group != ours {
                    return false;
                }
            }
            _ => return true,
        }
        process = parent;
    }
}

/// Parent, group and session of a process.
fn relations(process: &str) -> Option<[String; 3]> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may contain any byte; after it come the state and then these fields.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1).map(str::to_owned);
    Some([fields.next()?, fields.next()?, fields.next()?])
}

/// Lets this thread write to the terminal, and take it back, while another group is in the foreground. Otherwise the
/// system would stop it. Call it after the start of the child, which would inherit the setting.
pub fn write_from_the_background() {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    // It cannot fail with a valid signal.
    let _ = stop.thread_block();
}
