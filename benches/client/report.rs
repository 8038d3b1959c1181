//! Tables, on the terminal and in the documentation.

use std::{fmt::Write as _, fs, path::Path};

use crate::stats::{Sample, digits};

/// The table of one part.
#[derive(Debug)]
pub struct Table {
    title: String,
    /// The method, in full sentences.
    how: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: String, how: String, columns: &[&str]) -> Table {
        let head = std::iter::once("").chain(columns.iter().copied()).map(str::to_owned).collect();
        Table { title, how, rows: vec![head] }
    }

    /// Adds a row with one cell per column.
    pub fn row(&mut self, what: &str, cells: Vec<String>) {
        assert_eq!(cells.len() + 1, self.rows[0].len(), "a cell for each column");
        self.rows.push(std::iter::once(what.to_owned()).chain(cells).collect());
    }

    /// The text for a terminal.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut out = format!("{}\n", self.title);
        for row in &self.rows {
            let mut line = String::from("  ");
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:width$}  ");
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out + "  " + &self.how
    }

    fn markdown(&self) -> String {
        let mut out = format!("### {}\n\n", self.title);
        for (n, row) in self.rows.iter().enumerate() {
            let _ = writeln!(out, "| {} |", row.join(" | "));
            if n == 0 {
                let _ = writeln!(out, "|{}", "---|".repeat(row.len()));
            }
        }
        format!("{out}\n{}\n", self.how)
    }
}

/// Compares a number with a goal: at least `aim`.
pub fn at_least(number: f64, aim: f64) -> String {
    verdict("≥", aim, (number < aim).then_some((1.0 - number / aim) * 100.0))
}

/// Compares a number with a goal: at most `aim`.
pub fn at_most(number: f64, aim: f64) -> String {
    verdict("≤", aim, (number > aim).then_some((number / aim - 1.0) * 100.0))
}

fn verdict(sign: &str, aim: f64, missed_by: Option<f64>) -> String {
    match missed_by {
        None => format!("{sign} {aim}: met"),
        Some(percent) => format!("{sign} {aim}: missed by {percent:.0} %"),
    }
}

/// A ratio with its spread.
pub fn ratio(sample: &Sample) -> String {
    let (low, high) = (sample.percentile(10.0), sample.percentile(90.0));
    format!("× {} ({}–{})", digits(sample.median()), digits(low), digits(high))
}

/// A time, given in microseconds.
pub fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} µs", digits(us)),
        us if us < 1e6 => format!("{} ms", digits(us / 1e3)),
        us => format!("{} s", digits(us / 1e6)),
    }
}

const BEGIN: &str = "<!-- client tables: written by `cargo bench --bench client -- --markdown` -->";
const END: &str = "<!-- end of client tables -->";

/// Writes the tables to docs/performance.md: between their two marks, or in a new section at the end.
pub fn write_markdown(about: &str, tables: &[Table]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/performance.md");
    let text = fs::read_to_string(&path).expect("docs/performance.md");
    let tables: Vec<String> = tables.iter().map(Table::markdown).collect();
    let section = format!("{BEGIN}\n\nMeasured on: {about}.\n\n{}\n{END}", tables.join("\n"));
    let new = match text.split_once(BEGIN) {
        Some((before, rest)) => {
            let (_, after) = rest.split_once(END).expect("the mark where the tables end");
            format!("{before}{section}{after}")
        }
        None => format!("{}\n\n## The Rust client\n\n{section}\n", text.trim_end()),
    };
    fs::write(&path, new).expect("docs/performance.md can be written");
    println!("\nwritten to {}", path.display());
}
