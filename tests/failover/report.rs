//! The table of a run, and its worst findings.

use std::cmp::Reverse;

use super::{
    history::Nanos,
    judge::{Rule, Verdicts},
};

/// Findings of each rule that are shown; the files have all.
const SHOWN: usize = 5;

const RULES: [Rule; 4] = [Rule::Overlap, Rule::LostHold, Rule::TokenOrder, Rule::RefusedWrite];

const HEADING: &str = "| fault | episodes | not served | served after p50 | p99 | no grant for p50 | p99 | overlaps \
    | lost holds | token order | refused writes | longest overlap | sum |\n\
    |---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// Prints the table: a row for each kind of episode, and one for all.
pub fn print(found: &Verdicts) {
    println!("{HEADING}");
    let kinds = found.outages.iter().map(|outage| row_of(&outage.episode));
    let mut kinds: Vec<&str> =
        kinds.chain(found.findings.iter().map(|one| row_of(&one.episode))).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        print_row(found, kind, |episode| row_of(episode) == kind);
    }
    print_row(found, "all", |_| true);
    println!("{} holds; requests without a grant: {:?}", found.holds, found.refusals);
    for rule in RULES {
        let mut findings: Vec<_> = found.of(rule).collect();
        findings.sort_by_key(|finding| Reverse(finding.length));
        for finding in findings.into_iter().take(SHOWN) {
            println!(
                "{rule:?} {} in {}: {}",
                seconds(finding.length),
                finding.episode,
                finding.text
            );
        }
    }
}

fn print_row(found: &Verdicts, name: &str, is_in: impl Fn(&str) -> bool) {
    let outages: Vec<_> = found.outages.iter().filter(|outage| is_in(&outage.episode)).collect();
    let recoveries = outages.iter().map(|outage| outage.recovery).filter(|&time| time > 0);
    let recoveries: Vec<Nanos> = recoveries.collect();
    let silences: Vec<Nanos> = outages.iter().map(|outage| outage.without_service).collect();
    let mut cells = vec![outages.len().to_string(), (outages.len() - recoveries.len()).to_string()];
    for times in [recoveries, silences] {
        cells.extend([50, 99].map(|percent| seconds(percentile(&times, percent))));
    }
    let counts = RULES.map(|rule| found.of(rule).filter(|one| is_in(&one.episode)).count());
    cells.extend(counts.map(|count| count.to_string()));
    let overlaps = found.of(Rule::Overlap).filter(|overlap| is_in(&overlap.episode));
    let lengths: Vec<Nanos> = overlaps.map(|overlap| overlap.length).collect();
    cells.push(seconds(lengths.iter().copied().max().unwrap_or(0)));
    cells.push(seconds(lengths.iter().sum()));
    println!("| {name} | {} |", cells.join(" | "));
}

/// All pairs of faults share a row.
fn row_of(episode: &str) -> &str {
    if episode.contains('+') { "two at once" } else { episode }
}

fn percentile(values: &[Nanos], percent: usize) -> Nanos {
    let mut values = values.to_vec();
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or(0)
}

/// Seconds with milliseconds.
fn seconds(time: Nanos) -> String {
    let ms = time / 1_000_000;
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}
