//! `dlock ls`, `info` and `waiters`, as tables and as JSON.

use dlock_testing::{Reply as _, Server, args};
use serde_json::{Value, json};

use crate::command::{output, stdout};
use crate::tmux::Tmux;

/// The words of each line. The tests of the tables check the alignment.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// Sets numbers that differ between runs to 0.
fn still(mut value: Value) -> Value {
    const MOVING: [&str; 7] =
        ["ttl-ms", "held-ms", "token", "waiting-ms", "remaining-ms", "client-id", "id"];
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let moves = MOVING.contains(&name.as_str()) && !field.is_null();
                *field = if moves { json!(0) } else { still(field.take()) };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = still(item.take())),
        _ => {}
    }
    value
}

fn json(server: &Server, args: &[&str]) -> Value {
    still(serde_json::from_str(&stdout(server, args)).expect("JSON"))
}

/// One key of each family.
fn one_of_each(server: &Server) {
    let hour = "3600000";
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", hour, "LABEL", "night run"]).ok();
    server.cmd(&["DFAIR.ACQUIRE", "printer", "bob", "PX", hour]).ok();
    server.cmd(&["DRW.ACQUIRE", "page", "alice", "READ", "PX", hour]).ok();
    server.cmd(&["DRW.ACQUIRE", "page", "b b", "READ", "PX", hour]).ok();
    server.cmd(&["DSEM.ACQUIRE", "licences", "alice", "LIMIT", "3", "COUNT", "2", "PX", hour]).ok();
    server.cmd(&["DLATCH.INIT", "ready", "2"]).ok();
}

#[test]
fn ls_shows_all_families() {
    let server = Server::start();
    server.cmd(&["SET", "no-lock", "1"]).ok();
    one_of_each(&server);
    let text = stdout(&server, &["ls"]);
    assert_eq!(
        rows(&text),
        [
            vec!["KEY", "KIND", "HELD", "BY", "LEFT", "WAITERS", "LABEL"],
            vec!["door", "dlock", "alice", "59m59s", "0", "\"night", "run\""],
            vec!["licences", "dsem", "2", "of", "3", "permits", "-", "0", "-"],
            vec!["page", "drw", "2", "readers", "59m59s", "0", "-"],
            vec!["printer", "dfair", "bob", "59m59s", "0", "-"],
            vec!["ready", "dlatch", "2", "of", "2", "to", "go", "-", "0", "-"],
        ],
        "{text}"
    );
    let starts: Vec<_> = text.lines().map(|line| line.find("59m59s").unwrap_or(0)).collect();
    assert_eq!(starts, [0, starts[1], 0, starts[1], starts[1], 0], "not aligned:\n{text}");
    assert_eq!(rows(&stdout(&server, &["ls", "p*"])).len(), 3);
    assert_eq!(
        json(&server, &["ls", "--json", "d*"]),
        json!([{
            "key": "door", "kind": "dlock", "waiters": 0, "closed-ms": 0, "observers": 0,
            "reserved-for": "",
            "holders": [{
                "owner": "alice", "token": 0, "holds": 1, "lease-ms": 3_600_000, "ttl-ms": 0,
                "held-ms": 0, "label": "night run", "bound-client": null
            }]
        }])
    );
}

