//! `dlock top`

mod draw;
mod grants;
mod lines;
mod looker;
#[cfg(test)]
mod sample;
mod screen;
mod state;

use std::io::{self, IsTerminal as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use dlock_admin::Admin;
use dlock_client::Client;
use tokio::sync::{mpsc, watch};

use self::looker::Looker;
use self::screen::{Input, Screen};
use self::state::State;
use crate::args::Top;
use crate::exit::Failure;
use crate::run::Ending;
use crate::run::signals::{FATAL, Signals};

/// Shows the live screen or, if the output is not a terminal, one snapshot.
pub async fn top(client: &Client, args: &Top, out: &mut impl Write) -> Result<Ending, Failure> {
    let mut looker = Looker::new(Admin::new(client), args.pattern.as_bytes());
    let mut state = State::default();
    let is_live = io::stdout().is_terminal();
    let first = if is_live { looker.look(None).await } else { looker.look_at_all().await };
    state.update(first.map_err(|error| Failure::of("cannot look at the locks", &error))?);
    if is_live {
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
                    let page = screen.page(&state);
                    state.press(key, page);
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
