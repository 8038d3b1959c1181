//! `dlock run --once`: of those that ask at the same time, one runs the command.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::pin;
use std::time::Duration;

use dlock_client::{Client, Error, ErrorKind, Hold, Once};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::child::{Child, Ended};
use super::held::Wanted;
use super::signals::{FATAL, Signals, WITH_CHILD};
use super::{
    Ending, RELEASE_WITHIN, cannot_run, ending, leave, not_acquired, say_lost, say_unreleased,
    system, unknown,
};
use crate::args::Run;
use crate::exit::{Failure, LOST};
use crate::text;

/// How far the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Another process runs the command, or holds the lock.
    Waiting,
    /// The command runs here.
    Running,
    /// The command has ended; the lock is being released.
    Releasing,
}

/// Why the run here does not count.
enum Unfinished {
    /// The command failed, or did not start.
    Command,
    Client(Error),
}

impl From<Error> for Unfinished {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

/// The command, if it ran here. Not in the future of the work, which is dropped when the lock is lost.
#[derive(Default)]
struct Here {
    child: Option<Child>,
    ended: Option<io::Result<Ended>>,
    cannot_start: Option<io::Error>,
}

type Done = Result<Once<()>, Unfinished>;

/// Runs the command, or waits for the end of a run elsewhere.
pub async fn run(
    client: &Client,
    args: &Run,
    wanted: &Wanted,
    label: &[u8],
    mut waiting: Signals,
) -> Result<Ending, Failure> {
    let mut signals = Signals::of(&FATAL).map_err(|error| system("signals", &error))?;
    let mut here = Here::default();
    let phase = watch::Sender::new(Phase::Waiting);
    let done = {
        let (here, signals) = (&mut here, &mut signals);
        let work = async |hold| work(args, wanted, hold, here, signals, &phase).await;
        let lock = wanted.lock(client, args, label);
        let mut done = pin!(async {
            match if args.nonblock { Some(Duration::ZERO) } else { args.wait } {
                Some(time) => lock.timeout(time).run_once(work).await,
                None => lock.run_once(work).await,
            }
        });
        loop {
            let is_waiting = *phase.borrow() == Phase::Waiting;
            tokio::select! {
                biased;
                signal = waiting.fatal(), if is_waiting => {
                    // While the command runs, the work handles it.
                    if *phase.borrow() == Phase::Waiting {
                        return Ok(leave(client, signal, &mut waiting).await);
                    }
                }
                done = &mut done => break Some(done),
                () = released_too_late(phase.subscribe()) => break None,
            }
        }
    };
    end(client, args, done, here, signals).await
}

/// Resolves when the release has taken too long.
async fn released_too_late(mut phase: watch::Receiver<Phase>) {
    if phase.wait_for(|phase| *phase == Phase::Releasing).await.is_err() {
        std::future::pending::<()>().await;
    }
    sleep(RELEASE_WITHIN).await;
}

/// Runs the command under the hold.
async fn work(
    args: &Run,
    wanted: &Wanted,
    hold: Hold,
    here: &mut Here,
    signals: &mut Signals,
    phase: &watch::Sender<Phase>,
) -> Result<(), Unfinished> {
    phase.send_replace(Phase::Running);
    let view = wanted.held(args, hold);
    let started =
        signals.add(&WITH_CHILD).and_then(|()| Child::start(&args.command, &view.environment()));
    let child = match started {
        Ok(child) => here.child.insert(child),
        Err(error) => {
            here.cannot_start = Some(error);
            return Err(Unfinished::Command);
        }
    };
    let shown = text::quoted(args.key.as_bytes());
    let ended = child.supervise(&view, signals, args.grace, |how| say_lost(&shown, how)).await;
    let succeeded =
        ended.as_ref().is_ok_and(|ended| ended.lost.is_none() && ended.status.success());
    here.ended = Some(ended);
    phase.send_replace(Phase::Releasing);
    if succeeded { Ok(()) } else { Err(Unfinished::Command) }
}

/// What the outcome means for this program.
async fn end(
    client: &Client,
    args: &Run,
    done: Option<Done>,
    mut here: Here,
    mut signals: Signals,
) -> Result<Ending, Failure> {
    let shown = text::quoted(args.key.as_bytes());
    match done {
        Some(Ok(Once::AnotherRan(_))) => return Ok(Ending::Code(0)),
        Some(Ok(Once::Ran(()))) => {}
        // The hold is released in the background, which ends with this process.
        Some(Err(Unfinished::Command)) => {
            if !matches!(timeout(RELEASE_WITHIN, client.close()).await, Ok(Ok(()))) {
                say_unreleased(&shown);
            }
        }
        None => say_unreleased(&shown),
        Some(Err(Unfinished::Client(error))) => match (error.kind(), &mut here) {
            (ErrorKind::NotAcquired, _) => return Ok(not_acquired(client, args, &shown).await),
            (
                ErrorKind::Lost { reason, finished: false },
                Here { child: Some(child), ended: None, .. },
            ) => {
                let ended = child
                    .end_after(reason, &mut signals, args.grace, |how| say_lost(&shown, how))
                    .await;
                here.ended = Some(ended);
            }
            (ErrorKind::Lost { .. }, Here { ended: Some(Ok(ended)), .. }) => {
                return Ok(ending(ended, false, &shown));
            }
            (ErrorKind::Lost { .. }, _) => {
                crate::say(&format!("the lock {shown} was lost before the command began"));
                return Ok(Ending::Code(LOST));
            }
            // The command succeeded. Others may run it again.
            (ErrorKind::ReleaseUnknown, _) => crate::say(&unknown(&shown, &error)),
            _ => return Err(Failure::of(format!("cannot lock {shown}"), &error)),
        },
    }
    if let Some(error) = here.cannot_start {
        return Err(cannot_run(&args.command, &error));
    }
    match here.ended {
        Some(Ok(ended)) => Ok(ending(&ended, true, &shown)),
        Some(Err(error)) => Err(system("the command cannot be waited for", &error)),
        // Not reached: a run that counts has an end.
        None => Ok(Ending::Code(LOST)),
    }
}
