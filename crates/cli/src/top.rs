//! `dlock top`

mod draw;
mod lines;
#[cfg(test)]
mod sample;
mod screen;
mod state;

use std::io::{self, IsTerminal as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use dlock_client::admin::{Admin, Entry, Info};
use dlock_client::{Client, Error};
use tokio::sync::{mpsc, watch};

use self::screen::{Input, Screen};
use self::state::{Details, Look, State};
use crate::args::Top;
use crate::exit::Failure;
use crate::look;
use crate::run::Ending;
use crate::run::signals::{FATAL, Signals};

/// Most keys inspected in one sample.
const KEYS: usize = 10_000;
/// Most waiters of a key that are shown.
const WAITERS: u64 = 100;

/// Shows the live screen or, if the output is not a terminal, one snapshot.
pub async fn top(client: &Client, args: &Top, out: &mut impl Write) -> Result<Ending, Failure> {
    let looker = Looker { admin: client.admin(), pattern: args.pattern.as_bytes().to_vec() };
    let mut state = State::default();
    let first = looker.look(None).await;
    state.update(first.map_err(|error| Failure::of("cannot look at the locks", &error))?);
    if io::stdout().is_terminal() {
        return live(looker, state, args.interval).await;
    }
    for line in lines::snapshot(&state) {
        writeln!(out, "{line}")?;
    }
    Ok(Ending::Code(0))
}

async fn live(looker: Looker, mut state: State, interval: Duration) -> Result<Ending, Failure> {
    let trouble =
        |error: io::Error| Failure::new(crate::exit::SYSTEM, format!("terminal: {error}"));
    let mut signals = Signals::of(&FATAL).map_err(trouble)?;
    let (opened, wanted) = watch::channel(None);
    let (looks, mut results) = mpsc::channel(1);
    let looker = tokio::spawn(looker.keep_looking(interval, wanted, looks));
    let mut screen = Screen::open().map_err(trouble)?;
    let ending = loop {
        screen.draw(&state).map_err(trouble)?;
        tokio::select! {
            signal = signals.fatal() => break Ending::Signal(signal),
            Some(look) = results.recv() => match look {
                Ok(look) => state.update(look),
                Err(error) => state.fail(format!("trying again: {error}")),
            },
            input = screen.input() => match input {
                Input::Quit => break Ending::Code(0),
                Input::Press(key) => {
                    state.press(key, screen.page());
                    opened.send_if_modified(|wanted| {
                        let changed = *wanted != state.opened;
                        wanted.clone_from(&state.opened);
                        changed
                    });
                }
                Input::Suspend => screen.suspend().map_err(trouble)?,
                Input::Redraw => {}
            },
        }
    };
    looker.abort();
    drop(screen);
    Ok(ending)
}

/// Takes samples of the servers.
struct Looker {
    admin: Admin,
    pattern: Vec<u8>,
}

impl Looker {
    /// Takes a sample every `interval`, and at once when another key is opened. A sample ends before the next begins,
    /// however long it takes.
    async fn keep_looking(
        self,
        interval: Duration,
        mut wanted: watch::Receiver<Option<Entry>>,
        looks: mpsc::Sender<Result<Look, Error>>,
    ) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                changed = wanted.changed() => if changed.is_err() { return },
            }
            let entry = wanted.borrow_and_update().clone();
            if looks.send(self.look(entry).await).await.is_err() {
                return;
            }
        }
    }

    async fn look(&self, closely: Option<Entry>) -> Result<Look, Error> {
        let servers = self.admin.stats().await?;
        let mut entries = self.admin.locks(&self.pattern).await?;
        let more = entries.len().saturating_sub(KEYS);
        entries.truncate(KEYS);
        let keys = look::infos(&self.admin, entries).await?;
        let details = match closely {
            Some(entry) => Some(self.details(entry).await?),
            None => None,
        };
        Ok(Look { at: Instant::now(), servers, keys, more, details })
    }

    async fn details(&self, entry: Entry) -> Result<Details, Error> {
        let info = self.admin.info_of(&entry).await?;
        let waiters = self.admin.waiters_of(&entry, Some(WAITERS)).await?;
        let permits = match info {
            Some(Info::Semaphore(_)) => self.admin.permits(&entry.key).await?,
            _ => Vec::new(),
        };
        Ok(Details { entry, info, waiters, permits })
    }
}
