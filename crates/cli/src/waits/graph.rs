//! `dlock graph`

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;

use dlock_admin::Admin;
use dlock_client::Client;
use serde_json::{Value, json};

use super::{Hold, Party, Wait, Waits};
use crate::args::Graph;
use crate::exit::Failure;
use crate::json::{self, Bytes};
use crate::table::fit;
use crate::text;

/// Waiters of a key that are drawn, besides those that hold a key that others wait for.
const WAITERS: u64 = 10;
/// Holders of a key that are drawn, besides those that wait for a key.
const HOLDERS: usize = 10;
/// Most characters of a name.
const NAME: usize = 32;

/// Prints the graph of waits.
pub async fn graph(client: &Client, args: &Graph, out: &mut impl Write) -> Result<(), Failure> {
    let waits = Waits::read(&Admin::new(client), args.pattern.as_bytes()).await;
    let waits = waits.map_err(|error| Failure::of("cannot look at the waits", &error))?;
    if args.json {
        json::write(out, &waits.as_json())?;
        return Ok(());
    }
    if waits.keys.is_empty() && waits.hidden == 0 {
        crate::say("nobody waits");
    }
    Ok(waits.draw(out)?)
}

/// Text between the quotation marks of DOT.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn name(text: &str) -> String {
    escape(&fit(text, NAME))
}

/// The nodes that are on a cycle, or between two cycles.
struct Cycles {
    keys: Vec<bool>,
    parties: Vec<bool>,
}

#[derive(Clone, Copy)]
struct Arrow {
    from: usize,
    to: usize,
}

/// Removes the nodes from which the arrows lead to no cycle.
fn remove_dead_ends(nodes: &mut [bool], arrows: &[Arrow]) {
    let mut leaving = vec![0_usize; nodes.len()];
    let mut before = vec![Vec::new(); nodes.len()];
    for arrow in arrows.iter().filter(|arrow| nodes[arrow.from] && nodes[arrow.to]) {
        leaving[arrow.from] += 1;
        before[arrow.to].push(arrow.from);
    }
    let mut ends: Vec<usize> =
        (0..nodes.len()).filter(|&node| nodes[node] && leaving[node] == 0).collect();
    while let Some(end) = ends.pop() {
        nodes[end] = false;
        for &node in &before[end] {
            leaving[node] -= 1;
            if leaving[node] == 0 {
                ends.push(node);
            }
        }
    }
}

impl Waits {
    fn as_json(&self) -> Value {
        let holds = self.keys.iter().flat_map(|key| {
            key.holds.iter().map(|hold| {
                let mut value = self.hold_as_json(hold);
                value["key"] = json!(Bytes(&key.entry.key));
                value["kind"] = json!(key.entry.kind.name());
                value
            })
        });
        json!({
            "waits": self.queued.iter().map(|wait| self.wait_as_json(wait)).collect::<Value>(),
            "holds": holds.collect::<Value>(),
            "complete": self.is_complete,
            "unreadable": self.hidden,
        })
    }

    fn cycles(&self) -> Cycles {
        let parties = self.parties.len();
        let waits =
            self.queued.iter().map(|wait| Arrow { from: wait.party, to: parties + wait.key });
        let holds = self.keys.iter().enumerate().flat_map(|(at, key)| {
            key.holds.iter().map(move |hold| Arrow { from: parties + at, to: hold.party })
        });
        let mut arrows: Vec<Arrow> = waits.chain(holds).collect();
        let mut nodes = vec![true; parties + self.keys.len()];
        remove_dead_ends(&mut nodes, &arrows);
        for Arrow { from, to } in &mut arrows {
            std::mem::swap(from, to);
        }
        remove_dead_ends(&mut nodes, &arrows);
        let keys = nodes.split_off(parties);
        Cycles { keys, parties: nodes }
    }

    /// Writes DOT.
    fn draw(&self, out: &mut impl Write) -> io::Result<()> {
        let cycles = self.cycles();
        let holders: HashSet<usize> =
            self.keys.iter().flat_map(|key| key.holds.iter().map(|hold| hold.party)).collect();
        writeln!(out, "digraph dlock {{")?;
        writeln!(out, "  rankdir=TB; ranksep=0.3; nodesep=0.4;")?;
        writeln!(
            out,
            "  node [fontname=\"Helvetica,Arial,sans-serif\", fontsize=12, style=filled, fillcolor=white];"
        )?;
        writeln!(out, "  edge [fontname=\"Helvetica,Arial,sans-serif\", fontsize=10];")?;
        if !self.is_complete {
            writeln!(out, "  label=\"not all waiters could be read\";")?;
        }
        let mut drawn = HashSet::new();
        for (at, key) in self.keys.iter().enumerate() {
            let (kind, state) =
                (key.entry.kind.name(), if key.holds.is_empty() { key.state.as_str() } else { "" });
            let state =
                if state.is_empty() { String::new() } else { format!("\\n{}", name(state)) };
            let shown = name(&text::bytes(&key.entry.key));
            writeln!(
                out,
                "  k{at} [shape=box, fillcolor=\"#dde7f3\", label=\"{shown}\\n{kind}{state}\"];"
            )?;
            self.draw_holds(at, &cycles, &mut drawn, out)?;
        }
        for wait in &self.queued {
            if wait.place <= WAITERS || holders.contains(&wait.party) {
                drawn.insert(wait.party);
                draw_wait(wait, &cycles, out)?;
            }
        }
        self.draw_more(&holders, out)?;
        let mut drawn: Vec<usize> = drawn.into_iter().collect();
        drawn.sort_unstable();
        for party in drawn {
            self.draw_party(party, out)?;
        }
        writeln!(out, "}}")
    }

