//! The public API of the crates that applications depend on, as a text that a change has to change with it.
//!
//! The text has every `pub` item of the source, also those of private modules, as it is written there. Arguments of
//! macros that write items are not in it.

use std::{env, fs, path::Path};

use super::{File, files};

const CRATES: [&str; 5] = ["wire", "client", "admin", "quorum", "testing-server"];

/// Whether an item, as far as it has been read, ends there: where its body begins, or after its body where that is part
/// of the API.
fn is_complete(item: &str) -> bool {
    let count = |c: char| item.matches(c).count();
    let has_public_body =
        ["pub enum ", "pub trait ", "pub use "].iter().any(|kind| item.starts_with(kind));
    if has_public_body {
        return item.ends_with(['}', ';']) && count('{') == count('}');
    }
    item.ends_with(['{', '}', ';', ',']) && count('(') == count(')')
}

/// The `pub` items of a file, without comments and attributes.
fn items(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !line.starts_with("//") && !line.starts_with("#[");
    let mut lines = text.lines().map(str::trim).filter(is_code);
    let mut items = Vec::new();
    while let Some(line) = lines.next() {
        if !line.starts_with("pub ") {
            continue;
        }
        let mut item = line.to_owned();
        while !is_complete(&item) {
            let Some(more) = lines.next() else { break };
            item = format!("{item} {more}");
        }
        items.push(item.trim_end_matches(['{', ' ', ',', ';']).to_owned());
    }
    items
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn api_of(name: &str, files: &[File]) -> String {
    let folder = format!("crates/{name}/src/");
    let mut api = String::new();
    for file in files {
        let Some(path) = file.path.strip_prefix(&folder) else { continue };
        if !file.is_rust() || is_test(&file.path) {
            continue;
        }
        for item in items(&file.text) {
            api.extend([path, ": ", &item, "\n"]);
        }
    }
    api
}

#[test]
fn the_public_api_is_the_agreed_one() {
    let files = files();
    for name in CRATES {
        let found = api_of(name, &files);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crates/{name}/api.txt"));
        if env::var_os("DLOCK_BLESS").is_some() {
            fs::write(&path, &found).unwrap();
        }
        let agreed = fs::read_to_string(&path).unwrap_or_default();
        let (old, new): (Vec<_>, Vec<_>) = (agreed.lines().collect(), found.lines().collect());
        let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
        let added = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
        let changes: Vec<_> = gone.chain(added).collect();
        assert!(
            agreed == found,
            "the public API of dlock-{name} has changed; if that is meant, run \
             DLOCK_BLESS=1 cargo test -p dlock --test tidy api, and note it in CHANGELOG.md:\n{}",
            changes.join("\n")
        );
    }
}

/// Another major version of redis-rs must break no application that does not use it with this client.
#[test]
fn types_of_redis_convert_only_behind_the_feature() {
    let of_redis = |line: &str| line.starts_with("impl From<redis::");
    let mut checked = 0;
    for file in files().iter().filter(|file| file.path.starts_with("crates/client/src/")) {
        let lines: Vec<&str> = file.text.lines().collect();
        for pair in lines.windows(2).filter(|pair| of_redis(pair[1])) {
            assert_eq!(pair[0], "#[cfg(feature = \"redis\")]", "{}: {}", file.path, pair[1]);
            checked += 1;
        }
    }
    assert!(checked > 0, "found none to check");
}

#[test]
fn an_item_of_several_lines_is_one_line() {
    let text = "pub fn a(\n    b: u8,\n    c: u8,\n) -> u8 {\n    1\n}\npub(crate) fn hidden() {}\n    pub d: u8,\n\
                pub use a::{\n    b,\n};\npub enum E {\n    /// A.\n    A,\n    B { b: u8 },\n}\n";
    let expected = [
        "pub fn a( b: u8, c: u8, ) -> u8",
        "pub d: u8",
        "pub use a::{ b, }",
        "pub enum E { A, B { b: u8 }, }",
    ];
    assert_eq!(items(text), expected);
}
