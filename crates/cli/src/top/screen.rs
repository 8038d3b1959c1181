//! The terminal of the screen. It is restored however this program ends.

use std::io;
use std::thread;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::draw;
use super::state::{Key, State};

/// Input of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// End the program.
    Quit,
    /// A key that changes the screen.
    Press(Key),
    /// Ctrl-Z: suspend to the shell.
    Suspend,
    /// No key, but the size may have changed.
    Redraw,
}

/// An open screen; dropping it closes it. A panic closes it before it is reported.
pub struct Screen {
    terminal: DefaultTerminal,
    inputs: mpsc::UnboundedReceiver<Input>,
}

impl Screen {
    /// Takes over the terminal.
    pub fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (to, inputs) = mpsc::unbounded_channel();
        // Reading keys blocks; the thread ends with the program.
        thread::spawn(move || {
            while let Ok(event) = event::read() {
                let Some(input) = input(&event) else { continue };
                if to.send(input).is_err() {
                    return;
                }
            }
            // The terminal is gone.
            let _ = to.send(Input::Quit);
        });
        Ok(Self { terminal, inputs })
    }

    /// Draws the state.
    pub fn draw(&mut self, state: &State) -> io::Result<()> {
        self.terminal.draw(|frame| draw::draw(frame, state)).map(|_| ())
    }

    /// Number of visible rows of the list.
    pub fn page(&self, state: &State) -> usize {
        self.terminal.size().map_or(1, |size| draw::page_of(state, size.height))
    }

    /// The next input.
    pub async fn input(&mut self) -> Input {
        self.inputs.recv().await.unwrap_or(Input::Quit)
    }

    /// Restores the terminal, stops this program as Ctrl-Z does, and takes the terminal over again when it continues.
    pub fn suspend(&mut self) -> io::Result<()> {
        ratatui::try_restore()?;
        killpg(getpgrp(), Signal::SIGTSTP)?;
        // A new terminal redraws everything. Not `clear()`: that asks the terminal for the cursor position, and the
        // thread that reads keys would get the answer.
        self.terminal = ratatui::try_init()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn input(event: &Event) -> Option<Input> {
    let key = match event {
        Event::Resize(..) => return Some(Input::Redraw),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Input::Quit),
            KeyCode::Char('z') => Some(Input::Suspend),
            KeyCode::Char('l') => Some(Input::Redraw),
            _ => None,
        };
    }
    let key = match key.code {
        KeyCode::Char('q' | 'Q') => return Some(Input::Quit),
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::First,
        KeyCode::End => Key::Last,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => Key::Back,
        KeyCode::Char('s' | 'S') => Key::Sort,
        _ => return None,
    };
    Some(Input::Press(key))
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys() {
        let press = |code, modifiers| input(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = |code| press(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('q')), Some(Input::Quit));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Input::Quit));
        assert_eq!(press(KeyCode::Char('z'), KeyModifiers::CONTROL), Some(Input::Suspend));
        assert_eq!(plain(KeyCode::Char('s')), Some(Input::Press(Key::Sort)));
        assert_eq!(plain(KeyCode::Char('j')), Some(Input::Press(Key::Down)));
        assert_eq!(plain(KeyCode::Esc), Some(Input::Press(Key::Back)));
        assert_eq!(plain(KeyCode::Char('x')), None);
        assert_eq!(input(&Event::Resize(80, 24)), Some(Input::Redraw));
        assert_eq!(input(&Event::FocusGained), None);
    }
}
