//! The terminal, and whose it is: job control as shells do it.
//!
//! The child has a process group of its own, so that it can be ended with all that it started. To read from the
//! terminal and to be sent Ctrl-C, that group must be the terminal's foreground group; so it is lent to it while it
//! runs, if it is ours to lend.

use std::fs::{self, File};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal that controls this process.
pub struct Terminal {
    tty: File,
    ours: Pid,
    modes: Option<Termios>,
    lent: bool,
}

impl Terminal {
    /// None: there is none, as in cron jobs and services.
    pub fn of_this_process() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&tty).ok();
        Some(Self { tty, ours: getpgrp(), modes, lent: false })
    }

    /// Makes `group` the foreground group, if ours is; else leaves things as they are: we are in the background.
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
            // It fails when the terminal is gone; then nobody misses it.
            let _ = tcsetpgrp(&self.tty, self.ours);
        }
    }

    /// Sets the terminal as it was: who was killed could not.
    pub fn restore_modes(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetattr(&self.tty, SetArg::TCSADRAIN, modes);
        }
    }
}

/// Whether our process group is an orphaned one: all parents of its members are in the group themselves, or in another
/// session. So it is where this program, or the script that it is in, is the first process of a terminal or container.
pub fn nobody_controls_jobs() -> bool {
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
    // The name may hold anything; behind it come the state and then these.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1).map(str::to_owned);
    Some([fields.next()?, fields.next()?, fields.next()?])
}

/// From now on this thread may write to the terminal, and take it back, while another group is in the foreground:
/// without this, it would be stopped when it does. To be called after the child was started, which would inherit it.
pub fn write_from_the_background() {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    // It cannot fail with a valid signal.
    let _ = stop.thread_block();
}
