//! Histories as text.

use std::fmt::Write as _;

use super::{Event, Kind, World, mark::Names};

impl Event {
    pub fn text(self, names: Names) -> String {
        let client = |c: u8| char::from(b'A' + names.clients[usize::from(c)]);
        let server = |x: u8| format!("S{}", names.servers[usize::from(x)] + 1);
        let data = |owner: u8| match owner {
            0 => "no owner".to_owned(),
            owner => format!("owner {}", client(owner - 1)),
        };
        match self {
            Self::Tick => "a tick passes".to_owned(),
            Self::Acquire(c, p) => format!("{} acquires at {}", client(c), server(p)),
            Self::Renew(c, p) => format!("{} renews at {}", client(c), server(p)),
            Self::Release(c, p) => format!("{} releases at {}", client(c), server(p)),
            Self::Forget(c) => format!("{} forgets its hold", client(c)),
            Self::Apply(x) => format!("{} applies the next write", server(x)),
            Self::Follow(x, p) => format!("{} follows {}", server(x), server(p)),
            Self::Online(x) => format!("{} is online", server(x)),
            Self::Promote(x, owner) => format!("{} is promoted, {}", server(x), data(owner)),
            Self::Restart(x, owner) => format!("{} restarts, {}", server(x), data(owner)),
        }
    }
}

impl World {
    /// What has changed since `before` that an event does not say.
    pub fn news(&self, before: &Self, names: Names) -> String {
        let mut text = String::new();
        for (c, (now, was)) in self.clients.iter().zip(&before.clients).enumerate() {
            let name = char::from(b'A' + names.clients[c]);
            if now.kind == Kind::Reentry && now.left > was.left {
                let _ = write!(text, "; the server knows {name} as the holder");
            }
            if now.belief > was.belief || now.left == 0 && was.left > 1 && now.belief > 0 {
                let _ = write!(text, "; it counts: {name} believes for {} ticks", now.belief);
            }
        }
        for (p, (now, was)) in self.servers.iter().zip(&before.servers).enumerate() {
            if now.quarantine > was.quarantine {
                let _ = write!(text, "; quarantine at S{}", names.servers[p] + 1);
            }
        }
        text
    }
}
