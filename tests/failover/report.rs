//! The table of a run, and its worst findings.

use std::collections::BTreeMap;

use super::{
    history::Nanos,
    judge::{Finding, Outage, Overlap, Verdicts},
};

/// Findings of each sort that are shown; the files have all.
const SHOWN: usize = 5;

/// One row of the table.
#[derive(Default)]
struct Row<'a> {
    outages: Vec<&'a Outage>,
    overlaps: Vec<&'a Overlap>,
    lost_holds: usize,
    token_order: usize,
    refused_writes: usize,
}

/// Prints the table: a row for each kind of episode, and one for all.
pub fn print(found: &Verdicts) {
    let mut rows: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    let mut all = Row::default();
    for outage in &found.outages {
        rows.entry(row_of(&outage.episode)).or_default().outages.push(outage);
        all.outages.push(outage);
    }
    for overlap in &found.overlaps {
        rows.entry(row_of(&overlap.episode)).or_default().overlaps.push(overlap);
        all.overlaps.push(overlap);
    }
    for finding in &found.lost_holds {
        rows.entry(row_of(&finding.episode)).or_default().lost_holds += 1;
        all.lost_holds += 1;
    }
    for finding in &found.token_order {
        rows.entry(row_of(&finding.episode)).or_default().token_order += 1;
        all.token_order += 1;
    }
    for finding in &found.refused_writes {
        rows.entry(row_of(&finding.episode)).or_default().refused_writes += 1;
        all.refused_writes += 1;
    }
    println!(
        "| fault | episodes | not served | served after p50 | p99 | no grant for p50 | p99 | overlaps | longest | sum \
        | lost holds | token order | refused writes |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for (name, row) in &rows {
        row.print(name);
    }
    all.print("all");
    println!("{} holds; requests without a grant: {:?}", found.holds, found.refusals);
    show(found);
}

/// All pairs of faults share a row.
fn row_of(episode: &str) -> &str {
    if episode.contains('+') { "two at once" } else { episode }
}

impl Row<'_> {
    fn print(&self, name: &str) {
        let served = self.outages.iter().filter(|outage| outage.recovery > 0);
        let recoveries: Vec<Nanos> = served.map(|outage| outage.recovery).collect();
        let outages: Vec<Nanos> =
            self.outages.iter().map(|outage| outage.without_service).collect();
        let lengths = self.overlaps.iter().map(|overlap| overlap.to - overlap.from);
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            self.outages.len(),
            self.outages.len() - recoveries.len(),
            seconds(percentile(&recoveries, 50)),
            seconds(percentile(&recoveries, 99)),
            seconds(percentile(&outages, 50)),
            seconds(percentile(&outages, 99)),
            self.overlaps.len(),
            seconds(lengths.clone().max().unwrap_or(0)),
            seconds(lengths.sum()),
            self.lost_holds,
            self.token_order,
            self.refused_writes,
        );
    }
}

fn show(found: &Verdicts) {
    let mut overlaps: Vec<_> = found.overlaps.iter().collect();
    overlaps.sort_by_key(|overlap| overlap.from.wrapping_sub(overlap.to));
    for Overlap { episode, from, to, holds: [one, other] } in overlaps.into_iter().take(SHOWN) {
        println!("overlap of {} at {from} in {episode}:", seconds(to - from));
        println!("    {}: {one}\n    {}: {other}", one.client, other.client);
    }
    let others = [
        ("lost hold", &found.lost_holds),
        ("token order", &found.token_order),
        ("refused write", &found.refused_writes),
    ];
    for (name, findings) in others {
        for Finding { episode, text } in findings.iter().take(SHOWN) {
            println!("{name} in {episode}: {text}");
        }
    }
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