    fn draw_party(&self, party: usize, out: &mut impl Write) -> io::Result<()> {
        let shown = name(&self.parties[party].shown());
        let colour = if self.of_party[party].is_empty() { ", fillcolor=\"#cdeccd\"" } else { "" };
        let shape = if matches!(self.parties[party], Party::Client(_)) {
            ", style=\"filled,dashed\""
        } else {
            ""
        };
        writeln!(out, "  o{party} [label=\"{shown}\"{colour}{shape}];")
    }

    fn draw_holds(
        &self,
        at: usize,
        cycles: &Cycles,
        drawn: &mut HashSet<usize>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let holds = &self.keys[at].holds;
        let waits = |hold: &Hold| !self.of_party[hold.party].is_empty();
        let mut left_out = 0;
        for (place, hold) in holds.iter().enumerate() {
            if place >= HOLDERS && !waits(hold) {
                left_out += 1;
                continue;
            }
            drawn.insert(hold.party);
            let mode = hold.mode.map(|mode| format!(" ({})", mode.name())).unwrap_or_default();
            let text = match hold.times {
                Some(times) => format!(" held {}{mode}", text::time(times.held)),
                None => " reserved for".to_owned(),
            };
            let red = red(cycles.keys[at] && cycles.parties[hold.party]);
            writeln!(out, "  k{at} -> o{} [label=\"{text}\"{red}];", hold.party)?;
        }
        if left_out > 0 {
            let more = text::plural(left_out, "more holder");
            writeln!(out, "  h{at} [shape=plaintext, label=\"{more}\"];\n  k{at} -> h{at};")?;
        }
        Ok(())
    }

    /// The waiters that are not drawn, as one node for each key.
    fn draw_more(&self, holders: &HashSet<usize>, out: &mut impl Write) -> io::Result<()> {
        let mut drawn = vec![0_u64; self.keys.len()];
        for wait in &self.queued {
            drawn[wait.key] += u64::from(wait.place <= WAITERS || holders.contains(&wait.party));
        }
        for (at, key) in self.keys.iter().enumerate() {
            let more = key.waiters.saturating_sub(drawn[at]);
            if more > 0 {
                let more = text::plural(more, "more waiter");
                writeln!(
                    out,
                    "  w{at} [shape=plaintext, label=\"{more}\"];\n  w{at} -> k{at} [style=dashed];"
                )?;
            }
        }
        Ok(())
    }
}

/// An arrow from a waiter.
fn draw_wait(wait: &Wait, cycles: &Cycles, out: &mut impl Write) -> io::Result<()> {
    let waited = wait.waiting.map(|time| format!(" {}", text::time(time))).unwrap_or_default();
    let (party, key, place) = (wait.party, wait.key, wait.place);
    let red = red(cycles.keys[key] && cycles.parties[party]);
    writeln!(
        out,
        "  o{party} -> k{key} [label=\" waits{waited} (place {place})\", style=dashed{red}];"
    )
}

const fn red(is_in_cycle: bool) -> &'static str {
    if is_in_cycle { ", color=\"#c00000\", fontcolor=\"#c00000\", penwidth=2" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::super::sample::lock;
    use super::*;

    fn dot(waits: &Waits) -> String {
        let mut out = Vec::new();
        waits.draw(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_cannot_leave_their_quotation_marks() {
        let mut waits = Waits { is_complete: true, ..Waits::default() };
        lock(&mut waits, "a\"];x[\\", "\u{1b}[2J\n", &["b\\"]);
        let text = dot(&waits);
        assert!(text.contains(r#"label="\"a\\\"];x[\\\\\"\ndlock""#), "{text}");
        assert!(text.contains(r#"label="\"\\x1b[2J\\n\"""#), "{text}");
        assert!(text.is_ascii());
        // Without escaped characters, the marks come in pairs on each line.
        for line in text.lines() {
            let plain = line.replace("\\\\", "").replace("\\\"", "");
            assert_eq!(plain.matches('"').count() % 2, 0, "{line}");
        }
    }

    #[test]
    fn only_cycles_are_red() {
        let mut waits = Waits { is_complete: true, ..Waits::default() };
        lock(&mut waits, "k1", "a", &["b", "x"]);
        lock(&mut waits, "k2", "b", &["a"]);
        lock(&mut waits, "k3", "x", &["y"]);
        let text = dot(&waits);
        let red: Vec<&str> = text.lines().filter(|line| line.contains("#c00000")).collect();
        assert_eq!(red.len(), 4, "{text}");
        assert!(!red.iter().any(|line| line.contains("k2 -> o2") || line.contains("k0 -> o2")));
    }

    #[test]
    fn a_long_queue_is_folded() {
        let mut waits = Waits { is_complete: true, ..Waits::default() };
        let owners: Vec<String> = (0..50).map(|n| format!("o{n}")).collect();
        let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
        lock(&mut waits, "k1", "a", &owners);
        lock(&mut waits, "k2", "o40", &["z"]);
        let text = dot(&waits);
        assert!(text.contains("label=\"39 more waiters\""), "{text}");
        assert!(
            text.contains("label=\"o9\"")
                && text.contains("label=\"o40\"")
                && !text.contains("label=\"o10\"")
        );
    }
}
