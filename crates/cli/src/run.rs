//! `dlock run`

mod child;
mod held;
mod once;
pub mod signals;
mod terminal;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use dlock_admin::Admin;
use dlock_client::{Client, ClientBuilder, ErrorKind, Lost, Wait};
use dlock_wire::names::LABEL_MAX;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use tokio::time::timeout;

use self::child::{Child, Ended};
use self::held::{Held, Wanted};
use self::signals::{FATAL, Signals, WITH_CHILD};
use crate::args::Run;
use crate::exit::{Failure, LOST, NOT_EXECUTABLE, NOT_FOUND, SYSTEM};
use crate::{show, text};

/// How `dlock run` ends.
#[derive(Debug)]
pub enum Ending {
    /// With this exit code.
    Code(u8),
    /// By this signal, as a program that does not catch it would: the parent process may depend on that.
    Signal(Signal),
}

/// How long the place in the queue outlives a killed process or a lost connection.
const PLACE: Duration = Duration::from_secs(2);

/// How long the release may take. After that the lock ends with its lease: the command has ended, and the programs that
/// wait for its exit code matter more.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// How long the answer to `-v` may take.
const ASK_WITHIN: Duration = Duration::from_secs(2);

/// Takes the lock, runs the command, releases the lock.
pub async fn run(builder: ClientBuilder, url: &str, args: &Run) -> Result<Ending, Failure> {
    let mut signals = Signals::of(&FATAL).map_err(|error| system("signals", &error))?;
    // A blocked call: no other process must claim a grant that a killed process waited for.
    let connect = builder.wait(Wait::Blocking).queue(PLACE).connect(url);
    let client = tokio::select! {
        biased;
        signal = signals.fatal() => return Ok(Ending::Signal(signal)),
        client = connect => client.map_err(|error| Failure::unreachable(url, &error))?,
    };
    let shown = text::quoted(args.key.as_bytes());
    let (wanted, label) = (Wanted::new(args), label(args));
    if args.once {
        return once::run(&client, args, &wanted, &label, signals).await;
    }
    let taken = tokio::select! {
        biased;
        signal = signals.fatal() => return Ok(leave(&client, signal, &mut signals).await),
        taken = wanted.take(&client, args, &label) => {
            taken.map_err(|error| Failure::of(format!("cannot lock {shown}"), &error))?
        }
    };
    let Some(held) = taken else { return Ok(not_acquired(&client, args, &shown).await) };
    signals.add(&WITH_CHILD).map_err(|error| system("signals", &error))?;

    let started = Child::start(&args.command, &held.environment());
    let ended = match started {
        Ok(mut child) => {
            let on_loss = |how| say_lost(&shown, how);
            child.supervise(&held, &mut signals, args.grace, on_loss).await
        }
        Err(error) => {
            release(held, &mut signals, &shown).await;
            return Err(cannot_run(&args.command, &error));
        }
    };
    let released = release(held, &mut signals, &shown).await;
    let ended = ended.map_err(|error| system("the command cannot be waited for", &error))?;
    Ok(ending(&ended, released, &shown))
}

/// A signal ends the wait: leaves the queue.
async fn leave(client: &Client, signal: Signal, signals: &mut Signals) -> Ending {
    tokio::select! {
        // The remaining holds then end by themselves.
        _ = client.close() => {}
        _ = signals.fatal() => {}
    }
    Ending::Signal(signal)
}

/// The lock was not available (in time). With `-v`: who holds it.
async fn not_acquired(client: &Client, args: &Run, shown: &str) -> Ending {
    if args.verbose {
        let info = timeout(ASK_WITHIN, Admin::new(client).info(args.key.as_bytes())).await;
        let holder = match info {
            Ok(Ok(Some(info))) => {
                let (by, left) = (show::held_by(&info), show::left(&info));
                format!("held by: {by}; left: {left}; label: {}", show::label(&info))
            }
            Ok(Ok(None)) => "held by: nobody".to_owned(),
            Ok(Err(error)) => format!("the holder is not known: {error}"),
            Err(_) => "the holder is not known: the server does not answer".to_owned(),
        };
        crate::say(&format!("{shown} was not acquired ({holder})"));
    }
    Ending::Code(args.conflict)
}

