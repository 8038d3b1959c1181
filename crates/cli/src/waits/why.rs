//! `dlock why`

use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;

use dlock_admin::{Admin, LogEvent};
use dlock_client::Client;
use serde_json::{Value, json};

use super::{Hold, Party, Wait, Waits};
use crate::args::Why;
use crate::exit::{Failure, NOTHING};
use crate::json::{self, Bytes};
use crate::text;

/// Most lines of the explanation.
const LINES: usize = 1000;
/// Most holders of one key that are followed.
const HOLDERS: usize = 20;

/// Explains what an owner waits for.
pub async fn why(client: &Client, args: &Why, out: &mut impl Write) -> Result<(), Failure> {
    let admin = Admin::new(client);
    let owner = args.owner.as_bytes();
    let failed = |error| Failure::of("cannot look at the waits", &error);
    let mut waits = Waits::read(&admin, args.pattern.as_bytes()).await.map_err(failed)?;
    waits.find(&admin, owner).await.map_err(failed)?;
    let number = waits.numbers.get(&Party::Owner(owner.to_vec())).copied();
    let Some(number) = number.filter(|&number| !waits.of_party[number].is_empty()) else {
        let rest = if waits.is_complete { "" } else { " (not all waiters could be read)" };
        let lost = lost_last(&admin, owner).await;
        return Err(Failure::new(
            NOTHING,
            format!("{} waits for nothing{rest}{lost}", text::quoted(owner)),
        ));
    };
    let mut chain = Chain::new(&waits);
    chain.explain(number, 0);
    if args.json {
        json::write(out, &chain.as_json(owner))?;
    } else {
        for line in &chain.lines {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// How the last hold ended that this owner lost, if the log has one and may be read.
async fn lost_last(admin: &Admin, owner: &[u8]) -> String {
    const ENDS: [LogEvent; 5] = [
        LogEvent::Expired,
        LogEvent::Disconnected,
        LogEvent::Broken,
        LogEvent::Unclaimed,
        LogEvent::Evicted,
    ];
    let logs = admin.log(None).await.unwrap_or_default();
    let entries = logs.iter().flat_map(|log| &log.entries);
    let lost = entries.filter(|entry| entry.owner == owner && ENDS.contains(&entry.event));
    lost.max_by_key(|entry| entry.time).map_or_else(String::new, |entry| {
        let (key, when) = (text::bytes(&entry.key), text::timestamp(entry.time));
        let details = text::printable(&entry.text);
        format!("; it lost {key} at {when}: {} ({details})", entry.event)
    })
}

/// The explanation, while it is made.
struct Chain<'a> {
    waits: &'a Waits,
    lines: Vec<String>,
    /// The owners from the first to the one that is looked at, and the key that each waits for.
    path: Vec<(usize, usize)>,
    /// Explained before.
    known: Vec<bool>,
    edges: Vec<Value>,
    running: Vec<usize>,
    cycles: Vec<Vec<usize>>,
    is_cut: bool,
}

impl<'a> Chain<'a> {
    fn new(waits: &'a Waits) -> Self {
        let known = vec![false; waits.parties.len()];
        let (lines, path, edges) = (Vec::new(), Vec::new(), Vec::new());
        let (running, cycles) = (Vec::new(), Vec::new());
        Self { waits, lines, path, known, edges, running, cycles, is_cut: !waits.is_complete }
    }

    fn line(&mut self, depth: usize, text: &str) {
        if self.lines.len() < LINES {
            self.lines.push(format!("{}{text}", "  ".repeat(depth)));
        } else if !std::mem::replace(&mut self.is_cut, true) {
            self.lines.push("… (the rest is left out)".to_owned());
        }
    }

    /// What the owner waits for, and so on. The depth is bounded by the number of lines.
    fn explain(&mut self, party: usize, depth: usize) {
        let waits = self.waits;
        let name = waits.parties[party].shown();
        self.known[party] = true;
        for wait in waits.waits_of(party) {
            if self.lines.len() >= LINES {
                self.is_cut = true;
                return;
            }
            let key = &waits.keys[wait.key];
            let waited = wait.waiting.map(|time| format!(", for {}", text::time(time)));
            let shown = text::bytes(&key.entry.key);
            let (kind, place, waited) =
                (key.entry.kind.name(), wait.place, waited.unwrap_or_default());
            self.line(depth, &format!("{name} waits for {shown} ({kind}), place {place}{waited}"));
            self.edges.push(self.edge(wait));
            self.path.push((party, wait.key));
            self.explain_key(wait.key, depth + 1);
            self.path.pop();
        }
    }

    fn explain_key(&mut self, key: usize, depth: usize) {
        let waits = self.waits;
        let key = &waits.keys[key];
        if key.holds.is_empty() {
            self.line(depth, &format!("it has no holder: {}", key.state));
        }
        for hold in key.holds.iter().take(HOLDERS) {
            self.line(depth, &self.held_by(hold));
            self.explain_holder(hold.party, depth);
        }
        if let Some(more @ 1..) = key.holds.len().checked_sub(HOLDERS) {
            self.is_cut = true;
            self.line(depth, &format!("and by {}", text::plural(more as u64, "other holder")));
        }
    }

    fn held_by(&self, hold: &Hold) -> String {
        let name = self.waits.parties[hold.party].shown();
        let Some(times) = hold.times else {
            return format!("kept closed for {name}, which waits for several locks together");
        };
        let mode = hold.mode.map(|mode| format!(" ({})", mode.name())).unwrap_or_default();
        let label = if hold.label.is_empty() {
            String::new()
        } else {
            format!(", label {}", text::bytes(&hold.label))
        };
        let (since, left) = (text::time(times.held), text::time(times.left));
        format!("held by {name}{mode} for {since}, lease {left} left{label}")
    }

    fn explain_holder(&mut self, party: usize, depth: usize) {
        let name = self.waits.parties[party].shown();
        if let Some(at) = self.path.iter().position(|&(on_path, _)| on_path == party) {
            let cycle: Vec<usize> = self.path[at..].iter().map(|&(party, _)| party).collect();
            let links = self.path[at..].iter().map(|&(party, key)| {
                let key = text::bytes(&self.waits.keys[key].entry.key);
                format!("{} -> {key} -> ", self.waits.parties[party].shown())
            });
            let links: String = links.collect();
            self.line(depth, &format!("a cycle: {links}{name}"));
            self.cycles.push(cycle);
        } else if self.waits.of_party[party].is_empty() {
            self.line(depth, &format!("{name} waits for nothing: it runs"));
            if !std::mem::replace(&mut self.known[party], true) {
                self.running.push(party);
            }
        } else if self.known[party] {
            self.line(depth, &format!("{name} waits: see above"));
        } else {
            self.explain(party, depth);
        }
    }

    fn edge(&self, wait: &Wait) -> Value {
        let mut edge = self.waits.wait_as_json(wait);
        let holds = &self.waits.keys[wait.key].holds;
        let holders: Vec<_> =
            holds.iter().take(HOLDERS).map(|hold| self.waits.hold_as_json(hold)).collect();
        edge["holders"] = holders.into();
        edge
    }

    fn as_json(&self, owner: &[u8]) -> Value {
        let names = |parties: &[usize]| -> Value {
            parties.iter().map(|&party| self.waits.parties[party].as_json()).collect()
        };
        json!({
            "owner": Bytes(owner),
            "waits": self.edges,
            "running": names(&self.running),
            "cycles": self.cycles.iter().map(|cycle| names(cycle)).collect::<Value>(),
            "complete": !self.is_cut,
            "unreadable": self.waits.hidden,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::lock;
    use super::*;

    fn explained(waits: &Waits, owner: &str) -> (Vec<String>, Value) {
        let mut chain = Chain::new(waits);
        chain.explain(waits.numbers[&Party::Owner(owner.into())], 0);
        (chain.lines.clone(), chain.as_json(owner.as_bytes()))
    }

    #[test]
    fn a_chain_ends_at_the_owner_that_runs() {
        let mut waits = Waits { is_complete: true, ..Waits::default() };
        lock(&mut waits, "k1", "alice", &["bob"]);
        lock(&mut waits, "k 2", "bob", &["zoe", "carol"]);
        let (lines, json) = explained(&waits, "carol");
        assert_eq!(
            lines,
            [
                "carol waits for \"k 2\" (dlock), place 2, for 1.5s",
                "  held by bob for 10.0s, lease 20.0s left",
                "  bob waits for k1 (dlock), place 1, for 1.5s",
                "    held by alice for 10.0s, lease 20.0s left",
                "    alice waits for nothing: it runs",
            ]
        );
        assert_eq!((&json["running"], &json["cycles"]), (&json!(["alice"]), &json!([])));
        assert_eq!(
            (&json["waits"][1]["key"], &json["waits"][1]["holders"][0]["owner"]),
            (&json!("k1"), &json!("alice"))
        );
        assert_eq!(json["complete"], true);
    }

    #[test]
    fn a_cycle_is_named() {
        let mut waits = Waits { is_complete: true, ..Waits::default() };
        lock(&mut waits, "k1", "a", &["x", "b"]);
        lock(&mut waits, "k2", "b", &["a"]);
        let (lines, json) = explained(&waits, "x");
        assert_eq!(lines.last().unwrap(), "      a cycle: a -> k2 -> b -> k1 -> a");
        assert_eq!((&json["running"], &json["cycles"]), (&json!([]), &json!([["a", "b"]])));
    }

    #[test]
    fn a_long_chain_is_cut() {
        let mut waits = Waits { is_complete: true, ..Waits::default() };
        for n in 0..2000 {
            lock(&mut waits, &format!("k{n}"), &format!("o{}", n + 1), &[&format!("o{n}")]);
        }
        let (lines, json) = explained(&waits, "o0");
        assert!(lines.len() <= LINES + 1 && json["complete"] == false, "{}", lines.len());
    }
}
