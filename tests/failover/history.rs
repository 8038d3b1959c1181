//! The files of a run: one line for each thing that a client or the nemesis did. All times are nanoseconds of the
//! machine's monotonic clock, which all processes share. This file uses no code of the product.

use std::{collections::BTreeMap, fmt, fs, path::Path};

/// A moment, in nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// A grant and the belief of its client.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    /// The client, by the name of its file.
    pub client: String,
    pub key: String,
    /// Before the acquire was called.
    pub invoked: Nanos,
    /// After it had returned.
    pub answered: Nanos,
    pub token: u64,
    /// Before the last call of `valid_for` that returned more than zero; 0: there was none.
    pub last_yes: Nanos,
    /// The end of the time that this call promised.
    pub valid_until: Nanos,
    /// When the client was told of the loss, or its release had returned.
    pub ended: Nanos,
    /// `released`, `lost:` with the reason that the client gave, or `unknown:` with the error of the release.
    pub how: String,
}

/// A write to the fenced store, by a client that believed in its hold at that moment.
#[derive(Clone, Debug)]
pub struct Write {
    pub key: String,
    pub token: u64,
    pub at: Nanos,
}

/// One fault, until all were served again.
#[derive(Clone, Debug)]
pub struct Episode {
    pub kind: String,
    pub fault: Nanos,
    /// When all clients had a fresh lock from a whole group; 0: not within the limit.
    pub served: Nanos,
}

/// All that the files of one set-up say.
#[derive(Debug, Default)]
pub struct History {
    pub holds: Vec<Hold>,
    pub writes: Vec<Write>,
    /// The answers that granted fresh locks.
    pub probes: Vec<Nanos>,
    pub episodes: Vec<Episode>,
    /// Requests without a grant, by lock and error.
    pub refusals: BTreeMap<String, usize>,
}

impl History {
    /// Reads the files of a folder. A line that it does not understand ends the program.
    pub fn read(folder: &Path) -> History {
        let mut history = History::default();
        for entry in fs::read_dir(folder).expect("the folder of the history") {
            let path = entry.expect("a file of the history").path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            if path.extension().is_some_and(|extension| extension == "log") {
                history.add(&name, &fs::read_to_string(&path).expect("a history is text"));
            }
        }
        history
    }

    /// Adds the whole lines of one client, or of the nemesis. The last line may be half-written.
    pub fn add(&mut self, client: &str, text: &str) {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            self.add_line(client, line).unwrap_or_else(|| panic!("{client}: what is this: {line}"));
        }
    }

    fn add_line(&mut self, client: &str, line: &str) -> Option<()> {
        let number = |word: &str| word.parse::<u64>().ok();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["hold", key, invoked, answered, token, last_yes, valid_until, ended, how] => {
                self.holds.push(Hold {
                    client: client.to_owned(),
                    key: key.to_owned(),
                    invoked: number(invoked)?,
                    answered: number(answered)?,
                    token: number(token)?,
                    last_yes: number(last_yes)?,
                    valid_until: number(valid_until)?,
                    ended: number(ended)?,
                    how: how.to_owned(),
                });
            }
            ["write", key, token, at] => {
                let (key, token, at) = (key.to_owned(), number(token)?, number(at)?);
                self.writes.push(Write { key, token, at });
            }
            ["probe", _, answered] => self.probes.push(number(answered)?),
            ["refused", key, error] => {
                *self.refusals.entry(format!("{key} {error}")).or_default() += 1;
            }
            ["episode", kind, fault, _, served] => {
                let (kind, fault, served) = (kind.to_owned(), number(fault)?, number(served)?);
                self.episodes.push(Episode { kind, fault, served });
            }
            _ => return None,
        }
        Some(())
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hold { key, invoked, answered, token, last_yes, valid_until, ended, how, .. } = self;
        write!(f, "hold {key} {invoked} {answered} {token} {last_yes} {valid_until} {ended} {how}")
    }
}