#[test]
fn nothing_is_an_empty_list() {
    let server = Server::start();
    let none = output(&server, &["ls", "x*"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert_eq!(none.stderr, "dlock: no lock matches \"x*\"\n");
    assert_eq!(stdout(&server, &["ls", "--json"]), "[]\n");
    let none = output(&server, &["waiters", "k"]);
    assert_eq!((none.code, none.stderr.as_str()), (0, "dlock: nobody waits for \"k\"\n"));
    assert_eq!(stdout(&server, &["waiters", "k", "--json"]), "[]\n");
    let none = output(&server, &["info", "k", "--json"]);
    assert_eq!((none.code, none.stderr.as_str()), (1, "dlock: there is no lock \"k\"\n"));
}

#[test]
fn ls_of_many_is_complete() {
    let server = Server::start();
    let mut client = server.client();
    let calls: Vec<_> = (0..3000).map(|n| args!["DLOCK.ACQUIRE", format!("k{n}"), "a"]).collect();
    client.pipeline(&calls);
    assert_eq!(stdout(&server, &["ls"]).lines().count(), 3001);
    server.cmd(&["FLUSHALL"]).ok();
}

#[test]
fn ls_looks_at_all_nodes_of_a_cluster() {
    let nodes = [(); 2].map(|()| Server::with(&[]).cluster_without_slots().start());
    nodes[0].add_slots(0, 8191);
    nodes[1].add_slots(8192, 16383);
    nodes[0].meet(&nodes[1]);
    nodes.iter().for_each(Server::wait_cluster_ok);
    let url = format!("redis-cluster://127.0.0.1:{}", nodes[0].port());
    let keys: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
    for key in &keys {
        let node = &nodes[usize::from(nodes[0].slot(key) > 8191)];
        node.cmd(&["DLOCK.ACQUIRE", key, "a"]).ok();
    }
    let text = stdout(&nodes[0], &["--url", &url, "ls"]);
    let shown: Vec<&str> = rows(&text).iter().skip(1).map(|row| row[0]).collect();
    assert_eq!(shown, keys);
    let run = |key| output(&nodes[0], &["--url", &url, "run", "-n", key, "--", "true"]).code;
    assert_eq!((run("k0"), run("k1"), run("other"), run("{other}")), (1, 1, 0, 0));
    for key in &keys {
        assert_eq!(
            stdout(&nodes[0], &["--url", &url, "break", key]),
            format!("broken: 1 hold of {key}\n")
        );
    }
    let unblock = output(&nodes[0], &["--url", &url, "unblock", "7"]);
    assert_eq!(unblock.code, 64, "{}", unblock.stderr);
}

#[test]
fn info_of_each_family() {
    let server = Server::start();
    one_of_each(&server);
    let text = stdout(&server, &["info", "door"]);
    let (page, holders) = text.split_once("\n\n").expect("two parts");
    assert_eq!(
        page,
        "key        door\nkind       dlock, a re-entrant lock\nheld by    alice\nwaiters    0"
    );
    let holders = rows(holders);
    assert_eq!(holders[0], ["OWNER", "TOKEN", "HOLDS", "LEASE", "LEFT", "HELD", "CLIENT", "LABEL"]);
    assert_eq!((holders[1][0], holders[1][2], holders[1][3]), ("alice", "1", "1h00m"));

    let text = stdout(&server, &["info", "page"]);
    assert!(text.starts_with(
        "key        page\nkind       drw, a read-write lock\nmode       read\nwaiters    0\n"
    ));
    let words: Vec<_> = rows(&text).into_iter().skip(6).map(|row| row[..2].join(" ")).collect();
    assert_eq!(words, ["read alice", "read \"b"]);

    let text = stdout(&server, &["info", "licences"]);
    let id = server.cmd(&["DSEM.PERMITS", "licences"]).items()[0].field("id").text();
    assert!(
        text.contains("capacity   3\navailable  1\nleased     2\ntaken      0\nwaiters    0\n"),
        "{text}"
    );
    assert_eq!(rows(&text)[9][..3], [id.as_str(), "alice", "2"]);

    assert_eq!(
        stdout(&server, &["info", "ready"]),
        "key        ready\nkind       dlatch, a count-down latch\ncount      2\ninitial    2\n\
         left       no end is set\nwaiters    0\n"
    );
    assert!(
        stdout(&server, &["info", "printer"])
            .contains("kind       dfair, a lock with a durable queue\n")
    );
}

#[test]
fn info_as_json() {
    let server = Server::start();
    one_of_each(&server);
    let of = |key: &str| json(&server, &["info", "--json", key]);
    let hold = |mode: &str, owner: &str| {
        json!({"mode": mode, "owner": owner, "token": 0, "holds": 1, "lease-ms": 3_600_000,
            "ttl-ms": 0, "held-ms": 0, "label": "", "bound-client": null})
    };
    assert_eq!(
        of("page"),
        json!({"key": "page", "kind": "drw", "waiters": 0, "mode": "read",
            "holders": [hold("read", "alice"), hold("read", "b b")]})
    );
    assert_eq!(
        of("licences"),
        json!({"key": "licences", "kind": "dsem", "waiters": 0, "capacity": 3, "available": 1,
            "leased": 2, "taken": 0, "permits": [{"id": 0, "owner": "alice", "count": 2,
            "ttl-ms": 0, "held-ms": 0, "label": "", "bound-client": null}]})
    );
    assert_eq!(
        of("ready"),
        json!({"key": "ready", "kind": "dlatch", "waiters": 0, "count": 2, "initial": 2, "ttl-ms": null})
    );
}

#[test]
fn waiters_in_order() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder"]).ok();
    let bob = server.block(&["DLOCK.ACQUIRE", "k", "bob", "BLOCK", "0", "LABEL", "first"]);
    let absent = server.client().cmd(&["DLOCK.ACQUIRE", "k", "gone", "QUEUE", "100000"]);
    assert!(absent.is_null());
    let text = stdout(&server, &["waiters", "k"]);
    let found = rows(&text);
    assert_eq!(found[0], ["PLACE", "OWNER", "CLIENT", "WAITING", "LEFT", "LABEL"]);
    let id = bob.id().to_string();
    assert_eq!(
        (found[1][..3].to_vec(), found[1][4..].to_vec()),
        (vec!["1", "bob", &id], vec!["no", "end", "first"])
    );
    assert_eq!(found[2][..2], ["2", "gone"]);
    assert_eq!(rows(&stdout(&server, &["waiters", "k", "--count", "1"])).len(), 2);
    let first = &json(&server, &["waiters", "--json", "k"])[0];
    assert_eq!(
        *first,
        json!({"owner": "bob", "client-id": 0, "waiting-ms": 0, "remaining-ms": null, "label": "first"})
    );
    server.cmd(&["DEL", "k"]).ok();
}

#[test]
fn a_semaphore_with_waiters_that_does_not_exist_yet() {
    let server = Server::start();
    let _waiter = server.block(&["DSEM.ACQUIRE", "s", "bob", "BLOCK", "0"]);
    assert_eq!(rows(&stdout(&server, &["waiters", "s"]))[1][1], "bob");
    assert!(stdout(&server, &["info", "s"]).contains("capacity   0\n"));
}

#[test]
fn bytes_that_are_not_text() {
    let server = Server::start();
    let (key, owner) = (&b"a\xff"[..], &b"\x00\"o\""[..]);
    server.cmd(&args!["DLOCK.ACQUIRE", key, owner]).ok();
    let text = stdout(&server, &["ls"]);
    assert_eq!(rows(&text)[1][..3], [r#""a\xff""#, "dlock", r#""\x00\"o\"""#]);
    let found = json(&server, &["ls", "--json"]);
    assert_eq!(
        (&found[0]["key"], &found[0]["holders"][0]["owner"]),
        (&json!({"hex": "61ff"}), &json!("\0\"o\""))
    );
    server.cmd(&args!["DEL", key]).ok();
}

#[test]
fn a_long_key_is_shown_whole() {
    let server = Server::start();
    let key = "long ".repeat(100);
    server.cmd(&["DLOCK.ACQUIRE", &key, "a"]).ok();
    assert!(stdout(&server, &["ls"]).contains(&format!("\"{key}\"")));
    assert!(stdout(&server, &["info", &key]).contains(&format!("\"{key}\"")));
    server.cmd(&["DEL", &key]).ok();
}

#[test]
fn a_terminal_cuts_what_is_long() {
    let server = Server::start();
    let key = "long-".repeat(40);
    server.cmd(&["DLOCK.ACQUIRE", &key, "alice", "PX", "600000", "LABEL", "night"]).ok();
    let token = server.cmd(&["DLOCK.INFO", &key]).field("token").int().to_string();
    let terminal = Tmux::open(&server);
    terminal.line("clear; dlock ls; dlock waiters 'long*'");
    let screen = terminal.wait_for("nobody waits for");
    let row = screen.lines().find(|line| line.starts_with("long-")).expect("a row");
    let words: Vec<&str> = row.split_whitespace().collect();
    assert!(words[0].ends_with('…') && row.chars().count() <= 100, "{screen}");
    assert_eq!((&words[1..3], words[5]), (&["dlock", "alice"][..], "night"), "{screen}");
    // The token is whole, whatever the owner.
    terminal.line("clear; dlock info $(printf 'long-%.0s' $(seq 40))");
    terminal.wait_for(&token);
    // A pipe gets all of it.
    terminal.line("clear; dlock ls | wc -L");
    terminal.wait_until("the width", |screen| {
        screen.lines().any(|line| line.trim().parse::<usize>().is_ok_and(|width| width > 200))
    });
    server.cmd(&["DEL", &key]).ok();
}

#[test]
fn a_key_of_another_type_is_no_lock() {
    let server = Server::start();
    server.cmd(&["SET", "str", "1"]).ok();
    for command in ["info", "waiters", "break"] {
        let output = output(&server, &[command, "str"]);
        assert_eq!(output.code, 69);
        assert!(output.stderr.contains("\"str\": WRONGTYPE"), "{}", output.stderr);
    }
}

#[test]
fn a_reader_that_has_seen_enough() {
    let server = Server::start();
    let mut client = server.client();
    let calls: Vec<_> =
        (0..5000).map(|n| args!["DLOCK.ACQUIRE", format!("key-number-{n}"), "a"]).collect();
    client.pipeline(&calls);
    let script = format!("'{}' ls | head -1; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_dlock"));
    let shell = std::process::Command::new("bash")
        .args(["-c", &script])
        .env("DLOCK_URL", server.url())
        .output()
        .expect("bash");
    assert_eq!(String::from_utf8_lossy(&shell.stderr), "");
    assert!(String::from_utf8_lossy(&shell.stdout).ends_with("\n141\n"), "{shell:?}");
    server.cmd(&["FLUSHALL"]).ok();
}
