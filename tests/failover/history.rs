//! The files of a run: one line for each thing that a client or the nemesis did. All times are nanoseconds of the
//! machine's monotonic clock, which all processes share. This file uses no code of the product.

use std::{collections::BTreeMap, fmt, fs, path::Path};

/// A moment, in nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// The file of the nemesis; each other `*.log` is of one client.
pub const EPISODES: &str = "episodes.log";

/// A grant and the belief of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub how: How,
}

/// How a hold ended for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    Released,
    /// With the reason that the client gave.
    Lost(String),
    /// The release failed with this error.
    Unknown(String),
}

/// A write to the fenced store, by a client that believed in its hold at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: String,
    pub token: u64,
    pub at: Nanos,
}

/// A grant of a fresh lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub invoked: Nanos,
    pub answered: Nanos,
}

/// One fault, until all were served again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    pub kind: String,
    pub fault: Nanos,
    pub healed: Nanos,
    /// When all clients had a fresh lock from a whole group; 0: not within the limit.
    pub served: Nanos,
}

/// All that the files of one set-up say.
#[derive(Debug, Default)]
pub struct History {
    pub holds: Vec<Hold>,
    pub writes: Vec<Write>,
    pub probes: Vec<Probe>,
    pub episodes: Vec<Episode>,
    /// Requests without a grant, by lock and error.
    pub refusals: BTreeMap<String, usize>,
}

impl History {
    /// Reads the files of a folder, up to the last whole line of each. A line that it does not understand ends the
    /// program.
    pub fn read(folder: &Path) -> History {
        let mut history = History::default();
        for entry in fs::read_dir(folder).expect("the folder of the history") {
            let path = entry.expect("a file of the history").path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_some_and(|extension| extension == "log") {
                let text = fs::read_to_string(&path).expect("a history is text");
                history.add(&name, &text);
            }
        }
        history.episodes.sort_by_key(|episode| episode.fault);
        history
    }

    /// Adds the whole lines of one client, or of the nemesis.
    pub fn add(&mut self, client: &str, text: &str) {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            self.add_line(client, line).unwrap_or_else(|| panic!("{client}: what is this: {line}"));
        }
    }

    fn add_line(&mut self, client: &str, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["hold", key, invoked, answered, token, last_yes, valid_until, ended, how] => {
                self.holds.push(Hold {
                    client: client.to_owned(),
                    key: key.to_owned(),
                    invoked: invoked.parse().ok()?,
                    answered: answered.parse().ok()?,
                    token: token.parse().ok()?,
                    last_yes: last_yes.parse().ok()?,
                    valid_until: valid_until.parse().ok()?,
                    ended: ended.parse().ok()?,
                    how: How::parse(how)?,
                });
            }
            ["write", key, token, at] => self.writes.push(Write {
                key: key.to_owned(),
                token: token.parse().ok()?,
                at: at.parse().ok()?,
            }),
            ["probe", invoked, answered] => self
                .probes
                .push(Probe { invoked: invoked.parse().ok()?, answered: answered.parse().ok()? }),
            ["refused", key, error] => {
                *self.refusals.entry(format!("{key} {error}")).or_default() += 1;
            }
            ["episode", kind, fault, healed, served] => self.episodes.push(Episode {
                kind: kind.to_owned(),
                fault: fault.parse().ok()?,
                healed: healed.parse().ok()?,
                served: served.parse().ok()?,
            }),
            _ => return None,
        }
        Some(())
    }
}

impl How {
    fn parse(text: &str) -> Option<How> {
        match text.split_once(':') {
            None => (text == "released").then_some(How::Released),
            Some(("lost", reason)) => Some(How::Lost(reason.to_owned())),
            Some(("unknown", error)) => Some(How::Unknown(error.to_owned())),
            Some(_) => None,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Released => f.write_str("released"),
            How::Lost(reason) => write!(f, "lost:{reason}"),
            How::Unknown(error) => write!(f, "unknown:{error}"),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hold { key, invoked, answered, token, last_yes, valid_until, ended, how, .. } = self;
        write!(f, "hold {key} {invoked} {answered} {token} {last_yes} {valid_until} {ended} {how}")
    }
}

impl fmt::Display for Episode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Episode { kind, fault, healed, served } = self;
        write!(f, "episode {kind} {fault} {healed} {served}")
    }
}
