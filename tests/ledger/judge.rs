//! The verdicts. This file uses no code of the product: only the ledger.
//!
//! All times come from one monotonic clock of one machine, and each is taken on the side that favours the client: a
//! belief begins after the first yes of `check()` has returned, and ends before the last one was called; an end of a
//! hold counts when the witness has heard of it. So a verdict is never caused by the time that a call takes.
//!
//! - **Overlap**: two beliefs in one key under different tokens share a moment. It is excused if an operator had ended
//!   the hold with the smaller token before that moment, because a holder learns of that late.
//! - **Late yes**: `check()` was called and said yes after the server had reported that the hold expired, or ended
//!   with its connection. An overlap that no other worker was quick enough to make.
//! - **Success for lost work**: the outcome is success, but before the work ended (the last yes), a worker had entered
//!   one of the locks with a larger token, or a server had reported the end of one of the holds. For whatever cause:
//!   the release reaches a server that knows of it.
//! - **Loss for finished work**: the work ran to its end under a yes, and its release reported the loss, but no server
//!   reported an end of one of its holds up to that moment, and no worker had entered with a larger token. One excuse:
//!   `with` and a release look at the clock when the work has ended, and say so (`Outcome::Lost { by_clock }`), and the
//!   time for which the hold was valid was over.
//! - **Token order**: a worker that asked after another one had entered got a smaller token.
//!
//! `Unknown` is counted and not judged, except for overlaps: its work counts as believed to its last yes.

use std::{collections::HashMap, time::Duration};

use super::book::{At, End, Outcome, Turn};

/// How long after its publication a message may reach the witness.
const MESSAGE_DELAY: Duration = Duration::from_millis(250);

/// How long after the end of its work `with` or a release may look at the clock, on a busy machine.
const CLOCK_DELAY: Duration = Duration::from_millis(500);

/// The verdicts on one ledger.
#[derive(Debug, Default)]
pub struct Verdicts {
    pub turns: usize,
    pub overlaps: Vec<String>,
    pub late_yes: Vec<String>,
    pub false_success: Vec<String>,
    pub false_loss: Vec<String>,
    pub token_order: Vec<String>,
    pub unknown: usize,
    /// Reported losses of finished work that were real.
    pub real_losses: usize,
    /// Losses that the worker learned before its work ended.
    pub cut_short: usize,
}

impl Verdicts {
    /// Everything that must not happen, with its name.
    pub fn findings(&self) -> [(&'static str, &Vec<String>); 5] {
        [
            ("overlap", &self.overlaps),
            ("success for lost work", &self.false_success),
            ("loss for finished work", &self.false_loss),
            ("late yes", &self.late_yes),
            ("token order", &self.token_order),
        ]
    }

    pub fn is_fine(&self) -> bool {
        self.findings().iter().all(|(_, found)| found.is_empty())
    }
}

/// A turn as one of its keys sees it.
#[derive(Clone, Copy)]
struct Belief<'a> {
    token: u64,
    turn: &'a Turn,
}

type Ends<'a> = HashMap<(&'a str, u64), Vec<&'a End>>;

/// Judges a ledger.
pub fn judge(turns: &[Turn], ends: &[End]) -> Verdicts {
    let mut found = Verdicts { turns: turns.len(), ..Verdicts::default() };
    let mut ends_of: Ends<'_> = HashMap::new();
    for end in ends {
        ends_of.entry((&*end.key, end.token)).or_default().push(end);
    }
    let mut by_key: HashMap<&str, Vec<Belief<'_>>> = HashMap::new();
    for turn in turns {
        for (key, token) in &turn.holds {
            by_key.entry(key).or_default().push(Belief { token: *token, turn });
        }
    }
    let mut next_entry = HashMap::new();
    for (key, beliefs) in &mut by_key {
        judge_overlaps(key, beliefs, &ends_of, &mut found.overlaps);
        judge_order(key, beliefs, &mut found.token_order);
        first_later_entries(key, beliefs, &mut next_entry);
    }
    for turn in turns {
        judge_turn(turn, &ends_of, &next_entry, &mut found);
    }
    found
}

