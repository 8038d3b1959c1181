//! `dlock size`: connections, memory and processor time of a number of workers and locks. The formulae are those of
//! docs/sizing.md.

mod figures;

use std::io::{self, Write};

use serde_json::json;

use self::figures::{
    AOF_US, BLOCKED, BUSY, CONNECTION, FAIR, HAND_OFF_US, HELD, MAX_CLIENTS, MAX_WAITERS, PAIR_US,
    QUEUED, RECORDS, REMEMBERED, REMEMBERED_S, RENEW_US, RENEWALS, REQUEST_ID, SPARE,
};
use crate::args::Size;
use crate::exit::Failure;
use crate::json;
use crate::run::Ending;
use crate::table::Table;

/// What one server needs.
#[derive(Debug)]
struct Needs {
    connections: u64,
    memory: Vec<Part<u64>>,
    /// Microseconds of server CPU in a second.
    cpu: Vec<Part<f64>>,
    /// Bytes in a second for each replica, and for the append-only file.
    records: u64,
    notes: Vec<String>,
}

/// A summand, and how it came about.
#[derive(Debug)]
struct Part<N> {
    name: &'static str,
    how: String,
    number: N,
}

/// `dlock size`
pub fn size(args: &Size) -> Result<Ending, Failure> {
    let needs = Needs::of(args);
    let mut out = io::stdout().lock();
    if args.json {
        json::write(&mut out, &needs.as_json())?;
    } else {
        needs.write(args, &mut out)?;
    }
    Ok(Ending::Code(0))
}

impl Needs {
    fn of(args: &Size) -> Self {
        let shared = args.processes * (1 + args.dedicated);
        let mut needs = Self {
            connections: shared + args.blocked,
            memory: memory(args, shared),
            cpu: cpu(args),
            records: args.rate * RECORDS,
            notes: Vec::new(),
        };
        needs.notes = needs.notes(args);
        needs
    }

    fn bytes(&self) -> u64 {
        self.memory.iter().map(|part| part.number).sum()
    }

    fn busy(&self) -> f64 {
        self.cpu.iter().map(|part| part.number).sum::<f64>() / 1_000_000.0
    }

    /// Limits that are exceeded.
    fn notes(&self, args: &Size) -> Vec<String> {
        let waiters = args.queued + args.fair + args.blocked;
        let connections = self.connections + SPARE;
        let cases = [
            (
                connections > MAX_CLIENTS,
                format!("set maxclients to {connections} at least, plus one per replica"),
            ),
            (
                self.busy() > BUSY,
                "the processor: use a cluster, or requests queue up in the server".to_owned(),
            ),
            (
                waiters > MAX_WAITERS,
                format!("more waiters than dlock.max-waiters, {}", grouped(MAX_WAITERS)),
            ),
            (
                args.held + waiters > MAX_WAITERS,
                format!("more than {} holds and waiters: use a cluster", grouped(MAX_WAITERS)),
            ),
            (
                !args.no_request_ids && 2 * args.rate * REMEMBERED_S > REMEMBERED,
                format!(
                    "request ids are forgotten before {REMEMBERED_S} s: dlock.request-memory-max"
                ),
            ),
        ];
        cases.into_iter().filter(|(is_so, _)| *is_so).map(|(_, note)| note).collect()
    }

    fn write(&self, args: &Size, out: &mut impl Write) -> io::Result<()> {
        let mut table = Table::new(&["NEED", ">AMOUNT", "FROM"]);
        let mut row = |name: &str, amount: String, from: &str| {
            table.row([name.to_owned(), amount, from.to_owned()]);
        };
        let from = format!(
            "{} × (1 + {}) + {} blocked",
            grouped(args.processes),
            grouped(args.dedicated),
            grouped(args.blocked)
        );
        row("connections", grouped(self.connections), &from);
        let total = format!("{} bytes without the empty server", grouped(self.bytes()));
        row("memory", mebibytes(self.bytes()), &total);
        for part in self.memory.iter().filter(|part| part.number > 0) {
            row(&format!("  {}", part.name), grouped(part.number), &part.how);
        }
        let total = format!("{} µs in a second", microseconds(self.busy() * 1_000_000.0));
        row("processor", format!("{:.1} %", self.busy() * 100.0), &total);
        for part in self.cpu.iter().filter(|part| part.number > 0.0) {
            row(&format!("  {}", part.name), microseconds(part.number), &part.how);
        }
        let from = format!("{} × {RECORDS} bytes, each replica and the file", grouped(args.rate));
        row("records per second", grouped(self.records), &from);
        table.write(out)?;
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        Ok(())
    }

