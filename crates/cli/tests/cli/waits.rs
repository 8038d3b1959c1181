//! `dlock why` and `dlock graph`

use dlock_testing::{Blocked, Reply as _, Server, args, wait_until};
use serde_json::{Value, json};

use crate::command::{Output, output, stdout};

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

/// The page with the user `monitor`.
const HOSTED: &str = include_str!("../../../../docs/hosted.md");

/// The rules of `monitor`, with other key patterns.
fn monitor(keys: &'static str) -> Vec<&'static str> {
    let line = HOSTED.lines().find_map(|line| line.strip_prefix("user monitor "));
    let rules = line.expect("the user").split(' ').filter(|rule| !rule.starts_with(['~', '>']));
    ["ACL", "SETUSER", "monitor", "reset", ">secret"]
        .into_iter()
        .chain(keys.split(' '))
        .chain(rules)
        .collect()
}

#[test]
fn keys_that_the_user_may_not_read_are_counted() {
    let server = Server::start();
    let _chain = chain(&server, &["a", "b", "c"]);
    server.cmd(&["DFAIR.ACQUIRE", "fair", "a", "PX", "600000"]).ok();
    let _fair = server.block(&["DFAIR.ACQUIRE", "fair", "f", "BLOCK", "0"]);
    server.cmd(&["SET", "text", "1"]).ok();
    let url = format!("redis://monitor:secret@127.0.0.1:{}", server.port());
    let call = |args: &[&str]| output(&server, &[&["--url", &url], args].concat());
    for (keys, left_out, locks, waited) in
        [("~*", 1, 3, 2), ("~of-b ~fair", 3, 1, 1), ("~x", 4, 0, 0)]
    {
        server.cmd(&monitor(keys)).ok();
        let some = if left_out == 1 { "1 key" } else { &format!("{left_out} keys") };
        let line = format!("{some} left out, which the user may not read");
        let stderr = format!("dlock: {line}\n");
        let seen = |output: &Output| output.stdout.matches("of-").count();

        let list = call(&["ls"]);
        assert_eq!((list.code, seen(&list)), (0, locks), "{keys}: {list:?}");
        assert_eq!(list.stderr, stderr);
        let top = call(&["top"]);
        assert_eq!((top.code, seen(&top), top.stderr.as_str()), (0, locks, ""), "{top:?}");
        assert!(top.stdout.ends_with(&format!("{line}\n")), "{top:?}");
        let graph = call(&["graph", "--json"]);
        assert_eq!((graph.code, seen(&graph)), (0, 2 * waited), "{graph:?}");
        assert_eq!(graph.stderr, stderr);
        let json: Value = serde_json::from_str(&graph.stdout).expect("JSON");
        assert_eq!((&json["unreadable"], &json["complete"]), (&json!(left_out), &json!(false)));
        assert_eq!(call(&["graph"]).stderr, stderr);
        let why = call(&["why", "c", "--json"]);
        assert_eq!((why.code, seen(&why)), (i32::from(waited == 0), waited), "{why:?}");
        assert!(why.stderr.starts_with(&stderr), "{why:?}");
        if waited > 0 {
            let json: Value = serde_json::from_str(&why.stdout).expect("JSON");
            assert_eq!(json["unreadable"], json!(left_out));
        }
    }
    server.cmd(&monitor("~of-*")).ok();
    for args in [&["ls", "of-*"][..], &["top", "of-*"], &["why", "c", "of-*"], &["graph", "of-*"]] {
        let found = call(args);
        assert_eq!((found.code, found.stderr.as_str()), (0, ""), "{args:?}: {found:?}");
        assert!(found.stdout.contains("of-b") && !found.stdout.contains("fair"), "{found:?}");
    }
    let json: Value =
        serde_json::from_str(&call(&["graph", "--json", "of-a"]).stdout).expect("JSON");
    assert_eq!((json["waits"].as_array().map(Vec::len), &json["unreadable"]), (Some(1), &json!(0)));
    // Without the right to ask, nothing is found.
    server.cmd(&["ACL", "SETUSER", "monitor", "-scan"]).ok();
    assert_eq!(call(&["ls"]).code, 69);
}