/// The label for others: the name of the command. Not its arguments, which may be secrets.
fn label(args: &Run) -> Vec<u8> {
    if let Some(label) = &args.label {
        return label.as_bytes().to_vec();
    }
    let program = args.command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let mut label = program.as_bytes().to_vec();
    label.truncate(LABEL_MAX);
    label
}

/// Whether the lock was still held. The user may interrupt the wait for the server.
async fn release(held: Held, signals: &mut Signals, shown: &str) -> bool {
    let released = tokio::select! {
        released = timeout(RELEASE_WITHIN, held.release()) => released,
        signal = signals.fatal() => {
            crate::say(&format!("{signal}: {shown} may not have been released; then it ends with its lease"));
            return true;
        }
    };
    match released {
        Ok(Ok(())) => true,
        Ok(Err(error)) if matches!(error.kind(), ErrorKind::Lost { .. }) => false,
        Ok(Err(error)) if error.kind() == ErrorKind::ReleaseUnknown => {
            crate::say(&unknown(shown, &error));
            true
        }
        Ok(Err(error)) => {
            crate::say(&format!("{shown} could not be released and ends with its lease: {error}"));
            true
        }
        Err(_) => {
            say_unreleased(shown);
            true
        }
    }
}

fn unknown(shown: &str, error: &dlock_client::Error) -> String {
    format!(
        "whether {shown} was held until the end is not known, and it may have to end with its lease: {error}"
    )
}

fn say_unreleased(shown: &str) {
    let time = text::time(RELEASE_WITHIN);
    crate::say(&format!("{shown} could not be released within {time} and ends with its lease"));
}

fn ending(ended: &Ended, released: bool, shown: &str) -> Ending {
    if ended.lost.is_some() {
        return Ending::Code(LOST);
    }
    if !released {
        crate::say(&format!(
            "the lock {shown} was lost before the command ended ({})",
            in_words(ended.status)
        ));
        return Ending::Code(LOST);
    }
    if let Some(signal) = ended.typed {
        // If the terminal had not been lent, it would have sent the signal to the whole group, for example to a
        // script.
        let _ = killpg(getpgrp(), signal);
        return Ending::Signal(signal);
    }
    Ending::Code(code(ended.status))
}

/// As in shells: 128 plus the number of the signal.
pub fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn say_lost(shown: &str, how: Lost) {
    let how = match how {
        Lost::Expired => "its lease ran out",
        Lost::Refused => "the server says that it is not ours any more",
        Lost::Broken => "an operator broke it",
        Lost::Deleted => "its key was deleted",
        Lost::Disconnected => "its connection was lost",
        Lost::Flushed => "the database was flushed",
        Lost::MaxHold => "it was held for the time of --max-hold",
        _ => "the server ended it",
    };
    crate::say(&format!("the lock {shown} is lost: {how}; ending the command"));
}

/// The failure of a command that could not be started.
pub fn cannot_run(command: &[OsString], error: &io::Error) -> Failure {
    let program =
        command.first().map(|program| text::bytes(program.as_bytes())).unwrap_or_default();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(NOT_FOUND, format!("{program}: no such command")),
        _ if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => Failure::new(
            NOT_EXECUTABLE,
            format!("{program}: not a program (a script needs a first line such as #!/bin/sh)"),
        ),
        _ => Failure::new(NOT_EXECUTABLE, format!("{program}: cannot be run: {error}")),
    }
}

fn system(what: &str, error: &io::Error) -> Failure {
    Failure::new(SYSTEM, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(code(ExitStatus::from_raw(0)), 0);
        assert_eq!(code(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(code(ExitStatus::from_raw(Signal::SIGTERM as i32)), 143);
        // With a core dump, and a real-time signal.
        assert_eq!(code(ExitStatus::from_raw(0x80 | Signal::SIGQUIT as i32)), 131);
        assert_eq!(code(ExitStatus::from_raw(34)), 162);
    }
}
