//! Figures that pages repeat: those of README.md are in the tables of the benchmarks, and the oldest compilers of
//! docs/policy.md in the manifests.

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

/// The first figure of the only row that begins like this.
fn measured(tables: &str, row: &str, unit: &str) -> Option<f64> {
    let mut rows = tables.lines().filter_map(|line| line.strip_prefix(row));
    let (cells, other) = (rows.next()?, rows.next());
    let (figure, rest) = cells.trim_start().split_once(' ')?;
    if other.is_some() || !rest.starts_with(unit) {
        return None;
    }
    figure.parse().ok()
}

#[test]
fn figures_of_the_readme_are_those_of_the_tables() {
    let files = files();
    let text = |path: &str| &files.iter().find(|file| file.path == path).expect("the file").text;
    let tables = text("benches/README.md");
    let words: Vec<&str> = text("README.md").split_whitespace().collect();
    let readme = words.join(" ");
    for (sentence, row, unit, factor, digits) in FIGURES {
        let figure =
            measured(tables, row, unit).expect("one row of benches/README.md, in its unit");
        let sentence = sentence.replace("{}", &format!("{:.digits$}", figure * factor));
        assert!(readme.contains(&sentence), "README.md says, by {row}: {sentence}");
    }
}

/// The value between quotes in the line that begins with `key = `.
fn declared<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    manifest.lines().find(|line| line.starts_with(key))?.split('"').nth(1)
}

#[test]
fn the_policy_names_the_oldest_compilers() {
    let files = files();
    let text = |path: &str| &files.iter().find(|file| file.path == path).expect("the file").text;
    let value = |path: &str, key: &str| declared(text(path), key).expect("a line with the version");
    let sentence = format!(
        "Rust {} for the module and the command, {} for `dlock-client`, {} for `dlock-wire`; Python {} ",
        value("Cargo.toml", "rust-version = "),
        value("crates/client/Cargo.toml", "rust-version = "),
        value("crates/wire/Cargo.toml", "rust-version = "),
        value("clients/python/pyproject.toml", "requires-python = ").trim_start_matches(">="),
    );
    let words: Vec<&str> = text("docs/policy.md").split_whitespace().collect();
    assert!(words.join(" ").contains(&sentence), "docs/policy.md says: {sentence}");
}
