//! Rules about the source that the compiler does not check.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Every source file under a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Code that depends on the text of an error, in a source without its tests, comments and white space.
fn decisions_by_text(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code: String = lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
    let texts = ["text()", "detail()", "to_string()", "message()"];
    let looks = [
        "contains(",
        "starts_with(",
        "ends_with(",
        "find(",
        "strip_prefix(",
        "split",
        "eq(",
        "matches(",
    ];
    let mut found = Vec::new();
    for text in texts {
        for (at, _) in code.match_indices(&format!("error.{text}")) {
            let rest = &code[at + "error.".len() + text.len()..];
            let rest = rest.strip_prefix(".unwrap_or_default()").unwrap_or(rest);
            let is_look = rest
                .strip_prefix('.')
                .is_some_and(|call| looks.iter().any(|look| call.starts_with(look)));
            let is_compared = rest.starts_with("==") || rest.starts_with("!=");
            let is_matched = code[..at].ends_with("match");
            if is_look || is_compared || is_matched {
                found.push(code[at..].chars().take(60).collect());
            }
        }
    }
    found
}

/// Error texts are for people. A program uses the code: the client the first word of a reply, the command the kind of
/// the client's error.
#[test]
fn client_and_command_decide_by_codes_not_by_texts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for part in ["crates/client/src", "crates/cli/src"] {
        sources(&root.join(part), &mut files);
    }
    assert!(files.len() > 40, "{} files", files.len());
    let found = files.iter().flat_map(|path| {
        let source = fs::read_to_string(path).unwrap();
        decisions_by_text(&source)
            .into_iter()
            .map(move |text| format!("{}: {text}", path.display()))
    });
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_decision_by_text_is_seen() {
    for bad in [
        "if error.text().contains(\"x\") {}",
        "let is = error\n    .text() == \"x\";",
        "match error.to_string() {}",
        "error.detail().unwrap_or_default().starts_with(\"x\")",
    ] {
        assert_eq!(decisions_by_text(bad).len(), 1, "{bad}");
    }
    for good in ["format!(\"{error}\")", "error.text().to_owned()", "// error.text().contains"] {
        assert!(decisions_by_text(good).is_empty(), "{good}");
    }
}