fn judge_overlaps<'a>(
    key: &'a str,
    beliefs: &mut [Belief<'a>],
    ends: &Ends<'a>,
    found: &mut Vec<String>,
) {
    beliefs.sort_by_key(|belief| belief.turn.entered);
    let mut open: Vec<Belief<'_>> = Vec::new();
    for &belief in &*beliefs {
        let (begins, ends_at) = (belief.turn.entered, belief.turn.yes);
        if begins >= ends_at {
            continue;
        }
        open.retain(|other| other.turn.yes > begins);
        for other in open.iter().filter(|other| other.token != belief.token) {
            let older = if other.token < belief.token { *other } else { belief };
            let of_older = ends.get(&(key, older.token)).map_or(&[][..], Vec::as_slice);
            if !of_older.iter().any(|end| end.is_forced && end.after <= begins) {
                found.push(format!("{key}: {:?}\n      and {:?}", other.turn, belief.turn));
            }
        }
        open.push(belief);
    }
}

fn judge_order(key: &str, beliefs: &[Belief<'_>], found: &mut Vec<String>) {
    // They are sorted by entry.
    let mut by_request: Vec<_> = beliefs.to_vec();
    by_request.sort_by_key(|belief| belief.turn.asked);
    let mut entered = beliefs.iter().peekable();
    let mut largest = 0;
    for belief in by_request {
        while let Some(earlier) = entered.next_if(|one| one.turn.entered < belief.turn.asked) {
            largest = largest.max(earlier.token);
        }
        if belief.token < largest {
            found.push(format!("{key}: {:?} after token {largest}", belief.turn));
        }
    }
}

/// For each token of a key, the first entry of a worker with a larger one.
fn first_later_entries<'a>(
    key: &'a str,
    beliefs: &mut [Belief<'a>],
    into: &mut HashMap<(&'a str, u64), At>,
) {
    beliefs.sort_by_key(|belief| std::cmp::Reverse(belief.token));
    let mut first = At::MAX;
    for same in beliefs.chunk_by(|one, next| one.token == next.token) {
        into.insert((key, same[0].token), first);
        let entered = same.iter().map(|belief| belief.turn.entered).min();
        first = first.min(entered.unwrap_or(At::MAX));
    }
}

fn judge_turn<'a>(
    turn: &'a Turn,
    ends: &Ends<'a>,
    next_entry: &HashMap<(&'a str, u64), At>,
    found: &mut Verdicts,
) {
    let (mut ended, mut ended_unforced, mut entry) = (At::MAX, At::MAX, At::MAX);
    for (key, token) in &turn.holds {
        entry = entry.min(next_entry.get(&(&**key, *token)).copied().unwrap_or(At::MAX));
        for end in ends.get(&(&**key, *token)).into_iter().flatten() {
            ended = ended.min(end.before);
            if !end.is_forced {
                ended_unforced = ended_unforced.min(end.before);
            }
        }
    }
    if ended_unforced < turn.yes {
        found.late_yes.push(format!("{turn:?}, ended by {ended_unforced:?}"));
    }
    match turn.outcome {
        Outcome::Success if ended.min(entry) < turn.yes => {
            found.false_success.push(format!("{turn:?}, ended {ended:?}, next entry {entry:?}"));
        }
        Outcome::Success => {}
        Outcome::Unknown => found.unknown += 1,
        Outcome::CutShort => found.cut_short += 1,
        Outcome::Lost { .. } if !turn.is_finished => found.cut_short += 1,
        Outcome::Lost { by_clock } => {
            let is_over = by_clock
                && turn.yes + turn.valid <= turn.settled
                && turn.settled < turn.yes + CLOCK_DELAY;
            if ended.min(entry) <= turn.settled + MESSAGE_DELAY || is_over {
                found.real_losses += 1;
            } else {
                found.false_loss.push(format!("{turn:?}"));
            }
        }
    }
}
