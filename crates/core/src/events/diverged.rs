//! The level of the data, and what is missing from it.

use crate::divergence::{Divergence, Refused};
use crate::effects::{Effects, Outcome};
use crate::key::Key;
use crate::machine::Machine;
use crate::record::{self, DecodeError, Keyless, Level, Standing};
use crate::turn::Turn;
use alloc::vec::Vec;

/// Where a record comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The primary.
    Primary,
    /// The server's own append-only file.
    File,
}

/// The name of records that belong to no key.
pub const NO_KEY: Key<'_> = Key { db: 0, name: b"dlock" };

impl Machine {
    /// The level of the data, and of the records that this server writes.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Learns a level that came with data. It never goes back: the data may need it.
    pub fn learn_level(&mut self, level: Level) {
        self.level = self.level.max(level);
    }

    /// What is missing from the data of this server.
    pub fn divergence(&self) -> Divergence {
        self.regime.divergence
    }

    /// A record or a value could not be read: this server is diverged.
    pub fn count_refused(&mut self, why: DecodeError) {
        self.regime.divergence.refuse(why);
    }

    /// How the data stands, for servers that synchronize with this one and for its own restart.
    pub(crate) fn standing_as_sent(&self) -> Standing {
        let divergence = self.regime.divergence.as_sent(self.regime.is_primary());
        Standing { level: self.level, divergence }
    }

    /// A file is about to be loaded, in place of all data.
    pub fn begin_file(&mut self) {
        self.level = Level::FIRST;
        self.regime.divergence = Divergence::default();
    }

    /// This replica has started from a file of a module before level 1. Such a module skips records that it cannot
    /// read. After a partial resynchronization the file's keys would stay as they are.
    pub fn doubt_file(&mut self) {
        if !self.regime.is_primary() {
            self.count_refused(DecodeError::Impossible);
        }
    }

    /// The file that is being loaded stands like this.
    pub fn stand_as_file(&mut self, standing: Standing) {
        self.learn_level(standing.level);
        self.regime.divergence.add_own(standing.divergence.total());
    }

    /// A full synchronization has replaced the data set by one that stands like this.
    pub fn stand_as_primary(&mut self, standing: Standing) {
        self.level = standing.level;
        self.regime.divergence = standing.divergence;
    }

    /// Whether an operator has raised the level, and no record says so yet.
    pub(crate) fn wants_level(&self) -> bool {
        self.settings.record_level > self.level
    }

    /// In the tick of a primary: raises the level and records it, in front of all records that need it.
    pub(crate) fn raise_level(&mut self, fx: &mut Effects) -> bool {
        let wants = self.wants_level();
        if wants {
            self.level = self.settings.record_level;
            let payload = record::encode_floor(self.tokens.last(), self.level);
            fx.record(NO_KEY, |out| out.extend_from_slice(&payload));
        }
        wants
    }

    /// DLOCK.TRUST: an operator has compared the locks of this server. The reply is the number of records that were
    /// refused; 0 if it was not diverged.
    pub(crate) fn trust(&mut self, turn: &mut Turn<'_>) {
        let missing = self.regime.divergence.total();
        if self.forgive(missing) {
            self.tell_mark(turn.fx);
        }
        turn.fx.reply = Some(Outcome::Count(missing.total()));
    }

    /// All keys were removed when this was missing ([`Divergence::total`]). What the server missed since counts on.
    /// True: the mark has changed, and [`Machine::tell_mark`] is due, once the server may replicate.
    pub fn forgive(&mut self, missing: Refused) -> bool {
        let changed = self.regime.divergence.forgive(missing);
        if changed {
            // Waiters were not served meanwhile.
            self.waits.mark_all_dirty();
        }
        changed
    }

    /// Records what is missing now.
    pub fn tell_mark(&self, fx: &mut Effects) {
        let payload = record::encode_mark(self.regime.divergence.total());
        fx.record(NO_KEY, |out| out.extend_from_slice(&payload));
    }

    /// What a replica writes to its own append-only file in place of a record of its primary; `None`: the record as it
    /// is, also if it was refused, because a later module may read it.
    pub fn own_record(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let is_mark = matches!(record::keyless(payload), Ok(Some(Keyless::Mark(_))));
        is_mark.then(|| record::encode_mark(self.regime.divergence.total()))
    }

    /// What an AOF rewrite without an RDB preamble must be followed by, because such a file has only keys: the largest
    /// token with the level, and what is missing.
    pub fn records_beside(&self, wall_us: u64) -> Vec<Vec<u8>> {
        // A server with latches alone has given no token.
        let token = self.token_floor(wall_us).unwrap_or_default();
        let floor = (token > 0 || self.level > Level::FIRST).then_some(token);
        let floor = floor.map(|token| record::encode_floor(token, self.level));
        let missing = self.regime.divergence.total();
        let mark = (missing.total() > 0).then(|| record::encode_mark(missing));
        floor.into_iter().chain(mark).collect()
    }
}
