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
//! - **Token order**: an acquire that was called after the answer to another one has no larger token.
//! - **Refused write**: a client that believed in its hold wrote with its token, and the fenced store had seen a larger
//!   one.
//! - **Time without service**: the longest time within an episode in which no client was granted any lock.

use std::collections::{BTreeMap, HashMap};

use super::history::{Episode, History, Hold, Nanos};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Overlap,
    LostHold,
    TokenOrder,
    RefusedWrite,
}

/// A breach of one rule.
#[derive(Clone, Debug)]
pub struct Finding {
    pub rule: Rule,
    /// The kind of the latest episode that had begun.
    pub episode: String,
    /// Of an overlap; 0 otherwise.
    pub length: Nanos,
    pub text: String,
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

/// The verdicts on the histories of one or more set-ups.
#[derive(Debug, Default)]
pub struct Verdicts {
    pub holds: usize,
    pub findings: Vec<Finding>,
    pub outages: Vec<Outage>,
    pub refusals: BTreeMap<String, usize>,
}

impl Verdicts {
    /// The breaches of a rule.
    pub fn of(&self, rule: Rule) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.rule == rule)
    }

    /// Adds those on another set-up.
    pub fn merge(&mut self, other: Verdicts) {
        self.holds += other.holds;
        self.findings.extend(other.findings);
        self.outages.extend(other.outages);
        for (name, count) in other.refusals {
            *self.refusals.entry(name).or_default() += count;
        }
    }
}

/// Judges the history of one set-up.
pub fn judge(history: &History) -> Verdicts {
    let mut findings = Vec::new();
    let mut add = |rule, at, length, text| {
        let episode = episode_at(&history.episodes, at);
        findings.push(Finding { rule, episode, length, text });
    };
    let mut by_key: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in &history.holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    for holds in by_key.values_mut() {
        holds.sort_by_key(|hold| hold.answered);
        for (one, other) in overlaps(holds) {
            let length = one.last_yes.min(other.last_yes) - other.answered;
            let text = format!("{}: {one}, {}: {other}", one.client, other.client);
            add(Rule::Overlap, other.answered, length, text);
        }
        for hold in holds.iter().filter(|hold| is_lost(hold, holds)) {
            add(Rule::LostHold, hold.ended, 0, format!("{}: {hold}", hold.client));
        }
        for (hold, largest) in out_of_order(holds) {
            let text = format!("{}: {hold}, after token {largest}", hold.client);
            add(Rule::TokenOrder, hold.answered, 0, text);
        }
    }
    let mut writes: Vec<_> = history.writes.iter().collect();
    writes.sort_by_key(|write| write.at);
    let mut store: HashMap<&str, u64> = HashMap::new();
    for write in writes {
        let largest = store.entry(&write.key).or_default();
        if write.token < *largest {
            add(Rule::RefusedWrite, write.at, 0, format!("{write:?}, after token {largest}"));
        }
        *largest = write.token.max(*largest);
    }
    Verdicts {
        holds: history.holds.len(),
        findings,
        outages: outages(history),
        refusals: history.refusals.clone(),
    }
}

/// The kind of the latest episode that had begun at this moment.
fn episode_at(episodes: &[Episode], at: Nanos) -> String {
    let latest = episodes.iter().rfind(|episode| episode.fault <= at);
    latest.map_or("before", |episode| &episode.kind).to_owned()
}

/// Pairs of beliefs that share a moment, the later one second. `holds` are sorted by their answers.
fn overlaps<'a>(holds: &[&'a Hold]) -> Vec<(&'a Hold, &'a Hold)> {
    let (mut open, mut found): (Vec<&Hold>, _) = (Vec::new(), Vec::new());
    for &hold in holds.iter().filter(|hold| hold.last_yes > hold.answered) {
        open.retain(|other| other.last_yes > hold.answered);
        found.extend(open.iter().map(|&other| (other, hold)));
        open.push(hold);
    }
    found
}

/// Whether its promise was broken. After a release with an unknown end the lock may be free.
fn is_lost(hold: &Hold, holds: &[&Hold]) -> bool {
    let is_contradicted = |other: &&Hold| {
        other.token > hold.token
            && other.answered > hold.answered
            && other.answered < hold.valid_until
    };
    hold.how.starts_with("lost:")
        && hold.how != "lost:Disconnected"
        && (hold.ended < hold.valid_until
            || holds.iter().copied().any(|other| is_contradicted(&other)))
}

/// Holds with a token that is not larger than one that was known before. `holds` are sorted by their answers.
fn out_of_order<'a>(holds: &[&'a Hold]) -> Vec<(&'a Hold, u64)> {
    let mut by_call = holds.to_vec();
    by_call.sort_by_key(|hold| hold.invoked);
    let (mut answered, mut largest, mut found) = (holds.iter().peekable(), 0, Vec::new());
    for hold in by_call {
        while let Some(earlier) = answered.next_if(|one| one.answered < hold.invoked) {
            largest = largest.max(earlier.token);
        }
        if hold.token <= largest {
            found.push((hold, largest));
        }
    }
    found
}

fn outages(history: &History) -> Vec<Outage> {
    let mut grants: Vec<Nanos> = history.holds.iter().map(|hold| hold.answered).collect();
    grants.extend(&history.probes);
    grants.sort_unstable();
    let of = |episode: &Episode| {
        let last = grants.last().copied().unwrap_or(0);
        let end = if episode.served > 0 { episode.served } else { last };
        let within = grants.iter().filter(|&&at| (episode.fault..end).contains(&at));
        let (mut longest, mut before) = (0, episode.fault);
        for &at in within.chain([&end]) {
            longest = longest.max(at.saturating_sub(before));
            before = at;
        }
        let recovery = episode.served.saturating_sub(episode.fault);
        Outage { episode: episode.kind.clone(), recovery, without_service: longest }
    };
    history.episodes.iter().map(of).collect()
}