    fn as_json(&self) -> serde_json::Value {
        let key = |name: &str| name.replace(' ', "-");
        let memory = self.memory.iter().map(|part| (key(part.name), part.number.into()));
        let cpu = self.cpu.iter().map(|part| (key(part.name), part.number.into()));
        json!({
            "connections": self.connections,
            "memory-bytes": self.bytes(),
            "memory": memory.collect::<serde_json::Map<_, _>>(),
            "cpu-share": self.busy(),
            "cpu-us": cpu.collect::<serde_json::Map<_, _>>(),
            "records-bytes": self.records,
            "notes": self.notes,
        })
    }
}

fn memory(args: &Size, shared: u64) -> Vec<Part<u64>> {
    let ids = if args.no_request_ids { 0 } else { (2 * args.rate * REMEMBERED_S).min(REMEMBERED) };
    let part = |name, count: u64, each: u64| Part {
        name,
        how: format!("{} × {}", grouped(count), grouped(each)),
        number: count * each,
    };
    vec![
        part("held locks", args.held, HELD),
        part("other keys", args.keys, HELD),
        part("queued waiters", args.queued, QUEUED),
        part("fair waiters", args.fair, FAIR),
        part("blocked calls", args.blocked, BLOCKED),
        part("shared connections", shared, CONNECTION),
        part("request ids", ids, REQUEST_ID),
    ]
}

#[allow(clippy::cast_precision_loss, reason = "at most 10^9")]
fn cpu(args: &Size) -> Vec<Part<f64>> {
    let rate = args.rate as f64;
    let contended = f64::from(args.contended) / 100.0;
    let renewals = args.renewed as f64 * RENEWALS / args.lease.as_secs_f64();
    let part = |name, count: f64, each: f64| Part {
        name,
        how: format!("{} × {each:.1}", microseconds(count)),
        number: count * each,
    };
    vec![
        part("uncontended pairs", rate * (1.0 - contended), PAIR_US),
        part("hand-offs", rate * contended, HAND_OFF_US),
        part("renewals", renewals, RENEW_US),
        part("append-only file", if args.aof { rate } else { 0.0 }, AOF_US),
    ]
}

/// `1,234,567`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Whole, with separators.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
fn microseconds(time: f64) -> String {
    grouped(time.round() as u64)
}

