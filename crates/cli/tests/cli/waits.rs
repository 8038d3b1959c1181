//! `dlock why` and `dlock graph`

use dlock_testing::{Blocked, Reply as _, Server, args, wait_until};
use serde_json::{Value, json};

use crate::command::{output, stdout};

/// Each owner holds its key and waits for that of the one before. The first one runs.
fn chain(server: &Server, owners: &[&str]) -> Vec<Blocked> {
    for owner in owners {
        server.cmd(&["DLOCK.ACQUIRE", &format!("of-{owner}"), owner, "PX", "600000"]).ok();
    }
    let wait = |pair: &[&str]| {
        server.block(&["DLOCK.ACQUIRE", &format!("of-{}", pair[0]), pair[1], "BLOCK", "0"])
    };
    owners.windows(2).map(wait).collect()
}

/// The lines, without times.
fn lines(text: &str) -> Vec<String> {
    let plain = |line: &str| {
        let words = line.split(", for ").next().unwrap_or_default();
        words
            .split(" for ")
            .take(if words.contains("waits for") { 2 } else { 1 })
            .collect::<Vec<_>>()
            .join(" for ")
    };
    text.lines().map(plain).collect()
}

#[test]
fn why_follows_the_chain_to_its_end() {
    let server = Server::start();
    let blocked = chain(&server, &["a", "b", "c", "d", "e"]);
    let text = stdout(&server, &["why", "e"]);
    assert_eq!(
        lines(&text),
        [
            "e waits for of-d (dlock), place 1",
            "  held by d",
            "  d waits for of-c (dlock), place 1",
            "    held by c",
            "    c waits for of-b (dlock), place 1",
            "      held by b",
            "      b waits for of-a (dlock), place 1",
            "        held by a",
            "        a waits for nothing: it runs",
        ],
        "{text}"
    );
    let json: Value =
        serde_json::from_str(&stdout(&server, &["why", "c", "--json"])).expect("JSON");
    assert_eq!((&json["running"], &json["complete"]), (&json!(["a"]), &json!(true)));
    assert_eq!(json["waits"].as_array().map(Vec::len), Some(2));
    let none = output(&server, &["why", "a"]);
    assert_eq!((none.code, none.stderr.as_str()), (1, "dlock: \"a\" waits for nothing\n"));
    server.cmd(&["DLOCK.ACQUIRE", "short", "a", "PX", "30"]).int();
    wait_until("the end of the lease", || server.cmd(&["EXISTS", "short"]).int() == 0);
    let lost = output(&server, &["why", "a"]).stderr;
    assert!(lost.starts_with("dlock: \"a\" waits for nothing; it lost short at "), "{lost}");
    assert!(lost.ends_with(": expired (lease of 30 ms)\n"), "{lost}");
    drop(blocked);
    server.cmd(&["FLUSHALL"]).ok();
}

#[test]
fn why_names_a_cycle() {
    let server = Server::with(&["dlock.deadlock-detection", "no"]).start();
    let _blocked = chain(&server, &["a", "b"]);
    let _last = server.block(&["DLOCK.ACQUIRE", "of-b", "a", "BLOCK", "0"]);
    let text = stdout(&server, &["why", "a"]);
    assert!(text.ends_with("a cycle: a -> of-b -> b -> of-a -> a\n"), "{text}");
    let graph = stdout(&server, &["graph"]);
    assert_eq!(graph.matches("color=\"#c00000\", fontcolor").count(), 4, "{graph}");
    server.cmd(&["FLUSHALL"]).ok();
}

#[test]
fn every_family_and_every_holder() {
    let server = Server::start();
    for owner in ["r1", "r2"] {
        server.cmd(&["DRW.ACQUIRE", "page", owner, "READ", "PX", "600000"]).ok();
    }
    let _writer = server.block(&["DRW.ACQUIRE", "page", "w", "WRITE", "BLOCK", "0"]);
    server.cmd(&["DSEM.ACQUIRE", "sem", "w", "LIMIT", "1", "PX", "600000"]).ok();
    let _permit = server.block(&["DSEM.ACQUIRE", "sem", "s", "BLOCK", "0"]);
    server.cmd(&["DFAIR.ACQUIRE", "fair", "s", "PX", "600000"]).ok();
    let _fair = server.block(&["DFAIR.ACQUIRE", "fair", "f", "BLOCK", "0"]);
    server.cmd(&["DLATCH.INIT", "latch", "2"]).ok();
    let latch = server.block(&["DLATCH.AWAIT", "latch", "BLOCK", "0"]);
    let text = stdout(&server, &["why", "f"]);
    assert_eq!(
        lines(&text),
        [
            "f waits for fair (dfair), place 1",
            "  held by s",
            "  s waits for sem (dsem), place 1",
            "    held by w",
            "    w waits for page (drw), place 1",
            "      held by r1 (read)",
            "      r1 waits for nothing: it runs",
            "      held by r2 (read)",
            "      r2 waits for nothing: it runs",
        ],
        "{text}"
    );
    let graph: Value = serde_json::from_str(&stdout(&server, &["graph", "--json"])).expect("JSON");
    let wait = |key: &str| {
        graph["waits"]
            .as_array()
            .and_then(|waits| waits.iter().find(|wait| wait["key"] == key))
            .cloned()
    };
    assert_eq!(wait("latch").expect("a wait")["owner"], json!({ "client-id": latch.id() }));
    assert_eq!(wait("page").expect("a wait")["owner"], "w");
    assert_eq!(graph["holds"].as_array().map(Vec::len), Some(4));
    let dot = stdout(&server, &["graph"]);
    assert!(dot.contains(&format!("label=\"client {}\"", latch.id())), "{dot}");
    server.cmd(&["FLUSHALL"]).ok();
}

#[test]
fn a_place_behind_those_that_are_read_is_found() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder", "PX", "600000"]).ok();
    let mut client = server.client();
    let calls: Vec<_> = (1..=1100)
        .map(|n| args!["DLOCK.ACQUIRE", "k", format!("o{n}"), "QUEUE", "60000"])
        .collect();
    client.pipeline(&calls);
    let text = stdout(&server, &["why", "o1050"]);
    assert!(text.starts_with("o1050 waits for k (dlock), place 1050\n"), "{text}");
    let none = output(&server, &["why", "zoe"]);
    assert_eq!(none.stderr, "dlock: \"zoe\" waits for nothing (not all waiters could be read)\n");
    let dot = stdout(&server, &["graph"]);
    assert!(
        dot.contains("1090 more waiters") && dot.contains("not all waiters could be read"),
        "{dot}"
    );
    server.cmd(&["FLUSHALL"]).ok();
}

#[test]
fn nobody_waits() {
    let server = Server::start();
    let graph = output(&server, &["graph"]);
    assert_eq!((graph.code, graph.stderr.as_str()), (0, "dlock: nobody waits\n"));
    assert!(graph.stdout.starts_with("digraph dlock {\n") && graph.stdout.ends_with("}\n"));
}
