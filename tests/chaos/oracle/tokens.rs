//! Tokens of one key grow from hold to hold.

use std::{collections::HashMap, time::Instant};

use super::{Hold, Times, Violation};
use crate::{
    call::Mode,
    key::{Key, Owner},
};

/// The largest token that was told.
#[derive(Debug, Clone, Copy)]
struct Largest {
    token: i64,
    owner: Owner,
    at: Instant,
}

/// The largest tokens of each key: of exclusive holds, and of shared ones.
#[derive(Debug, Default)]
pub struct Tokens(HashMap<Key, [Option<Largest>; 2]>);

impl Tokens {
    /// Records that a reply proves this hold at some time between its call and now.
    ///
    /// An exclusive hold exists only until a later one of another owner is granted. If a larger token of another
    /// owner was known before the call was sent, the earlier hold had ended.
    pub fn seen(&mut self, key: Key, hold: &Hold, times: Times) -> Result<(), Violation> {
        let is_shared = usize::from(hold.mode == Mode::Read);
        let largest = self.0.entry(key).or_default();
        // Readers share the lock, so only writers constrain readers.
        let comparable = if hold.mode == Mode::Read { &largest[..1] } else { &largest[..] };
        for seen in comparable.iter().flatten() {
            let is_later = seen.token > hold.token && seen.at < times.sent;
            if is_later && seen.owner != hold.owner {
                let text = format!(
                    "tokens went back: {} was told token {}, but {} had been told {} before the call was sent",
                    hold.owner, hold.token, seen.owner, seen.token
                );
                return Err(Violation::of(key, text));
            }
        }
        let known = &mut largest[is_shared];
        if known.is_none_or(|known| known.token < hold.token) {
            *known = Some(Largest { token: hold.token, owner: hold.owner, at: times.now });
        }
        Ok(())
    }

    /// Another value may be stored in this key.
    pub fn forget(&mut self, key: Key) {
        self.0.remove(&key);
    }

    /// Other values may be stored in all keys.
    pub fn forget_all(&mut self) {
        self.0.clear();
    }
}
