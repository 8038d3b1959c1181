//! Aligned columns.

use std::io::{self, IsTerminal as _, Write};

use ratatui::crossterm::terminal;

/// Minimum width of a column on a narrow screen.
const NARROWEST: usize = 6;

/// Rows under a heading. Columns are as wide as their widest cell.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    columns: Vec<Column>,
}

/// How the cells of a column are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// Text; shortened where the screen is too narrow.
    Text,
    /// An id that users copy: whole.
    Id,
    /// A number: whole, aligned to the right.
    Number,
}

impl Table {
    /// An empty table. A heading begins with `>` if its column has numbers, and with `=` if it has ids.
    pub fn new(headings: &[&str]) -> Self {
        let column = |heading: &&str| match heading.as_bytes().first() {
            Some(b'>') => Column::Number,
            Some(b'=') => Column::Id,
            _ => Column::Text,
        };
        let names =
            headings.iter().map(|heading| heading.trim_start_matches(['>', '=']).to_owned());
        Self { rows: vec![names.collect()], columns: headings.iter().map(column).collect() }
    }

    /// Adds a row with one cell per heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes the table. On a terminal, text is shortened so that rows fit on lines.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let widths = match screen_width() {
            Some(width) => self.widths_within(width),
            None => self.widths(),
        };
        for row in &self.rows {
            writeln!(out, "{}", self.line(row, &widths))?;
        }
        Ok(())
    }

    /// The lines, the heading first, without spaces at their ends.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let widths = self.widths();
        self.rows.iter().map(move |row| self.line(row, &widths))
    }

    /// As [`Table::lines`], but at most `width` wide: the widest text shrinks first, and what is shortened is marked.
    pub fn lines_within(&self, width: usize) -> Vec<String> {
        let widths = self.widths_within(width);
        self.rows.iter().map(|row| fit(&self.line(row, &widths), width)).collect()
    }

    fn widths_within(&self, width: usize) -> Vec<usize> {
        let mut widths = self.widths();
        let gaps = 2 * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            let of_text =
                widths.iter_mut().zip(&self.columns).filter(|(_, column)| **column == Column::Text);
            let widest = of_text.map(|(width, _)| width).max();
            let Some(widest) = widest.filter(|widest| **widest > NARROWEST) else { break };
            *widest -= 1;
        }
        widths
    }

    fn widths(&self) -> Vec<usize> {
        let width = |cell: &String| cell.chars().count();
        let widest = |at| self.rows.iter().filter_map(|row| row.get(at)).map(width).max();
        (0..self.columns.len()).map(|at| widest(at).unwrap_or(0)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (at, ((cell, &width), column)) in row.iter().zip(widths).zip(&self.columns).enumerate()
        {
            if at > 0 {
                line.push_str("  ");
            }
            let cell = fit(cell, width);
            let padding = " ".repeat(width - cell.chars().count());
            let (before, after) = if *column == Column::Number {
                (padding.as_str(), "")
            } else {
                ("", padding.as_str())
            };
            line.push_str(before);
            line.push_str(&cell);
            line.push_str(after);
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The width of the terminal, if the output goes to one.
fn screen_width() -> Option<usize> {
    let width = terminal::size().ok().filter(|_| io::stdout().is_terminal());
    width.map(|(columns, _)| usize::from(columns)).filter(|&columns| columns > 0)
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

    #[test]
    fn numbers_and_ids_are_not_cut() {
        let mut table = Table::new(&["OWNER", "=PERMIT", ">TOKEN"]);
        table.row(["a".repeat(30), "4a3cbb2d-76ae".to_owned(), "1795263805398201".to_owned()]);
        let widths = table.widths_within(42);
        assert_eq!(widths, [9, 13, 16]);
        assert_eq!(table.widths_within(10), [NARROWEST, 13, 16]);
    }
}
