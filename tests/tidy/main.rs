//! Checks of the repository's text: lengths of lines and files, hard phrases, tests that sleep, tuple parameters,
//! links, layers.
//!
//! A budget states how much of a defect is left. It may only become smaller: a test also fails when there is less
//! than the budget.

#![allow(clippy::unwrap_used, reason = "a check that cannot read the repository stops here")]
#![allow(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "our own files have lower-case names"
)]

mod api;
mod blocks;
mod budgets;
mod figures;
mod guarantees;
mod layers;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use self::budgets::{LONG_FILES, LONG_LINES, PHRASES, PHRASES_LEFT, SLEEPS, TUPLES};

const LINES_OF_A_FILE: usize = 450;
const CHARACTERS_OF_A_LINE: usize = 120;

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 10] = [
    "target",
    "dist",
    "node_modules",
    ".git",
    "corpus",
    "artifacts",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
];

struct File {
    /// Relative to the root, with slashes.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_source(&self) -> bool {
        self.is_rust() || [".py", ".ts", ".mjs"].iter().any(|end| self.path.ends_with(end))
    }

    /// Written by a program.
    fn is_generated(&self) -> bool {
        self.path == "docs/commands.md"
            || (self.path.starts_with("crates/") && self.path.ends_with("/api.txt"))
            || self.path.ends_with("Cargo.lock")
    }

    /// The path of the folder that budgets are about: a crate, or a folder of the root.
    fn room(&self) -> String {
        let parts: Vec<&str> = self.path.split('/').collect();
        match parts.as_slice() {
            ["crates", name, ..] => format!("crates/{name}"),
            [folder, _, ..] => (*folder).to_owned(),
            _ => "the root".to_owned(),
        }
    }
}

fn collect(root: &Path, folder: &Path, into: &mut Vec<File>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, into);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            into.push(File { path, text });
        }
    }
}

fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(root, root, &mut files);
    assert!(files.len() > 100, "the files of the repository");
    files
}

/// Compares what was found with the budgets; both by the same names.
fn compare(what: &str, found: &BTreeMap<String, usize>, budgets: &[(&str, usize)]) {
    let budget_of = |name: &str| budgets.iter().find(|(of, _)| *of == name).map_or(0, |(_, n)| *n);
    let mut wrong: Vec<String> = found
        .iter()
        .filter(|(name, count)| **count != budget_of(name))
        .map(|(name, count)| format!("{name}: {count}, budget {}", budget_of(name)))
        .collect();
    let is_gone = |(name, budget): &&(&str, usize)| *budget > 0 && !found.contains_key(*name);
    wrong.extend(budgets.iter().filter(is_gone).map(|(name, n)| format!("{name}: 0, budget {n}")));
    assert!(
        wrong.is_empty(),
        "{what} (correct what is new; if there is less than before, lower the budget in tests/tidy/budgets.rs):\n{}",
        wrong.join("\n")
    );
}

fn count(
    files: &[File],
    of: impl Fn(&File) -> usize,
    name: impl Fn(&File) -> String,
) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for file in files {
        let count = of(file);
        if count > 0 {
            *found.entry(name(file)).or_default() += count;
        }
    }
    found
}

/// How often `phrase` occurs in lower-case text as words of its own.
fn occurrences(text: &str, phrase: &str) -> usize {
    let is_word =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(phrase)
        .filter(|(at, _)| {
            let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
            !is_word(before) && !is_word(text.as_bytes().get(at + phrase.len()))
        })
        .count()
}

#[test]
fn hard_phrases_do_not_come_back() {
    let of = |file: &File| {
        if file.is_generated()
            || file.path.starts_with("tests/tidy/")
            || file.path == "CONTRIBUTING.md"
        {
            return 0;
        }
        let text = file.text.to_lowercase();
        PHRASES.iter().map(|phrase| occurrences(&text, phrase)).sum()
    };
    compare("hard phrases", &count(&files(), of, File::room), PHRASES_LEFT);
}

#[test]
fn files_are_short() {
    let of = |file: &File| {
        let lines = file.text.lines().count();
        if file.is_source() && lines > LINES_OF_A_FILE { lines } else { 0 }
    };
    // A long file may become shorter without a new budget, until it is no long file any more.
    let mut found = count(&files(), of, |file| file.path.clone());
    for (path, budget) in LONG_FILES {
        if let Some(lines) = found.get_mut(*path).filter(|lines| **lines < *budget) {
            *lines = *budget;
        }
    }
    compare("lines of long files", &found, LONG_FILES);
}

#[test]
fn no_merge_is_left_unfinished() {
    let of_merge = |line: &&str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
    let found = count(
        &files(),
        |file| file.text.lines().filter(of_merge).count(),
        |file| file.path.clone(),
    );
    compare("lines that a merge left", &found, &[]);
}

