//! The process that outlives `dlock dev`, even after SIGKILL: it ends the server and removes its folder.
//!
//! Its stdin is a pipe that only `dlock dev` can write to; the system closes it when `dlock dev` ends in any way. The
//! server is a child of the guard and asks the system for SIGKILL when the guard ends: killing the guard leaves no
//! server behind.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::{env, process, thread};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::exit::SYSTEM;

/// The configuration of the server, in its folder.
pub const CONFIG: &str = "redis.conf";
/// The log of the server, in its folder.
pub const LOG: &str = "log";

/// The guard, from the side of `dlock dev`.
#[derive(Debug)]
pub struct Guard {
    process: Child,
    /// Closed to end the guard.
    stdin: Option<ChildStdin>,
    folder: PathBuf,
}

impl Guard {
    /// Starts the guard, which starts the server with the configuration in `folder`.
    pub fn start(server: &Path, folder: &Path) -> io::Result<Self> {
        let mut command = this_program(Role::Guard, server, folder)?;
        // Ctrl-C is for `dlock dev`.
        command.process_group(0);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        Ok(Self { stdin: process.stdin.take(), process, folder: folder.to_owned() })
    }

    /// The first call returns what becomes readable when the server has ended.
    pub fn ended(&mut self) -> Option<impl io::Read + Send + 'static> {
        self.process.stdout.take()
    }

    /// Ends the server and removes its folder; returns when that is done.
    pub fn end(&mut self) {
        drop(self.stdin.take());
        let _ = self.process.wait();
        // The guard has removed it, unless something killed the guard.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
    }
}

/// The processes that `dlock dev` starts from its own program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Ends the server and removes its folder when `dlock dev` has ended.
    Guard,
    /// Becomes the server.
    Server,
}

/// Their first argument. Not options of `dlock dev`: completions would offer them.
const ROLES: [(&str, Role); 2] = [("--dev-guard", Role::Guard), ("--dev-server", Role::Server)];

fn this_program(role: Role, server: &Path, folder: &Path) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(ROLES.iter().filter(|(_, of)| *of == role).map(|(name, _)| name));
    command.arg(server).arg(folder);
    Ok(command)
}

/// The whole program, if `dlock dev` started it as one of these processes.
pub fn play(arguments: &mut dyn Iterator<Item = OsString>) -> Option<ExitCode> {
    let name = arguments.next()?;
    let (_, role) = ROLES.iter().find(|(of, _)| *of == name)?;
    let (server, folder) = (PathBuf::from(arguments.next()?), PathBuf::from(arguments.next()?));
    let ended = match role {
        Role::Guard => guard(&server, &folder),
        Role::Server => Err(become_server(&server, &folder)),
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Of the server: into its log.
            crate::say(&format!("{} cannot be run: {error}", server.display()));
            ExitCode::from(SYSTEM)
        }
    })
}

fn guard(server: &Path, folder: &Path) -> io::Result<()> {
    let log = File::create(folder.join(LOG))?;
    let mut command = this_program(Role::Server, server, folder)?;
    // Not in the group of the guard: the signal of a terminal or a job runner cannot end one without the other.
    command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = command.env(PARENT, process::id().to_string()).spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    thread::spawn(move || {
        // It stays a zombie until `wait` below, so its id stays valid for `kill`.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        let _ = writeln!(io::stdout(), "ended");
    });
    // Until `dlock dev` closes it, or has ended.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    let _ = child.kill();
    let _ = child.wait();
    fs::remove_dir_all(folder)
}

/// Names the guard to the process that becomes the server.
const PARENT: &str = "DLOCK_DEV_GUARD";

/// Returns only if it fails.
fn become_server(server: &Path, folder: &Path) -> io::Error {
    if let Err(error) = end_with_parent() {
        return error;
    }
    // The guard may have ended before that.
    if env::var(PARENT).ok() != Some(parent_id().to_string()) {
        return io::Error::other("its guard has ended");
    }
    Command::new(server).arg(folder.join(CONFIG)).current_dir(folder).env_remove(PARENT).exec()
}

/// It stays so when the server replaces this program.
#[cfg(target_os = "linux")]
fn end_with_parent() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?)
}

/// There is nothing like it elsewhere: the server stays if something kills the guard.
#[cfg(not(target_os = "linux"))]
fn end_with_parent() -> io::Result<()> {
    Ok(())
}