#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn needs(words: &str) -> (Needs, String) {
        let words = words.split(' ').filter(|word| !word.is_empty());
        let cli = Cli::try_parse_from(["dlock", "size"].into_iter().chain(words)).unwrap();
        let Command::Size(args) = cli.command else { panic!("another command") };
        let needs = Needs::of(&args);
        let mut out = Vec::new();
        needs.write(&args, &mut out).unwrap();
        (needs, String::from_utf8(out).unwrap())
    }

    /// The example of docs/sizing.md.
    const EXAMPLE: &str =
        "--processes 40 --held 1500 --rate 3000 --contended 25 --renewed 200 --lease 30 --aof";

    /// Its table: a row, and how `dlock size` calls it. Totals are bold there.
    const ROWS: [(&str, &str, &str, &str); 9] = [
        ("connections", "connections", "40 × 1 + 0 = **40**", "40 + 500 = **540**"),
        ("held locks", "  held locks", "1,500 × 277 = 415,500", "415,500"),
        ("waiters", "  queued waiters", "500 × 422 = 211,000", "500 × 74,144 = 37,072,000"),
        ("shared connections", "  shared connections", "40 × 38,114 = 1,524,560", "1,524,560"),
        (
            "request ids",
            "  request ids",
            "min(2 × 3,000 × 60, 1,000,000) = 360,000; × 48 = 17,280,000",
            "17,280,000",
        ),
        ("uncontended pairs", "  uncontended pairs", "3,000 × 0.75 × 16 = 36,000 µs", "36,000 µs"),
        ("hand-offs", "  hand-offs", "3,000 × 0.25 × 48 = 36,000 µs", "36,000 µs"),
        ("renewals", "  renewals", "200 × 3 / 30 × 10 = 200 µs", "200 µs"),
        ("append-only file", "  append-only file", "3,000 × 1.0 = 3,000 µs", "3,000 µs"),
    ];

    const TOTALS: [(&str, &str); 2] = [
        (
            "| **memory** | 19,431,060 bytes = **18.5 MiB** | 56,292,060 bytes = **53.7 MiB** |",
            "memory",
        ),
        (
            "| **processor** | 75,200 µs per second = **7.5 % of a core** | **7.5 % of a core** |",
            "processor",
        ),
    ];

    fn amount<'a>(table: &'a str, name: &str) -> &'a str {
        let is_it = |line: &&str| {
            let cell = line.split("  ").find(|cell| !cell.is_empty());
            cell == Some(name.trim()) && line.starts_with("  ") == name.starts_with("  ")
        };
        let line = table.lines().find(is_it).unwrap_or_else(|| panic!("no {name} in\n{table}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).nth(1).unwrap()
    }

    #[test]
    fn the_worked_example_of_the_page_comes_out() {
        let (_, queue) = needs(&format!("{EXAMPLE} --queued 500"));
        let (_, block) = needs(&format!("{EXAMPLE} --blocked 500"));
        let result = |cell: &str| {
            let cell = cell.rsplit("= ").next().unwrap().trim_end_matches(" µs").to_owned();
            cell.trim_matches('*').to_owned()
        };
        for (_, name, with_queue, with_block) in ROWS {
            assert_eq!(amount(&queue, name), result(with_queue), "{queue}");
            let name = if name == "  queued waiters" { "  blocked calls" } else { name };
            assert_eq!(amount(&block, name), result(with_block), "{block}");
        }
        for (row, name) in TOTALS {
            for (table, cell) in [&queue, &block].into_iter().zip(row.split('|').skip(2)) {
                let bold = cell.split("**").nth(1).unwrap().trim_end_matches(" of a core");
                assert_eq!(amount(table, name), bold, "{table}");
            }
        }
        assert!(queue.contains("19,431,060 bytes") && block.contains("56,292,060 bytes"));
        assert!(queue.contains("75,200 µs in a second"), "{queue}");
    }

    /// When the page is in the repository, it has this very example, and these figures.
    #[test]
    fn the_page_has_the_same_example_and_figures() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sizing.md");
        let Ok(page) = std::fs::read_to_string(page) else {
            println!("there is no page on sizing");
            return;
        };
        for (name, _, with_queue, with_block) in ROWS {
            let row = format!("| {name} | {with_queue} | {with_block} |");
            assert!(page.contains(&row), "{row}");
        }
        for (row, _) in TOTALS {
            assert!(page.contains(row), "{row}");
        }
        for (name, figure) in [
            ("m_held", HELD),
            ("m_queue", QUEUED),
            ("m_fair", FAIR),
            ("m_block", BLOCKED),
            ("m_conn", CONNECTION),
            ("m_id", REQUEST_ID),
        ] {
            let row = format!("| {name} | {} bytes |", grouped(figure));
            assert!(page.contains(&row), "{row}");
        }
        for (name, figure) in
            [("u_pair", PAIR_US), ("u_hand", HAND_OFF_US), ("u_renew", RENEW_US), ("u_aof", AOF_US)]
        {
            let (whole, exact) = (format!("{figure:.0}"), format!("{figure:.1}"));
            let row = |figure: &str| format!("| {name} | {figure} µs |");
            assert!(page.contains(&row(&whole)) || page.contains(&row(&exact)), "{name}");
        }
        assert!(page.contains(&format!("R × {RECORDS} bytes")));
    }

    #[test]
    fn what_exceeds_a_limit_is_noted() {
        assert!(needs(EXAMPLE).0.notes.is_empty());
        assert!(needs("--processes 9968").0.notes.is_empty());
        for (words, note) in [
            ("--processes 9969", "set maxclients to 10001"),
            ("--rate 40000 --no-request-ids", "the processor"),
            ("--rate 8334", "request ids"),
            ("--held 1 --queued 1000000", "more than 1,000,000 holds and waiters"),
        ] {
            let (needs, text) = needs(words);
            let [only] = &needs.notes[..] else { panic!("{words}: {:?}", needs.notes) };
            assert!(only.starts_with(note), "{only}");
            assert!(text.ends_with(&format!("\nnote: {only}\n")), "{text}");
        }
        assert_eq!(needs("--fair 1000001 --blocked 0").0.notes.len(), 2);
    }

    #[test]
    fn programs_get_numbers() {
        let (needs, _) = needs(&format!("{EXAMPLE} --queued 500"));
        let json = needs.as_json();
        assert_eq!(json["connections"], 40);
        assert_eq!(json["memory-bytes"], 19_431_060);
        assert_eq!(json["memory"]["queued-waiters"], 211_000);
        assert_eq!(json["cpu-us"]["hand-offs"], 36_000.0);
        assert!((json["cpu-share"].as_f64().unwrap() - 0.0752).abs() < 1e-9);
        assert_eq!(json["records-bytes"], 1_113_000);
    }

    #[test]
    fn digits_are_in_groups_of_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
