//! The tests that docs/guarantees.md names exist, and every promise names one or says that there is none.

use super::{File, files};

const PAGE: &str = "docs/guarantees.md";

/// What a row without a test says.
const NO_TEST: &str = "**no test**";

/// The rows of the tables after a heading, up to the next one of its kind.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let part = rest.split("\n## ").next().unwrap_or_default();
    let is_row = |line: &&str| {
        line.starts_with("| ") && !line.starts_with("| promise |") && !line.starts_with("| not pro")
    };
    part.lines().filter(is_row).collect()
}

/// The tests in a text, as path and name.
fn named(text: &str) -> Vec<(&str, &str)> {
    text.split('`').filter_map(|word| word.split_once(".rs::")).collect()
}

/// Whether a file has a function `name` that is a test: by its attribute, or in the list of a macro.
fn has_test(file: &File, name: &str) -> bool {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let starts = [format!("fn {name}("), format!("async fn {name}(")];
    let Some(at) = lines.iter().position(|line| starts.iter().any(|fn_| line.starts_with(fn_)))
    else {
        return false;
    };
    let above = lines[..at].iter().rev();
    let mut above = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    above.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
        || lines.contains(&name)
}

/// What is wrong with the tests that a page names.
fn mistakes(page: &str, files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, name) in named(page) {
        let path = format!("{path}.rs");
        match files.iter().find(|file| file.path == path) {
            None => wrong.push(format!("no file {path}")),
            Some(file) if !has_test(file, name) => wrong.push(format!("no test {name} in {path}")),
            Some(_) => {}
        }
    }
    wrong
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let files = files();
    let page = &files.iter().find(|file| file.path == PAGE).expect("the page").text;
    let wrong = mistakes(page, &files);
    assert!(wrong.is_empty(), "{PAGE}:\n{}", wrong.join("\n"));

    let (promised, not_promised) = (rows(page, "Promised"), rows(page, "Not promised"));
    for row in promised.iter().chain(&not_promised) {
        assert!(
            !named(row).is_empty() || row.contains(NO_TEST),
            "{PAGE}: no test, unmarked: {row}"
        );
    }
    let untested = |rows: &[&str]| rows.iter().filter(|row| row.contains(NO_TEST)).count();
    let numbers = [
        format!("{} promises, {} of them without", promised.len(), untested(&promised)),
        format!(
            "{} things that are not promised, {} of",
            not_promised.len(),
            untested(&not_promised)
        ),
    ];
    let text = page.replace('\n', " ");
    for number in numbers {
        assert!(text.contains(&number), "{PAGE} says: {number}");
    }
}

#[test]
fn a_missing_test_is_seen() {
    let file = File {
        path: "tests/a.rs".to_owned(),
        text: "macro! {\n    listed\n}\nfn listed() {}\n/// Why.\n#[test]\nfn real() {}\nfn helper() {}\n"
            .to_owned(),
    };
    let page =
        "`tests/a.rs::real` `tests/a.rs::listed` `tests/a.rs::helper` `tests/a.rs::gone` `b.rs::c`";
    let expected = ["no test helper in tests/a.rs", "no test gone in tests/a.rs", "no file b.rs"];
    assert_eq!(mistakes(page, &[file]), expected);
}
