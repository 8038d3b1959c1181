//! Tables, on the terminal and in the documentation.

use std::{fmt::Write as _, fs, path::Path};

use crate::stats::{Sample, digits};

/// The table of one part.
#[derive(Debug)]
pub struct Table {
    title: &'static str,
    /// The method, in full sentences.
    how: String,
    rows: Vec<[String; 4]>,
}

impl Table {
    pub fn new(title: &'static str, how: String, columns: [&str; 2]) -> Table {
        let head = ["", columns[0], columns[1], "aim"].map(str::to_owned);
        Table { title, how, rows: vec![head] }
    }

    /// A row: name, value, comparison and goal.
    pub fn row(&mut self, what: &str, value: String, ratio: String, aim: String) {
        self.rows.push([what.to_owned(), value, ratio, aim]);
    }

    fn widths(&self) -> [usize; 4] {
        std::array::from_fn(|column| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        })
    }

    /// The text for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.title);
        let widths = self.widths();
        for row in &self.rows {
            let mut line = String::from("  ");
            for (cell, width) in row.iter().zip(widths) {
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
                out.push_str("|---|---|---|---|\n");
            }
        }
        format!("{out}\n{}\n", self.how)
    }
}

/// A goal and its result: the number must not exceed `aim`.
pub fn at_most(number: f64, aim: f64, unit: &str) -> String {
    let excess = (number / aim - 1.0) * 100.0;
    verdict("≤", aim, unit, (number > aim).then_some(excess))
}

/// A goal and its result: the number must not be below `aim`.
pub fn at_least(number: f64, aim: f64, unit: &str) -> String {
    let lack = (1.0 - number / aim) * 100.0;
    verdict("≥", aim, unit, (number < aim).then_some(lack))
}

fn verdict(sign: &str, aim: f64, unit: &str, missed_by: Option<f64>) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    match missed_by {
        None => format!("{sign} {aim}{unit}: met"),
        Some(percent) => format!("{sign} {aim}{unit}: missed by {percent:.0} %"),
    }
}

/// A ratio with its spread.
pub fn ratio(sample: &Sample) -> String {
    let (low, high) = (sample.percentile(10.0), sample.percentile(90.0));
    format!("× {} ({}–{})", digits(sample.median()), digits(low), digits(high))
}

const BEGIN: &str = "<!-- tables: written by `cargo bench -- --markdown` -->";
const END: &str = "<!-- end of tables -->";

/// Writes the tables to docs/performance.md, between its two marks.
pub fn write_markdown(about: &str, tables: &[Table]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/performance.md");
    let text = fs::read_to_string(&path).expect("docs/performance.md");
    let (before, rest) = text.split_once(BEGIN).expect("the mark where the tables begin");
    let (_, after) = rest.split_once(END).expect("the mark where the tables end");
    let tables: Vec<String> = tables.iter().map(Table::markdown).collect();
    let new =
        format!("{before}{BEGIN}\n\nMeasured on: {about}.\n\n{}\n{END}{after}", tables.join("\n"));
    fs::write(&path, new).expect("docs/performance.md can be written");
    println!("\nwritten to {}", path.display());
}
