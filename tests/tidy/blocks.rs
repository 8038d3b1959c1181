//! Code blocks of the documentation: each of docs/clients.md is run by scripts/doc-blocks, or says that it is not.

use super::{File, files};

/// What scripts/doc-blocks can run.
const LANGUAGES: [&str; 6] = ["python", "js", "ruby", "php", "c", "sh"];

struct Block<'a> {
    file: &'a File,
    line: usize,
    language: &'a str,
    marks: Vec<&'a str>,
    /// The heading of the chapter, and its text up to the block.
    chapter: &'a str,
}

impl Block<'_> {
    fn place(&self) -> String {
        format!("{}:{}", self.file.path, self.line)
    }

    fn has(&self, mark: &str) -> bool {
        self.marks.contains(&mark)
    }
}

fn blocks(file: &File) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut is_inside = false;
    let (mut at, mut chapter) = (0, 0);
    for (number, line) in file.text.lines().enumerate() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            if !is_inside {
                let mut words = info.split_whitespace();
                blocks.push(Block {
                    file,
                    line: number + 1,
                    language: words.next().unwrap_or_default(),
                    marks: words.collect(),
                    chapter: &file.text[chapter..at],
                });
            }
            is_inside = !is_inside;
        } else if !is_inside && line.starts_with("## ") {
            chapter = at;
        }
        at += line.len() + 1;
    }
    assert!(!is_inside, "{}: the last block has no end", file.path);
    blocks
}

fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".md"))
}

#[test]
fn blocks_of_clients_are_run_or_say_that_they_are_not() {
    let files = files();
    let mut count = 0;
    for block in pages(&files).flat_map(blocks) {
        let place = block.place();
        if block.has("run") {
            assert!(
                LANGUAGES.contains(&block.language),
                "{place}: no way to run {}",
                block.language
            );
        } else if block.has("not-run") {
            let says = ["Not run:", "Not run by the tests:"];
            let is_said = says.iter().any(|words| block.chapter.contains(words));
            assert!(is_said, "{place}: the chapter does not say why the block is not run");
        } else if block.file.path == "docs/clients.md" {
            let is_text = ["output", "text"].contains(&block.language);
            assert!(is_text, "{place}: neither `run` nor `not-run` follows the language");
            continue;
        }
        count += usize::from(block.file.path == "docs/clients.md");
    }
    assert!(count >= 11, "{count} blocks in docs/clients.md: one for each client");
}

#[test]
fn output_follows_each_block_that_is_run() {
    let files = files();
    for page in pages(&files) {
        let blocks = blocks(page);
        for (n, block) in blocks.iter().enumerate().filter(|(_, block)| block.has("run")) {
            let is_output = blocks.get(n + 1).is_some_and(|next| next.language == "output");
            assert!(is_output, "{}: no block of output follows", block.place());
        }
    }
}

/// Versions that scripts/doc-blocks installs: the page has to name them.
#[test]
fn clients_name_the_versions_that_are_run() {
    let files = files();
    let text = |path: &str| &files.iter().find(|file| file.path == path).expect("the file").text;
    let page = text("docs/clients.md");
    let pins = text("scripts/doc-blocks").lines().find(|line| line.starts_with("PYTHON, NPM = "));
    let versions: Vec<&str> = pins
        .expect("the versions")
        .split('"')
        .skip(1)
        .step_by(2)
        .map(|pin| pin.rsplit(['=', '@']).next().unwrap_or_default())
        .collect();
    assert_eq!(versions.len(), 3);
    for version in versions {
        assert!(page.contains(&format!(") {version} |")), "docs/clients.md: a row for {version}");
    }
}

#[test]
fn packages_and_images_are_named_with_this_version() {
    let files = files();
    let version = env!("CARGO_PKG_VERSION");
    for (path, names) in [
        (
            "README.md",
            vec![format!("redis-dlock_{version}_amd64.deb"), format!("/dlock_{version}_amd64.deb")],
        ),
        ("contrib/kubernetes/sentinel.yml", vec![format!("valkey-dlock:{version}")]),
        ("contrib/kubernetes/singleton.yml", vec![format!("valkey-dlock:{version}")]),
        ("docs/operations.md", vec![format!("dlock {version} is ready on ")]),
        ("fuzz/Cargo.lock", vec![format!("name = \"dlock-core\"\nversion = \"{version}\"")]),
    ] {
        let text = &files.iter().find(|file| file.path == path).expect("the file").text;
        for name in names {
            assert!(text.contains(&name), "{path} does not name {name}");
        }
    }
}
