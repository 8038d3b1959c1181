//! Figures of README.md that stand in a table of the benchmarks: the same number, rounded.

use super::files;

/// A text of README.md, the row of benches/README.md with its figure, the unit there, what one of it is in the unit of
/// the text, and the digits after the point.
const FIGURES: [(&str, &str, &str, f64, usize); 3] = [
    ("a hand-off of a fair lock takes {} µs;", "| DFAIR, 10000 waiters: time |", "µs", 1.0, 0),
    ("the usual Lua scripts take {} ms", "| recipe, 10000 waiters: time |", "µs", 0.001, 1),
    (
        "An expired lease is handed over {} ms late (median;",
        "| DLOCK, expiry to next holder, at the client |",
        "ms",
        1.0,
        1,
    ),
];

/// The first figure of the row that begins like this.
fn measured(tables: &str, row: &str, unit: &str) -> f64 {
    let mut rows = tables.lines().filter_map(|line| line.strip_prefix(row));
    let cells = rows.next().unwrap_or_else(|| panic!("benches/README.md has a row {row}"));
    assert!(rows.next().is_none(), "benches/README.md has one row {row}");
    let (figure, rest) = cells.trim_start().split_once(' ').expect("a figure and its unit");
    assert!(rest.starts_with(unit), "{row} {figure} is in {unit}");
    figure.parse().expect("a number")
}

#[test]
fn figures_of_the_readme_are_those_of_the_tables() {
    let files = files();
    let text = |path: &str| &files.iter().find(|file| file.path == path).expect("the file").text;
    let tables = text("benches/README.md");
    let words: Vec<&str> = text("README.md").split_whitespace().collect();
    let readme = words.join(" ");
    for (sentence, row, unit, factor, digits) in FIGURES {
        let figure = measured(tables, row, unit) * factor;
        let sentence = sentence.replace("{}", &format!("{figure:.digits$}"));
        assert!(readme.contains(&sentence), "README.md says, by {row}: {sentence}");
    }
}
