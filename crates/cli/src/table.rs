//! Aligned columns, with nothing cut.

use std::io::{self, Write};

/// Minimum width of a column on a narrow screen.
const NARROWEST: usize = 6;

/// Rows under a heading. Columns are as wide as their widest cell.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// An empty table. A heading that begins with `>` aligns its column to the right.
    pub fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let names = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned());
        Self { rows: vec![names.collect()], right }
    }

    /// Adds a row with one cell per heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes the table, each line after `indent`.
    pub fn write(&self, out: &mut impl Write, indent: &str) -> io::Result<()> {
        for line in self.lines() {
            writeln!(out, "{indent}{line}")?;
        }
        Ok(())
    }

    /// The lines, the heading first, without spaces at their ends.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let widths = self.widths();
        self.rows.iter().map(move |row| self.line(row, &widths))
    }

    /// As [`Table::lines`], but at most `width` wide: the widest columns shrink, and shortened cells are marked.
    pub fn lines_within(&self, width: usize) -> Vec<String> {
        let mut widths = self.widths();
        let gaps = 2 * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROWEST) else {
                break;
            };
            *widest -= 1;
        }
        self.rows.iter().map(|row| fit(&self.line(row, &widths), width)).collect()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |cell: &String| cell.chars().count();
        let widest = |at| self.rows.iter().filter_map(|row| row.get(at)).map(width).max();
        (0..self.right.len()).map(|at| widest(at).unwrap_or(0)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (at, ((cell, &width), &right)) in row.iter().zip(widths).zip(&self.right).enumerate() {
            if at > 0 {
                line.push_str("  ");
            }
            let cell = fit(cell, width);
            let padding = " ".repeat(width - cell.chars().count());
            let (before, after) =
                if right { (padding.as_str(), "") } else { ("", padding.as_str()) };
            line.push_str(before);
            line.push_str(&cell);
            line.push_str(after);
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// `text` in at most `width` columns; a cut is marked.
pub fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…'].into_iter().take(width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let mut table = Table::new(&["KEY", ">WAITERS", "LABEL"]);
        table.row(["orders:7", "12", ""].map(str::to_owned));
        table.row(["a", "3", "night"].map(str::to_owned));
        let lines: Vec<String> = table.lines().collect();
        assert_eq!(
            lines,
            ["KEY       WAITERS  LABEL", "orders:7       12", "a               3  night"]
        );
    }

    #[test]
    fn cuts_are_marked() {
        assert_eq!(["abc", "abcd", ""].map(|text| fit(text, 3)), ["abc", "ab…", ""]);
        assert_eq!(fit("abc", 0), "");
        let mut table = Table::new(&["KEY", ">N"]);
        table.row(["abcdefghijkl".to_owned(), "12".to_owned()]);
        assert_eq!(table.lines_within(16), ["KEY            N", "abcdefghijkl  12"]);
        assert_eq!(table.lines_within(12), ["KEY        N", "abcdefg…  12"]);
        assert_eq!(table.lines_within(5), ["KEY …", "abcd…"].map(str::to_owned));
    }
}
