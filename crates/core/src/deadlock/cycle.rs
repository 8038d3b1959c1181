//! A cycle of owners that wait for each other, and its text.

use crate::base::key::Key;
use crate::ports::answers::FOREVER;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use dlock_wire::reply::quote;

/// Number of links of a cycle that its text is about.
const LINKS_SHOWN: usize = 20;

/// An owner that waits for a key.
pub(super) struct Link {
    pub owner: Vec<u8>,
    pub db: u32,
    pub name: Vec<u8>,
}

/// Each owner waits for the next one, and the last for the first.
pub(super) struct Cycle(pub Vec<Link>);

impl Cycle {
    /// The owners that wait for keys which the answer may name.
    pub fn text(&self, may_name: impl Fn(Key<'_>) -> bool) -> String {
        let (shown, more) = self.0.split_at(self.0.len().min(LINKS_SHOWN));
        let is_open = |link: &&Link| may_name(Key { db: link.db, name: &link.name });
        let (open, hidden): (Vec<_>, Vec<_>) = shown.iter().partition(is_open);
        let link = |link: &Link| format!("{} waits for {}", quote(&link.owner), quote(&link.name));
        let mut parts: Vec<String> = open.into_iter().map(link).collect();
        if !hidden.is_empty() {
            let s = if hidden.len() == 1 { "" } else { "s" };
            parts.push(format!("through {} key{s} that this answer may not name", hidden.len()));
        }
        let rest =
            if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        format!("{FOREVER}{}{rest}", parts.join(", "))
    }
}