#[test]
fn lines_are_short() {
    // A literal, or a row of a table, has no place for a break.
    let is_row = |line: &str| {
        line.starts_with("//! |")
            || (line.contains(" => ") && line.starts_with(|first: char| first.is_ascii_digit()))
    };
    let is_whole = |line: &str| line.contains('"') || is_row(line.trim_start());
    let is_long = |line: &&str| line.chars().count() > CHARACTERS_OF_A_LINE && !is_whole(line);
    let of =
        |file: &File| if file.is_source() { file.text.lines().filter(is_long).count() } else { 0 };
    compare("long lines", &count(&files(), of, File::room), LONG_LINES);
}

#[test]
fn tests_wait_for_states_and_do_not_sleep() {
    let of =
        |file: &File| if file.is_rust() { file.text.matches("thread::sleep(").count() } else { 0 };
    let files: Vec<File> =
        files().into_iter().filter(|file| !file.path.starts_with("benches/")).collect();
    let not_here = |file: &&File| !file.path.starts_with("tests/tidy/");
    let found =
        count(&files, |file| if not_here(&file) { of(file) } else { 0 }, |file| file.path.clone());
    compare("calls of thread::sleep", &found, SLEEPS);
}

/// A tuple hides parameters from the reader, and from the lint that counts them.
#[test]
fn parameters_are_no_tuples() {
    let is_tuple = |line: &&str| {
        let line = line.trim_start();
        let parameter =
            line.split_once('(').filter(|(before, _)| before.is_empty() || before.contains("fn "));
        parameter.is_some_and(|(_, rest)| {
            let rest =
                rest.strip_prefix("&mut self, (").or(rest.strip_prefix("&self, (")).unwrap_or(rest);
            rest.split_once("): (").is_some_and(|(names, _)| {
                names.contains(", ")
                    && names.chars().all(|c| c.is_ascii_alphanumeric() || "_, ".contains(c))
            })
        })
    };
    let of = |file: &File| {
        let is_ours = file.path.starts_with("src/")
            || (file.path.starts_with("crates/") && file.path.contains("/src/"));
        if file.is_rust() && is_ours { file.text.lines().filter(is_tuple).count() } else { 0 }
    };
    compare("tuple parameters", &count(&files(), of, File::room), TUPLES);
}

#[test]
fn every_decision_is_in_the_index_with_its_title() {
    let files = files();
    let text = |path: &str| &files.iter().find(|file| file.path == path).expect("the file").text;
    let index = text("docs/decisions/README.md");
    for file in &files {
        let Some(name) =
            file.path.strip_prefix("docs/decisions/").filter(|name| *name != "README.md")
        else {
            continue;
        };
        let title =
            file.text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a title");
        let (number, title) = title.split_once(' ').expect("a number and a title");
        let row = format!("| [{number}]({name}) | {title} | ");
        assert!(index.contains(&row), "docs/decisions/README.md has a row that begins: {row}");
    }
}

/// Runs a script that checks the documentation.
fn passes(script: &str, arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join(script)).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{script}:\n{text}");
    text
}

/// Links between files of the repository, also to headings.
#[test]
fn links_lead_somewhere() {
    let counts = passes("scripts/links", &[]);
    let links: Option<usize> = counts.split(' ').next().and_then(|count| count.parse().ok());
    assert!(links.is_some_and(|links| links > 200), "{counts}");
    println!("{counts}");
}

#[test]
fn pictures_show_what_their_sources_say() {
    passes("scripts/pictures", &["--check"]);
}

/// A walk that names a function which is gone leads its reader nowhere.
#[test]
fn walks_name_functions_that_exist() {
    let files = files();
    let map = files.iter().find(|file| file.path == "ARCHITECTURE.md").expect("the map");
    let (_, walks) = map.text.split_once("## Five walks").expect("the section with the walks");
    let (walks, _) = walks.split_once("\n## ").expect("a section after it");
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut missing = Vec::new();
    let mut count = 0;
    for quoted in walks.split('`').skip(1).step_by(2) {
        let name = quoted.rsplit("::").next().unwrap_or_default();
        if quoted.contains("RM_") || !is_name(name) {
            continue;
        }
        count += 1;
        let (plain, generic) = (format!("fn {name}("), format!("fn {name}<"));
        let is_there = |file: &File| {
            file.is_rust() && (file.text.contains(&plain) || file.text.contains(&generic))
        };
        if !files.iter().any(is_there) {
            missing.push(quoted);
        }
    }
    assert!(count > 40, "only {count} functions are named");
    assert!(
        missing.is_empty(),
        "functions named in ARCHITECTURE.md that do not exist: {missing:?}"
    );
}
