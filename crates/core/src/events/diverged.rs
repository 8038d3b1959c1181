//! The level of the data, and what is missing from it.

use crate::base::key::Key;
use crate::ports::effects::{Answer, Effects, Outcome};
use crate::ports::turn::Turn;
use crate::record::divergence::{Divergence, Refused};
use crate::record::{self, DecodeError, Keyless, Level, Standing};
use crate::tables::Tables;
use crate::tables::regime::Regime;
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

/// Learns a level that came with data. It never goes back: the data may need it.
pub(crate) fn learn_level(tables: &mut Tables, level: Level) {
    tables.level = tables.level.max(level);
}

/// A record or a value could not be read: this server is diverged.
pub(crate) fn count_refused(tables: &mut Tables, why: DecodeError) {
    tables.regime.divergence.refuse(why);
}

/// How the data stands, for servers that synchronize with this one and for its own restart.
pub(crate) fn standing_as_sent(tables: &Tables) -> Standing {
    let divergence = tables.regime.divergence.as_sent(tables.regime.is_primary());
    Standing { level: tables.level, divergence }
}

/// A file is about to be loaded, in place of all data.
pub(crate) fn begin_file(tables: &mut Tables) {
    tables.level = Level::FIRST;
    tables.regime.divergence = Divergence::default();
}

/// The file that is being loaded stands like this.
pub(crate) fn stand_as_file(tables: &mut Tables, standing: Standing) {
    learn_level(tables, standing.level);
    tables.regime.divergence.add_own(standing.divergence.total());
}

/// A full synchronization has replaced the data set by one that stands like this.
pub(crate) fn stand_as_primary(tables: &mut Tables, standing: Standing) {
    tables.level = standing.level;
    tables.regime.divergence = standing.divergence;
}

/// Whether an operator has raised the level, and no record says so yet.
pub(crate) fn wants_level(tables: &Tables) -> bool {
    tables.settings.record_level > tables.level
}

/// In the tick of a primary: raises the level and records it, in front of all records that need it.
pub(crate) fn raise_level(tables: &mut Tables, fx: &mut Effects) -> bool {
    let wants = wants_level(tables);
    if wants {
        tables.level = tables.settings.record_level;
        let payload = record::encode_floor(tables.tokens.last(), tables.level);
        fx.record(NO_KEY, |out| out.extend_from_slice(&payload));
    }
    wants
}

/// DLOCK.TRUST: an operator has compared the locks of this server. The reply is the number of records that were
/// refused; 0 if it was not diverged.
pub(crate) fn trust(tables: &mut Tables, turn: &mut Turn<'_>) -> Answer {
    let missing = tables.regime.divergence.total();
    if forgive(tables, missing) {
        tables.regime.tell_mark(turn.fx);
    }
    Outcome::Count(missing.total()).into()
}

/// All keys were removed when this was missing ([`Divergence::total`]). What the server missed since counts on.
/// True: the mark has changed, and [`Regime::tell_mark`] is due, once the server may replicate.
pub(crate) fn forgive(tables: &mut Tables, missing: Refused) -> bool {
    let changed = tables.regime.divergence.forgive(missing);
    if changed {
        // Waiters were not served meanwhile.
        tables.waits.mark_all_dirty();
    }
    changed
}

impl Regime {
    /// Records what is missing now.
    pub fn tell_mark(&self, fx: &mut Effects) {
        let payload = record::encode_mark(self.divergence.total());
        fx.record(NO_KEY, |out| out.extend_from_slice(&payload));
    }

    /// What a replica writes to its own append-only file in place of a record of its primary; `None`: the record as it
    /// is, also if it was refused, because a later module may read it.
    pub fn own_record(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let is_mark = matches!(record::keyless(payload), Ok(Some(Keyless::Mark(_))));
        is_mark.then(|| record::encode_mark(self.divergence.total()))
    }
}

impl Tables {
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
