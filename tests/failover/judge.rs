//! The verdicts on a history. This file uses no code of the product: only the files of a run.
//!
//! A belief lasts from the answer of the acquire to the last moment at which the client said that the hold is valid.
//! Both ends are taken on the side that favours the client: the answer after the call returned, the last moment before
//! the call of `valid_for` that said yes.
//!
//! - **Overlap**: two beliefs in one key share a moment. An election is a key, too.
//! - **Lost hold**: the client was told of the loss, or another client was granted the lock, before the time was over
//!   that the client had promised its user. No overlap, if the client was told in time. A leader that lost its
//!   connection is no lost hold: the contract of elections says so.
//! - **Token order**: an acquire that was called after the answer to another one has the smaller token.
//! - **Refused write**: a client that believed in its hold wrote with its token, and the fenced store had seen a larger
//!   one.
//! - **Time without service**: the longest time within an episode in which no client was granted any lock.

use std::collections::{BTreeMap, HashMap};

use super::history::{Episode, History, Hold, How, Nanos};

/// The kind of the time before the first episode.
const BEFORE: &str = "before";

/// Two beliefs in one key at once.
#[derive(Clone, Debug)]
pub struct Overlap {
    /// The kind of the latest episode that had begun.
    pub episode: String,
    pub from: Nanos,
    pub to: Nanos,
    pub holds: [Hold; 2],
}

/// What one episode cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub episode: String,
    /// From the fault until all were served again; 0: they were not.
    pub recovery: Nanos,
    /// The longest time in it without any grant.
    pub without_service: Nanos,
}

/// Something else that was found.
#[derive(Clone, Debug)]
pub struct Finding {
    pub episode: String,
    pub text: String,
}

/// The verdicts on the histories of one or more set-ups.
#[derive(Debug, Default)]
pub struct Verdicts {
    pub holds: usize,
    pub overlaps: Vec<Overlap>,
    pub lost_holds: Vec<Finding>,
    pub token_order: Vec<Finding>,
    pub refused_writes: Vec<Finding>,
    pub outages: Vec<Outage>,
    pub refusals: BTreeMap<String, usize>,
}

impl Verdicts {
    /// Adds those on another set-up.
    pub fn merge(&mut self, other: Verdicts) {
        self.holds += other.holds;
        self.overlaps.extend(other.overlaps);
        self.lost_holds.extend(other.lost_holds);
        self.token_order.extend(other.token_order);
        self.refused_writes.extend(other.refused_writes);
        self.outages.extend(other.outages);
        for (name, count) in other.refusals {
            *self.refusals.entry(name).or_default() += count;
        }
    }
}

/// Judges the history of one set-up.
pub fn judge(history: &History) -> Verdicts {
    let mut found = Verdicts {
        holds: history.holds.len(),
        refusals: history.refusals.clone(),
        ..Verdicts::default()
    };
    let mut by_key: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in &history.holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    for holds in by_key.values_mut() {
        holds.sort_by_key(|hold| hold.answered);
        judge_overlaps(holds, &history.episodes, &mut found.overlaps);
        judge_losses(holds, &history.episodes, &mut found.lost_holds);
        judge_order(holds, &history.episodes, &mut found.token_order);
    }
    judge_writes(history, &mut found.refused_writes);
    found.overlaps.sort_by_key(|overlap| overlap.from);
    found.outages = outages(history);
    found
}

/// The kind of the latest episode that had begun at this moment.
fn episode_at(episodes: &[Episode], at: Nanos) -> String {
    let begun = episodes.partition_point(|episode| episode.fault <= at);
    let latest = begun.checked_sub(1).map(|n| &episodes[n]);
    latest.map_or_else(|| BEFORE.to_owned(), |episode| episode.kind.clone())
}

/// `holds` are sorted by their answers.
fn judge_overlaps(holds: &[&Hold], episodes: &[Episode], found: &mut Vec<Overlap>) {
    let mut open: Vec<&Hold> = Vec::new();
    for &hold in holds.iter().filter(|hold| hold.last_yes > hold.answered) {
        open.retain(|other| other.last_yes > hold.answered);
        found.extend(open.iter().map(|&other| Overlap {
            episode: episode_at(episodes, hold.answered),
            from: hold.answered,
            to: hold.last_yes.min(other.last_yes),
            holds: [other.clone(), hold.clone()],
        }));
        open.push(hold);
    }
}

fn judge_losses(holds: &[&Hold], episodes: &[Episode], found: &mut Vec<Finding>) {
    for hold in holds {
        let is_told = match &hold.how {
            How::Released => continue,
            How::Lost(reason) if reason == "Disconnected" => continue,
            How::Lost(_) => hold.ended < hold.valid_until,
            // The release may have arrived: then the lock was free.
            How::Unknown(_) => false,
        };
        // Answers in the time of the promise.
        let first = holds.partition_point(|other| other.answered <= hold.answered);
        let next = holds[first..].iter().find(|other| other.token > hold.token);
        let is_contradicted = matches!(hold.how, How::Lost(_))
            && next.is_some_and(|next| next.answered < hold.valid_until);
        if is_told || is_contradicted {
            found.push(Finding {
                episode: episode_at(episodes, hold.ended),
                text: format!("{}: {hold}", hold.client),
            });
        }
    }
}

/// `holds` are sorted by their answers.
fn judge_order(holds: &[&Hold], episodes: &[Episode], found: &mut Vec<Finding>) {
    let mut by_call = holds.to_vec();
    by_call.sort_by_key(|hold| hold.invoked);
    let mut answered = holds.iter().peekable();
    let mut largest = 0;
    for hold in by_call {
        while let Some(earlier) = answered.next_if(|one| one.answered < hold.invoked) {
            largest = largest.max(earlier.token);
        }
        if hold.token <= largest {
            found.push(Finding {
                episode: episode_at(episodes, hold.answered),
                text: format!("{}: {hold}, after token {largest}", hold.client),
            });
        }
    }
}

fn judge_writes(history: &History, found: &mut Vec<Finding>) {
    let mut writes: Vec<_> = history.writes.iter().collect();
    writes.sort_by_key(|write| write.at);
    let mut store: HashMap<&str, u64> = HashMap::new();
    for write in writes {
        let largest = store.entry(&write.key).or_default();
        if write.token < *largest {
            found.push(Finding {
                episode: episode_at(&history.episodes, write.at),
                text: format!("{write:?}, after token {largest}"),
            });
        }
        *largest = write.token.max(*largest);
    }
}

fn outages(history: &History) -> Vec<Outage> {
    let mut grants: Vec<Nanos> = history.holds.iter().map(|hold| hold.answered).collect();
    grants.extend(history.probes.iter().map(|probe| probe.answered));
    grants.sort_unstable();
    let of = |episode: &Episode| {
        let is_served = episode.served > 0;
        let end = if is_served { episode.served } else { grants.last().copied().unwrap_or(0) };
        let within = grants.iter().filter(|&&at| (episode.fault..end).contains(&at));
        let (mut longest, mut before) = (0, episode.fault);
        for &at in within.chain([&end]) {
            longest = longest.max(at.saturating_sub(before));
            before = at;
        }
        Outage {
            episode: episode.kind.clone(),
            recovery: if is_served { end - episode.fault } else { 0 },
            without_service: longest,
        }
    };
    history.episodes.iter().map(of).collect()
}
