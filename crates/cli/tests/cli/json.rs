//! `--json` prints one JSON value, whatever happens.

use std::collections::BTreeSet;

use dlock_testing::{Reply as _, Server};
use serde_json::Value;

use crate::command::{Output, output, stdout};

/// A subcommand, with the arguments of a call that succeeds and of one that finds nothing or is refused.
struct Row {
    name: &'static str,
    good: &'static [&'static str],
    bad: &'static [&'static str],
    bad_code: i32,
}

const ROWS: &[Row] = &[
    Row { name: "ls", good: &[], bad: &["--nonsense"], bad_code: 64 },
    Row { name: "info", good: &["door"], bad: &["none"], bad_code: 1 },
    Row { name: "waiters", good: &["door"], bad: &["text"], bad_code: 69 },
    Row { name: "break", good: &["wall"], bad: &["none"], bad_code: 1 },
    Row { name: "watch", good: &["door", "--count", "1"], bad: &["text"], bad_code: 69 },
    Row { name: "why", good: &["bob"], bad: &["zoe"], bad_code: 1 },
    Row { name: "graph", good: &[], bad: &["--nonsense"], bad_code: 64 },
    Row { name: "log", good: &[], bad: &["--count", "0"], bad_code: 64 },
    Row { name: "ping", good: &[], bad: &["extra"], bad_code: 64 },
    // Last: it ends the wait.
    Row { name: "unblock", good: &["{client}"], bad: &["999999"], bad_code: 1 },
];

/// Subcommands without `--json`, and those whose output has a format of its own.
const OTHERS: &[&str] = &["run", "top", "completions", "man", "help", "metrics", "exporter"];

/// Those that connect to no server. `dev` is tested in `dev.rs`.
const WITHOUT_SERVER: &[&str] = &["dev"];

/// Those that succeed only with servers of certain settings: tested in `doctor.rs`.
const WITH_SETTINGS: &[&str] = &["doctor"];

/// The names in the list of subcommands of `dlock --help`.
fn subcommands(server: &Server) -> BTreeSet<String> {
    let help = stdout(server, &["--help"]);
    let list = help.split("Commands:\n").nth(1).expect("a list");
    let rows = list.lines().take_while(|line| !line.is_empty());
    let names =
        rows.filter(|line| !line.starts_with("   ")).map(|line| line.split_whitespace().next());
    names.map(|name| name.expect("a name").to_owned()).collect()
}

/// Checks that stdout is one JSON value; of an error, that it says so.
#[track_caller]
pub fn one_value(output: &Output, code: i32) -> Value {
    assert_eq!(output.code, code, "{output:?}");
    let value: Value =
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    if code == 0 {
        assert_eq!(output.stderr, "", "{output:?}");
        return value;
    }
    assert_eq!(value["exit-code"], code, "{value}");
    let text = value["error"].as_str().expect("a text");
    assert_eq!(output.stderr, format!("dlock: {text}\n"));
    value
}

#[test]
fn each_subcommand_prints_one_value_in_every_case() {
    let server = Server::start();
    for key in ["door", "wall"] {
        server.cmd(&["DLOCK.ACQUIRE", key, "alice", "PX", "600000"]).ok();
    }
    server.cmd(&["SET", "text", "1"]).ok();
    let waiter = server.block(&["DLOCK.ACQUIRE", "door", "bob", "BLOCK", "0"]);
    let client = waiter.id().to_string();
    for Row { name, good, bad, bad_code } in ROWS {
        let call = |url: &str, words: &[&'static str]| {
            let words = words.iter().map(|&word| if word == "{client}" { &client } else { word });
            let args: Vec<&str> = ["--url", url, name, "--json"].into_iter().chain(words).collect();
            output(&server, &args)
        };
        one_value(&call(&server.url(), good), 0);
        one_value(&call(&server.url(), bad), *bad_code);
        let refused = one_value(&call("redis://127.0.0.1:1", good), 69);
        assert!(
            refused["error"].as_str().is_some_and(|text| text.starts_with("cannot connect to "))
        );
        one_value(&call("nonsense", good), 64);
    }
    server.cmd(&["DEL", "door"]).ok();
}

#[test]
fn no_subcommand_is_left_out() {
    let server = Server::start();
    let others = OTHERS.iter().chain(WITHOUT_SERVER).chain(WITH_SETTINGS).copied();
    let known = ROWS.iter().map(|row| row.name).chain(others);
    let known: BTreeSet<String> = known.map(str::to_owned).collect();
    let found = subcommands(&server);
    assert!(
        found.len() > 5 && found.is_subset(&known),
        "not tested: {:?}",
        found.difference(&known)
    );
    for name in OTHERS.iter().filter(|name| found.contains(**name)) {
        let help = stdout(&server, &["help", name]);
        assert!(!help.contains("--json"), "{name} has --json, and is not tested");
    }
}

#[test]
fn what_was_found_comes_with_the_error() {
    let server = Server::start();
    let broken = one_value(&output(&server, &["break", "--json", "none"]), 1);
    assert_eq!(broken["broken"], 0);
    let unblocked = one_value(&output(&server, &["unblock", "--json", "999999"]), 1);
    assert_eq!(unblocked["unblocked"], false);
}
